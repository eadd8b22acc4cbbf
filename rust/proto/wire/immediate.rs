// SPDX-License-Identifier: GPL-2.0

//! The 32 bits of an RDMA WRITE with immediate that stand for a CDC message.
//!
//! Most CDC messages only say "N more bytes are here". Two hosts with this module agree at
//! first contact (see [`Extensions`](super::clc::Extensions)) to let the WRITE that carries the
//! bytes say that itself, which halves the packets of a short message. Everything else, cursors of
//! the receiving side and flags, still goes by CDC, and to other peers all of it does.

use super::ids::AlertToken;

/// Most bytes that an immediate can announce.
pub const MAX_BYTES: u32 = 1 << 16;

/// "So many bytes were written after those that you know of, and there is no flag."
///
/// On the wire the upper half is the lower half of the alert token, the lower half the number of
/// bytes less one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Immediate {
    hint: u16,
    less_one: u16,
}

impl Immediate {
    /// For the connection that its receiver calls `token`; `None` if it cannot be said, because
    /// `bytes` is zero or more than [`MAX_BYTES`].
    #[inline]
    #[must_use]
    pub fn new(token: AlertToken, bytes: u32) -> Option<Immediate> {
        let less_one = u16::try_from(bytes.checked_sub(1)?).ok()?;
        Some(Immediate {
            hint: token.0 as u16,
            less_one,
        })
    }

    /// The value that arrived.
    #[inline]
    #[must_use]
    pub const fn from_wire(value: u32) -> Immediate {
        Immediate {
            hint: (value >> 16) as u16,
            less_one: value as u16,
        }
    }

    /// The value to send.
    #[inline]
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        ((self.hint as u32) << 16) | self.less_one as u32
    }

    /// The lower half of the token of the connection.
    #[inline]
    #[must_use]
    pub const fn hint(self) -> u16 {
        self.hint
    }

    /// Bytes written, 1 to [`MAX_BYTES`].
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        (self.less_one as u32).wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_the_wire() {
        let one = Immediate::new(AlertToken(0xaabb_1234), 0x8001).unwrap();
        assert_eq!(one.to_wire(), 0x1234_8000);
        assert_eq!(Immediate::from_wire(0x1234_8000), one);
        assert_eq!((one.hint(), one.bytes()), (0x1234, 0x8001));
    }

    #[test]
    fn every_length_is_exact_or_refused() {
        for bytes in 1..=MAX_BYTES {
            let imm = Immediate::new(AlertToken(7), bytes).unwrap();
            assert_eq!(Immediate::from_wire(imm.to_wire()).bytes(), bytes);
        }
        assert_eq!(Immediate::new(AlertToken(7), 0), None);
        assert_eq!(Immediate::new(AlertToken(7), MAX_BYTES + 1), None);
    }
}
