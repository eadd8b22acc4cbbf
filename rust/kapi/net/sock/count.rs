// SPDX-License-Identifier: GPL-2.0

//! `TCP_INQ`: how many bytes recvmsg() has left behind.

use super::Sock;
use crate::net::args::Message;
use core::{mem::size_of, ptr};
use kernel::ffi;
use smc_bindings as bindings;

impl Sock {
    /// Tells whether the program wants to know how many bytes are left.
    #[inline]
    pub fn wants_count(&self) -> bool {
        // SAFETY: A TCP socket, as all of this type.
        unsafe { bindings::tcp_wants_count(self.as_ptr()) }
    }

    /// Adds the control message to `msg`, one of `recvmsg`, that says that `left` bytes are there. Where there is
    /// no room for it, `MSG_CTRUNC` says so.
    #[cold]
    pub fn put_count(&self, msg: &mut Message<'_>, left: u32) {
        let mut left = ffi::c_int::try_from(left).unwrap_or(ffi::c_int::MAX);
        // SAFETY: The message is valid and ours; the data is as long as it is said to be and is only copied.
        unsafe {
            bindings::put_cmsg(
                msg.as_ptr(),
                bindings::SOL_TCP as ffi::c_int,
                bindings::TCP_CM_INQ as ffi::c_int,
                size_of::<ffi::c_int>() as ffi::c_int,
                ptr::from_mut(&mut left).cast(),
            );
        }
    }
}
