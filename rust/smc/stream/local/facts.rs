// SPDX-License-Identifier: GPL-2.0

//! A local path as the loops of sendmsg() and recvmsg() see it.

use super::{
    fast_path::{self, READABLE, WRITABLE},
    pair::Local,
    put,
    take, //
};
use crate::{
    host::stats::Stats,
    stream::{Ask, Look, Put, Stop, StreamIo, Usual}, //
};
use kapi::{
    net::{
        args::{flags, Message, Poll, Splice},
        sock::{tcp_state, Sock},
        socket::BsdSocket,
        uapi::{SIOCATMARK, SIOCINQ}, //
    },
    sys::{
        clock,
        word::{full_barrier, read_barrier}, //
    }, //
};
use kernel::{prelude::*, sync::atomic::Relaxed};
use smc_proto::{
    conn::UrgentError,
    path::Head, //
};

impl Local {
    /// Tells whether nothing more will arrive: of an end, an error, or the program's own doing.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        let sock = self.own();
        let closed = sock.is_receive_shut() || sock.has_error();
        let over = closed || sock.state() == tcp_state::CLOSE || self.is_dissolved();
        if over {
            // A caller that looks for bytes after this sees all that came before the end.
            read_barrier();
        }
        over
    }
}

impl Usual for Local {
    // How much TCP holds is asked under its lock.
    const NEVER_SLEEPS_TO_LOOK: bool = false;

    #[inline]
    fn sock(&self) -> &Sock {
        self.own()
    }

    #[inline]
    fn stats(&self) -> Option<&Stats> {
        // Bytes that go by TCP are counted there; see `Local::carried`.
        None
    }

    #[inline]
    fn notice_dead(&self) -> bool {
        // All that is asked here is TCP's own state.
        false
    }

    #[inline(always)]
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
        take::take(self, msg, ask)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        let direction = self.inward();
        let route = direction.route();
        let nothing = match route.head() {
            Head::Ring => direction.there() == 0 && !route.ends() && !self.seems_astray(),
            Head::Tcp => !self.own().has_unread(),
            Head::Until(_) => false,
        };
        nothing && !self.is_over()
    }

    fn is_read_shut(&self) -> bool {
        self.own().is_receive_shut() && !self.own().has_seen_fin()
    }

    #[inline(always)]
    fn put(&self, msg: &mut Message<'_>, what: &Put<'_>) -> Result<(usize, bool), Stop> {
        put::put(self, msg, what)
    }

    fn can_send(&self) -> bool {
        self.own().may_send()
    }

    fn count_size(&self, _total: usize) {}
}

impl StreamIo for Local {
    const HIDES_URGENT: bool = false;

    fn splice(&self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        self.splices().add(1, Relaxed);
        let moved = socket.copy_splice(splice);
        self.splices().add(-1, Relaxed);
        moved
    }

    /// TCP's events, but for what the rings hold.
    fn poll(&self, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        // What is looked at from here on, and changes later, wakes the poller.
        socket.register(poll);
        if let Some(events) = fast_path::events(self, poll) {
            return events;
        }
        // TCP is asked first: if it reports the end of the stream, the ring is already complete.
        let native = socket.native_events(poll);
        let mut events = native;
        if self.ring_holds() && !self.is_over() && self.has_enough() {
            events |= READABLE;
        }
        let failed = native & (flags::EPOLLHUP | flags::EPOLLERR) != 0;
        if self.writes_ring() && !failed && poll.wants(WRITABLE) {
            events &= !WRITABLE;
            if self.has_room() {
                events |= WRITABLE;
            }
        }
        events
    }

    fn shutdown(&self, socket: &BsdSocket, how: i32) -> Result {
        self.without_writers(|| socket.native_shutdown(how))
    }

    fn ioctl(&self, command: u32) -> Option<i32> {
        if !self.ring_holds() {
            return None;
        }
        match command {
            SIOCINQ => Some(i32::try_from(self.readable()).unwrap_or(i32::MAX)),
            // The mark is in TCP's stream.
            SIOCATMARK => Some(0),
            _ => None,
        }
    }

    fn unread(&self) -> (usize, bool) {
        // In this order: what precedes an end is seen with it.
        let ended = self.own().has_seen_fin();
        (self.readable(), ended)
    }

    fn has_peer(&self) -> bool {
        // TCP decides.
        true
    }

    fn low_water_changed(&self) {
        // Between the new limit and the look at the bytes: a writer looks at them the other way round.
        full_barrier();
        if self.ring_holds() && self.has_enough() {
            self.own().wake_readers();
        }
    }

    fn device(&self, carried: bool) -> [u8; 64] {
        match carried {
            true => fast_path::name(),
            false => [0; 64],
        }
    }

    fn inq_bytes(&self) -> u32 {
        // In this order: what precedes an end is seen with it.
        let ended = self.own().has_seen_fin();
        let left = u32::try_from(self.arrived()).unwrap_or(u32::MAX);
        left.saturating_add(u32::from(ended))
    }

    #[cold]
    fn tell(&self, msg: &mut Message<'_>, got: usize) {
        // TCP tells of its own bytes itself.
        if self.is_told() {
            return;
        }
        if got > 0 && self.own().wants_stamps() {
            self.own().put_stamp(msg, clock::wall_nanos());
        }
        if self.own().wants_count() {
            self.own().put_count(msg, self.inq_bytes());
        }
    }

    fn take_urgent(&self, _peek: bool) -> (bool, Result<u8, UrgentError>) {
        // TCP's; see [`crate::stream::Stream::receive`].
        (false, Err(UrgentError::None))
    }

    #[inline]
    fn is_readable(&self, seen: usize) -> bool {
        // In this order: what precedes an end is seen with it.
        let over = self.is_over();
        over || self.is_behind(seen) || self.seems_astray()
    }

    fn is_all(&self, seen: usize) -> bool {
        let over = self.is_over();
        over && !self.is_behind(seen)
    }

    fn can_receive(&self) -> bool {
        !self.is_over()
    }

    fn is_cut(&self) -> bool {
        self.own().state() == tcp_state::CLOSE && !self.own().has_seen_fin()
    }

    fn is_spliced(&self, msg: &Message<'_>) -> bool {
        msg.fills_pages() && self.splices().load(Relaxed) != 0
    }

    fn is_writable(&self) -> bool {
        match self.writes_ring() {
            _ if self.is_dissolved() => true,
            true => self.has_room() || self.stays() || !self.own().may_send(),
            // Another writer may have taken the room that this one was woken for.
            false => self.own().becomes_writable(),
        }
    }

    fn count_full(&self) {}
}
