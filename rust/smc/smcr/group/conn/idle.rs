// SPDX-License-Identifier: GPL-2.0

//! Promoted connections that are idle go back to TCP, so that others have their receive rings and places.
//!
//! Sends and arrivals count nothing for that: the group's look for unused memory sees that the cursors stand where they
//! stood.

use super::SmcConn;
use crate::host::{
    namespace::Namespace,
    promotions::Cause,
    sysctl::Sysctl, //
};
use kernel::{
    page::PAGE_SIZE,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    }, //
};
use smc_proto::time::{Instant, Span};

/// Time between two looks at most.
const SELDOM: Span = Span::from_secs(30);

/// What was found at the last looks, of which there is one at a time.
pub(super) struct Idle {
    /// Sum of the cursors.
    moved: Atomic<u64>,
    /// When they were first found so.
    since: Atomic<u64>,
}

impl Idle {
    pub(super) const fn new() -> Self {
        Self {
            moved: Atomic::new(u64::MAX),
            since: Atomic::new(0),
        }
    }
}

/// What a look has found.
pub(crate) struct Found {
    /// When to look again, at the latest.
    pub(crate) again: Span,
    /// Pages that the connection could do without.
    pub(crate) pages: usize,
}

impl SmcConn {
    /// Looks whether the connection is idle, and has it go back to TCP if it has been so for long; or if memory is short
    /// (`pressed`), if only the last look has found the same. `None` if it is none that may.
    pub(crate) fn look_at_idle(self: &Arc<Self>, now: Instant, pressed: bool) -> Option<Found> {
        if !self.has_lifeline() || self.is_suspended() {
            return None;
        }
        let (moved, is_still, bytes) = {
            let proto = self.proto.lock();
            let at = proto.positions();
            let moved = at.written.wrapping_add(at.received);
            let moved = moved.wrapping_add(at.consumed);
            (moved, proto.is_still(), proto.rings().1.bytes())
        };
        let mut found = Found {
            again: SELDOM,
            pages: 0,
        };
        let before = self.idle.moved.load(Relaxed);
        let namespace = Namespace::of(&self.sock)?;
        let limit = namespace.sysctls.get(Sysctl::PathIdle);
        let limit = Span::from_secs(u64::try_from(limit).unwrap_or(0));
        if limit != Span::ZERO {
            found.again = Span(limit.0 / 4).min(SELDOM);
        }
        if moved != before || !is_still {
            self.idle.moved.store(moved, Relaxed);
            self.idle.since.store(now.0, Relaxed);
            return Some(found);
        }
        found.pages = bytes as usize / PAGE_SIZE;
        let since = Instant(self.idle.since.load(Relaxed));
        let cause = match limit != Span::ZERO && now.since(since) >= limit {
            true => Cause::Idle,
            false if pressed => Cause::Pressure,
            false => return Some(found),
        };
        if self.ask_to_leave(cause) {
            // A peer that stays is asked again after the same time.
            self.idle.since.store(now.0, Relaxed);
            found.pages = 0;
        }
        Some(found)
    }
}
