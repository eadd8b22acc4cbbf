// SPDX-License-Identifier: GPL-2.0

//! The stream of an SMC-R connection: its send ring and its receive ring.
//!
//! A byte that is sent goes from the program into the send ring ([`put`]), from there by an RDMA WRITE into the peer's
//! ring ([`crate::smcr::group`]), and is announced by a CDC message or an immediate; that wakes the peer's reader, which
//! copies it out of the ring ([`take`]).

use super::{
    Ask,
    Look,
    Put,
    Stop,
    StreamIo,
    Took,
    Usual,
    STOP, //
};
use crate::{
    host::{
        clock::now,
        stats::{Buffer, Stats, TrafficDirection}, //
    },
    smcr::SmcConn, //
};
use kapi::{
    errno,
    net::{
        args::{flags, Message, Poll, Splice},
        sock::Sock,
        socket::BsdSocket,
        uapi::{SHUT_RD, SHUT_RDWR, SHUT_WR, SIOCATMARK, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD}, //
    },
    rdma::ring::Ring, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    conn::{Actions, Conn, ConnState, Plain, RecvState, SendError, SendHint, UrgentError},
    cursor::RingSize,
    ring::Pieces,
    wire::promotion::{Mark, MARK_LEN}, //
};

/// The program's memory is copied in chunks of this size. Nothing of a chunk that faults is sent; TCP's chunks are
/// at most as large.
const PART: usize = 32 << 10;

impl Usual for Arc<SmcConn> {
    const NEVER_SLEEPS_TO_LOOK: bool = true;

    #[inline]
    fn sock(&self) -> &Sock {
        SmcConn::sock(self)
    }

    #[inline]
    fn stats(&self) -> Option<&Stats> {
        Some(SmcConn::stats(self))
    }

    #[inline]
    fn notice_dead(&self) -> bool {
        self.notice_tcp_dead()
    }

    #[inline(always)]
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
        take(self, msg, ask)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.maybe_readable.get() == 0 && !self.is_tcp_dead()
    }

    #[inline]
    fn busy_poll(&self, nonblock: bool) -> bool {
        SmcConn::busy_poll(self, nonblock)
    }

    fn is_read_shut(&self) -> bool {
        SmcConn::is_read_shut(self)
    }

    #[inline(always)]
    fn put(&self, msg: &mut Message<'_>, what: &Put<'_>) -> Result<(usize, bool), Stop> {
        put(self, msg, what)
    }

    fn can_send(&self) -> bool {
        self.proto.lock().directions().can_send
    }

    fn count_size(&self, total: usize) {
        count_size(self, total);
    }
}

impl StreamIo for Arc<SmcConn> {
    const HIDES_URGENT: bool = true;

    fn splice(&self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        SmcConn::splice(self, socket, splice)
    }

    fn low_water_changed(&self) {
        let wakes = {
            let proto = self.proto.lock();
            // As TCP's setsockopt(), which tells of an end, too.
            self.has_enough(&proto) || matches!(proto.recv_state(), RecvState::Eof)
        };
        if wakes {
            self.sock().wake_readers();
        }
    }

    fn poll(&self, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        // What is looked at from here on, and changes later, wakes the poller.
        socket.enlist(poll);
        let mut events = 0;
        let mut proto = self.proto.lock();
        if !self.is_read_shut() && !self.is_tcp_dead() && !self.is_ring_enomem() {
            if let Some(plain) = proto.plain() {
                return self.poll_plain(&proto, plain);
            }
        }
        // A reset of the TCP connection is shown at once, also before the connection has noted it.
        let reset = self.is_tcp_dead() && !proto.awaits_end();
        let open = proto.directions();
        let can_receive = open.can_receive && !self.is_read_shut() && !reset;
        let can_send = open.can_send && !reset;
        let readable = self.has_enough(&proto);
        if readable || !can_receive {
            events |= flags::EPOLLIN | flags::EPOLLRDNORM;
        }
        if !can_receive {
            events |= flags::EPOLLRDHUP;
        }
        if !can_receive && !can_send {
            events |= flags::EPOLLHUP;
        }
        if proto.has_urgent() {
            events |= flags::EPOLLPRI;
        }
        // Asked first: a poller that finds no room is woken when there is some.
        let room = match proto.send_room() {
            Err(SendError::Full | SendError::NotConnected) => false,
            Ok(_) => !self.is_ring_enomem(),
            Err(_) => true,
        };
        if !room {
            self.sock().expect_room();
            self.group().expect_ends();
        }
        if room || !can_send {
            events |= flags::EPOLLOUT | flags::EPOLLWRNORM;
        }
        // Last, as with TCP, and under the lock: where the end is seen, its error is.
        if self.sock().polls_error() {
            events |= flags::EPOLLERR;
        }
        events
    }

    /// As with TCP there is none after a reset, or when both ends have sent all; TCP beneath ends only after that.
    fn has_peer(&self) -> bool {
        let proto = self.proto.lock();
        let open = proto.directions();
        open.can_receive || open.can_send || proto.is_draining()
    }

    fn ioctl(&self, command: u32) -> Option<i32> {
        if command == SIOCOUTQ {
            // Who asks repeatedly waits for the number to fall.
            self.group().expect_ends();
        }
        let proto = self.proto.lock();
        let count = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
        match command {
            SIOCINQ => Some(count(u64::from(proto.in_queue()))),
            SIOCOUTQ => Some(count(proto.out_queue())),
            SIOCOUTQNSD => Some(count(proto.out_queue_unsent())),
            SIOCATMARK => Some(i32::from(proto.at_mark())),
            _ => None,
        }
    }

    fn unread(&self) -> (usize, bool) {
        let (settings, unread) = {
            let mut proto = self.proto.lock();
            let settings = self.sync_settings(&mut proto);
            let ended = matches!(proto.recv_state(), RecvState::Eof);
            (settings, (proto.in_queue() as usize, ended))
        };
        self.perform(settings);
        unread
    }

    fn shutdown(&self, _socket: &BsdSocket, how: i32) -> Result {
        shut_down(self, how)
    }

    fn device(&self, _carried: bool) -> [u8; 64] {
        self.group().device().name()
    }

    fn inq_bytes(&self) -> u32 {
        self.proto.lock().inq_bytes()
    }

    #[cold]
    fn tell(&self, msg: &mut Message<'_>, got: usize) {
        if got > 0 && self.sock().wants_stamps() {
            self.tell_stamp(msg);
        }
        if self.sock().wants_count() {
            self.sock().put_count(msg, self.inq_bytes());
        }
    }

    fn take_urgent(&self, peek: bool) -> (bool, Result<u8, UrgentError>) {
        take_urgent(self, peek)
    }

    #[inline]
    fn is_readable(&self, seen: usize) -> bool {
        let proto = self.proto.lock();
        match proto.recv_state() {
            RecvState::Data(there) if there as usize > seen => true,
            RecvState::Data(_) => SmcConn::is_read_shut(self) || !proto.directions().can_receive,
            RecvState::Empty => SmcConn::is_read_shut(self),
            _ => true,
        }
    }

    fn is_all(&self, seen: usize) -> bool {
        is_all(self, seen)
    }

    fn can_receive(&self) -> bool {
        self.proto.lock().directions().can_receive
    }

    fn is_cut(&self) -> bool {
        self.proto.lock().is_cut()
    }

    fn is_spliced(&self, msg: &Message<'_>) -> bool {
        SmcConn::is_spliced(self, msg)
    }

    fn is_writable(&self) -> bool {
        let mut proto = self.proto.lock();
        match proto.send_room() {
            Err(SendError::Full) => {
                // Others may have sent since the call found no room.
                self.group().expect_ends();
                false
            }
            Ok(_) => !self.is_ring_enomem(),
            Err(_) => true,
        }
    }

    fn count_full(&self) {
        let stats = SmcConn::stats(self);
        if !self.is_ring_enomem() {
            stats.buffer(TrafficDirection::Tx, Buffer::Full);
        }
        if self.proto.lock().is_peer_full() {
            stats.buffer(TrafficDirection::Tx, Buffer::PeerFull);
        }
    }
}

impl SmcConn {
    /// Returns the events of a connection that is open both ways; called with `proto` locked.
    #[inline]
    fn poll_plain(&self, proto: &Conn, plain: Plain) -> u32 {
        let mut events = 0;
        if plain.readable as usize >= self.poll_low_water(proto) {
            events |= flags::EPOLLIN | flags::EPOLLRDNORM;
        }
        if plain.has_room {
            events |= flags::EPOLLOUT | flags::EPOLLWRNORM;
        } else {
            self.sock().expect_room();
            self.group().expect_ends();
        }
        // Last, and under the lock, as of others.
        if self.sock().polls_error() {
            events |= flags::EPOLLERR;
        }
        events
    }
}

/// Handles shutdown(); `how` as in the system call.
///
/// # Errors
///
/// `EINVAL` for a `how` that is none, `ENOTCONN` when the connection has ended.
pub(crate) fn shut_down(conn: &Arc<SmcConn>, how: i32) -> Result {
    let (send, receive) = match how {
        SHUT_RD => (false, true),
        SHUT_WR => (true, false),
        SHUT_RDWR => (true, true),
        _ => return Err(EINVAL),
    };
    let mut ended = false;
    conn.notice_tcp_dead();
    let actions = {
        let mut proto = conn.proto.lock();
        let open = proto.directions();
        // TCP may show the reset before the peer's message does.
        let reset = conn.is_tcp_dead() && !proto.awaits_end();
        let over = reset || !open.can_receive && !open.can_send && !proto.is_draining();
        match (proto.state(), send, receive) {
            _ if proto.is_suspended() && !reset => match send {
                true => proto.shutdown_write(now()),
                false => Actions::NONE,
            },
            (ConnState::Closed, ..) => {
                ended = true;
                Actions::NONE
            }
            // As with TCP, for which both ends have said so. The peer still hears of the close.
            (state, true, true) if over && state.may_close() => {
                ended = true;
                proto.shutdown_both(now())
            }
            _ if over => {
                ended = true;
                Actions::NONE
            }
            (_, true, true) => proto.shutdown_both(now()),
            // The second direction: nothing will be read, and the peer is told so.
            (_, true, false) if conn.is_read_shut() => proto.shutdown_both(now()),
            (_, false, true) if !open.can_send => proto.shutdown_both(now()),
            (_, true, false) => proto.shutdown_write(now()),
            _ => Actions::NONE,
        }
    };
    if receive {
        conn.shut_read();
    }
    conn.perform(actions);
    // As TCP, in any case: a poller may wait for this event alone.
    conn.sock().wake_state();
    match ended {
        true => Err(errno::ENOTCONN.into()),
        false => Ok(()),
    }
}

/// Puts as much as fits into the send ring; see [`Usual::put`].
// One caller each: as calls the two cost 140 instructions of a 64-byte message.
#[inline(always)]
fn put(
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    &Put {
        wanted,
        urgent,
        more,
        carried: _,
    }: &Put<'_>,
) -> Result<(usize, bool), Stop> {
    let mut writers = conn.writers.lock();
    // What is left of the last look, if it is enough. If the program may not write any more, which is for good,
    // `written` says so.
    let mut view = core::mem::replace(&mut writers.free, Pieces::NONE);
    if (view.len() as usize) < wanted {
        let larger;
        (view, larger) = look_for_room(conn)?;
        if let Some(size) = larger {
            conn.grow_send_ring(&mut writers, size);
            (view, _) = look_for_room(conn)?;
        }
    }
    let room = view.len() as usize;
    let ring = conn
        .send_ring(&mut writers)
        .map_err(|error| no_ring(conn, error))?;
    let wanted_now = wanted.min(room);
    let [first, _] = view.piece;
    let (taken, faulted) = if wanted_now <= (first.len as usize).min(PART) {
        // Most often.
        match ring.write(first.offset as usize, wanted_now, msg.source()) < wanted_now {
            true => (0, true),
            false => (wanted_now, false),
        }
    } else {
        copy_in(ring, view, wanted_now, msg)
    };
    if taken == 0 {
        // As TCP: that the program may not write comes before that.
        look_for_room(conn)?;
        return Err(Stop::Fault);
    }
    let last = taken == wanted;
    let hint = SendHint {
        more,
        urgent: urgent && last,
        push: false,
    };
    let len = u32::try_from(taken).map_err(|_| Stop::Fault)?;
    let written = |proto: &mut Conn, now| proto.written(len, hint, now);
    let actions = match conn.group().change_and_send(conn, written) {
        Ok(actions) => actions,
        Err(_) => {
            // It may not write any more; or the stream goes on by TCP, which takes the same bytes.
            msg.put_back(taken);
            look_for_room(conn)?;
            // There is room, but an urgent byte waits for what the peer answers.
            return Err(if hint.urgent { Stop::Later } else { Stop::Full });
        }
    };
    if !hint.urgent {
        // Otherwise there is no room until the peer has read the urgent byte.
        writers.free = view.after(len);
    }
    conn.perform(actions);
    Ok((taken, faulted))
}

/// Copies `wanted` bytes into the pieces of `view`. Returns how many it were, and whether the program's memory could not
/// be read beyond those.
#[inline(never)]
fn copy_in(ring: &Ring, view: Pieces, wanted: usize, msg: &mut Message<'_>) -> (usize, bool) {
    let mut taken = 0usize;
    for piece in view.iter() {
        let mut done = 0usize;
        loop {
            let left = (piece.len as usize).saturating_sub(done);
            let len = left.min(wanted.saturating_sub(taken)).min(PART);
            if len == 0 {
                break;
            }
            let at = (piece.offset as usize).saturating_add(done);
            if ring.write(at, len, msg.source()) < len {
                return (taken, true);
            }
            done = done.saturating_add(len);
            taken = taken.saturating_add(len);
        }
    }
    (taken, false)
}

/// Returns the free part of the send ring, and the size of a ring that would do more.
#[inline]
fn look_for_room(conn: &Arc<SmcConn>) -> Result<(Pieces, Option<RingSize>), Stop> {
    let mut proto = conn.proto.lock();
    match proto.send_room() {
        Ok(_) => Ok((proto.send_view(), proto.wanted_send_ring())),
        Err(SendError::Full) => {
            conn.sock().expect_room();
            conn.group().expect_ends();
            Err(Stop::Full)
        }
        Err(error) => Err(Stop::Gone(error)),
    }
}

/// Returns why there is no ring. As TCP does when memory is short, a send waits and tries again.
#[cold]
fn no_ring(conn: &SmcConn, error: Error) -> Stop {
    match conn.proto.lock().send_room() {
        // It has ended since there was room.
        Err(over) if over != SendError::Full => Stop::Gone(over),
        _ if error == ENOMEM => Stop::NoRing,
        // The device goes, and the rings are about to be left.
        _ if conn.has_lifeline() => Stop::Later,
        _ => Stop::NoDevice,
    }
}

/// Counts rings that are too small for what a call sends.
#[inline(never)]
fn count_size(conn: &SmcConn, total: usize) {
    if total > conn.send_size() {
        conn.stats().buffer(TrafficDirection::Tx, Buffer::TooSmall);
    }
    if conn.peer_size().is_some_and(|size| total > size) {
        conn.stats()
            .buffer(TrafficDirection::Tx, Buffer::PeerTooSmall);
    }
}

/// Copies what is in the ring to the program; see [`Usual::take`].
// One caller each: as calls the two cost 140 instructions of a 64-byte message.
#[inline(always)]
fn take(conn: &Arc<SmcConn>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    let &Ask {
        wanted,
        before,
        passed,
        peek,
        discard,
        carried: _,
    } = ask;
    let mut reader = conn.readers.lock();
    if conn.is_dissolved() {
        return Ok(STOP);
    }
    let peeked = if peek {
        u32::try_from(before.saturating_add(passed))?
    } else {
        0
    };
    // What was read last is dropped without the lock.
    let (settings, state, view, _left) = {
        let mut proto = conn.proto.lock();
        let settings = conn.sync_settings(&mut proto);
        let view = proto.recv_view(peeked);
        let left = reader.follow(view.ring, &proto.recv);
        (settings, proto.recv_state(), view, left)
    };
    conn.perform(settings);
    if view.at_mark {
        if before > 0 {
            return Ok(STOP);
        }
        if conn.is_spliced(msg) {
            return Ok(Look::Mark);
        }
        if wanted == 0 && view.skip > 0 {
            // As TCP: the urgent byte is there, and nothing of it was wanted.
            return Ok(STOP);
        }
    }
    let RecvState::Data(readable) = state else {
        if view.skip > 0 && !peek {
            // As TCP: a read that finds nothing but the urgent byte steps over it, and waits.
            let stepped = conn.proto.lock().read_from(view.from, view.skip);
            have_read(conn, stepped.map_err(|_| EINVAL)?);
        }
        return Ok(Look::Nothing(state));
    };
    if before == 0 {
        count_room(conn, reader.ring().size(), readable as usize, wanted);
    }
    let there = view.pieces.len() as usize;
    let [first, _] = view.pieces.piece;
    let bytes = if !discard && wanted.min(there) <= first.len as usize {
        // Most often.
        let ring = reader.ring();
        ring.read(first.offset as usize, wanted.min(there), msg.dest())
    } else {
        copy_out(reader.ring(), view.pieces, wanted, discard, msg)
    };
    if bytes == 0 {
        if there > 0 && wanted > 0 {
            if view.skip > 0 && !peek {
                // As TCP, which has stepped over the urgent byte by then.
                let stepped = conn.proto.lock().read_from(view.from, view.skip);
                have_read(conn, stepped.map_err(|_| EINVAL)?);
            }
            return Err(EFAULT);
        }
        if there == 0 && wanted == 0 {
            // A peek that has seen all there is.
            return Ok(Look::Nothing(RecvState::Empty));
        }
    }
    if peek {
        return Ok(Look::Took(Took {
            bytes,
            passed: view.skip as usize,
            // The rest is in the next ring.
            more: view.goes_on && bytes == there,
            stop: false,
        }));
    }
    let done = u32::try_from(bytes)?.saturating_add(view.skip);
    let (actions, more) = {
        let mut proto = conn.proto.lock();
        let actions = proto.read_from(view.from, done).map_err(|_| EINVAL)?;
        let state = proto.recv_state();
        let more = matches!(state, RecvState::Data(_));
        // A reader that stands at the urgent byte steps over it before it sleeps, and none waits at an end.
        let quiet = matches!(state, RecvState::Empty) && !proto.at_mark();
        conn.maybe_readable.set(u32::from(!quiet));
        (actions, more)
    };
    have_read(conn, actions);
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: more && bytes < wanted,
        stop: false,
    }))
}

/// The same, for calls that seldom are here.
#[inline(never)]
pub(super) fn take_from_ring(
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
) -> Result<Look> {
    take(conn, msg, ask)
}

/// Performs what a read has left to be done; a larger ring that it has made due is to be paid for by the calling
/// program's user.
#[inline]
fn have_read(conn: &Arc<SmcConn>, actions: Actions) {
    if actions.has(Actions::GROW) {
        conn.note_reader();
    }
    conn.perform(actions);
}

/// Copies at most `wanted` bytes out of the pieces of `view`, or throws them away. Returns how many it were.
#[inline(never)]
fn copy_out(
    ring: &Ring,
    view: Pieces,
    wanted: usize,
    discard: bool,
    msg: &mut Message<'_>,
) -> usize {
    let mut bytes = 0usize;
    for piece in view.iter() {
        let len = (piece.len as usize).min(wanted.saturating_sub(bytes));
        if len == 0 {
            break;
        }
        let copied = match discard {
            true => len,
            false => ring.read(piece.offset as usize, len, msg.dest()),
        };
        bytes = bytes.saturating_add(copied);
        if copied < len {
            break;
        }
    }
    bytes
}

/// Counts a ring that was full, and a call that could not take all that was there.
#[inline]
fn count_room(conn: &SmcConn, size: usize, there: usize, wanted: usize) {
    if there < size && wanted >= there {
        return;
    }
    if there >= size {
        conn.stats().buffer(TrafficDirection::Rx, Buffer::Full);
    }
    if wanted < there {
        conn.stats().buffer(TrafficDirection::Rx, Buffer::TooSmall);
    }
}

/// Returns whether a peek that has seen `seen` bytes need not wait for more: what it has seen stays in the
/// ring and hides that nothing follows.
fn is_all(conn: &Arc<SmcConn>, seen: usize) -> bool {
    let proto = conn.proto.lock();
    let over = conn.is_read_shut() || !proto.directions().can_receive;
    over && !matches!(proto.recv_state(), RecvState::Data(there) if there as usize > seen)
}

/// Takes the urgent byte, or peeks at it. Returns also whether the receiving direction has ended.
#[cold]
fn take_urgent(conn: &Arc<SmcConn>, peek: bool) -> (bool, Result<u8, UrgentError>) {
    let (settings, over, byte) = {
        let mut proto = conn.proto.lock();
        let settings = conn.sync_settings(&mut proto);
        let over = !proto.directions().can_receive;
        let byte = match proto.is_cut() {
            true => match proto.take_urgent(true) {
                Err(UrgentError::None) => Err(UrgentError::None),
                _ => Err(UrgentError::Cut),
            },
            false => proto.take_urgent(peek),
        };
        (settings, over, byte)
    };
    conn.perform(settings);
    (over, byte)
}

/// Puts a mark into the send ring, before the program has put anything there.
///
/// # Errors
///
/// `ENOMEM` when there is no memory for the ring just now; `ECONNABORTED` when the connection is over.
pub(super) fn put_mark(conn: &Arc<SmcConn>, mark: Mark) -> Result {
    let gone = || errno::ECONNABORTED.error();
    let bytes = mark.bytes();
    let len = u32::try_from(bytes.len())?;
    let mut writers = conn.writers.lock();
    let (view, _) = look_for_room(conn).map_err(|_| gone())?;
    let ring = conn.send_ring(&mut writers)?;
    let [first, _] = view.piece;
    if view.len() < len || ring.write_slice(first.offset as usize, &bytes) < bytes.len() {
        return Err(gone());
    }
    let hint = SendHint {
        more: false,
        urgent: false,
        push: true,
    };
    let written = |proto: &mut Conn, now| proto.written(len, hint, now);
    let actions = conn.group().change_and_send(conn, written);
    writers.free = Pieces::NONE;
    drop(writers);
    conn.perform(actions.map_err(|_| gone())?);
    Ok(())
}

/// Takes the bytes of a mark from the beginning of what has arrived, if there are so many.
pub(super) fn take_mark(conn: &Arc<SmcConn>) -> Option<[u8; MARK_LEN]> {
    let mut bytes = [0; MARK_LEN];
    let mut reader = conn.readers.lock();
    let (view, _left) = {
        let proto = conn.proto.lock();
        let view = proto.recv_view(0);
        (view, reader.follow(view.ring, &proto.recv))
    };
    let [first, _] = view.pieces.piece;
    if (view.pieces.len() as usize) < bytes.len()
        || reader.ring().read_slice(first.offset as usize, &mut bytes) < bytes.len()
    {
        return None;
    }
    let actions = {
        let mut proto = conn.proto.lock();
        let actions = proto.read_from(view.from, bytes.len() as u32).ok()?;
        let quiet = matches!(proto.recv_state(), RecvState::Empty) && !proto.at_mark();
        conn.maybe_readable.set(u32::from(!quiet));
        actions
    };
    drop(reader);
    conn.perform(actions);
    Some(bytes)
}
