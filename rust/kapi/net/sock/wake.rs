// SPDX-License-Identifier: GPL-2.0

//! Wake-ups and signals of those who wait for a socket.

use super::Sock;
use crate::sys::word::full_barrier;
use smc_bindings as bindings;

impl Sock {
    /// Wakes all that wait for a change of the connection's state, SIGIO included.
    pub fn wake_state(&self) {
        // SAFETY: The sock is valid; the helper holds `sk_callback_lock`, under which the
        // callbacks and `sk_wq` are stable.
        unsafe { bindings::sk_state_change(self.as_ptr()) };
    }

    /// Wakes all waiters and pollers: the socket is connected. SIGIO says that it can be written to.
    pub fn wake_connected(&self) {
        self.wake_state();
        // SAFETY: The sock is valid; its wait queue is read under RCU, and may have gone.
        unsafe { bindings::sk_signal_connected(self.as_ptr()) };
    }

    /// Says that the program has found no room, so that SIGIO tells of some. To be called where the
    /// room cannot change meanwhile.
    #[inline]
    pub fn expect_room(&self) {
        // SAFETY: The sock is valid. Its wait queue is touched only while somebody has asked for
        // SIGIO, which ends before the file does; a program is in a call on that.
        unsafe { bindings::sk_expect_space(self.as_ptr()) };
    }

    /// Says whether a program sleeps for data: SIGIO does not tell of it then.
    #[inline]
    pub fn sleep_for_data(&self, sleeps: bool) {
        if self.has_flag(bindings::sock_flags_SOCK_FASYNC) {
            // SAFETY: The sock is valid. Its wait queue is touched only while somebody has asked for
            // SIGIO, which ends before the file does; a program is in a call on that.
            unsafe { bindings::sk_sleep_for_data(self.as_ptr(), sleeps) };
        }
    }

    /// Wakes those who wait for data or, on a listener, for connections.
    #[inline]
    pub fn wake_readers(&self) {
        // Who replaces the callback looks for data after that. With this either he finds what the caller has brought,
        // or the callback is found to be his.
        full_barrier();
        match self.native_data_ready() {
            // SAFETY:
            // * The sock is valid, and the function the kernel's own, `sock_def_readable()`.
            // * That reads `sk_wq` under RCU and needs no lock: TCP does not hold `sk_callback_lock` either.
            Some(ready) => unsafe { ready(self.as_ptr()) },
            // SAFETY: The sock is valid; the helper holds `sk_callback_lock`, under which the
            // callbacks and `sk_wq` are stable.
            None => unsafe { bindings::sk_data_ready(self.as_ptr()) },
        }
    }

    /// Wakes all that watch for errors.
    #[inline]
    pub fn wake_error(&self) {
        // SAFETY: The sock is valid; the helper holds `sk_callback_lock`, under which the
        // callbacks and `sk_wq` are stable.
        unsafe { bindings::sk_report_error(self.as_ptr()) };
    }

    /// Tells the owner of the file that urgent data has come (SIGURG).
    pub fn signal_urgent(&self) {
        // SAFETY: The sock is valid; the helper holds the lock that protects the file.
        unsafe { bindings::sk_signal_urgent(self.as_ptr()) };
    }
}
