// SPDX-License-Identifier: GPL-2.0

//! An SMC-R connection as the loops of sendmsg() and recvmsg() see it.

use super::{put, take};
use crate::{
    host::stats::{Buffer, Stats, TrafficDirection},
    lane::{Ask, Lane, Look, Put, Stop}, //
    smcr::SmcConn,
};
use kapi::net::{args::Message, sock::Sock};
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{RecvState, SendError, UrgentError};

impl Lane for Arc<SmcConn> {
    const HIDES_URGENT: bool = true;

    #[inline]
    fn sock(&self) -> &Sock {
        SmcConn::sock(self)
    }

    #[inline]
    fn stats(&self) -> Option<&Stats> {
        Some(SmcConn::stats(self))
    }

    fn device(&self, _carried: bool) -> [u8; 64] {
        self.group().device().name()
    }

    fn left(&self) -> u32 {
        self.proto.lock().left()
    }

    #[cold]
    fn tell(&self, msg: &mut Message<'_>, got: usize) {
        if got > 0 && self.sock().wants_stamps() {
            self.tell_stamp(msg);
        }
        if self.sock().wants_count() {
            self.sock().put_count(msg, self.left());
        }
    }

    #[inline]
    fn notice_dead(&self) -> bool {
        self.notice_tcp_dead()
    }

    #[inline(always)]
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
        take::take(self, msg, ask)
    }

    fn take_urgent(&self, peek: bool) -> (bool, Result<u8, UrgentError>) {
        take::take_urgent(self, peek)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.news.get() == 0 && !self.is_tcp_dead()
    }

    #[inline]
    fn is_readable(&self, seen: usize) -> bool {
        let proto = self.proto.lock();
        match proto.recv_state() {
            RecvState::Data(there) if there as usize > seen => true,
            RecvState::Data(_) => SmcConn::is_read_shut(self) || !proto.directions().hearing,
            RecvState::Empty => SmcConn::is_read_shut(self),
            _ => true,
        }
    }

    fn is_all(&self, seen: usize) -> bool {
        take::is_all(self, seen)
    }

    fn is_hearing(&self) -> bool {
        self.proto.lock().directions().hearing
    }

    fn is_read_shut(&self) -> bool {
        SmcConn::is_read_shut(self)
    }

    fn is_cut(&self) -> bool {
        self.proto.lock().is_cut()
    }

    fn is_spliced(&self, msg: &Message<'_>) -> bool {
        SmcConn::is_spliced(self, msg)
    }

    #[inline(always)]
    fn put(&self, msg: &mut Message<'_>, what: &Put<'_>) -> Result<(usize, bool), Stop> {
        put::put(self, msg, what)
    }

    fn is_writable(&self) -> bool {
        match self.proto.lock().send_room() {
            Err(SendError::Full) => false,
            Ok(_) => !self.is_hungry(),
            Err(_) => true,
        }
    }

    fn is_talking(&self) -> bool {
        self.proto.lock().directions().talking
    }

    fn count_size(&self, total: usize) {
        put::count_size(self, total);
    }

    fn count_full(&self) {
        let stats = SmcConn::stats(self);
        if !self.is_hungry() {
            stats.buffer(TrafficDirection::Tx, Buffer::Full);
        }
        if self.proto.lock().is_peer_full() {
            stats.buffer(TrafficDirection::Tx, Buffer::PeerFull);
        }
    }
}
