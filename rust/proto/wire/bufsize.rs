// SPDX-License-Identifier: GPL-2.0

//! The four bits that carry a receive buffer's size.

/// Size of a receive buffer as the wire states it: 16 KiB shifted left by the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufSize(u8);

impl BufSize {
    /// 16 KiB, the smallest.
    pub const MIN: BufSize = BufSize(0);
    /// Largest code of SMC-R: 512 MiB.
    pub const MAX_R: BufSize = BufSize(15);
    /// Largest code of SMC-D: 1 MiB.
    pub const MAX_D: BufSize = BufSize(6);

    /// Takes the low four bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> BufSize {
        BufSize(code & 0x0f)
    }

    /// The code, 0 to 15.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        // The code is at most 15, so this is at most 2^29.
        0x4000u32.wrapping_shl(self.0 as u32)
    }

    /// The smallest size that holds `bytes`, or `max` if that is smaller.
    pub const fn at_least(bytes: u32, max: BufSize) -> BufSize {
        let mut code = 0u8;
        while code < max.0 && BufSize(code).bytes() < bytes {
            code = code.wrapping_add(1);
        }
        BufSize(code)
    }

    /// The next smaller size, to which to downgrade when memory is short.
    #[inline]
    pub const fn smaller(self) -> Option<BufSize> {
        match self.0.checked_sub(1) {
            Some(code) => Some(BufSize(code)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_c() {
        let r = |n| BufSize::at_least(n, BufSize::MAX_R).code();
        assert_eq!(
            [r(0), r(1), r(16384), r(16385), r(32768), r(32769)],
            [0, 0, 0, 1, 1, 2]
        );
        assert_eq!([r(65536), r(131072), r(524288), r(u32::MAX)], [2, 3, 5, 15]);
        assert_eq!(BufSize::at_least(u32::MAX, BufSize::MAX_D).bytes(), 1 << 20);
        assert_eq!(BufSize::MAX_R.bytes(), 512 << 20);
        for code in 0..16u8 {
            let s = BufSize::from_code(code);
            assert_eq!(BufSize::at_least(s.bytes(), BufSize::MAX_R), s);
            assert_eq!(s.code(), code);
        }
        assert_eq!(BufSize::MIN.smaller(), None);
        assert_eq!(BufSize::from_code(3).smaller(), Some(BufSize::from_code(2)));
    }
}
