// SPDX-License-Identifier: GPL-2.0
//! Checks what `SMC_NETLINK_GET_STATS` counts of calls that get less than they ask for, of urgent bytes, of
//! TCP_CORK, and of bytes that are looked at twice: as the C module counts.

use crate::counted::{carry, class, grows, option, received, sent};
use crate::counted::{RING, RX_CALLS, TX_BYTES, TX_CALLS, TX_SIZES};
use crate::ends::{self, failed, same};
use st::errno::Errno;
use st::fd::Fd;
use st::sys;

/// Numbers of `SMC_NLA_STATS_T_…`.
const CORKS: u16 = 13;
const URGENT: u16 = 15;

/// A receive's class is by what it got, not by its buffer.
pub fn got_less(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    for (len, buffer) in [(10, 1 << 21), (9000, 65536), (20000, 1 << 20)] {
        grows(|| {
            carry(&pair[0], &pair[1], len)?;
            let got = sys::recv_vec(pair[1].raw(), buffer, 0).map_err(failed)?;
            same("got", got.len(), len)?;
            Ok([sent(len), received(len)])
        })?;
    }
    Ok(())
}

/// A receive that finds nothing is a call, and no message; so is the end of the stream.
pub fn got_nothing(listener: &Fd) -> Result<(), String> {
    let [client, server] = ends::pair(listener)?;
    grows(|| {
        let got = sys::recv_vec(server.raw(), 100, libc::MSG_DONTWAIT);
        same("got", got, Err(Errno(libc::EAGAIN)))?;
        Ok([vec![], vec![(RX_CALLS, 1)]])
    })?;
    grows(|| {
        sys::shutdown(client.raw(), libc::SHUT_WR).map_err(failed)?;
        same("end", sys::recv_vec(server.raw(), 100, 0), Ok(vec![]))?;
        Ok([vec![], vec![(RX_CALLS, 1)]])
    })
}

/// A send that is taken in part counts what was taken, in the class of what was asked for; one that
/// is not taken is a call, and no message.
pub fn sent_less(listener: &Fd) -> Result<(), String> {
    const ASKED: usize = (1 << 20) + 1;
    let pair = ends::pair(listener)?;
    grows(|| {
        let (mut taken, mut calls, mut messages, mut refused) = (0, 0, 0, 0);
        // Thrice in a row: what is on its way makes no more room then.
        while refused < 3 {
            calls += 1;
            match sys::send(pair[0].raw(), &vec![5; ASKED], libc::MSG_DONTWAIT) {
                Ok(n) => (taken, messages, refused) = (taken + n as u64, messages + 1, 0),
                Err(Errno(libc::EAGAIN)) => refused += 1,
                Err(e) => return Err(e.to_string()),
            }
            sys::sleep_ms(30);
        }
        same("more than a buffer", taken > RING, true)?;
        let class = (class(TX_SIZES, ASKED), messages);
        Ok([vec![(TX_BYTES, taken), (TX_CALLS, calls), class], vec![]])
    })
}

/// An urgent byte: sent, and received out of band, each counted as such and as a message.
pub fn urgent(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    grows(|| {
        same("sent", sys::send(pair[0].raw(), b"!", libc::MSG_OOB), Ok(1))?;
        let there = sys::poll_until(pair[1].raw(), libc::POLLPRI, 5000);
        same("there", there & libc::POLLPRI, libc::POLLPRI)?;
        Ok([[sent(1), vec![(URGENT, 1)]].concat(), vec![]])
    })?;
    grows(|| {
        let got = sys::recv_vec(pair[1].raw(), 1, libc::MSG_OOB);
        same("got", got, Ok(b"!".to_vec()))?;
        Ok([vec![], [received(1), vec![(URGENT, 1)]].concat()])
    })
}

/// Each time that TCP_CORK is cleared, for then what it held back is sent.
pub fn cork(listener: &Fd) -> Result<(), String> {
    option(listener, libc::TCP_CORK, (CORKS, 0), (CORKS, 1))
}

/// Checks that peeked bytes are counted as often as a program got them.
pub fn peek(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    grows(|| {
        carry(&pair[0], &pair[1], 300)?;
        for flags in [libc::MSG_PEEK, 0] {
            let got = sys::recv_vec(pair[1].raw(), 300, flags).map_err(failed)?;
            same("got", got.len(), 300)?;
        }
        Ok([sent(300), [received(300), received(300)].concat()])
    })
}
