// SPDX-License-Identifier: GPL-2.0

//! The TCP option by which two kernels with this module know each other.
//!
//! Kind 253 ("RFC 3692-style experiment 1"), length 12, two bytes of experiment id, one byte of
//! version and flags, and a host's number: 56 random bits, drawn anew each time the module is loaded.
//! It stands in SYN and SYN-ACK only. One flag is set in a SYN-ACK and clear in a SYN, so a
//! peer that returns what it does not understand shows itself.

/// Length of the option, a multiple of four.
pub const LEN: usize = 12;

pub(super) const KIND: u8 = 253;
const EXPERIMENT: [u8; 2] = *b"rs";
/// Version in the upper half of the byte behind the experiment id.
const VERSION: u8 = 0x10;
const VERSION_MASK: u8 = 0xf0;
/// The option stands in a SYN-ACK.
const ANSWER: u8 = 1;
/// The program wants SMC or an error: no plain TCP between two hosts.
const STRICT: u8 = 2;
/// The flags that have a meaning; others are for later versions of the same layout.
const KNOWN: u8 = ANSWER | STRICT;

/// The number of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId(pub [u8; 7]);

/// The content of the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The host that has sent it.
    pub host: HostId,
    /// It answers a SYN.
    pub answer: bool,
    /// The client's program accepts nothing but SMC or a local path.
    pub strict: bool,
}

impl Identity {
    /// Returns the option's bytes.
    #[must_use]
    pub const fn bytes(&self) -> [u8; LEN] {
        let [a, b, c, d, e, f, g] = self.host.0;
        let [x, y] = EXPERIMENT;
        let mut flags = VERSION;
        if self.answer {
            flags |= ANSWER;
        }
        if self.strict {
            flags |= STRICT;
        }
        [KIND, LEN as u8, x, y, flags, a, b, c, d, e, f, g]
    }

    /// Reads an option (kind, length, content); `None` for any other option or version, and for one with
    /// flags that this version does not know.
    #[must_use]
    pub fn parse(option: &[u8]) -> Option<Self> {
        let &[KIND, len, x, y, flags, a, b, c, d, e, f, g] = option else {
            return None;
        };
        if usize::from(len) != LEN || [x, y] != EXPERIMENT || flags & VERSION_MASK != VERSION {
            return None;
        }
        if flags & !(VERSION_MASK | KNOWN) != 0 {
            return None;
        }
        Some(Self {
            host: HostId([a, b, c, d, e, f, g]),
            answer: flags & ANSWER != 0,
            strict: flags & STRICT != 0,
        })
    }
}
