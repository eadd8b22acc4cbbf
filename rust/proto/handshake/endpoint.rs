// SPDX-License-Identifier: GPL-2.0

//! Names the operations that a handshake needs of its end of the connection.
//!
//! The kernel implements them with a socket, a queue pair and memory regions, the simulator with
//! byte queues and virtual time; the [`Driver`](super::driver::Driver) calls them.

use core::ops::DerefMut;

use super::{
    Acquired,
    Step,
    Want, //
};
use crate::llc::responder::LlcEvent;
use crate::reason::Reason;
use crate::time::Instant;
use crate::wire::clc::{
    proposal::Prefixes,
    Agreement,
    Proposal,
    RdmaEnd, //
};
use crate::wire::ids::Mtu;
use crate::wire::llc::Frame;

/// Reports why the TCP stream gives no byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// Nothing has arrived yet (EAGAIN).
    Empty,
    /// The TCP connection has failed.
    Failed,
}

/// One end of a connection under construction: its TCP stream, its RDMA link, its memory.
///
/// Operations may take their time, but none waits for the peer. What [`Endpoint::acquire`] and the
/// later ones have taken is released by dropping the implementation.
pub trait Endpoint {
    /// Memory for one CLC message, [`MAX_LEN`](crate::wire::clc::MAX_LEN) bytes.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;
    /// Memory for one decoded proposal.
    type Proposal: DerefMut<Target = Proposal>;

    /// Returns the present time.
    fn now(&self) -> Instant;

    /// Allocates a buffer; `None` without memory, which ends the handshake as a failure of TCP.
    fn buffer(&self) -> Option<Self::Buffer>;

    /// Allocates a proposal; `None` without memory, which ends the handshake as a failure of TCP.
    fn proposal(&self) -> Option<Self::Proposal>;

    /// Decides whether `step` may be taken now. After `false` the driver returns
    /// [`Progress::Deferred`](super::driver::Progress::Deferred) and asks again when it is called
    /// next.
    fn admits(&mut self, step: &Step) -> bool;

    /// Writes a CLC message to the TCP stream, all of it; false when that failed.
    fn send(&mut self, message: &[u8]) -> bool;

    /// Takes bytes that have arrived on the TCP stream; 0 at its end.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if there is none.
    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError>;

    /// Copies the first bytes that have arrived on the TCP stream and leaves them there; 0 at its
    /// end.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if there is none.
    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError>;

    /// Reports whether the peer's FIN has arrived, after bytes that may still be unread.
    fn is_shut(&self) -> bool;

    /// At a server, has the connection be of version 1 from now on. `client` are the subnets of the client's interface,
    /// of which ours must have one, too.
    ///
    /// # Errors
    ///
    /// The reason to decline: [`Reason::PrefixMismatch`], or [`Reason::NoDevice`] without a RoCE v1 GID.
    fn take_v1(&mut self, client: &Prefixes) -> Result<(), Reason>;

    /// Carries out [`Step::Acquire`]. `peer` is the server's end, `None` on a server. `Ok(None)`
    /// means that another first contact with this peer is under way, or that the group gets memory for its
    /// next connections, which this one waits for: the driver asks again for [`WAIT_FIRST_CONTACT`](super::driver::WAIT_FIRST_CONTACT).
    ///
    /// # Errors
    ///
    /// The reason to decline.
    fn acquire(&mut self, want: &Want, peer: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason>;

    /// Carries out [`Step::Adopt`] for the client's end `peer`.
    ///
    /// # Errors
    ///
    /// The reason to decline.
    fn adopt(&mut self, first_contact: bool, mtu: Mtu, peer: &RdmaEnd) -> Result<(), Reason>;

    /// Carries out [`Step::ToRts`].
    ///
    /// # Errors
    ///
    /// The reason to decline.
    fn to_rts(&mut self) -> Result<(), Reason>;

    /// Posts an LLC message on the new link, with `full` in a packet of the path MTU: a client's is reported by
    /// [`LlcEvent::Delivered`] when it has been delivered.
    ///
    /// # Errors
    ///
    /// The reason to decline.
    fn send_llc(&mut self, frame: &Frame, full: bool) -> Result<(), Reason>;

    /// Takes the LLC event that has come on the new link, if any.
    fn take_llc(&mut self) -> Option<LlcEvent>;

    /// Reports whether the link, or its group, has failed.
    fn is_link_lost(&self) -> bool;

    /// Notes that the next message names our RMBE: from then on the peer may write to it.
    fn expose(&mut self);

    /// Notes the peer's accept or confirm.
    fn agreed(&mut self, agreement: &Agreement);

    /// Notes that the peer has declined.
    fn declined(&mut self);
}
