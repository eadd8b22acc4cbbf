// SPDX-License-Identifier: GPL-2.0

//! Arrival times of bytes, for `SO_TIMESTAMP`.

use super::SmcConn;
use kapi::{net::args::Message, sys::clock};
use kernel::sync::atomic::{Atomic, Relaxed};
use smc_proto::conn::Conn;

/// Time of the latest arrival that was stamped. Written and read under the lock of
/// [`SmcConn::proto`].
pub(super) struct Stamp {
    /// Bytes received until then, in all; 0 without an arrival.
    received: Atomic<u64>,
    /// Nanoseconds since 1970.
    time: Atomic<u64>,
}

impl Stamp {
    pub(super) const fn new() -> Self {
        Self {
            received: Atomic::new(0),
            time: Atomic::new(0),
        }
    }
}

impl SmcConn {
    /// Notes the time if a message has announced bytes beyond the `before` received until then.
    /// Softirq.
    #[cold]
    pub(super) fn stamp(&self, proto: &Conn, before: u64) {
        let received = proto.received();
        if received != before {
            self.stamp.received.store(received, Relaxed);
            self.stamp.time.store(clock::wall_nanos(), Relaxed);
        }
    }

    /// Adds the arrival time of the latest bytes to the result of recvmsg(). For a program that has
    /// asked for it later this is the present time, as with a datagram socket.
    #[cold]
    pub(crate) fn tell_stamp(&self, msg: &mut Message<'_>) {
        let stamped = {
            let proto = self.proto.lock();
            let same = self.stamp.received.load(Relaxed) == proto.received();
            same.then(|| self.stamp.time.load(Relaxed))
        };
        self.sock
            .put_stamp(msg, stamped.unwrap_or_else(clock::wall_nanos));
    }
}
