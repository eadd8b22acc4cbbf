// SPDX-License-Identifier: GPL-2.0
//! The socket family under test and the kind of address it is used with.

/// `AF_SMC`.
pub const AF_SMC: i32 = 43;
/// `IPPROTO_SMC`.
pub const IPPROTO_SMC: i32 = 256;

/// Which sockets a test makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Plain TCP, the yardstick.
    Tcp,
    /// `socket(AF_INET or AF_INET6, SOCK_STREAM, IPPROTO_SMC)`.
    Inet,
    /// `socket(AF_SMC, SOCK_STREAM, 0 or 1)`.
    Smc,
}

/// Which addresses a test uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// IPv6 sockets with v4-mapped addresses.
    Mapped,
}

impl Family {
    /// From a command-line word.
    pub fn parse(s: &str) -> Option<Family> {
        Some(match s {
            "tcp" => Family::Tcp,
            "inet" => Family::Inet,
            "smc" => Family::Smc,
            _ => return None,
        })
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Tcp => "tcp",
            Family::Inet => "inet",
            Family::Smc => "smc",
        }
    }

    /// Domain and protocol to give to `socket`.
    pub fn triple(self, ip: Ip) -> (i32, i32) {
        let af = if ip == Ip::V4 {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        match self {
            Family::Tcp => (af, 0),
            Family::Inet => (af, IPPROTO_SMC),
            Family::Smc => (AF_SMC, if ip == Ip::V4 { 0 } else { 1 }),
        }
    }
}

impl Ip {
    /// All of them.
    pub const ALL: [Ip; 3] = [Ip::V4, Ip::V6, Ip::Mapped];

    /// From a command-line word.
    pub fn parse(s: &str) -> Option<Ip> {
        Some(match s {
            "v4" => Ip::V4,
            "v6" => Ip::V6,
            "mapped" => Ip::Mapped,
            _ => return None,
        })
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Ip::V4 => "v4",
            Ip::V6 => "v6",
            Ip::Mapped => "mapped",
        }
    }
}
