// SPDX-License-Identifier: GPL-2.0

//! A port that fails, perhaps for a moment.
//!
//! An event of the port says that it is down, or that it has lost an address; it does not say for how long. The device
//! repeats what is not acknowledged, so a short failure loses nothing. The group is held: no new connection chooses it,
//! what runs goes on, and no answer of the peer is overdue. If the port is back it is released. The link is lost when
//! the device gives up, or when the port was found down at each look for [`PATIENCE`] and nothing
//! was heard of the peer meanwhile.

use crate::{
    llc::DEVICE_PATIENCE,
    time::{
        Instant,
        Span, //
    }, //
};

/// Time for which a port may be down. By then everything that was sent when it went down is lost anyway; what waits
/// longer are connections that send nothing, whose programs would not learn it otherwise.
pub const PATIENCE: Span = DEVICE_PATIENCE;

/// Time between looks at the port: events of it may be told late, in another order, or not at all. A port that flaps is
/// down at one look and not at the next.
pub const LOOK: Span = Span::from_secs(1);

/// What has become of the port of a group that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortCheck {
    /// It is active, and has the address where it was.
    Back,
    /// It is active, and has the address in another place of its table. Software goes on sending from it; a device may
    /// have to give up.
    Moved,
    /// It is down, or the address is gone.
    Gone,
}

/// Whether a group is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// It is not.
    No,
    /// The port is looked at at `look`, and the link is lost if it is found down from `lost` on.
    Until { look: Instant, lost: Instant },
    /// The port is looked at now.
    Looking { lost: Instant },
    /// For good: what runs goes on until it ends or the device gives up.
    ForGood,
}

impl Hold {
    /// Begins, unless it has. A failure that comes while the port is looked at has it looked at once more: what the look
    /// finds may be older than that.
    pub(super) fn begin(&mut self, now: Instant) {
        let lost = match *self {
            Hold::No => now.after(PATIENCE),
            Hold::Looking { lost } => lost,
            Hold::Until { .. } | Hold::ForGood => return,
        };
        self.wait(lost, now);
    }

    /// Waits for the next look.
    pub(super) fn wait(&mut self, lost: Instant, now: Instant) {
        let look = now.after(LOOK);
        *self = Hold::Until { look, lost };
    }

    /// Returns when the port is to be looked at.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Hold::Until { look, .. } => Some(look),
            Hold::No | Hold::Looking { .. } | Hold::ForGood => None,
        }
    }

    /// Begins a look if it is time for one; returns whether it is.
    pub(super) fn looks(&mut self, now: Instant) -> bool {
        match *self {
            Hold::Until { look, lost } if now.reached(look) => {
                *self = Hold::Looking { lost };
                true
            }
            _ => false,
        }
    }

    /// Reports whether the port may be down.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Hold::Until { .. } | Hold::Looking { .. })
    }
}
