// SPDX-License-Identifier: GPL-2.0

//! Our own CONFIRM_RKEY and DELETE_RKEY requests.
//!
//! Responses carry no number; they repeat the request's keys, and a C peer answers in order.
//! So several requests may be under way at once, matched by type and first
//! key. A slab's key is made known by the accept or confirm of its first connection; a request
//! withdraws it ([`Group::forget`](crate::group::Group::forget)).

use super::WAIT_ANSWER;
use crate::time::{
    earliest,
    Instant, //
};
use crate::wire::ids::Rkey;
use crate::wire::llc::header::{
    Header,
    RKEY_NEGATIVE,
    RKEY_RETRY, //
};
use crate::wire::llc::Body;

/// Most requests under way in a group.
pub const MAX_REQUESTS: usize = 8;

/// Kind of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// CONFIRM_RKEY: the peer takes note of a key.
    Confirm,
    /// DELETE_RKEY: the peer forgets a key.
    Delete,
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done.
    Done,
    /// Refused.
    Refused,
    /// Refused for now; asking again may help.
    Retry,
    /// No answer in time.
    TimedOut,
}

/// A request and how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Kind of the request.
    pub ask: Ask,
    /// Key of the request, the first one.
    pub rkey: Rkey,
    /// End of the request.
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    ask: Ask,
    rkey: Rkey,
    until: Instant,
}

/// Requests under way.
#[derive(Debug, Default)]
pub struct Requests {
    pending: [Option<Pending>; MAX_REQUESTS],
}

impl Requests {
    /// None.
    #[must_use]
    pub const fn new() -> Requests {
        Requests {
            pending: [None; MAX_REQUESTS],
        }
    }

    /// Reports whether no request is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.iter().all(Option::is_none)
    }

    /// A request is about to be sent. False if too many are under way, or the same one is.
    pub fn start(&mut self, ask: Ask, rkey: Rkey, now: Instant) -> bool {
        let same = |p: &Pending| p.ask == ask && p.rkey == rkey;
        if self.pending.iter().flatten().any(same) {
            return false;
        }
        match self.pending.iter_mut().find(|p| p.is_none()) {
            Some(slot) => {
                *slot = Some(Pending {
                    ask,
                    rkey,
                    until: now.after(WAIT_ANSWER),
                });
                true
            }
            None => false,
        }
    }

    /// A response has come; `None` if nobody waits for it.
    pub fn on_response(&mut self, header: &Header, body: &Body<'_>) -> Option<Settled> {
        let (ask, rkey) = match body {
            Body::ConfirmRkey(m) => (Ask::Confirm, m.here.rkey),
            // C clears the keys of a version 2 response; then the oldest request is meant.
            Body::DeleteRkey(m) => (Ask::Delete, m.keys().next().unwrap_or_default()),
            _ => return None,
        };
        let exact = |p: &Pending| p.ask == ask && p.rkey == rkey;
        let any = |p: &Pending| ask == Ask::Delete && p.ask == ask && rkey == Rkey(0);
        let slot = self
            .pending
            .iter_mut()
            .filter(|p| p.as_ref().is_some_and(|p| exact(p) || any(p)))
            .min_by_key(|p| p.as_ref().map(|p| p.until))?;
        let pending = slot.take()?;
        let answer = if !header.has(RKEY_NEGATIVE) {
            Answer::Done
        } else if header.has(RKEY_RETRY) {
            Answer::Retry
        } else {
            Answer::Refused
        };
        Some(Settled {
            ask,
            rkey: pending.rkey,
            answer,
        })
    }

    /// Returns the time of the next [`Requests::on_timer`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.pending
            .iter()
            .flatten()
            .fold(None, |d, p| earliest(d, Some(p.until)))
    }

    /// One request that was not answered in time; to be called until `None`.
    pub fn on_timer(&mut self, now: Instant) -> Option<Settled> {
        let slot = self
            .pending
            .iter_mut()
            .find(|p| p.as_ref().is_some_and(|p| now.reached(p.until)))?;
        let p = slot.take()?;
        Some(Settled {
            ask: p.ask,
            rkey: p.rkey,
            answer: Answer::TimedOut,
        })
    }
}
