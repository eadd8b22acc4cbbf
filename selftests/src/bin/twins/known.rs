// SPDX-License-Identifier: GPL-2.0
//! What is known to differ over SMC-R, by the names that Documentation/programmer.md has in its table
//! "What a program sees of an SMC-R connection that it would not see of TCP". Anything else fails.

use crate::look::Sight;
use crate::model::Model;
use crate::pair::Answer;
use crate::step::{Step, Way};

/// How a sequence goes on after a known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// As if both had answered the same.
    On,
    /// Not at all: what follows depends on it.
    End,
}

/// A known difference: its name, and what follows.
pub type Known = (&'static str, Then);

const CLOSED: &str = "first send after the peer has closed its socket";
const URGENT: &str = "send after an urgent byte that the peer has not read";
const EDGE: &str = "edge-triggered epoll";
const HALFWAY: &str = "recvmsg() into memory that ends halfway";
const ROOM: &str = "bytes under way that nobody reads";

const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Whether two answers to a step differ as is known.
pub fn answer(m: &Model, step: &Step, tcp: &Answer, smc: &Answer) -> Option<Known> {
    let end = step.end()?;
    let failed = |what: &str| smc.text.starts_with(what);
    if step.sends() && m.is_deserted(end) && tcp.count.is_some_and(|n| n > 0) && failed("EPIPE") {
        return Some((CLOSED, Then::End));
    }
    if step.sends() && m.is_urgent_waiting(end) && tcp.count.is_some_and(|n| n > 0) && failed("EAGAIN")
    {
        return Some((URGENT, Then::End));
    }
    match *step {
        Step::Wait { end } if m.ends[end].edge && tcp.text == "0" && smc.text != "0" => {
            Some((EDGE, Then::On))
        }
        Step::Recv { way: Way::Fault, .. } if tcp.text == "EFAULT" && smc.count.is_some() => {
            Some((HALFWAY, Then::End))
        }
        _ => None,
    }
}

/// Whether what an end shows differs as is known.
pub fn sight(m: &Model, end: usize, tcp: &Sight, smc: &Sight) -> Option<&'static str> {
    let same_but = |mask: i16| tcp.events & !mask == smc.events & !mask;
    if m.is_urgent_waiting(end) && same_but(OUT) && smc.events & OUT == 0 && tcp.counts == smc.counts
    {
        return Some(URGENT);
    }
    if m.ends[end].full && same_but(OUT) || m.ends[1 - end].full && same_but(0) {
        return Some(ROOM);
    }
    None
}
