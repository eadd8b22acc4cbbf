// SPDX-License-Identifier: GPL-2.0

//! A port that fails, perhaps for a moment.
//!
//! An event of the port says that it is down, or that it has lost an address; it does not say for how long. The device
//! repeats what is not acknowledged, so a short failure loses nothing. The group is held: no new connection chooses it,
//! what runs goes on, and no answer of the peer is overdue. If the port is back it is released. The link is lost when
//! the device gives up, or when the port is still down after [`PATIENCE`].

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
    /// Until the port is back, or looked at at this time.
    Until(Instant),
    /// The port is looked at now.
    Checking,
    /// For good: what runs goes on until it ends or the device gives up.
    ForGood,
}

impl Hold {
    /// Begins, unless it has. Further failures do not begin it again, except for one that comes while the port is looked
    /// at: what the look finds may be older than that.
    pub(super) fn begin(&mut self, now: Instant) {
        if matches!(self, Hold::No | Hold::Checking) {
            *self = Hold::Until(now.after(PATIENCE));
        }
    }

    /// Returns when the port is to be looked at.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Hold::Until(at) => Some(at),
            Hold::No | Hold::Checking | Hold::ForGood => None,
        }
    }

    /// Reports whether the port may be down.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Hold::Until(_) | Hold::Checking)
    }
}
