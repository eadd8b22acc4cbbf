// SPDX-License-Identifier: GPL-2.0
//! `errno` values with their names, so that a trace reads the same everywhere.

use std::fmt;

/// A positive `errno` value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a system call.
pub type R<T> = Result<T, Errno>;

impl Errno {
    /// The calling thread's `errno`.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

macro_rules! names {
    ($($n:ident)*) => {
        fn name(e: i32) -> Option<&'static str> {
            $(if e == libc::$n { return Some(stringify!($n)); })*
            None
        }
    };
}

names! { EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV
EINVAL ENFILE EMFILE ENOTTY ENOSPC ESPIPE EPIPE ERANGE EDEADLK ENOSYS ENODATA ETIME EPROTO EBADMSG
EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN
ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT
ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EREMOTEIO ECANCELED }

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.0) {
            Some(n) => f.write_str(n),
            None => write!(f, "errno{}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Turns a C return value into a result.
pub fn cvt(r: i64) -> R<i64> {
    if r < 0 {
        Err(Errno::last())
    } else {
        Ok(r)
    }
}

/// A system call's result as a trace shows it: the number, or the name of the error.
pub fn show<T: fmt::Display>(r: &R<T>) -> String {
    match r {
        Ok(v) => v.to_string(),
        Err(e) => e.to_string(),
    }
}

/// As [`show`] for results whose value does not matter.
pub fn show_ok<T>(r: &R<T>) -> String {
    match r {
        Ok(_) => "ok".into(),
        Err(e) => e.to_string(),
    }
}
