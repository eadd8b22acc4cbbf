// SPDX-License-Identifier: GPL-2.0

//! Making of a chain of requests, in memory that the queue has from its beginning.

use super::{Last, Sq};
use crate::rdma::{
    dma::DmaMap,
    region::Region,
    wr::{Source, Write}, //
};
use core::ptr;
use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};
use smc_bindings as bindings;

impl<T> Sq<T> {
    /// Returns the element `n` of request `wr`.
    #[inline]
    pub(super) fn sge(&mut self, wr: usize, n: usize) -> Option<&mut bindings::ib_sge> {
        // By the invariant this is inside, or beyond the last.
        let index = wr.wrapping_mul(self.sges_per_wr).wrapping_add(n);
        self.sge.get_mut(index)
    }

    #[inline]
    fn set_sge(&mut self, wr: usize, n: usize, addr: u64, length: u32, lkey: u32) -> Result {
        if n >= self.sges_per_wr {
            return Err(EINVAL);
        }
        *self.sge(wr, n).ok_or(EINVAL)? = bindings::ib_sge { addr, length, lkey };
        Ok(())
    }

    /// Fills in request `at`; elements have been set already.
    #[inline]
    fn set_send(
        &mut self,
        at: usize,
        opcode: bindings::ib_wr_opcode,
        sges: usize,
        flags: i32,
    ) -> Result {
        let sg_list = ptr::from_mut(self.sge(at, 0).ok_or(EINVAL)?);
        let num_sge = i32::try_from(sges)?;
        let wr = self.wr.get_mut(at).ok_or(EINVAL)?;
        // Every member of the union begins with the generic request. `build` sets the rest of it, and
        // who needs more the remainder of the member.
        wr.send.opcode = opcode;
        wr.send.sg_list = sg_list;
        wr.send.num_sge = num_sge;
        wr.send.send_flags = flags;
        wr.send.ex.imm_data = 0;
        Ok(())
    }

    /// Adds the requests for `write` from request `at` on; returns the next free one.
    #[inline]
    fn add_write(
        &mut self,
        at: usize,
        write: &Write<'_>,
        keep: &mut Option<Arc<DmaMap>>,
    ) -> Result<usize> {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        if write.len == 0 {
            return Err(EINVAL);
        }
        let (region, mr) = match write.from {
            Source::Region(region) => (region, None),
            Source::Mr(mr) => (&**mr.region(), Some(mr)),
        };
        if write.len <= self.inline {
            let (ptr, room) = region.pages().at(write.offset).ok_or(EINVAL)?;
            if write.len <= room {
                // The driver copies the bytes before posting returns; no key is looked at.
                self.set_sge(at, 0, ptr.as_ptr() as u64, u32::try_from(write.len)?, 0)?;
                self.set_send(at, opcode, 1, bindings::ib_send_flags_IB_SEND_INLINE)?;
                self.set_remote(at, write, 0)?;
                return at.checked_add(1).ok_or(EINVAL);
            }
        }
        let end = write.offset.checked_add(write.len).ok_or(EINVAL)?;
        if end > region.len() {
            return Err(EINVAL);
        }
        if let Some(mr) = mr {
            let addr = mr.addr().checked_add(write.offset as u64).ok_or(EINVAL)?;
            self.set_sge(at, 0, addr, u32::try_from(write.len)?, mr.lkey())?;
            self.set_send(at, opcode, 1, 0)?;
            self.set_remote(at, write, 0)?;
            return at.checked_add(1).ok_or(EINVAL);
        }

        self.add_pieces(at, write, region, keep)
    }

    /// Does [`Sq::add_write`] by DMA addresses.
    fn add_pieces(
        &mut self,
        mut at: usize,
        write: &Write<'_>,
        region: &Region,
        keep: &mut Option<Arc<DmaMap>>,
    ) -> Result<usize> {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        let end = write.offset.checked_add(write.len).ok_or(EINVAL)?;
        let map = region.map_with_bh_off().ok_or(ENODEV)?;
        if map.device() != self.device {
            return Err(EINVAL);
        }
        let map = match keep {
            Some(kept) if !Arc::ptr_eq(kept, &map) => return Err(EINVAL),
            Some(kept) => &*kept,
            None => &*keep.insert(map),
        };
        let lkey = self.lkey;
        let mut used = 0usize;
        let mut begun = 0u64;
        let mut sum = 0u64;
        map.pieces(write.offset..end, |addr, len| {
            if used == self.sges_per_wr {
                self.set_send(at, opcode, used, 0)?;
                self.set_remote(at, write, begun)?;
                at = at.checked_add(1).ok_or(EINVAL)?;
                used = 0;
                begun = sum;
            }
            self.set_sge(at, used, addr, len, lkey)?;
            used = used.wrapping_add(1);
            sum = sum.wrapping_add(u64::from(len));
            Ok(())
        })?;
        self.set_send(at, opcode, used, 0)?;
        self.set_remote(at, write, begun)?;
        at.checked_add(1).ok_or(EINVAL)
    }

    /// Builds the chain of slot `slot` that most messages are, with a completion if `signaled`: one write, which is one
    /// piece for the device and carries `number`. Returns what must live until its end; `None` if it is no such chain.
    #[inline(always)]
    pub(super) fn build_one(
        &mut self,
        slot: u16,
        write: &Write<'_>,
        number: u32,
        signaled: bool,
    ) -> Option<Option<Arc<DmaMap>>> {
        let Source::Region(region) = write.from else {
            return None;
        };
        let length = u32::try_from(write.len).ok().filter(|len| *len > 0)?;
        let mut flags = bindings::ib_send_flags_IB_SEND_SOLICITED;
        if signaled {
            flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
        }
        let (addr, lkey, keep) = if write.len <= self.inline {
            let ptr = region.pages().near(write.offset, write.len)?;
            // As in `add_write`.
            flags |= bindings::ib_send_flags_IB_SEND_INLINE;
            (ptr.as_ptr() as u64, 0, None)
        } else {
            let map = region.map_with_bh_off()?;
            let addr = map.addr_of_piece(write.offset, write.len);
            let addr = addr.filter(|_| map.device() == self.device)?;
            (addr, self.lkey, Some(map))
        };
        let cqe = self.cqes(slot).0;
        let (wr, sge) = (self.wr.first_mut()?, self.sge.first_mut()?);
        *sge = bindings::ib_sge { addr, length, lkey };
        // Every member of the union begins with the generic request, all of which is set here.
        wr.send.next = ptr::null_mut();
        wr.send.__bindgen_anon_1.wr_cqe = cqe;
        wr.send.sg_list = ptr::from_mut(sge);
        wr.send.num_sge = 1;
        wr.send.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        wr.send.send_flags = flags;
        wr.send.ex.imm_data = number.to_be();
        wr.rdma.remote_addr = write.to.addr;
        wr.rdma.rkey = write.to.rkey;
        Some(keep)
    }

    /// Returns the `ib_cqe`s of slot `slot`: that of the last request of a chain, and that of one before it.
    #[inline]
    fn cqes(&self, slot: u16) -> (*mut bindings::ib_cqe, *mut bindings::ib_cqe) {
        // SAFETY: The slots are an array with an element for every index in `free`; they are only
        // read, and their address stays the same for the life of the channel.
        unsafe {
            let slot = self.slots.as_ptr().add(usize::from(slot));
            (&raw mut (*slot).last, &raw mut (*slot).member)
        }
    }

    /// Sets the destination of request `at`: `begun` bytes after that of `write`. The number is the
    /// peer's; if it wraps, the peer's device refuses it.
    #[inline]
    fn set_remote(&mut self, at: usize, write: &Write<'_>, begun: u64) -> Result {
        let wr = self.wr.get_mut(at).ok_or(EINVAL)?;
        wr.rdma.remote_addr = write.to.addr.wrapping_add(begun);
        wr.rdma.rkey = write.to.rkey;
        Ok(())
    }

    /// Adds the last request at `at`; returns the number of requests. Only what takes a receive of the
    /// peer is solicited: ionic refuses others that say so.
    #[inline]
    fn add_last(&mut self, at: usize, slot: u16, last: &Last<'_>) -> Result<usize> {
        match *last {
            Last::Nothing => {
                self.set_send(at, bindings::ib_wr_opcode_IB_WR_RDMA_WRITE, 0, 0)?;
                let wr = self.wr.get_mut(at).ok_or(EINVAL)?;
                // The peer's device looks at neither, as there are no bytes.
                wr.rdma.remote_addr = 0;
                wr.rdma.rkey = 0;
            }
            Last::Message([]) => return Ok(at),
            Last::Message(bytes) => {
                let (addr, ptr) = *self.message.get(usize::from(slot)).ok_or(EINVAL)?;
                let inline = bytes.len() <= self.inline;
                let (addr, flags) = if inline {
                    (ptr.as_ptr() as u64, bindings::ib_send_flags_IB_SEND_INLINE)
                } else {
                    (addr, 0)
                };
                let flags = flags | bindings::ib_send_flags_IB_SEND_SOLICITED;
                let lkey = self.lkey;
                self.set_sge(at, 0, addr, u32::try_from(bytes.len())?, lkey)?;
                self.set_send(at, bindings::ib_wr_opcode_IB_WR_SEND, 1, flags)?;
            }
            Last::Padded(bytes, len) => {
                let (addr, _) = *self.message.get(usize::from(slot)).ok_or(EINVAL)?;
                // The messages' memory begins with a page, which has zeros or what the peer has been sent.
                let (page, _) = *self.message.first().ok_or(EINVAL)?;
                let rest = len.checked_sub(bytes.len()).ok_or(EINVAL)?;
                if bytes.is_empty() || rest == 0 || len > PAGE_SIZE {
                    return Err(EINVAL);
                }
                let lkey = self.lkey;
                self.set_sge(at, 0, addr, u32::try_from(bytes.len())?, lkey)?;
                self.set_sge(at, 1, page, u32::try_from(rest)?, lkey)?;
                let solicited = bindings::ib_send_flags_IB_SEND_SOLICITED;
                self.set_send(at, bindings::ib_wr_opcode_IB_WR_SEND, 2, solicited)?;
            }
            Last::Immediate(number) => {
                let write = at.checked_sub(1).ok_or(EINVAL)?;
                let wr = self.wr.get_mut(write).ok_or(EINVAL)?;
                wr.send.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
                wr.send.ex.imm_data = number.to_be();
                // SAFETY: All members begin with the generic request, whose flags have been set.
                unsafe { wr.send.send_flags |= bindings::ib_send_flags_IB_SEND_SOLICITED };
                return Ok(at);
            }
            Last::Register(mr, key, access) => {
                self.set_send(at, bindings::ib_wr_opcode_IB_WR_REG_MR, 0, 0)?;
                let wr = self.wr.get_mut(at).ok_or(EINVAL)?;
                wr.reg.mr = mr;
                wr.reg.key = key;
                wr.reg.access = access;
            }
            Last::Invalidate(rkey) => {
                self.set_send(at, bindings::ib_wr_opcode_IB_WR_LOCAL_INV, 0, 0)?;
                let wr = self.wr.get_mut(at).ok_or(EINVAL)?;
                wr.send.ex.invalidate_rkey = rkey;
            }
        }
        at.checked_add(1).ok_or(EINVAL)
    }

    /// Builds the chain for slot `slot`: `writes`, then `last`, with a completion if `signaled`. Returns the number of
    /// requests; `keep` is what must live until their end.
    pub(super) fn build<'a>(
        &mut self,
        slot: u16,
        writes: impl IntoIterator<Item = Write<'a>>,
        last: &Last<'_>,
        signaled: bool,
        keep: &mut Option<Arc<DmaMap>>,
    ) -> Result<u32> {
        let mut at = 0usize;
        for write in writes {
            at = self.add_write(at, &write, keep)?;
        }
        let count = self.add_last(at, slot, last)?;
        if count == 0 {
            return Err(EINVAL);
        }
        let cqes = self.cqes(slot);
        let base = self.wr.as_mut_ptr();
        let (last, before) = self
            .wr
            .get_mut(..count)
            .and_then(|wrs| wrs.split_last_mut())
            .ok_or(EINVAL)?;
        // SAFETY: `send` is the common beginning of all members, and all of it has been initialised,
        // but for what is set here.
        unsafe {
            last.send.__bindgen_anon_1.wr_cqe = cqes.0;
            last.send.next = ptr::null_mut();
            if signaled {
                last.send.send_flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
            }
        }
        for (i, wr) in before.iter_mut().enumerate() {
            // SAFETY: `send` is the common beginning of all members, and initialised. The next one is inside the vector.
            unsafe {
                wr.send.__bindgen_anon_1.wr_cqe = cqes.1;
                wr.send.next = base.add(i.wrapping_add(1)).cast();
            }
        }
        Ok(u32::try_from(count)?)
    }
}
