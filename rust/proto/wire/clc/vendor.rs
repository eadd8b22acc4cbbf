// SPDX-License-Identifier: GPL-2.0

//! Extensions that two hosts with this module may agree on beyond the protocol.
//!
//! Proposals and first contact extensions of version 2.1 have a field for a vendor's experimental
//! options; others ignore it. A client offers its extensions there and the server answers with
//! those that both know. They hold for the link group. The field of a proposal is longer; there the class of the
//! client's packets follows ([`Class`]).

/// Says whose options these are: an identifier with the "locally administered" bit, which is
/// never assigned to anybody.
const OWNER: [u8; 3] = *b"RSM";

/// A set of extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extensions(u8);

impl Extensions {
    /// None: the protocol as it is.
    pub const NONE: Extensions = Extensions(0);
    /// A WRITE may announce itself by an [`Immediate`](crate::wire::immediate::Immediate).
    pub const IMMEDIATE: Extensions = Extensions(1);
    /// CONFIRM_LINK and its answer fill a packet of the path MTU, so that a link is confirmed only if such
    /// packets get through in both directions.
    pub const FULL_PACKET: Extensions = Extensions(2);
    /// The proposal says of which class the client's packets are, so that the server's can be of the same.
    pub const CLASS: Extensions = Extensions(4);
    /// Receive rings may move: CDC messages say into which the sender writes, and which it offers
    /// ([`RingNews`](crate::wire::cdc::RingNews)).
    pub const MOVES: Extensions = Extensions(8);
    /// An end of a connection that began as TCP may ask the other one to leave the rings
    /// ([`ProdFlags::LEAVE`](crate::wire::cdc::ProdFlags::LEAVE)).
    pub const LEAVES: Extensions = Extensions(16);
    /// All that this version knows.
    pub const ALL: Extensions = Extensions(
        Extensions::IMMEDIATE.0
            | Extensions::FULL_PACKET.0
            | Extensions::CLASS.0
            | Extensions::MOVES.0
            | Extensions::LEAVES.0,
    );

    /// Returns the extensions in a vendor field that this version knows, if the field is ours.
    #[must_use]
    pub const fn from_wire(field: [u8; 4]) -> Extensions {
        let [a, b, c, bits] = field;
        let [x, y, z] = OWNER;
        if a == x && b == y && c == z {
            Extensions(bits & Extensions::ALL.0)
        } else {
            Extensions::NONE
        }
    }

    /// The field; zero if there are none.
    #[must_use]
    pub const fn to_wire(self) -> [u8; 4] {
        let [a, b, c] = OWNER;
        if self.0 == 0 {
            [0; 4]
        } else {
            [a, b, c, self.0]
        }
    }

    /// Returns the extensions that are in both sets.
    #[must_use]
    pub const fn common(self, other: Extensions) -> Extensions {
        Extensions(self.0 & other.0)
    }

    /// Returns the extensions of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Extensions) -> Extensions {
        Extensions(self.0 & !other.0)
    }

    /// Reports whether all of `other` are in the set.
    #[must_use]
    pub const fn has(self, other: Extensions) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The class of packets: where they are queued on the way, and whether they may be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Class {
    /// The byte of their IP header: DSCP and, in the lowest two bits, ECN.
    pub traffic: u8,
    /// Linux' priority (`SO_PRIORITY`), from which each host takes that of a VLAN's tag by its own table.
    pub priority: u8,
}

/// Writes a proposal's field: the extensions, and the class of the client's packets if that is one of them.
#[must_use]
pub const fn to_proposal(extensions: Extensions, class: Class) -> [u8; 8] {
    let [a, b, c, bits] = extensions.to_wire();
    match extensions.has(Extensions::CLASS) {
        true => [a, b, c, bits, class.traffic, class.priority, 0, 0],
        false => [a, b, c, bits, 0, 0, 0, 0],
    }
}

/// Reads a proposal's field: the extensions in it that this version knows, and the class of the client's packets if it
/// says so.
#[must_use]
pub const fn from_proposal(field: [u8; 8]) -> (Extensions, Option<Class>) {
    let [a, b, c, bits, traffic, priority, ..] = field;
    let extensions = Extensions::from_wire([a, b, c, bits]);
    let class = match extensions.has(Extensions::CLASS) {
        true => Some(Class { traffic, priority }),
        false => None,
    };
    (extensions, class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_follows_its_bit() {
        let class = Class {
            traffic: 0x68,
            priority: 3,
        };
        let field = to_proposal(Extensions::ALL, class);
        assert_eq!(&field, b"RSM\x1f\x68\x03\0\0");
        assert_eq!(from_proposal(field), (Extensions::ALL, Some(class)));
        let rest = Extensions::ALL.without(Extensions::CLASS);
        assert_eq!(&to_proposal(rest, class), b"RSM\x1b\0\0\0\0");
        assert_eq!(from_proposal(*b"RSM\x1b\x68\x03\0\0"), (rest, None));
        assert_eq!(from_proposal(*b"XYZ\x07\x68\x03\0\0").1, None);
    }

    #[test]
    fn only_our_own_field_counts() {
        assert_eq!(Extensions::from_wire(*b"RSM\x01"), Extensions::IMMEDIATE);
        assert_eq!(Extensions::from_wire(*b"RSM\xff"), Extensions::ALL);
        assert_eq!(Extensions::from_wire(*b"RSN\x01"), Extensions::NONE);
        assert_eq!(Extensions::from_wire([0, 0, 0, 1]), Extensions::NONE);
        assert_eq!(Extensions::IMMEDIATE.to_wire(), *b"RSM\x01");
        assert_eq!(Extensions::ALL.to_wire(), *b"RSM\x1f");
        assert_eq!(Extensions::NONE.to_wire(), [0; 4]);
        let rest = Extensions::ALL.without(Extensions::IMMEDIATE);
        assert!(rest.has(Extensions::FULL_PACKET) && !rest.has(Extensions::IMMEDIATE));
    }
}
