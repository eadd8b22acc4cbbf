// SPDX-License-Identifier: GPL-2.0

//! Reasons for a direction to stay on TCP, or to return there: settings, what the two programs want that TCP
//! alone can do, a peer that is gone.

use super::pair::{End, Local};
use crate::host::sysctl::Sysctl;
use kapi::net::sock::Sock;

impl Local {
    /// Tells whether a writer may leave TCP.
    #[inline]
    pub(super) fn may_move(&self) -> bool {
        self.has_met()
            && !self.stays()
            // The mark is TCP's: what follows it has to follow it there.
            && self.with_peer(|peer| !peer.has_urgent()) == Some(true)
            && !self.is_gone()
    }

    /// Tells whether the other end's file is being closed.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.pair.end(!self.active).is_gone()
    }

    /// Has the other end write to TCP from now on, which alone tells how many bytes are left (`TCP_INQ`).
    pub(crate) fn wants_count(&self) {
        self.pair.end(self.active).details.set(1);
    }

    /// Has both ends write to TCP from now on: its packets are to carry something of their own.
    pub(crate) fn bind_to_tcp(&self) {
        self.pair.client.details.set(1);
        self.pair.server.details.set(1);
    }

    /// Tells whether what is sent will not be read: the other end's file is being closed, or its program
    /// has shut both directions. TCP's answer is a reset then.
    #[inline]
    pub(super) fn is_deserted(&self) -> bool {
        let deaf = || self.with_peer(Sock::is_receive_shut) == Some(true);
        self.is_gone() || self.own().is_receive_shut() && deaf()
    }

    /// Tells whether the connection is to stay on TCP, or to go back there with the next byte.
    #[inline]
    pub(super) fn stays(&self) -> bool {
        self.namespace.sysctls.get(Sysctl::PathLocal) == 0
    }

    /// Tells whether the program at either end wants of its bytes what TCP alone can do, or somebody wants
    /// to see the packets.
    #[inline]
    pub(super) fn is_bound_to_tcp(&self) -> bool {
        let wants = |peer: &Sock| peer.wants_details() || self.own().has_packet_programs(peer);
        self.pair.end(!self.active).details.get() != 0
            || self.own().wants_send_stamps()
            || self.with_peer(wants) != Some(false)
    }

    /// Tells whether a test has writers change carriers.
    #[inline]
    pub(super) fn is_tested(&self) -> bool {
        self.namespace.sysctls.get(Sysctl::PathFlip) != 0
    }

    /// Tells whether a writer has to leave the ring.
    #[inline]
    pub(super) fn is_to_leave(&self) -> bool {
        self.stays() || self.is_deserted() || self.is_bound_to_tcp()
    }

    /// Asks the same, given the other end.
    #[inline(always)]
    pub(super) fn leaves_to(&self, other: &End) -> bool {
        let own = self.own();
        let wants = |peer: &Sock| {
            peer.wants_details()
                || own.has_packet_programs(peer)
                || own.is_receive_shut() && peer.is_receive_shut()
        };
        self.stays()
            || other.is_gone()
            || other.details.get() != 0
            || own.wants_send_stamps()
            || other.sock.with(wants) != Some(false)
    }

    /// Tells whether a writer is to change carriers for the sake of a test (the sysctl `path_flip`): on
    /// average after half as many messages. The writer holds its lock.
    #[inline]
    pub(super) fn flips(&self) -> bool {
        match self.namespace.sysctls.get(Sysctl::PathFlip) {
            0 => false,
            most => self.out().counts_down(most as u32),
        }
    }
}
