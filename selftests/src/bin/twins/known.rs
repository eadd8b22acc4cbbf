// SPDX-License-Identifier: GPL-2.0
//! Known differences from TCP, by their names in Documentation/programmer.md: of SMC-R in the table "What a
//! program sees of an SMC-R connection that it would not see of TCP", of a local path in "What differs on a
//! local path". Each is asked for on its own carrier alone. Anything else fails, and so do wrong bytes.

use crate::look::Sight;
use crate::model::Model;
use crate::pair::Answer;
use crate::step::{Step, Way};

/// Continuation of a sequence after a known difference.
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
const EDGE: &str = "edge-triggered epoll at the peer's close";
const ENDED: &str = "edge-triggered epoll after the program's own end";
const MOVED: &str = "edge-triggered epoll when the connection changes carriers";
const HALFWAY: &str = "recvmsg() into memory that ends halfway";
const FROM: &str = "sendmsg() from memory that ends halfway";
const ROOM: &str = "bytes under way that nobody reads";

const PAGES: &str = "splice() of more than a page";
const HELD: &str = "bytes that are held back";
const INLINE: &str = "SO_OOBINLINE set where the urgent byte is next";
const OVERTAKEN: &str = "an urgent byte behind another one that is unread";
const PASSED: &str = "POLLPRI after an urgent byte that a failed recvmsg() passed";
const QUEUE: &str = "SIOCOUTQ after a reset";

/// Where `SIOCOUTQ` is among what was asked.
const QUEUED: usize = 2;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Returns the known difference between two answers to a step, if they differ by one.
pub fn answer(m: &Model, step: &Step, tcp: &Answer, smc: &Answer) -> Option<Known> {
    let end = step.end()?;
    let failed = |what: &str| smc.text.starts_with(what);
    let rdma = !m.local;
    // TCP copies first, and then looks whether there is anybody, or room.
    let takes = tcp.count.is_some_and(|n| n > 0) || tcp.text == "EFAULT";
    if rdma && step.sends() && m.is_deserted(end) && takes && failed("EPIPE") {
        return Some((CLOSED, Then::End));
    }
    if rdma && step.sends() && m.is_deserted(end) && failed("0") && tcp.text.starts_with("EPIPE") {
        // TCP has been told by what it had held back.
        return Some((CLOSED, Then::End));
    }
    if rdma && step.sends() && m.is_urgent_waiting(end) && takes && failed("EAGAIN") {
        return Some((URGENT, Then::End));
    }
    let polls = matches!(step, Step::Poll { .. } | Step::Wait { .. });
    // More or less of it; of a local path that has turned back, TCP may hold some, too, which a reset drops.
    let lacks = failed("EAGAIN") || m.reset && failed("ECONNRESET");
    if m.ends[1 - end].held && step.receives() && (rdma || polls || smc.count.is_some() || lacks) {
        return Some((HELD, Then::End));
    }
    let room = without_room(&tcp.text) == without_room(&smc.text);
    if rdma && polls && m.is_urgent_waiting(end) && room {
        return Some((URGENT, Then::On));
    }
    let hears = step.sends() || step.receives() || matches!(step, Step::Get { .. });
    if (m.local || m.lost && m.reset) && asks_late(m) && hears {
        return Some((HELD, Then::End));
    }
    if (m.local || m.turns) && m.ends[1 - end].overtaken && step.receives() {
        return Some((OVERTAKEN, Then::End));
    }
    match *step {
        Step::Wait { end }
            if rdma && m.ends[end].edge && tcp.text == "0" && smc.text.contains("RDHUP") =>
        {
            Some((EDGE, Then::On))
        }
        Step::Wait { end }
            if rdma
                && m.ends[end].edge
                && m.ends[end].shut_write
                && smc.text == "0"
                && tcp.text.contains("HUP") =>
        {
            Some((ENDED, Then::On))
        }
        Step::Wait { end }
            if m.turns && m.ends[end].edge && tcp.text == "0" && smc.text == "OUT" =>
        {
            Some((MOVED, Then::On))
        }
        Step::Recv {
            way: Way::Fault, ..
        } if smc.count.is_some()
            && (tcp.text == "EFAULT" || tcp.count.is_some() && tcp.count < smc.count) =>
        {
            Some((HALFWAY, Then::End))
        }
        // TCP's answer depends on how the bytes were cut into packets.
        Step::Recv {
            way: Way::Fault, ..
        } if m.by_tcp && tcp.count > smc.count && (smc.count.is_some() || failed("EFAULT")) => {
            Some((HALFWAY, Then::End))
        }
        // TCP has taken what filled up a block of its memory, of 32 KiB, which is the thread's and not the socket's.
        Step::Send {
            way: Way::Fault, ..
        } if m.local && tcp.count.is_some_and(|n| n > 0) && failed("EFAULT") => {
            Some((FROM, Then::End))
        }
        Step::SpliceOut { .. } if tcp.count > smc.count && smc.count.is_some_and(is_pages) => {
            Some((PAGES, Then::End))
        }
        _ => None,
    }
}

/// Tells whether an end may have asked for the reset that a closed end answers with, or may still hold
/// the bytes back that ask.
fn asks_late(m: &Model) -> bool {
    (0..2).any(|end| m.ends[end].held && m.is_deserted(end))
}

/// Tells whether `bytes` is a multiple of the page size other than 0.
fn is_pages(bytes: u64) -> bool {
    bytes > 0 && bytes % 4096 == 0
}

/// The events of an answer, but for those that say that there is room.
fn without_room(text: &str) -> Vec<&str> {
    let others = |word: &&str| !["OUT", "WRNORM", "-", "0"].contains(word);
    text.split('|').filter(others).collect()
}

/// Returns the known difference between the states of an end, if they differ by one.
pub fn sight(m: &Model, end: usize, tcp: &Sight, smc: &Sight) -> Option<Known> {
    let same_but = |mask: i16| tcp.events & !mask == smc.events & !mask;
    let counts = tcp.counts == smc.counts;
    let mut queued = smc.counts;
    queued[QUEUED].clone_from(&tcp.counts[QUEUED]);
    if (m.reset || (m.local || m.turns) && m.is_deserted(end))
        && same_but(0)
        && tcp.counts == queued
    {
        return Some((QUEUE, Then::On));
    }
    if (m.local || m.turns) && m.ends[1 - end].overtaken && tcp.counts != smc.counts {
        return Some((OVERTAKEN, Then::End));
    }
    let rdma = !m.local;
    let full = rdma && m.is_urgent_waiting(end) && smc.events & OUT == 0;
    let passed = libc::POLLPRI | if full { OUT } else { 0 };
    if m.urgent && counts && same_but(passed) && !m.is_urgent_waiting(1 - end) {
        // TCP's splice() does not take note that the mark is behind it, which a read into bad memory passed.
        return Some((PASSED, Then::End));
    }
    if m.local && asks_late(m) {
        return Some((HELD, Then::End));
    }
    if (m.local || m.turns) && m.ends[1 - end].held && m.reset && tcp.counts != smc.counts {
        // What TCP holds back is lost with the connection.
        return Some((HELD, Then::End));
    }
    if rdma && m.ends[end].inline && m.stands_at_mark(end) && tcp.counts != smc.counts {
        return Some((INLINE, Then::End));
    }
    if full && same_but(OUT) && counts {
        return Some((URGENT, Then::On));
    }
    if m.ends[end].full && same_but(OUT) || m.ends[1 - end].full && same_but(0) {
        return Some((ROOM, Then::On));
    }
    let died = libc::POLLERR | libc::POLLHUP;
    if rdma && asks_late(m) && same_but(died) && tcp.events & died != 0 {
        // What was held back is the send that TCP asks with.
        return Some((CLOSED, Then::End));
    }
    None
}
