// SPDX-License-Identifier: GPL-2.0

//! `TCP_INFO`: TCP's own answer, with the bytes of the program that have not gone by TCP.
//!
//! The other counters are about packets, and there are none.

use crate::socket::SmcSock;
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
        if let Some(remote) = socket.remote() {
            // TCP has carried what the two kernels have said when rings were left, too.
            let by = |bytes: u64| bytes.wrapping_sub(remote.overhead());
            let [sent, acked, received] = remote.carried().map(by);
            return Self {
                all: false,
                sent,
                acked,
                received,
            };
        }
        if let Some(conn) = socket.smc() {
            let Positions {
                sent,
                completed,
                received,
                ..
            } = conn.proto.lock().positions();
            return Self {
                all: true,
                sent,
                acked: completed,
                received,
            };
        }
        // What is in a ring has arrived.
        let (sent, received) = socket.local().map_or((0, 0), |local| local.carried());
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
