// SPDX-License-Identifier: GPL-2.0

//! Bytes of a connection, taken and given without waiting.

use super::{tcp_state, Sock, SockGuard};
use crate::errno;
use core::ptr;
use kernel::{
    error::to_result,
    ffi,
    prelude::*, //
};
use smc_bindings as bindings;

impl Sock {
    /// Takes what is there, without waiting; stops before urgent data. Returns 0 at end of stream.
    ///
    /// The program's `SO_PEEK_OFF` is left alone, since these bytes are none of its stream, and so
    /// is a pending error.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when nothing has arrived; TCP's errors otherwise.
    pub fn receive(&self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let guard = self.lock();
        let mut desc = bindings::read_descriptor_t {
            written: 0,
            count: buf.len(),
            arg: bindings::read_descriptor_t__bindgen_ty_1 {
                data: buf.as_mut_ptr().cast(),
            },
            error: 0,
        };
        // SAFETY: The sock is valid and locked, and `desc` describes `buf`, as `take` wants it.
        let ret = unsafe { bindings::tcp_read_sock(self.as_ptr(), &mut desc, Some(take)) };
        self.received(&guard, ret)
    }

    /// Copies what is there and leaves it in the receive queue, urgent data included. Returns 0 at
    /// end of stream.
    ///
    /// Unlike `MSG_PEEK` this neither obeys nor moves the program's `SO_PEEK_OFF`, and it leaves a
    /// pending error to the program.
    ///
    /// # Errors
    ///
    /// As [`Sock::receive`].
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize> {
        self.peek_from(None, buf)
    }

    /// As [`Sock::peek`], but from this position of TCP's stream on, which was not read.
    ///
    /// # Errors
    ///
    /// As [`Sock::receive`].
    pub fn peek_from(&self, position: Option<u32>, buf: &mut [u8]) -> Result<usize> {
        let len = ffi::c_int::try_from(buf.len()).map_err(|_| EINVAL)?;
        let guard = self.lock();
        let from = position.unwrap_or(self.position());
        // SAFETY: The sock is valid and locked, and `buf` is that long.
        let ret = unsafe { bindings::tcp_peek(self.as_ptr(), from, buf.as_mut_ptr().cast(), len) };
        self.received(&guard, ret)
    }

    /// Turns the result of `tcp_recvmsg`, a count of bytes or an error, into one of Rust.
    fn received(&self, _guard: &SockGuard<'_>, count: ffi::c_int) -> Result<usize> {
        to_result(count)?;
        if count > 0 {
            return Ok(count as usize);
        }
        if self.has_seen_fin() {
            return Ok(0);
        }
        let error = self.pending_error();
        if error != 0 {
            Err(Error::from_errno(error.wrapping_neg()))
        } else if self.shutdown_mask() & bindings::RCV_SHUTDOWN as u8 != 0 {
            Ok(0)
        } else if self.state() == tcp_state::CLOSE {
            Err(errno::ENOTCONN.into())
        } else {
            Err(EAGAIN)
        }
    }

    /// Ends our direction of the connection in good order, as shutdown() for sending does. Sleeps.
    pub fn end_stream(&self) {
        let guard = self.lock();
        let sk = guard.sock().as_ptr();
        if matches!(self.state(), tcp_state::ESTABLISHED | tcp_state::CLOSE_WAIT) {
            // SAFETY: The sock is valid and locked, and the table is live, see `prot`. This is what
            // `inet_shutdown` does; the field is read without the lock, hence the volatile write.
            unsafe {
                let shut = self.shutdown_mask() | bindings::SEND_SHUTDOWN as u8;
                ptr::write_volatile(&raw mut (*sk).sk_shutdown, shut);
                if let Some(shutdown) = (*self.prot()).shutdown {
                    shutdown(sk, bindings::SEND_SHUTDOWN as ffi::c_int);
                }
            }
        }
    }

    /// Sends `buf` without waiting; returns how much was taken. A pending error is left to the program.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when the send buffer is full; the pending error; TCP's errors otherwise.
    pub fn send(&self, buf: &[u8]) -> Result<usize> {
        let _guard = self.lock();
        // `tcp_sendmsg_locked` would fetch it. While the sock is locked none is set by what arrives.
        match self.pending_error() {
            0 => (),
            error => return Err(Error::from_errno(error.wrapping_neg())),
        }
        let vec = bindings::kvec {
            iov_base: buf.as_ptr().cast_mut().cast(),
            iov_len: buf.len(),
        };
        let mut msg = bindings::msghdr {
            msg_flags: bindings::MSG_DONTWAIT | bindings::MSG_NOSIGNAL,
            ..Default::default()
        };
        // SAFETY: `msg.msg_iter` becomes a source over `vec`, which describes `buf`; a source is
        // only read from, and both outlive the call below.
        unsafe {
            bindings::iov_iter_kvec(&mut msg.msg_iter, bindings::ITER_SOURCE, &vec, 1, buf.len())
        };
        // By TCP itself: a sockmap's function would take it for the program's.
        // SAFETY: The sock is valid and locked, `msg` describes `buf`, and nothing waits.
        let ret = unsafe { bindings::tcp_sendmsg_locked(self.as_ptr(), &mut msg, buf.len()) };
        to_result(ret)?;
        Ok(ret as usize)
    }
}

/// Copies a piece of the receive queue to where `desc` says.
///
/// # Safety
///
/// Only called by `tcp_read_sock`, with what [`Sock::receive`] has given it.
unsafe extern "C" fn take(
    desc: *mut bindings::read_descriptor_t,
    skb: *mut bindings::sk_buff,
    offset: ffi::c_uint,
    len: usize,
) -> ffi::c_int {
    // SAFETY: `data` points to a buffer with room for `count` bytes after the first `written` ones,
    // and the segment has `len` bytes from `offset` on.
    unsafe {
        let part = len.min((*desc).count).min(i32::MAX as usize);
        let to: *mut u8 = (*desc).arg.data.cast();
        let to = to.add((*desc).written).cast();
        let ret = bindings::skb_copy_bits(skb, offset as ffi::c_int, to, part as ffi::c_int);
        if ret != 0 {
            return ret;
        }
        (*desc).written = (*desc).written.wrapping_add(part);
        (*desc).count = (*desc).count.wrapping_sub(part);
        part as ffi::c_int
    }
}
