// SPDX-License-Identifier: GPL-2.0

//! The error numbers of sockets, which `kernel::error::code` does not name.
//!
//! C headers: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h),
//! [`include/linux/errno.h`](srctree/include/linux/errno.h)

use kernel::error::Error;
use smc_bindings as bindings;

/// A positive error number, convertible into the kernel crate's [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// Returns the error as an [`Error`].
    #[inline]
    pub fn error(self) -> Error {
        Error::from_errno(self.0.wrapping_neg())
    }

    /// Returns the positive number.
    #[inline]
    pub(crate) fn number(self) -> i32 {
        self.0
    }

    /// Returns what an error number of the kernel's stands for; `None` for 0.
    #[inline]
    pub(crate) fn pending(number: i32) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Returns the number of an [`Error`].
    #[inline]
    pub fn of(err: Error) -> Self {
        Self(err.to_errno().wrapping_neg())
    }

    /// Returns whether `err` is this error.
    #[inline]
    pub fn is(self, err: Error) -> bool {
        err.to_errno() == self.0.wrapping_neg()
    }
}

impl From<Errno> for Error {
    #[inline]
    fn from(errno: Errno) -> Error {
        errno.error()
    }
}

macro_rules! declare {
    ($($name:ident: $doc:literal,)*) => {
        $(
            #[doc = $doc]
            #[allow(clippy::cast_possible_wrap)]
            pub const $name: Errno = Errno(bindings::$name as i32);
        )*
    };
}

declare! {
    EACCES: "Permission denied.",
    EADDRINUSE: "Address already in use.",
    EADDRNOTAVAIL: "Cannot assign requested address.",
    EAFNOSUPPORT: "Address family not supported by protocol.",
    EALREADY: "Operation already in progress.",
    ECONNABORTED: "Software caused connection abort.",
    ECONNREFUSED: "Connection refused.",
    ECONNRESET: "Connection reset by peer.",
    EHOSTDOWN: "Host is down.",
    EHOSTUNREACH: "No route to host.",
    ENETUNREACH: "Network is unreachable.",
    ENOBUFS: "No buffer space available.",
    EISCONN: "Transport endpoint is already connected.",
    EINPROGRESS: "Operation now in progress.",
    ENOIOCTLCMD: "No such ioctl command.",
    ENONET: "Machine is not on the network.",
    ENOMEM: "Out of memory.",
    ENOPROTOOPT: "Protocol not available.",
    ENOTCONN: "Transport endpoint is not connected.",
    EOPNOTSUPP: "Operation not supported on transport endpoint.",
    EPROTO: "Protocol error.",
    EPROTONOSUPPORT: "Protocol not supported.",
    ERESTARTSYS: "System call is to be restarted.",
    ESOCKTNOSUPPORT: "Socket type not supported.",
    ETIMEDOUT: "Connection timed out.",
    EAGAIN: "Try again.",
    EINVAL: "Invalid argument.",
    EEXIST: "File exists.",
    EPIPE: "Broken pipe.",
}
