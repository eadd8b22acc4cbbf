// SPDX-License-Identifier: GPL-2.0
//! Connections that begin as TCP and are brought to SMC-R: bytes go both ways until they are. TCP's pair gets the same
//! bytes. All of them are read at once, so that a sequence goes on as if there had been none.

use crate::model::Model;
use crate::pair::Pair;
use st::errno::{Errno, R};
use st::rng::Rng;
use st::{smcinfo, sys};
use std::time::{Duration, Instant};

/// How a sequence comes to be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// By its own bytes, wherever that is.
    Alone,
    /// Before this step.
    Before(u64),
}

impl When {
    /// Draws it for a sequence: most often before it begins.
    pub fn draw(r: &mut Rng) -> When {
        match r.range(0, 19) {
            0..=2 => When::Alone,
            3..=4 => When::Before(r.range(1, 8)),
            _ => When::Before(0),
        }
    }
}

/// Longest wait for a promotion.
const LIMIT: Duration = Duration::from_millis(400);
/// The first pause between two rounds, and the longest, in microseconds.
const NAP: (u64, u64) = (50, 1000);

/// Tells whether SMC-R carries an end.
pub fn is_smc_at(pair: &Pair, end: usize) -> bool {
    smcinfo::info(pair.raw(end)).is_ok_and(|info| info.mode == 0)
}

/// Tells whether SMC-R carries both ends.
pub fn is_smc(pair: &Pair) -> bool {
    (0..2).all(|end| is_smc_at(pair, end))
}

/// Tells whether bytes may go both ways without a trace, and nothing keeps the connection on TCP that a program sees.
pub fn may(pairs: &[Pair; 2], m: &Model) -> bool {
    let option = |fd, name| sys::getopt(fd, libc::SOL_SOCKET, name);
    (0..2).all(|end| {
        let (e, fd) = (&m.ends[end], pairs[0].raw(end));
        let plain = e.open && !e.shut_write && !e.shut_read && !e.corked && !e.held && !e.full;
        plain
            && m.unread(end) == 0
            && e.mark.is_none()
            && option(fd, libc::SO_RCVLOWAT) == Ok(1)
            && option(fd, libc::SO_PEEK_OFF) == Ok(-1)
    }) && !m.reset
}

/// Has a byte go from one end to the other one.
fn pass(pair: &Pair, from: usize, byte: u8) -> Result<(), String> {
    let to = 1 - from;
    // While a connection goes back to TCP there is no room.
    let ready = |end, events| sys::poll1(pair.raw(end), events, 10_000);
    let send = || -> R<i64> {
        ready(from, libc::POLLOUT)?;
        sys::send(
            pair.raw(from),
            &[byte],
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    let read = || -> R<Vec<u8>> {
        ready(to, libc::POLLIN)?;
        sys::recv_vec(pair.raw(to), 2, libc::MSG_DONTWAIT)
    };
    let fail = |what: &str, e: Errno| format!("end {from} to {to}: {what}: {e}");
    send().map_err(|e| fail("sending", e))?;
    match read().map_err(|e| fail("reading", e))? {
        got if got == [byte] => Ok(()),
        got => Err(format!("end {to} has read {got:x?}, not {byte:x}")),
    }
}

/// Brings the second pair to SMC-R, if that comes about soon. Returns whether it did.
///
/// # Errors
/// A byte that did not arrive.
pub fn promote(pairs: &[Pair; 2]) -> Result<bool, String> {
    let until = Instant::now() + LIMIT * st::guest::slow() as u32;
    let mut nap = NAP.0;
    for round in 0u64.. {
        if is_smc(&pairs[1]) {
            return Ok(true);
        }
        if Instant::now() > until {
            break;
        }
        for (from, byte) in [(0, 2 * round), (1, 2 * round + 1)] {
            for (pair, name) in pairs.iter().zip(["tcp", "here"]) {
                pass(pair, from, byte as u8).map_err(|e| format!("{name}, round {round}: {e}"))?;
            }
        }
        std::thread::sleep(Duration::from_micros(nap));
        nap = (nap * 3 / 2).min(NAP.1);
    }
    Ok(false)
}
