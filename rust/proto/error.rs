// SPDX-License-Identifier: GPL-2.0

//! Errors in bytes of the peer, and in messages to be written.
//!
//! Typed errors only; the crate knows no errno. The C implementation answers
//! every one of [`ParseError`] and [`ReadError`] with `EPROTO` and ends the
//! connection, so the distinction serves logs, tests and counters.

use core::fmt;

/// Errors of received bytes that are not the message they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Fewer bytes than the structure at hand needs.
    Truncated,
    /// No SMC eyecatcher at the start ("SMCR" or "SMCD" in EBCDIC).
    Eyecatcher,
    /// A version this message cannot have (zero, or another one than asked for).
    Version(u8),
    /// Not the message type that was asked for, or an unknown one.
    Type(u8),
    /// A path type (R, D, none, both) that makes no sense in this message.
    Path(u8),
    /// The length field contradicts the message's own content, or the number
    /// of bytes given differs from it.
    Length(u16),
    /// An offset inside the message points outside of what it may point to.
    Offset(u16),
    /// A count of list elements beyond the protocol's limit.
    Count(u8),
    /// The last four bytes are no eyecatcher.
    Trailer,
    /// A field has a value the protocol excludes.
    Value,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Truncated => f.write_str("message is too short"),
            ParseError::Eyecatcher => f.write_str("no SMC eyecatcher"),
            ParseError::Version(v) => write!(f, "impossible version {v}"),
            ParseError::Type(t) => write!(f, "unexpected message type {t:#04x}"),
            ParseError::Path(p) => write!(f, "impossible path type {p}"),
            ParseError::Length(l) => write!(f, "length field {l} contradicts the content"),
            ParseError::Offset(o) => write!(f, "offset {o} is out of range"),
            ParseError::Count(c) => write!(f, "list of {c} elements is too long"),
            ParseError::Trailer => f.write_str("no SMC eyecatcher at the end"),
            ParseError::Value => f.write_str("field has an excluded value"),
        }
    }
}

/// Errors of a message that could not be written into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is too small for the message.
    NoSpace,
    /// The content cannot be expressed (for instance a list element that the
    /// chosen version has no room for).
    Invalid,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EmitError::NoSpace => "buffer is too small for the message",
            EmitError::Invalid => "content cannot be expressed in the message",
        })
    }
}

/// Errors of a byte stream that did not yield the awaited CLC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The stream does not start with an SMC eyecatcher: the peer does not
    /// speak SMC (for instance because something in between merely echoed the
    /// TCP option). The bytes taken so far are still there to be handed on, see
    /// `ClcReader::taken`.
    NotClc,
    /// It is SMC, but the message is malformed.
    Malformed(ParseError),
    /// A well-formed header of another type than the awaited one (nor a
    /// decline); the type byte.
    Unexpected(u8),
    /// The peer ended the stream before the first byte.
    Closed,
    /// The peer ended the stream inside the message.
    Cut,
    /// The caller reports more bytes than were asked for, or goes on after the
    /// end or after an error.
    Misuse,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotClc => f.write_str("peer does not speak SMC"),
            ReadError::Malformed(e) => write!(f, "malformed message: {e}"),
            ReadError::Unexpected(t) => write!(f, "unexpected message type {t:#04x}"),
            ReadError::Closed => f.write_str("connection closed by peer"),
            ReadError::Cut => f.write_str("connection closed inside a message"),
            ReadError::Misuse => f.write_str("reader used beyond its message"),
        }
    }
}

impl From<ParseError> for ReadError {
    fn from(e: ParseError) -> Self {
        ReadError::Malformed(e)
    }
}
