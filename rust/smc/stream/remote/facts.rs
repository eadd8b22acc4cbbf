// SPDX-License-Identifier: GPL-2.0

//! A connection that may be promoted, as the loops of sendmsg() and recvmsg() see it.

use super::{tcp, Inside};
use crate::{
    host::stats::Stats,
    smcr::SmcConn,
    stream::{Ask, Look, Put, Stop, StreamIo, Usual}, //
};
use kapi::{
    net::{
        args::{flags, Message, Poll, Splice},
        sock::{tcp_state, Sock},
        socket::BsdSocket,
        uapi::{SIOCATMARK, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD}, //
    },
    sys::word::read_barrier, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::{conn::UrgentError, path::Head, promotion::Stage};

/// Events that bytes to read mean, and room to write.
const READABLE: u32 = flags::EPOLLIN | flags::EPOLLRDNORM;
const WRITABLE: u32 = flags::EPOLLOUT | flags::EPOLLWRNORM;
/// Those of an end.
const ENDS: u32 = flags::EPOLLRDHUP | flags::EPOLLHUP;

impl Inside<'_> {
    /// Returns the SMC-R connection, if its bytes follow those of TCP that have arrived.
    fn follows(&self) -> Option<&Arc<SmcConn>> {
        let route = self.route();
        match route.head() {
            Head::Until(_) if self.sock.arrived_bytes() < route.left(self.sock.position()) => None,
            Head::Tcp => None,
            _ => self.carrier(),
        }
    }

    /// Returns how many of `arrived` bytes of TCP can be read.
    fn of_tcp(&self, arrived: usize) -> usize {
        let route = self.route();
        let after = || self.after_ring().map_or(0, |at| arrived.saturating_sub(at));
        match route.head() {
            Head::Ring => after(),
            Head::Until(_) => {
                let before = arrived.min(route.left(self.sock.position()));
                before.saturating_add(after())
            }
            Head::Tcp => arrived,
        }
    }

    /// Returns how many bytes can be read by both carriers, if `arrived` have by TCP.
    fn readable(&self, arrived: usize) -> usize {
        let beyond = self.follows().map_or(0, |conn| conn.unread().0);
        self.of_tcp(arrived).saturating_add(beyond)
    }

    /// Tells whether nothing more will arrive: of an end, an error, or the program's own doing.
    fn is_over(&self) -> bool {
        let sock = &*self.sock;
        let over = match self.follows() {
            Some(conn) if conn.is_suspended() => self.is_over_at_tcp() || conn.is_read_shut(),
            Some(conn) => !conn.can_receive() || conn.is_read_shut() || sock.has_error(),
            None => return self.is_over_by_tcp(),
        };
        if over {
            // A caller that looks for bytes after this sees all that came before the end.
            read_barrier();
        }
        over
    }

    /// The same, where all bytes come by TCP, as far as is known. Not inlined: reads of a promoted connection would have
    /// fewer registers.
    #[inline(never)]
    fn is_over_by_tcp(&self) -> bool {
        let sock = &*self.sock;
        let ended = sock.is_receive_shut() && !self.stage().may_be_followed();
        let over = ended
            || self.is_shut_by_program()
            || sock.has_error()
            || sock.state() == tcp_state::CLOSE;
        if over {
            read_barrier();
        }
        over
    }

    /// Tells whether the program has ended its receiving direction, where bytes come by a ring, or may.
    fn is_ring_shut(&self) -> bool {
        match self.follows() {
            Some(conn) if conn.is_suspended() => conn.is_read_shut() || self.is_shut_by_program(),
            Some(conn) => conn.is_read_shut(),
            None => self.is_shut_by_program(),
        }
    }

    /// As [`Inside::is_over`], where TCP's bytes follow what is left in the ring.
    fn is_over_at_tcp(&self) -> bool {
        let sock = &*self.sock;
        let ended = self.has_heard() && sock.is_receive_shut();
        ended || self.is_shut_by_program() || sock.has_error() || sock.state() == tcp_state::CLOSE
    }

    /// Tells whether the program has ended its receiving direction, or TCP has without a FIN. That TCP has shut it does not
    /// say so while it is open: it marks a moment later that a FIN was the reason.
    #[inline]
    fn is_shut_by_program(&self) -> bool {
        self.read_shut.get() != 0 || self.is_cut_off()
    }

    fn is_cut_off(&self) -> bool {
        let closed = self.sock.state() == tcp_state::CLOSE;
        read_barrier();
        closed && self.sock.is_receive_shut() && !self.sock.has_seen_fin()
    }

    /// poll() where the stream does not go by the rings alone.
    #[inline(never)]
    fn poll_both(&self, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        // What is looked at from here on, and changes later, wakes the poller.
        socket.register(poll);
        let followed = self.stage().may_be_followed();
        let mut events = socket.native_events(poll);
        if !followed && self.stage() != Stage::Returning && self.route().head() == Head::Tcp {
            return events;
        }
        // TCP's end is not the stream's, unless the peer has gone back.
        let sock = &*self.sock;
        let dead = sock.state() == tcp_state::CLOSE;
        if !dead && !self.knows_end() {
            events &= !ENDS;
        }
        events &= !READABLE;
        if self.is_read_shut() {
            events |= flags::EPOLLRDHUP;
        }
        if let Some(conn) = self.carrier() {
            // As with TCP an end is shown before all that precedes it has been read.
            let shown = match conn.is_suspended() {
                true => flags::EPOLLPRI,
                false => ENDS | flags::EPOLLPRI,
            };
            events |= conn.poll(socket, poll) & shown;
        }
        if let Some(conn) = self.follows().filter(|conn| !conn.is_suspended()) {
            events |= conn.poll(socket, poll) & READABLE;
        }
        let there = self.readable(sock.arrived_bytes());
        if dead || self.is_over() || there != 0 && there >= sock.low_water(false, usize::MAX) {
            events |= READABLE;
        }
        if let Some(conn) = self.turned() {
            events &= !WRITABLE;
            events |= conn.poll(socket, poll) & WRITABLE;
        }
        if self.stage() == Stage::Returning && self.can_send() {
            // There is room when TCP has what precedes.
            events &= !WRITABLE;
            sock.expect_room();
        }
        events
    }
}

impl Usual for Inside<'_> {
    const NEVER_SLEEPS_TO_LOOK: bool = true;

    #[inline]
    fn sock(&self) -> &Sock {
        &self.sock
    }

    #[inline]
    fn stats(&self) -> Option<&Stats> {
        // Bytes that go by TCP are counted there.
        self.promoted().and_then(Usual::stats)
    }

    #[inline]
    fn notice_dead(&self) -> bool {
        self.promoted()
            .or_else(|| self.behind())
            .is_some_and(|conn| conn.notice_dead())
    }

    #[inline(always)]
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
        tcp::take(self, msg, ask)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        if let Some(conn) = self.promoted() {
            return conn.is_quiet() && !conn.is_suspended();
        }
        match self.route().head() {
            Head::Tcp => !self.sock.has_unread() && !self.is_over_by_tcp(),
            Head::Until(_) | Head::Ring => false,
        }
    }

    #[inline]
    fn busy_poll(&self, nonblock: bool) -> bool {
        self.promoted().is_some_and(|conn| conn.busy_poll(nonblock))
    }

    #[inline]
    fn is_read_shut(&self) -> bool {
        match self.route().head() {
            Head::Tcp => self.is_shut_by_program(),
            Head::Until(_) | Head::Ring => self.is_ring_shut(),
        }
    }

    #[inline(always)]
    fn put(&self, msg: &mut Message<'_>, what: &Put<'_>) -> Result<(usize, bool), Stop> {
        tcp::put(self, msg, what)
    }

    fn can_send(&self) -> bool {
        match self.turned() {
            Some(conn) => conn.can_send(),
            None => self.sock.may_send() && self.write_shut.get() == 0,
        }
    }

    fn count_size(&self, total: usize) {
        if let Some(conn) = self.promoted() {
            conn.count_size(total);
        }
    }
}

impl StreamIo for Inside<'_> {
    const HIDES_URGENT: bool = false;

    fn splice(&self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        self.splices.add(1, Relaxed);
        // Who takes bytes out of the ring asks its connection whether it is spliced.
        let moved = match self.carrier() {
            Some(conn) => SmcConn::splice(conn, socket, splice),
            None => socket.copy_splice(splice),
        };
        self.splices.add(-1, Relaxed);
        moved
    }

    fn poll(&self, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        if let Some(conn) = self.promoted() {
            let events = conn.poll(socket, poll);
            // Otherwise that was left before the poller was on the queue.
            if self.promoted().is_some_and(|now| Arc::ptr_eq(now, conn)) {
                return events;
            }
        }
        self.poll_both(socket, poll)
    }

    fn shutdown(&self, socket: &BsdSocket, how: i32) -> Result {
        self.shut(socket, how)
    }

    fn ioctl(&self, command: u32) -> Option<i32> {
        let conn = self.carrier()?;
        let count = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
        match command {
            SIOCINQ => Some(count(self.unread().0)),
            SIOCATMARK => self.behind().and_then(|conn| conn.ioctl(command)),
            SIOCOUTQ | SIOCOUTQNSD => {
                let of_tcp = count(self.sock.out_queue(command == SIOCOUTQNSD));
                let beyond = match self.turned() {
                    Some(_) => conn.ioctl(command).unwrap_or(0),
                    None => 0,
                };
                Some(of_tcp.saturating_add(beyond))
            }
            _ => None,
        }
    }

    fn unread(&self) -> (usize, bool) {
        // In this order: what precedes an end is seen with it.
        let ended = match self.follows() {
            Some(conn) if conn.is_suspended() => self.has_heard() && self.sock.has_seen_fin(),
            Some(conn) => conn.unread().1,
            None => {
                let ended = self.sock.has_seen_fin();
                // As in `state_of_tcp`.
                read_barrier();
                ended && !self.stage().may_be_followed()
            }
        };
        read_barrier();
        let bytes = match self.sock.unread_before_mark() {
            // What is behind an urgent byte does not count, on whatever carrier it is.
            Some(before) => self.of_tcp(before),
            None => self.readable(self.sock.unread_bytes()),
        };
        (bytes, ended)
    }

    fn has_peer(&self) -> bool {
        // Otherwise TCP decides.
        self.turned().is_none_or(StreamIo::has_peer)
    }

    fn low_water_changed(&self) {
        if let Some(conn) = self.promoted() {
            conn.watch_tcp();
            conn.low_water_changed();
            return;
        }
        let there = self.readable(self.sock.arrived_bytes());
        if self.stage().may_be_followed() && there >= self.sock.low_water(false, usize::MAX) {
            self.sock.wake_readers();
        }
    }

    fn device(&self, carried: bool) -> [u8; 64] {
        match (carried, self.current()) {
            (true, Some(conn)) => conn.group().device().name(),
            _ => [0; 64],
        }
    }

    fn inq_bytes(&self) -> u32 {
        let (left, ended) = self.unread();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        left.saturating_add(u32::from(ended))
    }

    #[cold]
    fn tell(&self, msg: &mut Message<'_>, got: usize) {
        // TCP tells of its own bytes itself.
        if let Some(conn) = self.behind() {
            conn.tell(msg, got);
        }
    }

    fn take_urgent(&self, peek: bool) -> (bool, Result<u8, UrgentError>) {
        match self.carrier() {
            Some(conn) => conn.take_urgent(peek),
            // TCP's; see [`crate::stream::Stream::receive`].
            None => (false, Err(UrgentError::None)),
        }
    }

    #[inline]
    fn is_readable(&self, seen: usize) -> bool {
        if let Some(conn) = self.promoted().filter(|conn| !conn.is_suspended()) {
            return conn.is_readable(seen);
        }
        // In this order: what precedes an end is seen with it.
        let over = self.is_over();
        over || self.readable(self.sock.arrived_bytes()) > seen
    }

    fn is_all(&self, seen: usize) -> bool {
        let over = self.is_over();
        over && self.readable(self.sock.arrived_bytes()) <= seen
    }

    fn can_receive(&self) -> bool {
        !self.is_over()
    }

    fn is_cut(&self) -> bool {
        match self.behind() {
            Some(conn) if !conn.is_suspended() => conn.is_cut(),
            _ => self.sock.state() == tcp_state::CLOSE && !self.sock.has_seen_fin(),
        }
    }

    fn is_spliced(&self, msg: &Message<'_>) -> bool {
        msg.fills_pages() && self.splices.load(Relaxed) != 0
    }

    fn is_writable(&self) -> bool {
        match self.turned() {
            Some(conn) => conn.is_writable(),
            None if self.stage() == Stage::Returning => !self.can_send(),
            // A call that has found the way back under way has not asked TCP.
            None => self.write_shut.get() != 0 || self.sock.becomes_writable(),
        }
    }

    fn count_full(&self) {
        if let Some(conn) = self.promoted() {
            conn.count_full();
        }
    }
}
