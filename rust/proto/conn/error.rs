// SPDX-License-Identifier: GPL-2.0

//! Errors of a connection.

/// The peer sent something no correct peer sends. The connection must be ended with
/// `Conn::fail`; the link and its other connections are not concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtoError {
    /// The message carries the alert token of another connection.
    Token,
    /// The producer cursor lies outside its ring, or beyond the room the peer was given.
    ProducerCursor,
    /// The consumer cursor lies outside its ring, or beyond what was sent.
    ConsumerCursor,
    /// A failover validation names a message that never arrived: data was lost.
    FailoverGap,
    /// It takes a ring that was not offered, or offers one out of turn.
    Ring,
    /// A [`Record`](crate::wire::promotion::Record) names bytes that were never sent, or takes back what was said before.
    Record,
}

/// The caller's own accounting is wrong: more bytes reported than there is room or data for.
/// Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Misuse;

/// Reasons for which the program cannot send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// Not connected yet (ENOTCONN).
    NotConnected,
    /// The local side has shut down writing (EPIPE).
    Shutdown,
    /// The peer has closed or aborted (ECONNRESET).
    Reset,
    /// The link is gone or the peer broke the protocol (EPIPE, the socket error says why).
    Aborted,
    /// No room in the send ring, or an urgent byte is still on its way: wait or EAGAIN.
    Full,
}

/// Results of a read, with or without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// This many bytes can be read.
    Data(u32),
    /// None yet: wait or EAGAIN.
    Empty,
    /// None, and none will come: end of file.
    Eof,
    /// Not connected yet (ENOTCONN).
    NotConnected,
    /// The peer aborted (ECONNRESET).
    Reset,
    /// The link is gone or the peer broke the protocol (ECONNABORTED).
    Aborted,
}

/// Reasons for which there is no urgent byte to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrgentError {
    /// None was announced, it was read already, or it is read in line (EINVAL).
    None,
    /// Announced, but not here yet (EAGAIN).
    NotYet,
    /// There was one when the connection was reset (ENOTCONN).
    Cut,
}
