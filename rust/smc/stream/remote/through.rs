// SPDX-License-Identifier: GPL-2.0

//! The first step of a call, which most often is all, on a connection all of whose stream goes by the rings: as of an SMC-R
//! connection that has never been anything else, but that the rings may be left meanwhile.

use super::{tcp, Inside, Usual};
use crate::{
    host::stats::Stats,
    smcr::SmcConn,
    stream::{Ask, Look, Put, Stop}, //
};
use kapi::net::{args::Message, sock::Sock};
use kernel::{prelude::*, sync::Arc};

/// A call that found the stream in the rings when it came.
pub(crate) struct Through<'a> {
    inside: &'a Inside<'a>,
    conn: &'a Arc<SmcConn>,
}

impl Inside<'_> {
    /// Returns the call, if all of the stream goes by the rings.
    #[inline]
    pub(crate) fn through(&self) -> Option<Through<'_>> {
        let inside = self;
        self.promoted().map(|conn| Through { inside, conn })
    }
}

impl Usual for Through<'_> {
    const NEVER_SLEEPS_TO_LOOK: bool = true;

    #[inline]
    fn sock(&self) -> &Sock {
        Usual::sock(self.conn)
    }

    #[inline]
    fn stats(&self) -> Option<&Stats> {
        Usual::stats(self.conn)
    }

    #[inline]
    fn notice_dead(&self) -> bool {
        self.conn.notice_dead()
    }

    #[inline(always)]
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
        ask.carried.set(true);
        self.conn.take(msg, ask)
    }

    #[inline]
    fn is_left(&self) -> bool {
        self.conn.is_suspended()
    }

    #[inline]
    fn took(&self, msg: &mut Message<'_>, ask: &Ask<'_>, look: Result<Look>) -> Result<Look> {
        if !self.is_left() {
            return look;
        }
        match look? {
            Look::Took(took) if took.bytes != 0 => {
                tcp::took_last(self.inside, msg, ask, Ok(Look::Took(took)))
            }
            // An end may be that of the rings alone.
            _ => self.inside.take(msg, ask),
        }
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.conn.is_quiet() && !self.is_left()
    }

    #[inline]
    fn busy_poll(&self, nonblock: bool) -> bool {
        Usual::busy_poll(self.conn, nonblock)
    }

    #[inline]
    fn is_read_shut(&self) -> bool {
        Usual::is_read_shut(self.conn)
    }

    #[inline(always)]
    fn put(&self, msg: &mut Message<'_>, what: &Put<'_>) -> Result<(usize, bool), Stop> {
        what.carried.set(true);
        self.conn.put(msg, what)
    }

    fn can_send(&self) -> bool {
        self.inside.can_send()
    }

    fn count_size(&self, total: usize) {
        self.conn.count_size(total);
    }
}
