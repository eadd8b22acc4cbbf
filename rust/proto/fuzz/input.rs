// SPDX-License-Identifier: GPL-2.0

//! Fields of a message from the input of a fuzz target; zeroes when that has ended.

/// What is left of the input.
pub struct Src<'a>(pub &'a [u8]);

impl Src<'_> {
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        out
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }
}
