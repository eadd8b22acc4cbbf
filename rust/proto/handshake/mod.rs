// SPDX-License-Identifier: GPL-2.0

//! The SMC-R handshake, version 1, 2.0 and 2.1, as client and as server.
//!
//! Each [`Step`] of a machine asks for exactly one thing, whose outcome is reported as an
//! [`Input`], until [`Step::Finish`]. A [`Driver`] does that with the operations of an
//! [`Endpoint`], the same in the kernel and in the simulator. The machine owns no resource, so
//! those of the endpoint (gate, group, buffers) roll back by being dropped whenever the outcome is
//! not [`Outcome::Established`].
//!
//! * [`driver`]: takes the steps, reads the stream. [`endpoint`]: the operations it needs.
//! * [`client`], [`server`]: the two machines. [`policy`]: EIDs and limits of this host.
//! * [`strip`]: removes a decline that crossed ours from the start of the user's data.
//!
//! A client offers all versions that its port has in one proposal, and the server chooses. Version 1 is for peers that
//! have nothing else: both ends are in one IP subnet and have RoCE v1 GIDs, and nothing is agreed on. What it needs
//! beside version 2 the endpoint is asked for only where a server falls to it ([`Endpoint::take_v1`]).
//!
//! Three rules keep protocol bytes away from programs. An end that joins a group which exists never
//! falls back after its last CLC message. After a missing LLC answer each end waits one second for
//! the other's decline before it sends its own. If both have declined all the same, [`strip`] takes
//! the other's decline out of the stream.
//!
//! # Examples
//!
//! A client without a device says so and falls back; here its machine without a driver:
//!
//! ```
//! use smc_proto::handshake::*;
//! use smc_proto::reason::Reason;
//! use smc_proto::time::Instant;
//! use smc_proto::wire::ids::{Gid, Mac, PeerId};
//!
//! let now = Instant(0);
//! let policy = Policy::new(PeerId([1; 8]), b"myhost");
//! let port = Port { gid: Gid::ZERO, mac: Mac::ZERO, v1: None };
//! let eligibility = Eligibility { option: true, refuse: Some(Reason::NoRdmaDevice) };
//! let (mut client, mut step) = Client::start(&policy, port, &eligibility);
//! let outcome = loop {
//!     step = match step {
//!         Step::Send => {
//!             let mut buf = [0; smc_proto::wire::clc::MAX_LEN];
//!             let len = client.emit(&mut buf).unwrap();
//!             assert_eq!(len, 28); // kernel_sendmsg(&buf[..len]) goes here
//!             client.step(Input::Sent, now)
//!         }
//!         Step::Finish(outcome) => break outcome,
//!         other => unreachable!("{other:?}"),
//!     };
//! };
//! assert!(matches!(
//!     outcome,
//!     Outcome::Fallback { reason: Reason::NoRdmaDevice, peer: None, .. }
//! ));
//! ```

use crate::error::ReadError;
use crate::group::choice::Key;
use crate::llc::link::LinkEnd;
use crate::llc::responder::LlcEvent;
use crate::llc::rtoken::{
    rmbe_offset,
    Region, //
};
use crate::reason::Reason;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::clc::{
    proposal::Prefixes,
    Agreement,
    Extensions,
    MsgType,
    V1, //
};
use crate::wire::clc::{
    Confirm,
    Decline,
    Proposal,
    RdmaEnd, //
};
use crate::wire::ids::{
    Gid,
    Mac,
    Mtu, //
};
use crate::wire::llc::Frame;

pub mod client;
pub mod driver;
pub mod endpoint;
pub mod policy;
pub mod server;
pub mod strip;

pub use client::Client;
pub use driver::Driver;
pub use endpoint::Endpoint;
pub use policy::Policy;
pub use server::Server;

/// Longest wait for a CLC message.
pub const WAIT_CLC: Span = Span::from_secs(6);
/// Wait for the peer's decline before sending our own after an LLC timeout.
pub const WAIT_DECLINE: Span = Span::from_secs(1);
/// Longest wait of a server for the CONFIRM_LINK response.
pub const WAIT_SERVER_LLC: Span = Span::from_secs(2);
/// Longest wait of a client until its CONFIRM_LINK response is delivered. A server that does not get it has declined by
/// then: after [`WAIT_SERVER_LLC`] and [`WAIT_DECLINE`].
pub const WAIT_DELIVERED: Span = Span::from_secs(4);

/// Reasons for a failure without fallback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer sent no CLC message in time (ETIMEDOUT).
    TimedOut,
    /// The peer sent something else than CLC demands (EPROTO).
    Protocol,
    /// The TCP connection ended (ECONNRESET).
    Tcp,
    /// The caller gave up: a signal, or the socket was closed (EINTR, none).
    Cancelled,
    /// Something failed when it was too late to fall back (ECONNABORTED).
    Aborted,
}

/// End of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// SMC: `Conn::establish` and go.
    Established,
    /// TCP, for this reason. Release all SMC resources.
    Fallback {
        /// Reason for counters and users.
        reason: Reason,
        /// The peer's own reason, if it was the one to decline.
        peer: Option<Reason>,
        /// The peer says that a group is out of sync: end the group with it, if there is one.
        out_of_sync: bool,
        /// The peer's decline may have crossed ours: apply [`strip`] to the first bytes received.
        strip: bool,
    },
    /// An error for the program. Release all SMC resources, end the TCP connection.
    Failed(Failure),
}

/// A group to be joined or started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Group to join or start.
    pub key: Key,
    /// Client: whether the server has said that it starts a group. Server: always `None`, the
    /// caller decides ([`server_joins`](crate::group::choice::server_joins)) and reports it.
    pub first_contact: Option<bool>,
    /// Client: the server's end of the link.
    pub link: Option<LinkEnd>,
    /// Client, first contact: the server says that no gateway is between us. Server: `true`.
    pub direct: bool,
    /// Most connections in a new group.
    pub max_conns: u8,
    /// Most links in a new group.
    pub max_links: u8,
    /// Release of a new group.
    pub release: u8,
    /// Extensions of a new group.
    pub extensions: Extensions,
}

/// Our end of a connection, made for a [`Want`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquired {
    /// Our end as accept or confirm names it. `peer_id` and `mtu` are filled in by the machine from
    /// the policy and `mtu` as our active MTU.
    pub end: RdmaEnd,
    /// A group was started for it.
    pub first_contact: bool,
    /// In first contact: the peer is reached without a gateway.
    pub direct: bool,
}

/// Operations that a machine asks for, one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Write the message that `emit` gives to the TCP connection; then [`Input::Sent`].
    Send,
    /// Wait for a CLC message and, if `llc`, for an LLC event of the link, whichever comes first,
    /// until the time is over ([`Input::Timer`]).
    Await {
        /// The CLC message to read; a decline is always possible.
        clc: MsgType,
        /// Also wait for CONFIRM_LINK, a failure of the link, or the end of the group.
        llc: bool,
        /// Until when.
        until: Instant,
    },
    /// Find or start the group, allocate RMBE, send buffer and token. Client: also enter the
    /// peer's region, and on first contact bring the queue pair to RTR with receives posted.
    /// Then [`Input::Acquired`], or [`Input::Failed`] with the reason.
    Acquire(Want),
    /// Server: enter the client's region, and on first contact bring the queue pair to RTS with
    /// receives posted and register the memory. Then [`Input::Done`] or [`Input::Failed`].
    Adopt {
        /// First contact.
        first_contact: bool,
        /// Path MTU of the link.
        mtu: Mtu,
    },
    /// Client: bring the queue pair to RTS and register the memory. Then [`Input::Done`] or
    /// [`Input::Failed`].
    ToRts,
    /// Send this LLC message on the new link; then [`Input::Done`] or [`Input::Failed`].
    SendLlc {
        /// The message.
        frame: Frame,
        /// Whether zeros follow it until the packet is as long as the path MTU
        /// ([`Extensions::FULL_PACKET`]).
        full: bool,
    },
    /// The handshake is over.
    Finish(Outcome),
}

/// Outcomes of a step, reported to the machine.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The CLC message was written.
    Sent,
    /// A proposal came (server).
    Proposal(&'a Proposal),
    /// An accept came (client).
    Accept(&'a Agreement),
    /// A confirm came (server).
    Confirm(&'a Confirm),
    /// A decline came.
    Decline(&'a Decline),
    /// The bytes that came are no CLC message, or the TCP connection ended.
    Broken(ReadError),
    /// The TCP connection failed.
    TcpError,
    /// [`Step::Acquire`] succeeded.
    Acquired(&'a Acquired),
    /// The operation is done.
    Done,
    /// The operation failed.
    Failed(Reason),
    /// An LLC event of the link.
    Llc(LlcEvent),
    /// The link or its group is gone.
    LinkLost,
    /// The time of [`Step::Await`] is over.
    Timer,
    /// The caller gives up.
    Cancel,
}

/// The local port that carries the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its RoCE v2 GID.
    pub gid: Gid,
    /// Its MAC.
    pub mac: Mac,
    /// Its part in version 1, if that can be offered.
    pub v1: Option<V1Offer>,
}

/// What a client says of its port for version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct V1Offer {
    /// Its RoCE v1 GID.
    pub gid: Gid,
    /// Subnets of the connection's interface.
    pub prefixes: Prefixes,
}

/// Conditions for SMC on a connection, known before its handshake begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eligibility {
    /// The peer's TCP handshake carried the SMC option, and ours did.
    pub option: bool,
    /// Reason not to use SMC: IPsec, memory, configuration, no device.
    pub refuse: Option<Reason>,
}

/// Reports whether the peer's end, of a message of this version, is one that can be written to. Version 1 has no route
/// that says where packets go: the peer names the station.
pub(crate) fn is_sane(end: &RdmaEnd, version: u8) -> bool {
    if version == V1 && !end.mac.is_station() {
        return false;
    }
    let size = end.size.bytes();
    let fits = rmbe_offset(end.rmbe_idx, size)
        .and_then(|o| o.checked_add(u64::from(size)))
        .and_then(|o| o.checked_add(end.addr));
    fits.is_some() && end.token.0 != 0 && end.mtu.bytes().is_some()
}

/// The peer's memory region, for the rtoken table.
#[must_use]
pub fn region(end: &RdmaEnd) -> Region {
    Region {
        rkey: end.rkey,
        addr: end.addr,
    }
}

/// The peer's end, for `Conn::set_peer`, in a group with these extensions; `None` if it cannot be
/// used.
#[must_use]
pub fn peer(end: &RdmaEnd, extensions: Extensions) -> Option<crate::conn::Peer> {
    let ring = crate::cursor::RingSize::from_code(end.size.code())?;
    let offset = rmbe_offset(end.rmbe_idx, ring.bytes())?;
    Some(crate::conn::Peer {
        token: end.token,
        ring,
        place: crate::conn::Place {
            addr: end.addr.checked_add(offset)?,
            rkey: end.rkey,
        },
        immediate: extensions.has(Extensions::IMMEDIATE),
        moves: extensions.has(Extensions::MOVES),
    })
}

/// Falls back because of our own reason.
pub(crate) fn fallback(reason: Reason, strip: bool) -> Step {
    Step::Finish(Outcome::Fallback {
        reason,
        peer: None,
        out_of_sync: false,
        strip,
    })
}

/// Falls back because the peer wants it.
pub(crate) fn declined(d: &Decline) -> Step {
    Step::Finish(Outcome::Fallback {
        reason: Reason::PeerDeclined,
        peer: Some(d.reason),
        out_of_sync: d.out_of_sync,
        strip: false,
    })
}

/// Fails.
pub(crate) fn failed(why: Failure) -> Step {
    Step::Finish(Outcome::Failed(why))
}

/// The failure that a broken CLC stream means.
pub(crate) fn broken(error: ReadError) -> Step {
    failed(match error {
        ReadError::Closed | ReadError::Cut => Failure::Tcp,
        _ => Failure::Protocol,
    })
}
