// SPDX-License-Identifier: GPL-2.0

//! Ring cursors: the wire form `{wrap, count}` and the positions they stand for.
//!
//! Inside the crate a place in a byte stream is a [`Pos`], a plain 64-bit byte offset that never
//! wraps in practice. On the wire it is a [`Cursor`]: `count` is the offset inside the ring and
//! `wrap` a 16-bit turn counter (RFC 7609 section 4.4). Rings are powers of
//! two ([`RingSize`]), as every size that SMC-R can announce is, so the conversion is bit work.
//!
//! No ring memory and no policy live here: see `ring` and `conn`.

/// A byte offset in one direction of a stream, counted from its first byte.
pub type Pos = u64;

/// Size of a ring: a power of two from 1 to 2^30 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RingSize {
    /// The number itself: it is asked for with every message, its logarithm seldom.
    bytes: u32,
}

impl RingSize {
    /// Largest accepted exponent: keeps twice a ring size inside `u32`.
    pub const MAX_SHIFT: u8 = 30;
    /// The smallest ring of SMC-R, 16 KiB (`SMC_BUF_MIN_SIZE` of C).
    pub const MIN_WIRE: RingSize = RingSize { bytes: 1 << 14 };
    /// The largest buffer size code of SMC-R: 16 KiB << 15.
    pub const MAX_CODE: u8 = 15;

    /// The ring of `bytes` bytes; `None` unless a power of two within the limits.
    #[must_use]
    pub const fn new(bytes: u32) -> Option<RingSize> {
        if !bytes.is_power_of_two() {
            return None;
        }
        if bytes.trailing_zeros() > Self::MAX_SHIFT as u32 {
            return None;
        }
        Some(RingSize { bytes })
    }

    /// The ring of a compressed wire size: `16384 << code`, `None` above [`Self::MAX_CODE`].
    #[must_use]
    pub const fn from_code(code: u8) -> Option<RingSize> {
        if code > Self::MAX_CODE {
            return None;
        }
        Some(RingSize {
            bytes: Self::MIN_WIRE.bytes.wrapping_shl(code as u32),
        })
    }

    /// The compressed wire size, rounded up to 16 KiB for smaller rings, `None` if too large.
    #[must_use]
    pub const fn code(self) -> Option<u8> {
        let code = (self.shift() as u8).saturating_sub(14);
        if code > Self::MAX_CODE {
            return None;
        }
        Some(code)
    }

    /// Reports whether cursors in the form of this size tell the positions of a ring of another size apart, twice as far as
    /// need be.
    #[must_use]
    pub const fn tells(self, other: RingSize) -> bool {
        other.len() <= self.len().wrapping_shl(14)
    }

    /// The size to which the ring grows in one step, at most `most` and at least 16 KiB; `None` if it is that large.
    #[must_use]
    pub fn grown(self, most: RingSize) -> Option<RingSize> {
        let wanted = self.bytes.saturating_mul(4).max(Self::MIN_WIRE.bytes);
        RingSize::new(wanted.min(most.bytes)).filter(|larger| larger.bytes > self.bytes)
    }

    /// Size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.bytes
    }

    /// Size in bytes as a stream length.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u64 {
        self.bytes() as u64
    }

    /// A ring always holds at least one byte.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// Offset inside the ring of a stream position.
    #[inline]
    #[must_use]
    pub const fn offset(self, pos: Pos) -> u32 {
        (pos & (self.len().wrapping_sub(1))) as u32
    }

    /// The logarithm of the size, to base 2.
    #[inline]
    const fn shift(self) -> u32 {
        self.bytes.trailing_zeros()
    }

    /// Bits of a position that a wire cursor carries.
    const fn wire_bits(self) -> u32 {
        self.shift().wrapping_add(16)
    }
}

/// A cursor as it travels in a CDC message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Cursor {
    /// Number of turns around the ring, modulo 2^16.
    pub wrap: u16,
    /// Byte offset inside the ring, always below its size.
    pub count: u32,
}

/// A cursor whose `count` does not lie inside its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRing;

impl Cursor {
    /// The wire form of a position.
    #[inline]
    #[must_use]
    pub const fn at(pos: Pos, size: RingSize) -> Cursor {
        Cursor {
            wrap: pos.wrapping_shr(size.shift()) as u16,
            count: size.offset(pos),
        }
    }

    /// The position nearest to `near` that has this wire form.
    ///
    /// The wire carries `log2(size) + 16` bits, so anything up to 32767 turns away in either
    /// direction is told apart. A result that would lie before the start of the stream is
    /// reported as position 0, which for the callers means "a regression".
    ///
    /// # Errors
    ///
    /// [`OutOfRing`] if `count` is not below the ring size.
    pub const fn resolve(self, size: RingSize, near: Pos) -> Result<Pos, OutOfRing> {
        if self.count >= size.bytes() {
            return Err(OutOfRing);
        }
        let wire = (self.wrap as u64).wrapping_shl(size.shift()) | self.count as u64;
        // Sign-extend the difference from the width that the wire carries.
        let unused = 64u32.wrapping_sub(size.wire_bits());
        let raw = wire.wrapping_sub(near);
        let delta = (raw.wrapping_shl(unused) as i64).wrapping_shr(unused);
        if delta < 0 && delta.unsigned_abs() > near {
            return Ok(0);
        }
        Ok(near.wrapping_add_signed(delta))
    }
}

/// Movement of a cursor received from the peer, from the one held so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Not ahead of what is known: ignored (stale or repeated).
    Stale,
    /// Ahead by this number of bytes, inside the allowed window.
    Ahead {
        /// Bytes between the known and the new position; never zero.
        bytes: u64,
    },
    /// Ahead of the allowed window: no correct peer sends this.
    Beyond,
}

/// Judges a received cursor: `known` is the position held, `limit` the last permitted one.
///
/// # Errors
///
/// [`OutOfRing`] if `count` is not below the ring size.
pub fn judge(wire: Cursor, size: RingSize, known: Pos, limit: Pos) -> Result<Step, OutOfRing> {
    let pos = wire.resolve(size, known)?;
    if pos <= known {
        return Ok(Step::Stale);
    }
    if pos > limit {
        return Ok(Step::Beyond);
    }
    Ok(Step::Ahead {
        bytes: pos.wrapping_sub(known),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(RingSize::new(0), None);
        assert_eq!(RingSize::new(3), None);
        assert_eq!(RingSize::new(1 << 31), None);
        for code in 0..=15u8 {
            let s = RingSize::from_code(code).unwrap();
            assert_eq!(s.bytes(), 16384u32 << code);
            assert_eq!(s.code(), Some(code));
            assert_eq!(RingSize::new(s.bytes()), Some(s));
        }
        assert_eq!(RingSize::from_code(16), None);
        assert_eq!(RingSize::new(4096).unwrap().code(), Some(0));
        assert_eq!(RingSize::new(1 << 30).unwrap().code(), None);
    }

    #[test]
    fn cursors_tell_larger_rings() {
        for (small, large) in [(0u32, 14u32), (14, 28), (2, 16)] {
            let size = |shift: u32| RingSize::new(1 << shift).unwrap();
            let (first, ring) = (size(small), size(large));
            assert!(first.tells(ring) && ring.tells(first) && !first.tells(size(large + 1)));
            for pos in [0, 1, ring.len(), 77 * ring.len() - 1] {
                let full = pos + ring.len();
                let wire = Cursor::at(full, first);
                let step = judge(wire, first, pos, full);
                let bytes = ring.len();
                assert_eq!(step, Ok(Step::Ahead { bytes }));
            }
        }
    }

    #[test]
    fn rings_grow_by_steps() {
        let kib = |n: u32| RingSize::new(n << 10).unwrap();
        let all = [16, 64, 256, 1024].map(kib);
        for (from, to) in all.iter().zip(&all[1..]) {
            assert_eq!(from.grown(kib(1024)), Some(*to));
            assert_eq!(from.grown(*from), None);
        }
        assert_eq!(kib(64).grown(kib(128)), Some(kib(128)));
        assert_eq!(kib(64).grown(kib(16)), None);
        assert_eq!(RingSize::new(4).unwrap().grown(kib(64)), Some(kib(16)));
    }

    /// Every position of the first turns and around the 16-bit wrap, for all rings up to 16 bytes:
    /// the wire form resolves back from any reference less than a window away.
    #[test]
    fn resolve_is_the_inverse_exhaustively() {
        for shift in 0..=4u32 {
            let size = RingSize::new(1 << shift).unwrap();
            let span = u64::from(size.bytes());
            let around = span * 65536;
            for base in [0, span, around - 2 * span, around, 7 * around] {
                for pos in base..base + 4 * span {
                    let wire = Cursor::at(pos, size);
                    assert!(wire.count < size.bytes());
                    for near in pos.saturating_sub(3 * span)..=pos + 3 * span {
                        assert_eq!(wire.resolve(size, near), Ok(pos), "{size:?} {pos} {near}");
                    }
                }
            }
        }
    }

    /// All 2^16 * size cursors of small rings, judged against all windows of a small ring: exactly
    /// the positions inside the window are accepted.
    #[test]
    fn judge_accepts_exactly_the_window_exhaustively() {
        for shift in 0..=2u32 {
            let size = RingSize::new(1 << shift).unwrap();
            let span = u64::from(size.bytes());
            let known = 5 * span * 65536 + 65534 * span + span / 2;
            for limit in [known, known + 1, known + span] {
                let mut accepted = 0;
                for wrap in 0..=u16::MAX {
                    for count in 0..=size.bytes() {
                        let wire = Cursor { wrap, count };
                        match judge(wire, size, known, limit) {
                            Err(OutOfRing) => assert_eq!(count, size.bytes()),
                            Ok(Step::Ahead { bytes }) => {
                                accepted += 1;
                                assert!(known + bytes <= limit);
                                assert_eq!(Cursor::at(known + bytes, size), wire);
                            }
                            Ok(Step::Stale | Step::Beyond) => {
                                assert!(count < size.bytes());
                                for p in known + 1..=limit {
                                    assert_ne!(Cursor::at(p, size), wire);
                                }
                            }
                        }
                    }
                }
                assert_eq!(accepted, limit - known);
            }
        }
    }

    #[test]
    fn nothing_lies_before_the_start() {
        let size = RingSize::new(16).unwrap();
        let wire = Cursor {
            wrap: 0xffff,
            count: 15,
        };
        assert_eq!(wire.resolve(size, 0), Ok(0));
        assert_eq!(judge(wire, size, 3, 16), Ok(Step::Stale));
    }

    #[test]
    fn full_is_one_wrap_ahead() {
        let size = RingSize::MIN_WIRE;
        let full = Cursor { wrap: 1, count: 0 };
        assert_eq!(
            judge(full, size, 0, size.len()),
            Ok(Step::Ahead { bytes: 16384 })
        );
        let more = Cursor { wrap: 1, count: 1 };
        assert_eq!(judge(more, size, 0, size.len()), Ok(Step::Beyond));
    }
}
