// SPDX-License-Identifier: GPL-2.0

//! The answer to everything a peer may ask of us.
//!
//! This side keeps one link, so an offered link is rejected and a deleted one ends the group.
//! Messages that make no sense in our role or state, unknown types and
//! unexpected responses are dropped: nothing a peer sends makes us do more than answer 44 bytes,
//! change its own entries in the rtoken table, or end its own group.

use core::borrow::BorrowMut;

use crate::wire::llc::header::{
    ADD_LINK_REJECT,
    NO_EYECATCHER,
    REASON_NO_ALT_PATH,
    RKEY_NEGATIVE, //
};
use crate::wire::llc::link::{
    AddLink,
    ConfirmLink,
    DeleteLink,
    DeleteReason, //
};
use crate::wire::llc::rkey::{
    ConfirmRkey,
    DeleteRkey, //
};
use crate::wire::llc::{
    self,
    Body,
    Frame,
    Header,
    Message,
    Version, //
};

use super::link::{
    LinkState,
    Role, //
};
use super::rtoken::{
    Entry,
    Region,
    RtokenTable, //
};

/// Meaning of a message beyond its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LlcEvent {
    /// Nothing.
    None,
    /// CONFIRM_LINK for a link being set up: a request to the client or the response to the
    /// server. Goes to the handshake that waits for it.
    ConfirmLink {
        /// The message.
        message: ConfirmLink,
        /// The peer uses RMBEs without eyecatcher, the only ones we know.
        no_eyecatcher: bool,
    },
    /// Our response to CONFIRM_LINK, in a packet of the path MTU, has reached the server's device: comes of no message,
    /// but of a completion. Goes to the client's handshake.
    Delivered,
    /// A response to CONFIRM_RKEY or DELETE_RKEY; goes to `requests`.
    RkeyAnswer,
    /// The peer ends this link, and with it the group.
    Ended {
        /// Reason in DELETE_LINK.
        reason: DeleteReason,
        /// Not after a failure.
        orderly: bool,
    },
    /// The peer answered our DELETE_LINK.
    DeleteAnswered,
    /// The peer answered a TEST_LINK, with this data.
    Tested([u8; 16]),
    /// The message is none, or none that fits: counted and dropped.
    Dropped,
}

/// Answer and meaning of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Reaction {
    /// To be sent on the link that the message came on.
    pub reply: Option<Frame>,
    /// Meaning beyond that.
    pub event: LlcEvent,
}

impl Reaction {
    const DROP: Reaction = Reaction::event(LlcEvent::Dropped);

    const fn event(event: LlcEvent) -> Reaction {
        Reaction { reply: None, event }
    }

    const fn reply(frame: Frame) -> Reaction {
        Reaction {
            reply: Some(frame),
            event: LlcEvent::None,
        }
    }
}

/// State of group and link that the answer depends on.
#[derive(Debug)]
pub struct Context<'a, S, const LINKS: usize> {
    /// Our role in the group.
    pub role: Role,
    /// State of the link the message came on.
    pub state: LinkState,
    /// Its number.
    pub number: u8,
    /// Its index in the rtoken table.
    pub link: usize,
    /// The peer's memory regions.
    pub rtokens: &'a mut RtokenTable<S, LINKS>,
}

/// Handles one received message.
pub fn respond<S, const LINKS: usize>(ctx: &mut Context<'_, S, LINKS>, bytes: &[u8]) -> Reaction
where
    S: BorrowMut<[Entry<LINKS>]>,
{
    let (Ok(message), Ok(frame)) = (Message::parse(bytes), llc::frame(bytes)) else {
        return Reaction::DROP;
    };
    if !ctx.state.receives() {
        return Reaction::DROP;
    }
    let Message { header, body } = message;
    if header.response() {
        return on_response(ctx, &header, &body);
    }
    match body {
        Body::ConfirmLink(m) => confirm_link(ctx, &header, m),
        Body::AddLink(m) => add_link(ctx, &header, &m, &frame),
        Body::DeleteLink(m) => delete_link(ctx, &header, m, &frame),
        Body::ReqAddLink(_) if ctx.role == Role::Server => Reaction::reply(empty_reply(&frame)),
        Body::ConfirmRkey(m) => confirm_rkey(ctx, &m, &frame),
        Body::DeleteRkey(m) => delete_rkey(ctx, &header, &m, &frame),
        Body::TestLink(_) => Reaction::reply(llc::reply(&frame, 0)),
        Body::AddLinkCont(_) | Body::ConfirmRkeyCont | Body::ReqAddLink(_) | Body::Unknown => {
            Reaction::DROP
        }
    }
}

fn on_response<S, const LINKS: usize>(
    ctx: &Context<'_, S, LINKS>,
    header: &Header,
    body: &Body<'_>,
) -> Reaction {
    match *body {
        Body::ConfirmLink(message)
            if ctx.role == Role::Server && ctx.state == LinkState::Activating =>
        {
            Reaction::event(LlcEvent::ConfirmLink {
                message,
                no_eyecatcher: header.flags & NO_EYECATCHER != 0,
            })
        }
        // Whether it has taken the link or not, there will be none.
        Body::AddLink(_) if ctx.role == Role::Server => Reaction::event(LlcEvent::None),
        Body::ConfirmRkey(_) | Body::DeleteRkey(_) => Reaction::event(LlcEvent::RkeyAnswer),
        Body::DeleteLink(_) => Reaction::event(LlcEvent::DeleteAnswered),
        Body::TestLink(m) => Reaction::event(LlcEvent::Tested(m.data)),
        _ => Reaction::DROP,
    }
}

/// The server's request: the client has reached RTR and waits for it.
fn confirm_link<S, const LINKS: usize>(
    ctx: &Context<'_, S, LINKS>,
    header: &Header,
    message: ConfirmLink,
) -> Reaction {
    if ctx.role != Role::Client || ctx.state != LinkState::Rtr {
        return Reaction::DROP;
    }
    Reaction::event(LlcEvent::ConfirmLink {
        message,
        no_eyecatcher: header.flags & NO_EYECATCHER != 0,
    })
}

/// A server's offer is rejected; a client's suggestion needs no answer.
fn add_link<S, const LINKS: usize>(
    ctx: &Context<'_, S, LINKS>,
    header: &Header,
    message: &AddLink<'_>,
    frame: &Frame,
) -> Reaction {
    if ctx.role != Role::Client || message.is_suggestion() {
        return Reaction::DROP;
    }
    let mut reply = llc::reply(frame, ADD_LINK_REJECT);
    if !header.is_v2() {
        let [_, _, reason, ..] = &mut reply;
        *reason = (*reason & 0xf0) | REASON_NO_ALT_PATH;
    }
    Reaction::reply(reply)
}

fn delete_link<S, const LINKS: usize>(
    ctx: &Context<'_, S, LINKS>,
    header: &Header,
    message: DeleteLink,
    frame: &Frame,
) -> Reaction {
    if !message.all && message.link_num != ctx.number {
        let version = header.version().unwrap_or(Version::V1);
        let mut reply = [0; llc::LEN];
        let unknown = DeleteLink {
            reason: DeleteReason::UNKNOWN_LINK,
            ..message
        };
        return match unknown.emit(version, true, &mut reply) {
            Ok(_) => Reaction::reply(reply),
            Err(_) => Reaction::DROP,
        };
    }
    Reaction {
        reply: Some(llc::reply(frame, 0)),
        event: LlcEvent::Ended {
            reason: message.reason,
            orderly: message.orderly,
        },
    }
}

/// REQ_ADD_LINK is acknowledged with an empty body, and nothing follows.
fn empty_reply(frame: &Frame) -> Frame {
    let mut reply = llc::reply(frame, 0);
    for byte in reply.iter_mut().skip(4) {
        *byte = 0;
    }
    reply
}

fn confirm_rkey<S: BorrowMut<[Entry<LINKS>]>, const LINKS: usize>(
    ctx: &mut Context<'_, S, LINKS>,
    message: &ConfirmRkey,
    frame: &Frame,
) -> Reaction {
    let region = Region {
        rkey: message.here.rkey,
        addr: message.here.addr,
    };
    // Keys on further links are of no use without further links.
    let flags = match ctx.rtokens.add(ctx.link, region) {
        Some(_) => 0,
        None => RKEY_NEGATIVE,
    };
    Reaction::reply(llc::reply(frame, flags))
}

fn delete_rkey<S: BorrowMut<[Entry<LINKS>]>, const LINKS: usize>(
    ctx: &mut Context<'_, S, LINKS>,
    header: &Header,
    message: &DeleteRkey<'_>,
    frame: &Frame,
) -> Reaction {
    let mut unknown = 0u8;
    let mut mask = 0u8;
    let mut bit = 0x80u8;
    ctx.rtokens.delete(ctx.link, message.keys(), |known| {
        if !known {
            unknown = unknown.saturating_add(1);
            mask |= bit;
        }
        bit = bit.wrapping_shr(1);
    });
    Reaction::reply(DeleteRkey::reply(frame, header, unknown, mask))
}
