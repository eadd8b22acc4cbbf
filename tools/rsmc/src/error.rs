// SPDX-License-Identifier: GPL-2.0
//! What can go wrong, each kind with one line for the user.

use rustix::io::Errno;
use std::{fmt, io};

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Error {
    /// The kernel has no SMC, or not the part that was asked: the line to print.
    NotThere(String),
    /// The kernel refused a request: what was asked, and its errno.
    Refused(&'static str, Errno),
    /// The kernel sent something that does not hold together.
    Malformed(&'static str),
    /// The arguments make no sense: the line to print; exit code 2.
    Usage(String),
    /// Reading or writing failed.
    Io(io::Error),
}

/// Result of anything here.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotThere(line) | Error::Usage(line) => f.write_str(line),
            Error::Refused(what, Errno::PERM | Errno::ACCESS) => {
                write!(f, "{what}: not permitted (CAP_NET_ADMIN is needed)")
            }
            Error::Refused(what, errno) => write!(f, "{what}: {}", io::Error::from(*errno)),
            Error::Malformed(what) => write!(f, "the kernel's answer makes no sense: {what}"),
            Error::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::Io(error.into())
    }
}
