// SPDX-License-Identifier: GPL-2.0

//! Busy polling: a program that waits for data polls the card itself (`SO_BUSY_POLL`, `net.core.busy_read`, epoll's).
//!
//! C header: [`include/net/busy_poll.h`](srctree/include/net/busy_poll.h)

use super::Sock;
use core::ptr;
use kernel::ffi::{c_ulong, c_void};
use smc_bindings as bindings;

/// The end of a busy poll: when the caller has what it wants, or the time of `SO_BUSY_POLL` is over.
struct End<'a, F> {
    sock: &'a Sock,
    has_ended: F,
}

impl<F: Fn() -> bool> End<'_, F> {
    /// # Safety
    ///
    /// Called by `napi_busy_loop()` alone, with the `End` of [`Sock::busy_poll`], which waits for it.
    unsafe extern "C" fn ask(this: *mut c_void, begun: c_ulong) -> bool {
        // SAFETY: By the function's contract it is an `End` that lives, and only shared references are made.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: The sock is valid.
        (this.has_ended)() || unsafe { bindings::sk_busy_loop_is_over(this.sock.as_ptr(), begun) }
    }
}

impl Sock {
    /// Tells whether reads are to poll the card before they sleep, and for how many microseconds; 0: they are not.
    #[inline]
    pub fn busy_poll_micros(&self) -> u32 {
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        // SAFETY: The sock is valid; read without its lock, as TCP does.
        let micros = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_ll_usec) };
        #[cfg(not(CONFIG_NET_RX_BUSY_POLL))]
        let micros = 0;
        micros
    }

    /// Polls the NAPI context of this number until `has_ended` or the time of `SO_BUSY_POLL` is over; once if
    /// `nonblock`, and not at all if a signal is pending. `has_ended` must not sleep.
    #[cold]
    pub fn busy_poll(&self, napi_id: u32, nonblock: bool, has_ended: impl Fn() -> bool) {
        fn function<F: Fn() -> bool>(
            _: &End<'_, F>,
        ) -> unsafe extern "C" fn(*mut c_void, c_ulong) -> bool {
            End::<'_, F>::ask
        }
        let end = End {
            sock: self,
            has_ended,
        };
        let ask = (!nonblock).then(|| function(&end));
        // SAFETY: The sock is valid. `ask` is called during this call alone, with `end`, which lives that long.
        unsafe {
            bindings::sk_busy_loop_for(
                self.as_ptr(),
                napi_id,
                ask,
                ptr::from_ref(&end).cast_mut().cast(),
            );
        }
    }

    /// Says that data for the socket come by the NAPI context of this number, so that epoll and io_uring poll that.
    /// Each segment of TCP says otherwise, so this is to be said again with the data.
    #[inline]
    pub fn set_napi(&self, napi_id: u32) {
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        // SAFETY: The sock is valid; read and written without its lock, as TCP does.
        unsafe {
            let place = &raw mut (*self.as_ptr()).sk_napi_id;
            if ptr::read_volatile(place) != napi_id {
                ptr::write_volatile(place, napi_id);
            }
        }
        #[cfg(not(CONFIG_NET_RX_BUSY_POLL))]
        let _ = napi_id;
    }
}
