// SPDX-License-Identifier: GPL-2.0

//! The client's side: what the SYN-ACK said.
//!
//! TCP calls `sk_rx_dst_set` with that packet. For the time of the handshake the connection has a
//! copy of its `icsk_af_ops` with that one function replaced.

use super::{
    fields::{answer_of, choice_of, note_answer},
    header::{Header, FLAG_ACK, FLAG_SYN},
    SynAck,
    SynContext, //
};
use crate::{
    net::sock::{Sock, SockGuard},
    sys::word::Pointer, //
};
use core::{
    cell::UnsafeCell,
    ptr, //
};
use kernel::{
    sync::{
        atomic::{Acquire, Atomic, Full, Release},
        rcu, //
    },
    time::{delay::fsleep, Delta}, //
};
use smc_bindings as bindings;

/// A copy of one address family's operations, which is installed while the answer is awaited.
struct AnswerOps {
    /// The table that was copied; null while the slot is free.
    original: Pointer<bindings::inet_connection_sock_af_ops>,
    waiting: UnsafeCell<bindings::inet_connection_sock_af_ops>,
}

// SAFETY: The copy is written once, with `FILLING` taken, before `original` is set.
unsafe impl Sync for AnswerOps {}

impl AnswerOps {
    const fn new() -> Self {
        // SAFETY: All-zero is a valid value: integers and `None`s.
        let zero = unsafe { core::mem::zeroed() };
        Self {
            original: Pointer::null(),
            waiting: UnsafeCell::new(zero),
        }
    }
}

/// One slot for each table that TCP has: IPv4, IPv6, IPv6 with a mapped peer.
static SLOTS: [AnswerOps; 4] = [
    AnswerOps::new(),
    AnswerOps::new(),
    AnswerOps::new(),
    AnswerOps::new(),
];
/// 0 free, 1 taken: serialises the filling of slots.
static FILLING: Atomic<u32> = Atomic::new(0);
/// [`Policy::answer`](super::Policy::answer) as a number; 0 before there are hooks.
pub(super) static DECIDE: Atomic<usize> = Atomic::new(0);

fn af_ops(sock: &Sock) -> *mut *const bindings::inet_connection_sock_af_ops {
    let icsk: *mut bindings::inet_connection_sock = sock.as_ptr().cast();
    // SAFETY: A TCP sock begins with an `inet_connection_sock`; only an address is computed.
    unsafe { &raw mut (*icsk).icsk_af_ops }
}

fn slot_of(original: *const bindings::inet_connection_sock_af_ops) -> Option<&'static AnswerOps> {
    let known = || {
        SLOTS
            .iter()
            .find(|slot| ptr::eq(slot.original.acquire(), original))
    };
    if let Some(slot) = known() {
        return Some(slot);
    }
    // Sleeping is allowed where connections begin, and this happens once for each of TCP's tables.
    while FILLING.cmpxchg(0, 1, Full).is_err() {
        fsleep(Delta::from_micros(20));
    }
    let slot = known().or_else(|| {
        let slot = SLOTS
            .iter()
            .find(|slot| slot.original.acquire().is_null())?;
        // SAFETY: `original` is a live constant table of TCP's. The slot is free, so nobody reads
        // its copy, and `FILLING` keeps other writers away.
        unsafe {
            *slot.waiting.get() = bindings::inet_connection_sock_af_ops {
                sk_rx_dst_set: Some(answer_arrived),
                ..ptr::read(original)
            };
        }
        slot.original.release(original.cast_mut());
        Some(slot)
    });
    FILLING.store(0, Release);
    slot
}

/// Returns the slot whose copy `ops` is.
fn find(ops: *const bindings::inet_connection_sock_af_ops) -> Option<&'static AnswerOps> {
    SLOTS.iter().find(|slot| ptr::eq(slot.waiting.get(), ops))
}

/// Watches for the SYN-ACK of a connection whose SYN has just been sent. What an earlier attempt was
/// answered counts no more.
pub(crate) fn watch_answer(guard: &SockGuard<'_>) {
    let place = af_ops(guard.sock());
    // SAFETY: The socket lock is held, under which the field changes.
    let current = unsafe { ptr::read_volatile(place) };
    // SAFETY: The sock is locked.
    unsafe { note_answer(socket_of(guard.sock()), 0) };
    if let Some(slot) = find(current).or_else(|| slot_of(current)) {
        // SAFETY: `place` is an aligned pointer of the sock, which the guard keeps; nobody writes through the pointer in
        // it, so whether that is const is all the same. The socket lock keeps other writers away; getsockopt() and
        // setsockopt(), which read without it, do so by READ_ONCE() and get either of two equivalent tables.
        // Released, so that they find this one filled, which may have been done just now.
        unsafe { Atomic::from_ptr(place.cast::<*mut _>()) }.store(slot.waiting.get(), Release);
    }
}

/// Returns the `struct socket` of a sock; null if it has none.
fn socket_of(sock: &Sock) -> *mut bindings::socket {
    // SAFETY: The sock is valid; only the pointer's value is used.
    unsafe { ptr::read_volatile(&raw const (*sock.as_ptr()).sk_socket) }
}

/// Returns what the SYN-ACK answered, see [`Policy::answer`](super::Policy::answer). Ends the watching.
pub fn answered(guard: &SockGuard<'_>) -> u8 {
    let answer = answer(guard.sock());
    forget(guard);
    answer
}

/// Returns what the SYN-ACK answered, as [`answered`] does, and leaves everything as it is. The caller has the sock
/// locked, or has had it since the connection is established: TCP calls it that before the answer is noted.
pub fn answer(sock: &Sock) -> u8 {
    let _rcu = rcu::read_lock();
    // SAFETY: A `struct socket` is freed an RCU grace period after it has left its sock.
    unsafe { answer_of(socket_of(sock)) }
}

/// Returns what the program of a sock has chosen, as [`BsdSocket::choice`](crate::net::socket::BsdSocket::choice).
pub fn choice(sock: &Sock) -> Option<u8> {
    let _rcu = rcu::read_lock();
    // SAFETY: A `struct socket` is freed an RCU grace period after it has left its sock.
    unsafe { choice_of(socket_of(sock)) }
}

/// Gives a connection its own operations back, and forgets the answer.
pub(crate) fn forget(guard: &SockGuard<'_>) {
    // SAFETY: The sock is locked; its socket's number changes under that lock.
    unsafe { note_answer(socket_of(guard.sock()), 0) };
    unwatch(guard);
}

/// Gives a connection its own operations back, if it has them not: no attempt begins any more.
pub(crate) fn end(sock: &Sock) {
    // SAFETY: The sock is valid. Whoever has put a copy there was a call, or was waited for.
    let current = unsafe { ptr::read_volatile(af_ops(sock)) };
    if find(current).is_some() {
        unwatch(&sock.lock());
    }
}

fn unwatch(guard: &SockGuard<'_>) {
    let place = af_ops(guard.sock());
    // SAFETY: The sock is locked, under which its table changes. The original is the table that the sock had before.
    unsafe {
        if let Some(slot) = find(ptr::read_volatile(place)) {
            ptr::write_volatile(place, slot.original.acquire());
        }
    }
}

/// Looks at an awaited SYN-ACK: `sk_rx_dst_set` of the connection.
///
/// # Safety
///
/// Called by the kernel alone. TCP calls it with the socket locked, and with a segment of its peer
/// that it has checked.
unsafe extern "C" fn answer_arrived(sk: *mut bindings::sock, skb: *const bindings::sk_buff) {
    // SAFETY: TCP calls this with the socket locked and an incoming segment.
    let sock = unsafe { Sock::from_raw(sk) };
    let place = af_ops(sock);
    // SAFETY: The socket is locked.
    let current = unsafe { ptr::read_volatile(place) };
    let Some(slot) = find(current) else {
        return;
    };
    let original = slot.original.acquire();
    // SAFETY: TCP has checked and pulled the whole TCP header of an incoming segment.
    let header = unsafe { Header::of(skb.cast_mut()) };
    let answer = header.map_or(0, |header| {
        let syn_ack = header.flags() & (FLAG_SYN | FLAG_ACK) == FLAG_SYN | FLAG_ACK;
        let decide = DECIDE.load(Acquire);
        if !syn_ack || decide == 0 {
            return 0;
        }
        let context = SynContext {
            // SAFETY: The socket is locked, so its `struct socket` lives if the sock still has one.
            choice: unsafe { choice_of(socket_of(sock)) }.unwrap_or(0),
            net: sock.net_cookie(),
            again: sock.sent_again(),
        };
        // SAFETY: A nonzero `DECIDE` is a function pointer of this type stored by `Hooks::new`,
        // and the module that holds the function is alive while one of its sockets is.
        let decide: fn(SynContext, SynAck<'_>) -> u8 = unsafe { core::mem::transmute(decide) };
        decide(context, header.syn_ack())
    });
    // SAFETY: The socket is locked, and the table is TCP's own.
    unsafe {
        note_answer(socket_of(sock), answer);
        ptr::write_volatile(place, original);
    }
    // SAFETY: A constant table of TCP's.
    if let Some(native) = unsafe { (*original).sk_rx_dst_set } {
        // SAFETY: The same arguments in the same context.
        unsafe { native(sk, skb) };
    }
}
