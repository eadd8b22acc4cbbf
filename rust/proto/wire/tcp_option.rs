// SPDX-License-Identifier: GPL-2.0

//! The TCP option that announces SMC.
//!
//! Experimental option, kind 254, length 6, magic "SMCR" in EBCDIC (RFC 7609
//! section 3.1 and appendix A). It stands in SYN and SYN-ACK only. This module
//! finds it in received headers and states the edit that adds it to one that TCP
//! has built without it. It never touches a packet itself, and any garbage is
//! tolerated: what cannot be parsed simply has no option.

use super::identity::{self, Identity};

/// Length of a TCP header without options.
pub const TCP_HEADER_LEN: usize = 20;
/// Longest TCP header, in units of 32-bit words.
pub const MAX_DOFF: u8 = 15;
/// The bytes to append: two NOPs and the option.
pub const OPTION: [u8; 8] = [1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9];
/// Number of 32-bit words that [`OPTION`] takes.
pub const OPTION_WORDS: u8 = 2;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MD5: u8 = 19;
const KIND_AO: u8 = 29;
const KIND_EXPERIMENT: u8 = 254;
const MAGIC: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];
/// Smallest valid length of the option; the even longer ones C accepts, too.
const MIN_LEN: usize = 6;

/// Offset of the byte that holds the data offset, inside the TCP header.
const OFF_DOFF: usize = 12;
/// Offset of the flags byte.
const OFF_FLAGS: usize = 13;
const FLAG_FIN: u8 = 0x01;
const FLAG_SYN: u8 = 0x02;
const FLAG_RST: u8 = 0x04;

/// Returns the offset of the SMC option from the start of the option bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of the option's kind byte.
    pub offset: usize,
    /// Length of the option, kind and length bytes included; 6 unless the peer
    /// sends something beyond the magic.
    pub len: usize,
}

/// Findings of a walk over the options of one header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The first valid SMC option.
    pub smc: Option<Found>,
    /// An MD5 (RFC 2385) or AO (RFC 5925) signature is present, which covers
    /// the options: the header must not be changed any more.
    pub signed: bool,
    /// The first valid identity of a host with this module.
    pub identity: Option<Identity>,
    /// The walk ended at an impossible length; what follows was not looked at.
    pub malformed: bool,
    /// The walk ended at an end-of-options byte.
    pub ended: bool,
}

impl Scan {
    /// Reports whether the header offers SMC to somebody who can answer: the signature of
    /// a signed connection would cover the answer, so there is none.
    #[inline]
    #[must_use]
    pub fn offers(&self) -> bool {
        self.smc.is_some() && !self.signed
    }
}

/// Length of the options with which most SYNs begin, of which none counts here.
const USUAL: usize = 20;

/// Returns what follows the options with which most SYNs begin, if these do: MSS, SACK permitted, timestamps, one byte
/// of padding and window scale, as Linux has them.
#[inline]
fn behind_usual(options: &[u8]) -> Option<&[u8]> {
    const FIRST: (u64, u64) = (
        u64::from_be_bytes([2, 4, 0, 0, 4, 2, 8, 10]),
        u64::from_be_bytes([255, 255, 0, 0, 255, 255, 255, 255]),
    );
    const LAST: (u32, u32) = (
        u32::from_be_bytes([KIND_NOP, 3, 3, 0]),
        u32::from_be_bytes([255, 255, 255, 0]),
    );
    let (usual, rest) = options.split_first_chunk::<USUAL>()?;
    let first = u64::from_be_bytes(*usual.first_chunk()?);
    let last = u32::from_be_bytes(*usual.last_chunk()?);
    (first & FIRST.1 == FIRST.0 && last & LAST.1 == LAST.0).then_some(rest)
}

/// Notes what [`walk`] finds in `rest`, which stands behind [`USUAL`] bytes that do not count, if that is nothing, or
/// what two hosts with this module say. Returns whether it is.
#[inline]
fn known(rest: &[u8], seen: &mut Scan) -> bool {
    let identity = match rest.split_first_chunk() {
        // One comparison, which a pattern of the bytes is not.
        Some((first, behind)) if *first == OPTION => {
            seen.smc = Some(Found {
                offset: USUAL.wrapping_add(2),
                len: MIN_LEN,
            });
            behind
        }
        _ => rest,
    };
    if identity.is_empty() {
        return true;
    }
    // One that ends the options.
    let whole = identity.len() == identity::LEN;
    if !whole || !identity.starts_with(&[identity::KIND, identity::LEN as u8]) {
        return false;
    }
    seen.identity = Identity::parse(identity);
    true
}

/// Looks through the option bytes of a TCP header (those after its first 20
/// bytes, up to its data offset) as Linux does: an impossible length ends it.
pub fn scan(options: &[u8]) -> Scan {
    let mut seen = Scan::default();
    match behind_usual(options) {
        Some(rest) if known(rest, &mut seen) => seen,
        Some(_) => walk(options, USUAL),
        None => walk(options, 0),
    }
}

/// Looks at one option after the other, from the offset `at` on.
#[inline(never)]
fn walk(options: &[u8], mut at: usize) -> Scan {
    let mut seen = Scan::default();
    while let Some(&kind) = options.get(at) {
        if kind == KIND_NOP {
            at = at.wrapping_add(1);
            continue;
        }
        if kind == KIND_END {
            seen.ended = true;
            return seen;
        }
        let len = options
            .get(at.wrapping_add(1))
            .map_or(0, |len| usize::from(*len));
        // No sum here is above the length of a slice and 255.
        let next = at.wrapping_add(len);
        if len < 2 || next > options.len() {
            seen.malformed = true;
            return seen;
        }
        // TCP's own are below.
        if kind >= KIND_MD5 {
            note(&mut seen, kind, options.get(at..next).unwrap_or(&[]), at);
        }
        at = next;
    }
    seen
}

/// Takes note of an option at the offset `at`, if it is one of those that count. Not inlined: the walk is
/// short of registers otherwise.
#[inline(never)]
fn note(seen: &mut Scan, kind: u8, option: &[u8], at: usize) {
    match kind {
        KIND_MD5 | KIND_AO => seen.signed = true,
        identity::KIND if seen.identity.is_none() => seen.identity = Identity::parse(option),
        KIND_EXPERIMENT if seen.smc.is_none() && is_smc(option) => {
            seen.smc = Some(Found {
                offset: at,
                len: option.len(),
            });
        }
        _ => {}
    }
}

/// Reports whether `option` (kind, length, content) is a valid SMC option.
fn is_smc(option: &[u8]) -> bool {
    let len = option.len();
    len >= MIN_LEN && len & 1 == 0 && option.get(2..6) == Some(&MAGIC)
}

/// The first valid SMC option in the option bytes of a TCP header.
#[inline]
pub fn find(options: &[u8]) -> Option<Found> {
    scan(options).smc
}

/// The option bytes of a TCP header that starts at `tcp`; nothing where the
/// data offset is impossible or beyond the slice.
pub fn options(tcp: &[u8]) -> Option<&[u8]> {
    let doff = doff_of(*tcp.get(OFF_DOFF)?);
    tcp.get(TCP_HEADER_LEN..header_len(doff))
}

/// Reports whether the TCP header that starts at `tcp` is a SYN or SYN-ACK and carries
/// a valid SMC option.
pub fn announces_smc(tcp: &[u8]) -> bool {
    is_syn(tcp) && options(tcp).and_then(find).is_some()
}

/// Reports whether a header of `doff` words has room for [`OPTION`].
#[inline]
pub const fn has_room(doff: u8) -> bool {
    doff >= 5 && doff <= MAX_DOFF - OPTION_WORDS
}

/// Overwrites every valid SMC option in `options` by NOPs, so that nobody finds
/// it again. Returns whether there was one.
pub fn blank(options: &mut [u8]) -> bool {
    let mut any = false;
    while let Some(found) = find(options) {
        let end = found.offset.saturating_add(found.len);
        match options.get_mut(found.offset..end) {
            Some(bytes) => bytes.fill(KIND_NOP),
            None => return any,
        }
        any = true;
    }
    any
}

/// Reasons not to add the option to a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a whole TCP header, or its data offset is impossible.
    Malformed,
    /// Neither SYN nor SYN-ACK.
    NotSyn,
    /// It has the option already.
    Present,
    /// Fewer than 8 bytes of option space are left.
    NoRoom,
    /// An MD5 or AO signature covers the header.
    Signed,
    /// The options are closed by an end-of-options byte: nobody would look at an
    /// option after it. (Linux pads with NOPs and never gets here.)
    Ended,
}

/// The edit that adds [`OPTION`] to one TCP header.
///
/// Beside the header the IP total (payload) length grows by [`Edit::GROWTH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Offset to insert at, from the start of the TCP header: its end. Data
    /// after it (fast open) moves.
    pub insert_at: usize,
    /// Bytes to insert.
    pub bytes: [u8; 8],
    /// Bytes 12 and 13 of the header (data offset and flags) before the edit,
    /// as a big-endian word, for checksum updates.
    pub old_word: u16,
    /// The same word after the edit.
    pub new_word: u16,
}

impl Edit {
    /// Number of bytes by which the segment grows.
    pub const GROWTH: u16 = 8;

    /// The byte to store at offset 12 of the header.
    #[inline]
    pub fn doff_byte(&self) -> u8 {
        let [hi, _] = self.new_word.to_be_bytes();
        hi
    }

    /// The header's checksum field after the edit, from the one before, in host
    /// order, for a segment that is completely checksummed. `tcp_len` is the
    /// length of TCP header and data before the edit. (RFC 1624: the complement
    /// of the sum is updated by every word that changed, of the pseudo header,
    /// too.)
    pub fn checksum(&self, old: u16, tcp_len: u16) -> u16 {
        let mut sum = u32::from(!old);
        let mut add = |v: u16| sum = sum.wrapping_add(u32::from(v));
        add(!self.old_word);
        add(self.new_word);
        add(!tcp_len);
        add(tcp_len.wrapping_add(Self::GROWTH));
        for pair in self.bytes.chunks_exact(2) {
            if let [hi, lo] = pair {
                add(u16::from_be_bytes([*hi, *lo]));
            }
        }
        !fold(sum)
    }

    /// The same for a segment whose checksum the device completes
    /// (`CHECKSUM_PARTIAL`): the field then holds the sum of the pseudo header
    /// alone, not complemented.
    pub fn partial_checksum(&self, old: u16, tcp_len: u16) -> u16 {
        let sum = u32::from(old)
            .wrapping_add(u32::from(!tcp_len))
            .wrapping_add(u32::from(tcp_len.wrapping_add(Self::GROWTH)));
        fold(sum)
    }
}

/// Folds a sum of 16-bit words into 16 bits.
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    // Now at most 16 bits.
    (sum & 0xffff) as u16
}

/// States the edit that adds the option to the TCP header that starts at `tcp`
/// (the whole header must be there, data after it does not matter).
pub fn edit(tcp: &[u8]) -> Result<Edit, Refusal> {
    let (Some(&doff_byte), Some(&flags)) = (tcp.get(OFF_DOFF), tcp.get(OFF_FLAGS)) else {
        return Err(Refusal::Malformed);
    };
    let seen = scan(options(tcp).ok_or(Refusal::Malformed)?);
    let doff = doff_of(doff_byte);

    if !is_syn(tcp) {
        return Err(Refusal::NotSyn);
    }
    if seen.signed {
        return Err(Refusal::Signed);
    }
    if seen.smc.is_some() {
        return Err(Refusal::Present);
    }
    if seen.malformed {
        return Err(Refusal::Malformed);
    }
    if seen.ended {
        return Err(Refusal::Ended);
    }
    if !has_room(doff) {
        return Err(Refusal::NoRoom);
    }
    let new_doff_byte = doff_byte.wrapping_add(OPTION_WORDS << 4);
    Ok(Edit {
        insert_at: header_len(doff),
        bytes: OPTION,
        old_word: u16::from_be_bytes([doff_byte, flags]),
        new_word: u16::from_be_bytes([new_doff_byte, flags]),
    })
}

/// Reports whether the header is a SYN or SYN-ACK (and not some SYN+RST oddity).
fn is_syn(tcp: &[u8]) -> bool {
    match tcp.get(OFF_FLAGS) {
        Some(flags) => flags & (FLAG_SYN | FLAG_RST | FLAG_FIN) == FLAG_SYN,
        None => false,
    }
}

/// The data offset in words.
#[inline]
const fn doff_of(byte: u8) -> u8 {
    byte >> 4
}

/// The header length in bytes.
#[inline]
fn header_len(doff: u8) -> usize {
    usize::from(doff).saturating_mul(4)
}
