// SPDX-License-Identifier: GPL-2.0

//! TCP's stream as one of several carriers of a connection: its position, and calls that never wait.

use super::{tcp_state, Sock, SockGuard};
use crate::sys::word::read_barrier;
use crate::{
    errno,
    net::args::{flags, Message}, //
};
use core::ptr;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::atomic::{Atomic, Relaxed}, //
};
use smc_bindings as bindings;

/// The initial sequence numbers of a connection, as one of its ends knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialNumbers {
    /// The number of our SYN.
    pub own: u32,
    /// The number of the peer's.
    pub peer: u32,
}

impl SockGuard<'_> {
    fn tp(&self) -> *const bindings::tcp_sock {
        self.sock().as_ptr().cast()
    }

    /// Returns the initial sequence numbers of an established connection; `active` says that we have
    /// called connect(). TCP does not keep them, but what was counted since.
    pub fn initial_numbers(&self, active: bool) -> InitialNumbers {
        let tp = self.tp();
        // SAFETY: The sock is TCP's and locked, under which these change. 64 bits are cut to sequence
        // numbers' 32, as they wrap.
        let (own, peer) = unsafe {
            let own = (*tp).snd_una.wrapping_sub((*tp).bytes_acked as u32);
            let peer = (*tp).rcv_nxt.wrapping_sub((*tp).bytes_received as u32);
            (own, peer)
        };
        // The SYN of an active end is acknowledged like a byte; that of a passive one before it is a sock.
        InitialNumbers {
            own: if active { own } else { own.wrapping_sub(1) },
            peer: peer.wrapping_sub(1),
        }
    }

    /// Returns the position after the last byte given to TCP, if it has sent them all and neither urgent
    /// data nor an end is under way, and may send more.
    pub fn end_of_sent(&self) -> Option<u32> {
        let tp = self.tp();
        let sock = self.sock();
        if !sock.may_send() {
            return None;
        }
        // SAFETY: The sock is TCP's and locked, under which these change.
        unsafe {
            let quiet = (*tp).snd_nxt == (*tp).write_seq && (*tp).snd_una == (*tp).snd_up;
            quiet.then_some((*tp).write_seq)
        }
    }

    /// Returns how many bytes beyond `position`, a FIN not counted, were given to TCP.
    pub fn sent_beyond(&self, position: u32) -> u32 {
        let open = matches!(
            self.sock().state(),
            tcp_state::ESTABLISHED | tcp_state::CLOSE_WAIT
        );
        let beyond = self.sock().sent_to().wrapping_sub(position);
        // One that was ended has sent a FIN, or may have.
        beyond.saturating_sub(u32::from(!open))
    }

    /// Returns how many bytes beyond `position`, a FIN not counted, have arrived by TCP.
    pub fn arrived_beyond(&self, position: u32) -> u32 {
        let beyond = self.sock().arrived_to().wrapping_sub(position);
        beyond.saturating_sub(u32::from(self.sock().has_seen_fin()))
    }

    /// Returns whether something about the connection needs TCP's own stream: a signature, a repair,
    /// urgent bytes, data with the SYN, a filter, time stamps, or options in its packets' headers (labels
    /// of security modules are such).
    pub fn needs_tcp(&self) -> bool {
        // SAFETY: The sock is TCP's and locked.
        unsafe { bindings::tcp_is_bound_to_stream(self.sock().as_ptr()) }
    }
}

impl Sock {
    /// Returns whether a look without the lock finds TCP's stream where it could be left: what
    /// [`SockGuard::end_of_sent`] and [`SockGuard::needs_tcp`] would say. A hint.
    pub fn seems_movable(&self) -> bool {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's. All are numbers, bits, and pointers of which only the value is used; read without
        // the lock, as TCP's poll and `tcp_get_info()` do.
        let (sent, bound) = unsafe {
            let sent = ptr::read_volatile(&raw const (*tp).snd_nxt)
                == ptr::read_volatile(&raw const (*tp).write_seq);
            (sent, bindings::tcp_is_bound_to_stream(self.as_ptr()))
        };
        sent && !bound && self.may_send()
    }

    /// Returns the position after the last byte that the program has taken, or after the FIN, which TCP
    /// takes with the byte before it. A hint without the lock, which never goes back.
    #[inline]
    pub fn position(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*tp).copied_seq) }
    }

    /// Returns how many bytes have arrived and were not read, an urgent one among them; the FIN is none.
    /// A hint without the lock: one that is just arriving may count for a moment.
    #[inline]
    pub fn arrived_bytes(&self) -> usize {
        // In this order: the flag is set after the last change of what has arrived, and what has arrived
        // is never less than what was taken before.
        let ended = self.has_seen_fin();
        let taken = self.position();
        read_barrier();
        let bytes = self.arrived_to().wrapping_sub(taken) as i32;
        let bytes = bytes.saturating_sub(i32::from(ended));
        // Nothing when the FIN itself was taken.
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns the position after the last byte, or the FIN, that was given to TCP. A hint without the lock.
    #[inline]
    pub fn sent_to(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*tp).write_seq) }
    }

    /// Has TCP send what it holds back since more was to follow (`MSG_MORE`, `TCP_CORK`). Sleeps for the lock.
    pub fn push_stream(&self) {
        let corked = self.is_corked();
        // SAFETY: The sock is TCP's; both take its lock themselves. The option is as before afterwards.
        unsafe {
            bindings::tcp_sock_set_cork(self.as_ptr(), false);
            if corked {
                bindings::tcp_sock_set_cork(self.as_ptr(), true);
            }
        }
    }

    /// Returns how many bytes TCP has to send that were not acknowledged, or not sent (`unsent`); a FIN counts as one. A
    /// hint without the lock.
    pub fn out_queue(&self, unsent: bool) -> usize {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP does.
        let (acked, sent) = unsafe {
            (
                ptr::read_volatile(&raw const (*tp).snd_una),
                ptr::read_volatile(&raw const (*tp).snd_nxt),
            )
        };
        read_barrier();
        let from = if unsent { sent } else { acked };
        let left = self.sent_to().wrapping_sub(from) as i32;
        usize::try_from(left).unwrap_or(0)
    }

    /// Returns how many segments with data have come and gone, as TCP counts them; wraps. A hint without the lock.
    #[inline]
    pub fn data_segments(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as `tcp_get_info()` does.
        let (came, went) = unsafe {
            (
                ptr::read_volatile(&raw const (*tp).data_segs_in),
                ptr::read_volatile(&raw const (*tp).data_segs_out),
            )
        };
        came.wrapping_add(went)
    }

    /// Returns the shortest round trip that TCP has seen of late, in microseconds; `None` before the first. A hint without
    /// the lock.
    pub fn shortest_round_trip(&self) -> Option<u32> {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as `tcp_get_info()` does.
        let micros = unsafe { ptr::read_volatile(&raw const (*tp).rtt_min.s[0].v) };
        // What `tcp_init_sock()` puts there.
        (micros != u32::MAX).then_some(micros)
    }

    /// Returns whether something about the connection needs TCP's own stream, as [`SockGuard::needs_tcp`]. A hint
    /// without the lock.
    pub fn seems_bound_to_tcp(&self) -> bool {
        // SAFETY: The sock is TCP's. Numbers, bits, and pointers of which only the value is used, read as
        // `tcp_get_info()` does.
        unsafe { bindings::tcp_is_bound_to_stream(self.as_ptr()) }
    }

    /// Returns the position after the last byte, or the FIN, that has arrived. A hint without the lock.
    #[inline]
    pub fn arrived_to(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*tp).rcv_nxt) }
    }

    /// Returns whether nothing about the socket concerns a reader but what there is to read: `SO_RCVLOWAT` is
    /// 1, and neither a place of peeks, time stamps nor SIGIO are wanted. Of `TCP_INQ` its option tells.
    #[inline]
    pub fn reads_simply(&self) -> bool {
        let sk = self.as_ptr();
        // SAFETY: The sock is valid; all of these are read without the lock, as TCP does.
        let (low, offset, flags) = unsafe {
            (
                ptr::read_volatile(&raw const (*sk).sk_rcvlowat),
                ptr::read_volatile(&raw const (*sk).sk_peek_off),
                ptr::read_volatile(&raw const (*sk).__sk_common.__bindgen_anon_5.skc_flags),
            )
        };
        const OTHERS: usize =
            1 << bindings::sock_flags_SOCK_RCVTSTAMP | 1 << bindings::sock_flags_SOCK_FASYNC;
        low <= 1 && offset < 0 && flags & OTHERS == 0
    }

    /// Returns whether a read by TCP has nothing to say at present: no packet, end, error, or other part of the kernel that
    /// takes what arrives. A hint without the lock.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.has_unread()
            && !self.is_receive_shut()
            && !self.has_error()
            && !self.is_owned()
            && self.state() != tcp_state::CLOSE
    }

    /// Returns whether the program has asked for something that there is only of packets with its data: stamps
    /// of those (`SO_TIMESTAMPING`), or a filter that decides which arrive.
    #[inline]
    pub fn wants_packets(&self) -> bool {
        // SAFETY: The sock is valid; read without the lock, and only the pointer's value is used.
        let (stamps, filter) = unsafe {
            (
                ptr::read_volatile(&raw const (*self.as_ptr()).sk_tsflags),
                ptr::read_volatile((&raw const (*self.as_ptr()).sk_filter).cast::<usize>()),
            )
        };
        stamps != 0 || filter != 0
    }

    /// Returns whether the program wants to be told more of what it receives than the bytes, when they came,
    /// or has a filter decide what arrives.
    #[inline]
    pub fn wants_details(&self) -> bool {
        self.wants_packets() || self.wants_stamps()
    }

    /// Returns whether the program wants to be told when its bytes are sent (`SO_TIMESTAMPING`).
    #[inline]
    pub fn wants_send_stamps(&self) -> bool {
        // SAFETY: The sock is valid; read without the lock, as everywhere.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_tsflags) != 0 }
    }

    /// Returns whether a BPF program of the control group of this socket or of `other` looks at packets.
    #[inline]
    pub fn has_packet_programs(&self, other: &Self) -> bool {
        // SAFETY: Both socks are valid, and each holds its control group, of which only a pointer's value
        // is used.
        unsafe { bindings::socks_have_packet_programs(self.as_ptr(), other.as_ptr()) }
    }

    /// Returns the socket's `TCP_USER_TIMEOUT` in milliseconds; 0 if it has none. A hint.
    #[inline]
    pub fn user_timeout(&self) -> u32 {
        let icsk: *const bindings::inet_connection_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's, which begins with an `inet_connection_sock`; the field is read without the lock, as
        // TCP's timers do.
        unsafe { ptr::read_volatile(&raw const (*icsk).icsk_user_timeout) }
    }

    /// Returns how many bytes have arrived and were not read, up to an urgent byte. A hint.
    #[inline]
    pub fn unread_bytes(&self) -> usize {
        let all = self.arrived_bytes();
        self.unread_before_mark().map_or(all, |left| all.min(left))
    }

    /// Returns how many bytes can be read before an urgent one that has arrived and is not part of the stream
    /// (`SO_OOBINLINE`). A hint.
    #[inline]
    pub fn unread_before_mark(&self) -> Option<usize> {
        match self.oob_inline() {
            true => None,
            false => self.bytes_before_mark(),
        }
    }

    /// Returns how many bytes come before an urgent one that has arrived, be it part of the stream or not. A hint.
    #[inline]
    pub fn bytes_before_mark(&self) -> Option<usize> {
        let mark = self.bytes_to_mark();
        mark.filter(|left| *left < self.arrived_bytes())
    }

    /// Returns how many bytes are left before an urgent one that the reader has not passed. A hint.
    #[inline]
    fn bytes_to_mark(&self) -> Option<usize> {
        let left = || self.mark().wrapping_sub(self.position()) as usize;
        self.has_urgent().then(left)
    }

    /// Returns [`Sock::arrived_bytes`], and how many bytes are left before an urgent one that the reader has
    /// not passed. Sleeps for the lock when there is such a one: TCP says that it has come before it says where.
    #[inline]
    pub fn arrived_and_mark(&self) -> (usize, Option<usize>) {
        let arrived = self.arrived_bytes();
        // In this order: of a byte that has arrived it is known whether it is urgent.
        read_barrier();
        if !self.has_urgent() {
            return (arrived, None);
        }
        let _guard = self.lock();
        (self.arrived_bytes(), self.bytes_to_mark())
    }

    fn mark(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP's poll does.
        unsafe { ptr::read_volatile(&raw const (*tp).urg_seq) }
    }

    /// Returns whether the next byte to be read is the urgent one. Sleeps for the lock, as in
    /// [`Sock::arrived_and_mark`].
    #[inline]
    pub fn is_at_mark(&self) -> bool {
        if !self.has_urgent() {
            return false;
        }
        let _guard = self.lock();
        self.bytes_to_mark() == Some(0)
    }

    /// Returns whether the reader has not passed an urgent byte of TCP's stream.
    #[inline]
    pub fn has_urgent(&self) -> bool {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP's poll does.
        unsafe { ptr::read_volatile(&raw const (*tp).urg_data) != 0 }
    }

    /// Returns whether poll() has nothing to say of the connection but that bytes can be read and written:
    /// there is no end, error, completion or urgent byte.
    #[inline]
    pub fn is_plainly_open(&self) -> bool {
        self.state() == tcp_state::ESTABLISHED
            && self.shutdown_mask() == 0
            && !self.has_error()
            && !self.has_urgent()
            && !self.has_queued_errors()
    }

    /// Returns whether poll() is to say `EPOLLERR`: an error waits to be fetched, or something is in the error queue.
    /// As in TCP's poll, what was looked at before is at least as old: who finds the connection ended finds why.
    #[inline]
    pub fn polls_error(&self) -> bool {
        // The other barrier is that of `tcp_done_with_error()`, which sets the error first.
        read_barrier();
        self.has_error() || self.has_queued_errors()
    }

    /// Returns whether something is in the error queue: a completion, or what ICMP has said.
    #[inline]
    fn has_queued_errors(&self) -> bool {
        let sk = self.as_ptr();
        // SAFETY: The sock is valid, and its queue a part of it. The first pointer is read whole and without the
        // queue's lock, as TCP's poll does; nothing is read through it. In an empty queue it is the queue itself.
        unsafe {
            let queue = &raw const (*sk).sk_error_queue;
            let first = &raw const (*queue).__bindgen_anon_1.__bindgen_anon_1.next;
            ptr::read_volatile(first).cast_const().cast() != queue
        }
    }

    /// Returns whether TCP takes more bytes, or an error instead.
    pub fn is_writable(&self) -> bool {
        // SAFETY: The sock is valid; read without the lock, as TCP's poll does.
        let room = unsafe { bindings::sk_stream_is_writable(self.as_ptr()) };
        room || self.has_error() || !self.is_established() || self.is_send_shut()
    }

    /// Returns the same, for a program that is about to sleep if there is none: TCP wakes it when there is.
    pub fn becomes_writable(&self) -> bool {
        if self.is_writable() {
            return true;
        }
        // SAFETY: The sock is valid; the helper looks under RCU whether it has a socket.
        unsafe { bindings::tcp_expect_space(self.as_ptr()) };
        self.is_writable()
    }

    /// Gives TCP as much of `msg` as it takes without waiting; returns how much. A broken pipe raises no
    /// signal, and pages are copied.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is no room; TCP's.
    pub fn send_now(&self, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        let raw = msg.as_ptr();
        // SAFETY: The message is the caller's, and its flags are put back. The sock is valid, and TCP takes
        // its lock itself.
        let ret = unsafe {
            let before = (*raw).msg_flags;
            (*raw).msg_flags =
                before & !flags::MSG_ZEROCOPY | flags::MSG_DONTWAIT | flags::MSG_NOSIGNAL;
            let send = (*self.prot()).sendmsg;
            let ret = send.map(|send| send(self.as_ptr(), raw, len));
            (*raw).msg_flags = before;
            ret.ok_or(EINVAL)?
        };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// Takes what has arrived, at most `len` bytes, without waiting, into `msg`; `extra` are flags of
    /// recvmsg(). Returns 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is nothing; TCP's.
    pub fn receive_now(&self, msg: &mut Message<'_>, len: usize, extra: u32) -> Result<usize> {
        let receive = {
            // SAFETY: The table is live, see `prot`.
            unsafe { (*self.prot()).recvmsg }.ok_or(errno::EOPNOTSUPP)?
        };
        let flags = (extra | flags::MSG_DONTWAIT) as ffi::c_int;
        let peeks = extra & flags::MSG_PEEK != 0;
        // SAFETY: The sock is valid, and the field an aligned number that is read and written whole everywhere.
        let place: &Atomic<i32> =
            unsafe { Atomic::from_ptr(&raw mut (*self.as_ptr()).sk_peek_off) };
        let offset = place.load(Relaxed);
        // SAFETY: The message is the caller's with room for `len` bytes, the sock is valid, and TCP takes its
        // lock itself.
        let ret = unsafe { receive(self.as_ptr(), msg.as_ptr(), len, flags) };
        to_result(ret)?;
        if offset >= 0 && ret > 0 {
            // The caller moves it by all that it has got, from wherever. What TCP has made of it goes; what
            // setsockopt() has set meanwhile stays.
            let moved = match peeks {
                true => offset.wrapping_add(ret),
                false => offset.saturating_sub(ret).max(0),
            };
            let _ = place.cmpxchg(moved, offset, Relaxed);
        }
        Ok(ret as usize)
    }

    /// Copies up to `len` bytes of TCP's stream to `msg`, beginning `offset` bytes after the next one to be
    /// read, and leaves them there. Returns how many.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub fn peek_at(&self, offset: usize, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        let offset = u32::try_from(offset).map_err(|_| EINVAL)?;
        let len = ffi::c_int::try_from(len.min(i32::MAX as usize)).map_err(|_| EINVAL)?;
        let _guard = self.lock();
        // SAFETY: The sock is TCP's and locked; the message is the caller's with room for `len` bytes.
        let ret = unsafe { bindings::tcp_peek_at(self.as_ptr(), offset, msg.as_ptr(), len) };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// Returns for how much TCP has a receive buffer (`sk_rcvbuf`). A hint without the lock.
    pub fn receive_buffer(&self) -> u32 {
        // SAFETY: The sock is valid; read without the lock, as TCP does.
        let bytes = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_rcvbuf) };
        u32::try_from(bytes).unwrap_or(0)
    }

    /// Gives TCP's receive buffer more room, and tells the peer at once. Sleeps for the lock.
    pub fn widen(&self, by: u32) {
        let guard = self.lock();
        // SAFETY: The sock is TCP's and locked.
        unsafe { bindings::tcp_widen(self.as_ptr(), by) };
        drop(guard);
        // SAFETY: The sock is TCP's; this takes its lock itself. An acknowledgement is due, so it looks whether one that
        // tells of the room goes out now.
        unsafe { bindings::tcp_sock_set_quickack(self.as_ptr(), 1) };
    }

    /// Takes room back that [`Sock::widen`] has given, unless somebody has set another size since. What has come stays.
    /// Sleeps for the lock.
    pub fn narrow(&self, from: u32, to: u32) {
        let _guard = self.lock();
        if self.receive_buffer() == from {
            // SAFETY: The sock is locked, and the field is read without the lock, hence the volatile write.
            unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).sk_rcvbuf, to as ffi::c_int) };
        }
    }

    /// Returns whether TCP would take bytes to send, once there is room.
    #[inline]
    pub fn may_send(&self) -> bool {
        let open = matches!(self.state(), tcp_state::ESTABLISHED | tcp_state::CLOSE_WAIT);
        open && !self.has_error() && !self.is_send_shut()
    }

    /// Returns whether the program has ended its sending direction.
    #[inline]
    pub fn is_send_shut(&self) -> bool {
        self.shutdown_mask() & bindings::SEND_SHUTDOWN as u8 != 0
    }

    /// Returns whether nothing more will be received: the peer or the program has ended that direction.
    #[inline]
    pub fn is_receive_shut(&self) -> bool {
        self.shutdown_mask() & bindings::RCV_SHUTDOWN as u8 != 0
    }

    /// Sets TCP's delayed-ACK state as if data had just been received (`struct inet_connection_sock.icsk_ack`), for an
    /// end whose data come another way. A FIN is not acknowledged by a packet of its own then, if the program closes
    /// soon. Does nothing if the sock's lock is held. Any context; the caller must not hold the sock's lock.
    pub fn expect_data(&self) {
        // SAFETY: The sock is valid and one of TCP, also when it was closed meanwhile. Both numbers are written as
        // by a softirq: with the spinlock held, and nobody in between who owns the sock.
        unsafe { bindings::tcp_expect_data(self.as_ptr()) };
    }

    /// Wakes those who wait for data, as TCP does.
    #[inline]
    pub fn wake_for_data(&self) {
        // SAFETY: The sock is valid; its wait queue is read under RCU, and may have gone.
        unsafe { bindings::sk_tell_data(self.as_ptr()) };
    }

    /// Wakes threads that sleep in a receiving call, but no poller: the data that have come are fewer than
    /// `SO_RCVLOWAT`, and pollers hear nothing of such from TCP.
    pub fn wake_sleepers(&self) {
        // SAFETY: The sock is valid; its wait queue is read under RCU, and may have gone.
        unsafe { bindings::sk_tell_sleepers(self.as_ptr()) };
    }

    /// Wakes those who wait for room to write.
    #[inline]
    pub fn wake_for_room(&self) {
        // SAFETY: The sock is valid; its wait queue is read under RCU, and may have gone.
        unsafe { bindings::sk_tell_room(self.as_ptr()) };
    }
}
