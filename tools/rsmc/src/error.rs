// SPDX-License-Identifier: GPL-2.0
//! Errors of the tools, each kind with one line for the user.

use rustix::io::Errno;
use std::path::Path;
use std::{fmt, io};

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Error {
    /// The kernel has no SMC, or not the part that was asked: the line to print.
    NotThere(String),
    /// A table of the kernel does not allow the change: the line to print.
    Table(String),
    /// The kernel refused a request: what was asked, and its errno.
    Refused(&'static str, Errno),
    /// The kernel sent something that does not hold together.
    Malformed(&'static str),
    /// A test connection became a TCP connection: the line to print.
    BecameTcp(String),
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
            Error::NotThere(line)
            | Error::Table(line)
            | Error::BecameTcp(line)
            | Error::Usage(line) => f.write_str(line),
            Error::Refused(what, Errno::PERM | Errno::ACCESS) => {
                write!(f, "{what}: not permitted (CAP_NET_ADMIN is needed)")
            }
            Error::Refused(what, errno) => write!(f, "{what}: {}", io::Error::from(*errno)),
            Error::Malformed(what) => write!(f, "the kernel's answer makes no sense: {what}"),
            Error::Io(error) => write!(f, "{error}"),
        }
    }
}

/// Meaning of the exit codes, for help texts and manual pages; `rsmc run` has its own.
pub const EXIT_CODES: &str = "Exit status: 0 done; 1 failed for a cause not named here; 2 wrong usage; \
3 no SMC module is loaded, or it does not have what was asked; 4 not permitted; 5 the table does not \
allow the change (it is there already, is not there, or has no room); 6 a test connection became TCP. One line on standard error \
says what it was.";

impl Error {
    /// Reading or writing this file failed.
    pub fn at(path: &Path, error: io::Error) -> Self {
        let line = format!("{}: {error}", path.display());
        Error::Io(io::Error::new(error.kind(), line))
    }

    /// The same with more of a line before it.
    #[must_use]
    pub fn before(self, text: &str) -> Self {
        let line = format!("{text}: {self}");
        match self {
            Error::NotThere(_) => Error::NotThere(line),
            Error::Table(_) => Error::Table(line),
            Error::BecameTcp(_) => Error::BecameTcp(line),
            Error::Usage(_) => Error::Usage(line),
            Error::Refused(_, Errno::PERM | Errno::ACCESS) => {
                Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, line))
            }
            Error::Io(error) => Error::Io(io::Error::new(error.kind(), line)),
            Error::Refused(..) | Error::Malformed(_) => Error::Io(io::Error::other(line)),
        }
    }

    /// The exit code of a command that ended with this; see [`EXIT_CODES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::NotThere(_) => 3,
            Error::Refused(_, Errno::PERM | Errno::ACCESS) => 4,
            Error::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => 4,
            Error::Table(_) => 5,
            Error::BecameTcp(_) => 6,
            Error::Refused(..) | Error::Malformed(_) | Error::Io(_) => 1,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_by_cause() {
        let code = |error: Error| error.exit_code();
        assert_eq!(code(Error::Io(io::ErrorKind::NotFound.into())), 1);
        assert_eq!(code(Error::Malformed("x")), 1);
        assert_eq!(code(Error::Refused("x", Errno::INVAL)), 1);
        assert_eq!(code(Error::Usage("x".into())), 2);
        assert_eq!(code(Error::NotThere("x".into())), 3);
        assert_eq!(code(Error::Refused("x", Errno::PERM)), 4);
        assert_eq!(code(Error::Io(io::ErrorKind::PermissionDenied.into())), 4);
        assert_eq!(code(Error::Table("x".into())), 5);
        assert_eq!(code(Error::BecameTcp("x".into())), 6);
        let longer = Error::Refused("x", Errno::PERM).before("y");
        assert!(longer.to_string().starts_with("y: x: not permitted"));
        assert_eq!(code(longer), 4);
        assert_eq!(code(Error::NotThere("x".into()).before("y")), 3);
    }
}
