// SPDX-License-Identifier: GPL-2.0
//! An owned descriptor that closes itself and can be lent as a number.

use std::os::fd::RawFd;

/// Owned file descriptor.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Takes ownership of `fd`.
    pub fn new(fd: RawFd) -> Fd {
        Fd(fd)
    }

    /// The number.
    pub fn raw(&self) -> RawFd {
        self.0
    }

    /// Gives ownership away.
    pub fn into_raw(self) -> RawFd {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }

    /// Closes it and says what `close` returned.
    pub fn close(self) -> crate::errno::R<i64> {
        let fd = self.into_raw();
        // SAFETY: `fd` was owned by `self`, which is gone.
        crate::errno::cvt(i64::from(unsafe { libc::close(fd) }))
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is owned by `self`.
        unsafe { libc::close(self.0) };
    }
}
