// SPDX-License-Identifier: GPL-2.0

//! Two numbers of a connection attempt that the SYN's hooks read or write: which options the program has chosen, and
//! what the SYN-ACK answered.
//!
//! A hook runs without the socket's lock, and may look at nothing of a socket but what is freed an RCU grace period
//! after it. `struct socket` is, and in its `flags` the kernel uses the bits below 24 alone, all of TCP's by set_bit()
//! and clear_bit().

use crate::net::stock::tables;
use core::ptr;
use kernel::{
    ffi,
    sync::atomic::{Atomic, Relaxed},
};
use smc_bindings as bindings;

/// A number in some bits of `socket->flags`.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    max: ffi::c_ulong,
}

/// What [`Policy`](super::Policy) is told of the program's choice.
const CHOICE: Field = Field {
    shift: 24,
    max: CHOICE_MAX as ffi::c_ulong,
};
/// What [`Policy::answer`](super::Policy::answer) has returned; 0 for none yet, or no.
const ANSWER: Field = Field {
    shift: 28,
    max: ANSWER_MAX as ffi::c_ulong,
};

/// Largest choice.
pub const CHOICE_MAX: u8 = 15;
/// The choice of the kernel's own connections, whatever table they have; no program's socket has it.
pub const OWN_CHOICE: u8 = CHOICE_MAX;
/// Largest answer.
pub const ANSWER_MAX: u8 = 7;

impl Field {
    /// # Safety
    ///
    /// `socket` is memory of a `struct socket` during the call.
    unsafe fn get(self, socket: *mut bindings::socket) -> u8 {
        // SAFETY: By the caller's promise; the field is a machine word, and all who change it meanwhile do so atomically.
        let flags = unsafe { ptr::read_volatile(&raw const (*socket).flags) };
        (flags.wrapping_shr(self.shift) & self.max) as u8
    }

    /// Writes a number, of which only the field's bits count.
    ///
    /// # Safety
    ///
    /// As [`Field::get`].
    unsafe fn set(self, socket: *mut bindings::socket, number: u8) {
        // SAFETY: By the caller's promise; the field is aligned, and all who change it meanwhile do so atomically.
        let flags = unsafe { Atomic::from_ptr(&raw mut (*socket).flags) };
        let bits = (ffi::c_ulong::from(number) & self.max).wrapping_shl(self.shift);
        let mut before = flags.load(Relaxed);
        loop {
            let after = before & !self.max.wrapping_shl(self.shift) | bits;
            match flags.cmpxchg(before, after, Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }
}

/// Returns the choice of a socket's program, if the socket runs on an active table of the overlay, or that of the
/// kernel's own connections. `socket` may be null.
///
/// # Safety
///
/// If not null, `socket` is memory of a `struct socket` at least until the end of the RCU section that the caller is
/// in, or it is open.
#[inline]
pub(crate) unsafe fn choice_of(socket: *mut bindings::socket) -> Option<u8> {
    if socket.is_null() {
        return None;
    }
    // SAFETY: By the caller's promise, and it is not null.
    let (active, choice) = unsafe { (tables::is_active(socket), CHOICE.get(socket)) };
    (active || choice == OWN_CHOICE).then_some(choice)
}

/// Notes the choice of a socket's program.
///
/// # Safety
///
/// `socket` is open.
pub(crate) unsafe fn choose(socket: *mut bindings::socket, choice: u8) {
    // SAFETY: By the caller's promise.
    unsafe { CHOICE.set(socket, choice) };
}

/// Returns what a socket's SYN was answered. `socket` may be null.
///
/// # Safety
///
/// As [`choice_of`].
pub(super) unsafe fn answer_of(socket: *mut bindings::socket) -> u8 {
    if socket.is_null() {
        return 0;
    }
    // SAFETY: By the caller's promise, and it is not null.
    unsafe { ANSWER.get(socket) }
}

/// Notes what a socket's SYN was answered. `socket` may be null.
///
/// # Safety
///
/// If not null, `socket` is the one of a locked sock.
pub(super) unsafe fn note_answer(socket: *mut bindings::socket, answer: u8) {
    if !socket.is_null() {
        // SAFETY: A sock gives up its socket under its lock, so this one lives.
        unsafe { ANSWER.set(socket, answer) };
    }
}
