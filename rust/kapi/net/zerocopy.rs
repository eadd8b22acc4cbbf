// SPDX-License-Identifier: GPL-2.0

//! `MSG_ZEROCOPY` for bytes that are copied: the program still waits for a notification on its
//! error queue before it uses its buffer again.

use super::{
    args::{flags, Message},
    sock::Sock, //
};
use crate::errno;
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::prelude::*;
use smc_bindings as bindings;

/// The notification of one send. Without [`Notification::copied`] there is none.
///
/// # Invariants
///
/// `uarg` is a reference of ours, made by `msg_zerocopy_realloc` for a sock that lives for `'a`.
pub struct Notification<'a> {
    uarg: NonNull<bindings::ubuf_info>,
    _sock: PhantomData<&'a Sock>,
}

impl Sock {
    /// Prepares the notification that `msg` asks for, if it does and the socket allows it
    /// (`SO_ZEROCOPY`).
    ///
    /// # Errors
    ///
    /// `ENOBUFS` when there are too many already, as with TCP.
    #[inline]
    pub fn notification(&self, msg: &mut Message<'_>) -> Result<Option<Notification<'_>>> {
        if !msg.has(flags::MSG_ZEROCOPY) || msg.len() == 0 {
            return Ok(None);
        }
        // SAFETY: The message is valid, and the sock is.
        let wanted = unsafe {
            // A caller with a notification of his own (io_uring) ends it himself.
            (*msg.as_ptr()).msg_ubuf.is_null() && bindings::sk_wants_zerocopy(self.as_ptr())
        };
        if !wanted {
            return Ok(None);
        }
        // SAFETY: The sock is valid and this is process context; a new one needs no lock. No page of
        // the program is held, so none is accounted.
        let uarg = unsafe {
            bindings::msg_zerocopy_realloc(self.as_ptr(), 0, core::ptr::null_mut(), false)
        };
        let uarg = NonNull::new(uarg).ok_or(errno::ENOBUFS.error())?;
        // INVARIANT: Just made, for this sock.
        Ok(Some(Notification {
            uarg,
            _sock: PhantomData,
        }))
    }
}

impl Notification<'_> {
    /// Tells the program that its bytes were taken, by copying them.
    pub fn copied(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: By the type invariant; the reference goes with the call.
        unsafe { bindings::zcopy_copied(this.uarg.as_ptr()) };
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the reference goes with the call.
        unsafe { bindings::zcopy_abort(self.uarg.as_ptr()) };
    }
}
