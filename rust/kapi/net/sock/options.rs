// SPDX-License-Identifier: GPL-2.0

//! Options that the program has set by setsockopt().

use super::Sock;
use crate::net::args::Message;
use core::ptr;
use kernel::{
    error::to_result,
    ffi,
    prelude::*, //
};
use smc_bindings as bindings;

impl Sock {
    /// Returns the longest a blocking receive may wait, in jiffies; 0 when `nonblock`.
    #[inline]
    pub fn receive_timeout(&self, nonblock: bool) -> isize {
        if nonblock {
            return 0;
        }
        // SAFETY: The sock is valid; read without the lock, as `sock_rcvtimeo` does.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_rcvtimeo) as isize }
    }

    /// Returns the longest a blocking send or connect may wait, in jiffies; 0 when `nonblock`.
    #[inline]
    pub fn send_timeout(&self, nonblock: bool) -> isize {
        // SAFETY: The sock is valid.
        unsafe { bindings::sock_sndtimeo(self.as_ptr(), nonblock) as isize }
    }

    /// Returns the error of a wait that a signal ended: `EINTR` if it had a limit, else `ERESTARTSYS`.
    #[inline]
    pub fn interrupted(timeout: isize) -> Error {
        // SAFETY: Pure function.
        Error::from_errno(unsafe { bindings::sock_intr_errno(timeout as ffi::c_long) })
    }

    /// Returns whether a flag of `enum sock_flags` is set.
    #[inline]
    pub(super) fn has_flag(&self, flag: u32) -> bool {
        let sk = self.as_ptr();
        // SAFETY: The sock is valid and full, so the union is its flags; the bits are read without the
        // lock, as `sock_flag` does.
        let flags =
            unsafe { ptr::read_volatile(&raw const (*sk).__sk_common.__bindgen_anon_5.skc_flags) };
        flags as usize & 1usize.wrapping_shl(flag) != 0
    }

    /// Returns how many bytes make a receive return (`SO_RCVLOWAT`), at most `len`.
    #[inline]
    pub fn low_water(&self, wait_all: bool, len: usize) -> usize {
        let len = len.min(i32::MAX as usize);
        if wait_all {
            return len;
        }
        // SAFETY: The sock is valid; read without the lock as `sock_rcvlowat` does.
        let low = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_rcvlowat) };
        usize::try_from(low).unwrap_or(0).min(len).max(1)
    }

    /// Returns whether pollers are to hear of a certain number of bytes only (`SO_RCVLOWAT`), and not of any.
    #[inline]
    pub fn has_low_water(&self) -> bool {
        self.low_water(false, 2) > 1
    }

    /// Returns the beginning of a peek (`SO_PEEK_OFF`), in bytes after the next byte to be read.
    #[inline]
    pub fn peek_offset(&self) -> usize {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        let offset = unsafe { bindings::sk_peek_offset(self.as_ptr()) };
        usize::try_from(offset).unwrap_or(0)
    }

    /// Tells whether the program uses `SO_PEEK_OFF`.
    #[inline]
    pub fn has_peek_offset(&self) -> bool {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        let offset = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_peek_off) };
        offset >= 0
    }

    /// Moves `SO_PEEK_OFF`, if the program uses it: `len` bytes were peeked at, or read. Sleeps for the lock.
    pub fn move_peek_offset(&self, peeked: bool, len: usize) {
        let len = len.min(i32::MAX as usize) as ffi::c_int;
        // As setsockopt() and TCP's own calls, or what a program sets meanwhile would be lost.
        let _guard = self.lock();
        // SAFETY: The sock is valid, and its lock is held.
        unsafe {
            if peeked {
                bindings::sk_peek_offset_fwd(self.as_ptr(), len);
            } else {
                bindings::sk_peek_offset_bwd(self.as_ptr(), len);
            }
        }
    }

    /// Returns the size of the receive buffer that the user asked for, in bytes, if he did.
    pub fn wanted_receive_buffer(&self) -> Option<usize> {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        let locked = unsafe { bindings::sk_rcvbuf_locked(self.as_ptr()) };
        (locked > 0).then_some(locked as usize)
    }

    /// Returns the size of the send buffer that the user asked for, in bytes, if he did.
    pub fn wanted_send_buffer(&self) -> Option<usize> {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        let locked = unsafe { bindings::sk_sndbuf_locked(self.as_ptr()) };
        (locked > 0).then_some(locked as usize)
    }

    /// Returns whether `TCP_CORK` or `MSG_MORE` of TCP holds data back.
    #[inline]
    pub fn is_corked(&self) -> bool {
        // SAFETY: The sock is valid.
        unsafe { bindings::tcp_is_corked(self.as_ptr()) }
    }

    /// Returns whether a listener's half-open connections become another one's when it is closed
    /// (`SO_REUSEPORT` with `net.ipv4.tcp_migrate_req`).
    pub fn migrates_requests(&self) -> bool {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        unsafe { bindings::tcp_migrates_requests(self.as_ptr()) }
    }

    /// Returns whether `SO_LINGER` is set with time zero.
    pub fn lingers_not(&self) -> bool {
        // SAFETY: The sock is valid.
        unsafe { bindings::sk_linger_zero(self.as_ptr()) }
    }

    /// Returns how long close() waits for what is unsent (`SO_LINGER` with a time), in jiffies; 0
    /// when it does not, which is also so when the process is ending.
    pub fn linger_timeout(&self) -> isize {
        // SAFETY: It has no preconditions.
        let exiting = unsafe { bindings::current_is_exiting() };
        if exiting || !self.has_flag(bindings::sock_flags_SOCK_LINGER) {
            return 0;
        }
        // SAFETY: The sock is valid; read without the lock as `inet_release` does.
        let timeout = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_lingertime) };
        isize::try_from(timeout).unwrap_or(isize::MAX)
    }

    /// Judges the control messages of a `sendmsg`, as TCP does before it takes bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `EPERM`: TCP's.
    #[cold]
    pub fn check_control(&self, msg: &mut Message<'_>) -> Result {
        let mut cookie = bindings::sockcm_cookie {
            // SAFETY: The sock is valid; read without the lock as TCP does.
            tsflags: unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_tsflags) },
            ..Default::default()
        };
        // SAFETY: The sock and the message are valid, and the control messages of a `sendmsg` are in the kernel's
        // memory. What they say goes into `cookie` and nowhere else.
        to_result(unsafe { bindings::sock_cmsg_send(self.as_ptr(), msg.as_ptr(), &mut cookie) })
    }

    /// Returns whether `SO_OOBINLINE` is set.
    #[inline]
    pub fn oob_inline(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_URGINLINE)
    }
}
