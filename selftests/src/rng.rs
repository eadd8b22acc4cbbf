// SPDX-License-Identifier: GPL-2.0
//! Repeatable random numbers, and a byte stream in which every position can be checked alone.

/// splitmix64.
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `lo..=hi`.
    pub fn range(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.draw() % (hi - lo + 1)
    }

    /// A size that is often small, sometimes near a power of two, seldom up to `max`.
    pub fn size(&mut self, max: u64) -> usize {
        let bits = 64 - max.leading_zeros() as u64;
        let top = 1u64 << self.range(0, bits.min(40));
        let n = match self.draw() % 4 {
            0 => top,
            1 => top.saturating_sub(1),
            _ => self.range(1, top),
        };
        n.clamp(1, max) as usize
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills `b` with the bytes at position `pos` of the stream `seed`.
pub fn fill(seed: u64, pos: u64, b: &mut [u8]) {
    let mut p = pos;
    let mut i = 0;
    while i < b.len() {
        let w = mix(seed ^ (p / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
        let off = (p % 8) as usize;
        let n = (8 - off).min(b.len() - i);
        b[i..i + n].copy_from_slice(&w[off..off + n]);
        i += n;
        p += n as u64;
    }
}

/// Compares `b` with the stream; the position of the first wrong byte.
pub fn check(seed: u64, pos: u64, b: &[u8]) -> Result<(), u64> {
    let mut want = [0u8; 4096];
    let mut done = 0;
    while done < b.len() {
        let n = (b.len() - done).min(want.len());
        fill(seed, pos + done as u64, &mut want[..n]);
        if want[..n] != b[done..done + n] {
            let i = (0..n).find(|&i| want[i] != b[done + i]).unwrap_or(0);
            return Err(pos + (done + i) as u64);
        }
        done += n;
    }
    Ok(())
}
