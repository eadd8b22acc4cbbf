// SPDX-License-Identifier: GPL-2.0

//! Gives the program room in the send ring, and takes what it has written there.

use super::tx::Hold;
use super::{
    Actions,
    Conn,
    ConnState,
    Misuse,
    SendError,
    CORK_TIME, //
};
use crate::cursor::RingSize;
use crate::ring::{
    autocork,
    Pieces, //
};
use crate::time::Instant;
use crate::wire::cdc::StateFlags;
use core::num::NonZeroU64;

/// Times that writers find no room until their ring is too small.
const SHORTAGES: u8 = 4;

/// Flags of the program that decide when its bytes go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendHint {
    /// MSG_MORE, or TCP_CORK is set: hold back while there is room.
    pub more: bool,
    /// These are the last bytes of a MSG_OOB send: their last byte is urgent.
    pub urgent: bool,
    /// Never hold back (the last bytes of a call with a push).
    pub push: bool,
}

impl Conn {
    /// Returns the number of bytes that the program can write now, at least 1.
    /// Only a caller that finds none gets [`Actions::WAKE_WRITER`] later.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    #[inline]
    pub fn send_room(&mut self) -> Result<u32, SendError> {
        self.may_write()?;
        match self.tx.space() {
            n if n > 0 && self.tx.urgent_end.is_none() => Ok(n),
            _ => {
                self.tx.starved = true;
                self.tx.shortages = self.tx.shortages.saturating_add(1);
                Err(SendError::Full)
            }
        }
    }

    #[inline]
    fn may_write(&self) -> Result<(), SendError> {
        if self.life.killed {
            let shut = self.life.write_shut && !self.life.released;
            return Err(match (self.life.suspended, shut) {
                (true, true) => SendError::Shutdown,
                // Until the stream goes on by TCP, or when it has: then the rings are given back.
                (true, false) => SendError::Full,
                (false, _) => SendError::Aborted,
            });
        }
        if self.life.received.any(StateFlags::ANY_CLOSE) {
            return Err(SendError::Reset);
        }
        if self.life.write_shut {
            return Err(SendError::Shutdown);
        }
        match self.state {
            ConnState::Init => Err(SendError::NotConnected),
            s if s.may_send() => Ok(()),
            _ => Err(SendError::Shutdown),
        }
    }

    /// Returns the size of a send ring that would do more, where writers have often found no room in this one, although
    /// the peer's is larger, and it is empty now, so that it can be replaced ([`Conn::replace_send_ring`]).
    #[inline]
    #[must_use]
    pub fn wanted_send_ring(&self) -> Option<RingSize> {
        if self.tx.shortages < SHORTAGES || self.send_ring_unused().is_none() {
            return None;
        }
        let peer = self.peer?.ring;
        let larger = self.tx.ring.grown(self.tx.most)?;
        (larger.bytes() <= peer.bytes()).then_some(larger)
    }

    /// The send ring is another one now, of `size`. Returns false, and keeps the old one, if that is not empty.
    #[must_use]
    pub fn replace_send_ring(&mut self, size: RingSize) -> bool {
        let unused = self.send_ring_unused().is_some();
        if unused {
            self.tx.ring = size;
        }
        self.keep_send_ring();
        unused
    }

    /// There is no memory for a larger send ring. It is wanted again when there has been no room as often.
    pub fn keep_send_ring(&mut self) {
        self.tx.shortages = 0;
    }

    /// The free part of the send ring, where the program's next bytes go. Who has written into its beginning may go on
    /// in what follows without asking again: it only grows.
    #[inline]
    #[must_use]
    pub fn send_view(&self) -> Pieces {
        Pieces::of(self.tx.ring, self.tx.prepared, self.tx.space())
    }

    /// The program has put `n` bytes into the send ring (see [`Conn::send_view`]).
    ///
    /// # Errors
    ///
    /// [`Misuse`] if there was no room for them, or if writing has ended since there was.
    #[inline]
    pub fn written(&mut self, n: u32, hint: SendHint, now: Instant) -> Result<Actions, Misuse> {
        let space = self.tx.space();
        if self.may_write().is_err() || n > space || self.tx.urgent_end.is_some() {
            return Err(Misuse);
        }
        if n == 0 {
            return Ok(Actions::NONE);
        }
        if hint.urgent && self.tx.frozen {
            // The mark would be lost if the peer has left; the answer comes soon.
            return Err(Misuse);
        }
        self.tx.prepared = self.tx.prepared.wrapping_add(u64::from(n));
        if n == space {
            self.tx.filled();
        }
        if hint.urgent {
            self.tx.urgent_end = NonZeroU64::new(self.tx.prepared);
            // The announcement goes out even if the window is closed.
            self.tx.due = true;
        }
        let hold = self.hold_for(hint);
        let timer = self.tx.hold_back(hold, now.after(CORK_TIME));
        Ok(self.tx_due().with_if(Actions::TIMER, timer))
    }

    /// Reports whether bytes just written are held back.
    #[inline]
    fn hold_for(&self, hint: SendHint) -> Hold {
        let t = &self.tx;
        if hint.urgent || hint.push {
            Hold::None
        } else if hint.more && t.space() > 0 {
            Hold::Cork
        } else if autocork(t.ring, t.autocork, t.unsent(), t.told) {
            Hold::Auto
        } else {
            Hold::None
        }
    }

    /// Sends held-back data now: TCP_NODELAY set, TCP_CORK cleared, or the cork time is over.
    pub fn push(&mut self) -> Actions {
        let timer = self.tx.hold_back(Hold::None, Instant(0));
        self.tx_due().with_if(Actions::TIMER, timer)
    }

    /// Sets the limit of autocorking in bytes; 0 turns it off.
    pub fn set_autocork(&mut self, bytes: u32) {
        self.tx.autocork = bytes;
    }

    /// Bytes in the send ring that are not known to have arrived (SIOCOUTQ).
    #[must_use]
    pub fn out_queue(&self) -> u64 {
        self.tx.prepared.saturating_sub(self.tx.completed)
    }

    /// Bytes in the send ring that are not sent (SIOCOUTQNSD).
    #[must_use]
    pub fn out_queue_unsent(&self) -> u64 {
        self.tx.unsent()
    }
}
