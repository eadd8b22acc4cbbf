// SPDX-License-Identifier: GPL-2.0

//! The TCP option by which two kernels with this module know each other.
//!
//! Kind 253 ("RFC 3692-style experiment 1"), length 12, two bytes of experiment id, one byte of
//! version and flags, and a proof: 56 bits that only the kernel which made them can make again. It
//! stands in SYN and SYN-ACK only. One flag is set in a SYN-ACK and clear in a SYN, so a
//! peer that returns what it does not understand shows itself.

/// Length of the option, a multiple of four.
pub const LEN: usize = 12;

pub(super) const KIND: u8 = 253;
const EXPERIMENT: [u8; 2] = *b"rs";
/// Version in the upper half of the byte after the experiment id.
const VERSION: u8 = 0x10;
const VERSION_MASK: u8 = 0xf0;
/// The option stands in a SYN-ACK.
const ANSWER: u8 = 1;
/// The program wants SMC or an error: no plain TCP between two hosts.
const STRICT: u8 = 2;
/// The connection is a side connection of two kernels; see [`promotion`](super::promotion).
const JOINS: u8 = 4;
/// The client's kernel takes the connection for TCP at first, and promotes it when that is worth it. Alone.
const FIRST: u8 = 8;

/// What a kernel says of one connection, and recognises: to all others 56 random bits, different for each
/// connection. So nobody can tell that two connections are of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(pub [u8; 7]);

/// The initial sequence numbers of a connection, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The client's, in its SYN.
    Syn(u32),
    /// The client's and the server's, in a SYN-ACK.
    SynAck(u32, u32),
}

impl Proof {
    /// Returns the proof of the kernel whose secret this is, in a `scope` of it (less than 2^63), for a connection with
    /// these numbers.
    ///
    /// SipHash-2-4 of two words, without the last byte of its result. One says the scope and which numbers are known,
    /// the other one the numbers. All messages have these two words, and different ones for different arguments, so
    /// no word need tell their length.
    #[must_use]
    pub fn of(secret: [u64; 2], scope: u64, numbers: Numbers) -> Self {
        let (numbers, kind) = match numbers {
            Numbers::Syn(client) => (u64::from(client), 0),
            Numbers::SynAck(client, server) => ((u64::from(server) << 32) | u64::from(client), 1),
        };
        let [a, b, c, d, e, f, g, _] =
            siphash(secret, [(scope << 1) | kind, numbers]).to_le_bytes();
        Self([a, b, c, d, e, f, g])
    }
}

/// Returns SipHash-2-4 of these words and nothing else.
#[inline]
fn siphash(key: [u64; 2], words: [u64; 2]) -> u64 {
    let [k0, k1] = key;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// A round of SipHash.
#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// The content of the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// By this its own kernel recognises it.
    pub proof: Proof,
    /// It answers a SYN.
    pub answer: bool,
    /// The client's program accepts nothing but SMC or a local path.
    pub strict: bool,
    /// No program uses the connection: kernels speak over it about another one.
    pub joins: bool,
    /// The client takes the connection for TCP at first if the server is another host that does so, too. Servers say
    /// that by their answer alone.
    pub first: bool,
}

impl Identity {
    /// Returns the option's bytes.
    #[must_use]
    pub const fn bytes(&self) -> [u8; LEN] {
        let [a, b, c, d, e, f, g] = self.proof.0;
        let [x, y] = EXPERIMENT;
        let mut flags = VERSION;
        if self.answer {
            flags |= ANSWER;
        }
        if self.strict {
            flags |= STRICT;
        }
        if self.joins {
            flags |= JOINS;
        }
        if self.first {
            flags |= FIRST;
        }
        [KIND, LEN as u8, x, y, flags, a, b, c, d, e, f, g]
    }

    /// Reads an option (kind, length, content); `None` for any other option or version, and for one with flags that
    /// this version does not know, or not together.
    #[must_use]
    pub fn parse(option: &[u8]) -> Option<Self> {
        const HEAD: [u8; 4] = [KIND, LEN as u8, EXPERIMENT[0], EXPERIMENT[1]];
        let option: &[u8; LEN] = option.try_into().ok()?;
        let [head @ .., flags] = *option.first_chunk::<5>()?;
        if head != HEAD || flags & VERSION_MASK != VERSION {
            return None;
        }
        if flags & FIRST != 0 && flags & !VERSION_MASK != FIRST {
            return None;
        }
        Some(Self {
            proof: Proof(*option.last_chunk()?),
            answer: flags & ANSWER != 0,
            strict: flags & STRICT != 0,
            joins: flags & JOINS != 0,
            first: flags & FIRST != 0,
        })
    }
}
