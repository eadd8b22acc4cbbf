// SPDX-License-Identifier: GPL-2.0

//! A ring of bytes in a region, which a network card or a peer may write at any time.

use super::region::Region;
use kernel::{
    iov::{IovIterDest, IovIterSource},
    prelude::*,
    sync::Arc, //
};

/// A ring of `size` bytes in a [`Region`], for example one element of a slab.
///
/// Positions wrap: they may be at most twice the size, lengths at most the size.
///
/// # Invariants
///
/// `size` is not zero, and `base + size` is at most the length of `region`.
///
/// # Examples
///
/// ```
/// use kapi::rdma::{device::Device, dma::Direction, region::Region, ring::Ring};
/// use kernel::{prelude::*, sync::Arc};
///
/// const SIZE: usize = 1 << 14;
///
/// fn wrap(device: &Arc<Device>) -> Result {
///     let slab = Region::new(device, 4 * SIZE, Direction::Bidirectional)?;
///     // The second of its four rings.
///     let ring = Ring::new(slab, SIZE, SIZE)?;
///
///     // Two bytes are at the end of the ring, two at its beginning.
///     assert_eq!(ring.write_slice(SIZE - 2, b"wrap"), 4);
///     let [end, beginning] = ring.pieces(SIZE - 2, 4);
///     assert_eq!((end.offset, end.len), (2 * SIZE - 2, 2));
///     assert_eq!((beginning.offset, beginning.len), (SIZE, 2));
///
///     let mut bytes = [0; 4];
///     assert_eq!(ring.read_slice(SIZE - 2, &mut bytes), 4);
///     assert_eq!(&bytes, b"wrap");
///
///     // A ring that reaches beyond its region is none.
///     assert!(Ring::new(ring.region().clone(), 4 * SIZE - 1, 2).is_err());
///     Ok(())
/// }
/// #
/// # let devices = crate::verbs::Devices::new()?;
/// # wrap(&devices.get(0)?)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Ring {
    region: Arc<Region>,
    base: usize,
    size: usize,
}

/// One or two pieces of a region; the second is there when the range wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its beginning, in bytes from the beginning of the region.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Ring {
    /// Makes a ring of the `size` bytes from `base` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a ring that is empty or not inside the region.
    pub fn new(region: Arc<Region>, base: usize, size: usize) -> Result<Self> {
        let end = base.checked_add(size).ok_or(EINVAL)?;
        if size == 0 || end > region.len() {
            return Err(EINVAL);
        }
        // INVARIANT: Just checked; the length of a region does not change.
        Ok(Self { region, base, size })
    }

    /// Returns the region.
    #[inline]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the beginning of the ring in its region, in bytes.
    #[inline]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns the pieces of the region that `len` bytes from `pos` on are in; the second may be empty.
    pub fn pieces(&self, pos: usize, len: usize) -> [Piece; 2] {
        let pos = pos.checked_rem(self.size).unwrap_or(0);
        let len = len.min(self.size);
        let first = len.min(self.size.wrapping_sub(pos));
        [
            Piece {
                offset: self.base.wrapping_add(pos),
                len: first,
            },
            Piece {
                offset: self.base,
                len: len.wrapping_sub(first),
            },
        ]
    }

    /// Runs `f` on both pieces; stops when one is not done in full.
    fn each(&self, pos: usize, len: usize, mut f: impl FnMut(Piece, usize) -> usize) -> usize {
        let mut done = 0usize;
        for piece in self.pieces(pos, len) {
            let did = f(piece, done);
            done = done.wrapping_add(did);
            if did < piece.len {
                break;
            }
        }
        done
    }

    /// Copies up to `len` bytes from `pos` on to `iter`; returns how many. May fault, so sleep.
    #[inline]
    pub fn read(&self, pos: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        match self.whole(pos, len) {
            Some(offset) => self.region.read(offset, len, iter),
            None => self.read_wrapped(pos, len, iter),
        }
    }

    #[inline(never)]
    fn read_wrapped(&self, pos: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        self.each(pos, len, |p, _| self.region.read(p.offset, p.len, iter))
    }

    /// Returns the place in the region of `len` bytes from `pos` on, if they do not wrap.
    #[inline]
    fn whole(&self, pos: usize, len: usize) -> Option<usize> {
        let fits = pos < self.size && len <= self.size.wrapping_sub(pos);
        fits.then(|| self.base.wrapping_add(pos))
    }

    /// Copies bytes from `pos` on to `out`; returns how many.
    pub fn read_slice(&self, pos: usize, out: &mut [u8]) -> usize {
        self.each(pos, out.len(), |p, done| {
            match out.get_mut(done..done.wrapping_add(p.len)) {
                Some(out) => self.region.read_slice(p.offset, out),
                None => 0,
            }
        })
    }

    /// Copies up to `len` bytes from `iter` to `pos`; returns how many. May fault, so sleep.
    #[inline]
    pub fn write(&self, pos: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        match self.whole(pos, len) {
            Some(offset) => self.region.write(offset, len, iter),
            None => self.write_wrapped(pos, len, iter),
        }
    }

    #[inline(never)]
    fn write_wrapped(&self, pos: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        self.each(pos, len, |p, _| self.region.write(p.offset, p.len, iter))
    }

    /// Copies `bytes` to `pos`; returns how many.
    pub fn write_slice(&self, pos: usize, bytes: &[u8]) -> usize {
        self.each(pos, bytes.len(), |p, done| {
            match bytes.get(done..done.wrapping_add(p.len)) {
                Some(bytes) => self.region.write_slice(p.offset, bytes),
                None => 0,
            }
        })
    }

    /// Fills the first `len` bytes of the ring with zeros, before another connection gets it.
    pub fn clear(&self, len: usize) {
        self.region.zero(self.base, len.min(self.size));
    }
}
