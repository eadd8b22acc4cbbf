// SPDX-License-Identifier: GPL-2.0

//! The urgent byte on the receiving side.
//!
//! As in TCP there is at most one, named by its position. Read out of line (the default) it is
//! copied out of the ring on arrival, ordinary reads stop before it and then step over it; with
//! SO_OOBINLINE reads stop before it and then return it. The sender of an urgent byte writes
//! nothing more until everything up to it is consumed, so reaching the mark is always announced
//! to it at once.

use super::{
    Actions,
    Conn,
    UrgentError, //
};
use crate::cursor::Pos;
use crate::wire::cdc::StateFlags;

/// The urgent byte as the receiver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RxUrgent {
    /// There is none.
    None,
    /// The peer has announced one.
    Announced,
    /// It is at `pos`, which the program has not read past.
    At {
        /// Position of the byte.
        pos: Pos,
        /// Its value, once copied.
        byte: Option<u8>,
        /// The program has read it out of line.
        taken: bool,
        /// Its place in the ring was given back to the peer.
        absorbed: bool,
    },
}

impl RxUrgent {
    pub(super) fn arrived(pos: Pos) -> RxUrgent {
        RxUrgent::At {
            pos,
            byte: None,
            taken: false,
            absorbed: false,
        }
    }

    /// The peer has announced one; whether that is news. After a mark that has not been passed it is
    /// none before it comes.
    #[inline]
    pub(super) fn announced(&mut self) -> bool {
        let new = *self == RxUrgent::None;
        if new {
            *self = RxUrgent::Announced;
        }
        new
    }

    /// Position of the urgent byte.
    #[inline]
    pub(super) fn mark(&self) -> Option<Pos> {
        match self {
            RxUrgent::At { pos, .. } => Some(*pos),
            _ => None,
        }
    }

    /// Number of bytes at or after `cons` that ordinary reads will not return: 0 or 1.
    #[inline]
    pub(super) fn hidden_from(&self, cons: Pos, inline: bool) -> u64 {
        match self {
            RxUrgent::At { pos, absorbed, .. } => u64::from(*pos >= cons && (!inline || *absorbed)),
            _ => 0,
        }
    }

    /// Reports whether the byte at `cons` is the urgent one and no longer needs the ring.
    #[inline]
    pub(super) fn absorbed_at(&self, cons: Pos) -> bool {
        matches!(self, RxUrgent::At { pos, absorbed: true, .. } if *pos == cons)
    }

    /// The reading position is now `cons`; whether the mark was reached or passed by it.
    #[inline]
    pub(super) fn advance(&mut self, cons: Pos, inline: bool) -> bool {
        match self {
            RxUrgent::At { pos, .. } if *pos < cons => {
                *self = RxUrgent::None;
                true
            }
            RxUrgent::At {
                pos,
                byte: Some(_),
                absorbed,
                ..
            } if *pos == cons && !inline => {
                *absorbed = true;
                true
            }
            _ => false,
        }
    }
}

impl Conn {
    /// Number of the receive ring of an urgent byte that still has to be copied out, and its offset there.
    #[inline]
    #[must_use]
    pub fn urgent_offset(&self) -> Option<(u8, u32)> {
        match self.rx.urgent {
            RxUrgent::At {
                pos, byte: None, ..
            } => {
                let (ring, number, _) = self.rx.rings.at(pos, 1);
                Some((number, ring.offset(pos)))
            }
            _ => None,
        }
    }

    /// Hands over the byte at [`Conn::urgent_offset`].
    pub fn store_urgent(&mut self, value: u8) -> Actions {
        if let RxUrgent::At { byte, .. } = &mut self.rx.urgent {
            if byte.is_none() {
                *byte = Some(value);
            }
        }
        if self.rx.urgent.advance(self.rx.cons, self.rx.inline) {
            self.want_update();
        }
        self.tx_due()
    }

    /// recv(MSG_OOB): the urgent byte, once unless `peek`.
    ///
    /// # Errors
    ///
    /// See [`UrgentError`].
    pub fn take_urgent(&mut self, peek: bool) -> Result<u8, UrgentError> {
        if self.rx.inline {
            return Err(UrgentError::None);
        }
        match &mut self.rx.urgent {
            RxUrgent::None | RxUrgent::At { taken: true, .. } => Err(UrgentError::None),
            RxUrgent::Announced | RxUrgent::At { byte: None, .. } => Err(UrgentError::NotYet),
            RxUrgent::At {
                byte: Some(value),
                taken,
                ..
            } => {
                *taken = !peek;
                Ok(*value)
            }
        }
    }

    /// Reports whether the connection was reset before the peer's stream had ended: as with TCP there is
    /// no urgent byte any more, then.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let received = self.life.received;
        let reset = self.life.killed || received.has(StateFlags::ABORT);
        reset && !received.any(StateFlags::DONE_WRITING.with(StateFlags::CLOSED))
    }

    /// Reports whether an unread urgent byte is there (POLLPRI).
    #[must_use]
    pub fn has_urgent(&self) -> bool {
        matches!(
            self.rx.urgent,
            RxUrgent::At {
                byte: Some(_),
                taken: false,
                ..
            }
        )
    }

    /// Reports whether the peer has announced an urgent byte that has not been read past, come or not.
    #[must_use]
    pub fn knows_urgent(&self) -> bool {
        self.rx.urgent != RxUrgent::None
    }

    /// Reports whether the next byte to read is the urgent one (SIOCATMARK).
    #[must_use]
    pub fn at_mark(&self) -> bool {
        self.rx.urgent.mark() == Some(self.rx.cons)
    }

    /// Reports whether urgent bytes are read in line (SO_OOBINLINE).
    #[inline]
    #[must_use]
    pub fn oob_inline(&self) -> bool {
        self.rx.inline
    }

    /// SO_OOBINLINE was changed.
    pub fn set_oob_inline(&mut self, inline: bool) -> Actions {
        self.rx.inline = inline;
        if self.rx.urgent.advance(self.rx.cons, inline) {
            self.want_update();
        }
        self.tx_due()
    }
}
