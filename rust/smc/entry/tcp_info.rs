// SPDX-License-Identifier: GPL-2.0

//! `TCP_INFO`: TCP's own answer, with the bytes of the program that have not gone by TCP.
//!
//! The other counters are about packets, and there are none.

use crate::{smcr::group::MARKS, socket::SmcSock};
use kapi::net::{
    args::GetOption,
    socket::BsdSocket,
    uapi::tcp_info::{BYTES_ACKED, BYTES_RECEIVED, BYTES_SENT}, //
};
use kernel::prelude::*;
use smc_proto::conn::Positions;

/// Bytes that have not gone by TCP.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    /// All that TCP has carried are messages of the handshake.
    all: bool,
    sent: u64,
    acked: u64,
    received: u64,
}

impl Moved {
    /// Returns those of `socket`.
    pub(crate) fn of(socket: &SmcSock) -> Self {
        if let Some(conn) = socket.smc() {
            let Positions {
                sent,
                completed,
                received,
                ..
            } = conn.proto.lock().positions();
            // What the two kernels have said is not the program's.
            let marks = match socket.remote() {
                Some(_) => MARKS as u64,
                None => 0,
            };
            return Self {
                all: socket.remote().is_none(),
                sent: sent.saturating_sub(marks),
                acked: completed.saturating_sub(marks),
                received: received.saturating_sub(marks),
            };
        }
        // What is in a ring has arrived.
        let (sent, received) = match (socket.local(), socket.remote()) {
            (Some(local), _) => local.carried(),
            (None, Some(remote)) => remote.carried(),
            (None, None) => (0, 0),
        };
        Self {
            all: false,
            sent,
            acked: sent,
            received,
        }
    }

    fn is_none(self) -> bool {
        !self.all && self.sent | self.received == 0
    }
}

/// Answers with TCP's counters and `moved`.
///
/// # Errors
///
/// TCP's; `EFAULT` when user memory cannot be used.
pub(crate) fn get(socket: &BsdSocket, option: &GetOption<'_>, moved: Moved) -> Result {
    socket.native_getsockopt(option)?;
    if moved.is_none() {
        return Ok(());
    }
    for (at, by) in [
        (BYTES_ACKED, moved.acked),
        (BYTES_RECEIVED, moved.received),
        (BYTES_SENT, moved.sent),
    ] {
        option.change(at, |tcp| match moved.all {
            true => by,
            false => tcp.wrapping_add(by),
        })?;
    }
    Ok(())
}
