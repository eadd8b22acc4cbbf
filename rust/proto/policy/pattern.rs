// SPDX-License-Identifier: GPL-2.0

//! What conditions compare with: names, numbers and networks.

/// Tells whether `text` matches `pattern`, in which `*` stands for any bytes and `?` for one.
///
/// Takes at most as many steps as the product of both lengths.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (pattern, text);
    // Where to go on if it does not match as it is: after the last star, one byte later.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (p.split_first(), t.split_first()) {
            (Some((b'*', rest)), _) => {
                star = Some((rest, t));
                p = rest;
            }
            (Some((want, p_rest)), Some((have, t_rest))) if *want == b'?' || want == have => {
                (p, t) = (p_rest, t_rest);
            }
            (None, None) => return true,
            _ => match star {
                Some((after, [_, later @ ..])) => {
                    star = Some((after, later));
                    (p, t) = (after, later);
                }
                _ => return false,
            },
        }
    }
}

/// Returns the most steps that [`glob`] takes with a pattern and a text of `text` bytes: the product of both lengths if
/// something comes after a star, as each byte of the text may begin a match.
pub(super) fn cost(pattern: &[u8], text: usize) -> usize {
    let tries_again = match pattern.iter().position(|byte| *byte == b'*') {
        Some(at) => at.saturating_add(1) < pattern.len(),
        None => false,
    };
    match tries_again {
        true => pattern.len().saturating_mul(text),
        false => pattern.len(),
    }
}

/// Tells whether a pattern for [`glob`] stands for no text but itself.
pub(super) fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Tells whether the path `text` is `top`, or below it.
pub(super) fn is_below(top: &[u8], text: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    matches!(text.strip_prefix(top), Some([] | [b'/', ..]))
}

/// Numbers from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl Range {
    /// Tells whether it includes `number`.
    pub const fn has(self, number: u16) -> bool {
        self.first <= number && number <= self.last
    }

    /// The number, if it is only one.
    pub(super) fn single(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }
}

/// Addresses that begin with the same bits. IPv4 addresses are those of IPv6 that map them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    length: u8,
}

impl Network {
    /// The network of `address` with a prefix of `length` bits, at most 128; the other bits of the address
    /// do not count. `None` for a length that there is not.
    pub fn new(address: [u8; 16], length: u8) -> Option<Self> {
        (length <= 128).then(|| Self {
            address: masked(u128::from_be_bytes(address), length),
            length,
        })
    }

    /// Its first address.
    pub const fn address(self) -> [u8; 16] {
        self.address.to_be_bytes()
    }

    /// The number of bits that count.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Tells whether `address` belongs to it.
    pub fn has(self, address: [u8; 16]) -> bool {
        masked(u128::from_be_bytes(address), self.length) == self.address
    }
}

/// The first `length` bits of an address.
fn masked(address: u128, length: u8) -> u128 {
    let free = 128u32.saturating_sub(u32::from(length));
    address & u128::MAX.checked_shl(free).unwrap_or(0)
}

/// A number for a condition, by which rules are found: that of a kind of condition with its contents.
#[derive(Clone, Copy)]
pub(super) struct Key(u64);

impl Key {
    /// Begins the number of a kind.
    pub(super) const fn of(kind: u8) -> Self {
        // FNV-1a, 64 bits.
        Self(0xcbf2_9ce4_8422_2325).with(kind)
    }

    /// Goes on with a byte.
    pub(super) const fn with(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// Goes on with some bytes.
    pub(super) fn and(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |key, byte| key.with(*byte))
    }

    /// The number; never 0.
    pub(super) const fn number(self) -> u64 {
        self.0 | 1
    }
}
