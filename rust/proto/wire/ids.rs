// SPDX-License-Identifier: GPL-2.0

//! The identities that messages carry, each with its own type.
//!
//! They are values without meaning to this crate; the types exist so that a
//! queue pair number is not taken for a packet sequence number.

/// Defines a newtype over a byte array.
macro_rules! byte_id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;
            /// All bytes zero: "none".
            pub const ZERO: $name = $name([0; $len]);

            /// True if all bytes are zero.
            #[inline]
            pub fn is_zero(&self) -> bool {
                self.0 == [0; $len]
            }
        }

        impl From<[u8; $len]> for $name {
            fn from(bytes: [u8; $len]) -> Self {
                $name(bytes)
            }
        }
    };
}

byte_id! {
    /// Identifies one boot (or module load) of a peer: two random bytes and the
    /// MAC of its first RDMA port. Zero when the sender has none, which a C
    /// peer without SMC-R version 1 does in its proposal.
    PeerId, 8
}
byte_id! {
    /// A RoCE GID; for RoCE v2 over IPv4 the v4-mapped IPv6 address.
    Gid, 16
}
byte_id! {
    /// An Ethernet address.
    Mac, 6
}

impl Mac {
    /// Reports whether this is the address of one station.
    pub fn is_station(&self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && !self.is_zero()
    }
}

impl Gid {
    /// The IPv4 address of a v4-mapped GID (`::ffff:a.b.c.d`).
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// The v4-mapped GID of an IPv4 address.
    pub fn from_ipv4(addr: [u8; 4]) -> Gid {
        let [a, b, c, d] = addr;
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }
}

/// Defines a newtype over an integer.
macro_rules! int_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);
    };
}

/// Defines a newtype over the low 24 bits of a `u32`.
macro_rules! int24_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// Takes the low 24 bits of `v`.
            #[inline]
            pub const fn new(v: u32) -> Self {
                $name(v & 0x00ff_ffff)
            }

            /// The value, below 2^24.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }
        }
    };
}

int24_id! {
    /// Number of a queue pair (24 bits).
    Qpn
}
int24_id! {
    /// Packet sequence number of a queue pair (24 bits).
    Psn
}
int_id! {
    /// Remote key of a memory region.
    Rkey, u32
}
int_id! {
    /// Identifies a connection in CDC messages; never zero for a live one.
    AlertToken, u32
}
int_id! {
    /// GID of an ISM device (SMC-D).
    IsmGid, u64
}
int_id! {
    /// Channel id of an ISM device (SMC-D).
    Chid, u16
}
int_id! {
    /// Token of a DMB, the receive buffer of an SMC-D connection.
    DmbToken, u64
}
int_id! {
    /// Identifies a link group in SMC-D messages; opaque to the receiver.
    GroupId, u32
}

impl Chid {
    /// Devices with these channel ids are emulated (software) and have 128-bit GIDs.
    #[inline]
    pub fn is_emulated(self) -> bool {
        self.0 & 0xff00 == 0xff00
    }
}

/// Path MTU of a queue pair, as InfiniBand codes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Mtu(u8);

impl Mtu {
    /// Takes the low four bits of `code`: 1 to 5 are 256 to 4096 bytes, the rest
    /// means nothing ([`Mtu::bytes`]).
    #[inline]
    pub const fn from_code(code: u8) -> Mtu {
        Mtu(code & 0x0f)
    }

    /// The code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The MTU in bytes; nothing for an undefined code.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1 => Some(256),
            2 => Some(512),
            3 => Some(1024),
            4 => Some(2048),
            5 => Some(4096),
            _ => None,
        }
    }
}
