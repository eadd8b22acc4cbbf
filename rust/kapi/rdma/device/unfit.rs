// SPDX-License-Identifier: GPL-2.0

//! Devices that cannot carry what this crate makes, found out once, when they come.

use crate::errno::EOPNOTSUPP;
use core::{mem, ptr};
use kernel::{
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};
use smc_bindings as bindings;

/// Page size that all devices with memory regions have.
const SMALL: usize = 4096;

/// The lack of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has no fast registration of memory (`IB_DEVICE_MEM_MGT_EXTENSIONS`).
    FastRegistration,
    /// Its memory regions have neither pages of the kernel's size nor of 4 KiB.
    PageSize,
    /// Its driver takes the address by which a peer names the first byte of a region for the place of that
    /// byte in its page (ocrdma), and we choose the address.
    FirstByte,
    /// It refuses reliable connected queue pairs to the kernel (mana_ib).
    QueuePairs,
}

/// Drivers whose registration request tells the device the size of pages. Those of erdma and pvrdma do not, and
/// irdma's has no size between 4 KiB and 2 MiB.
const TELLS_SIZE: [bindings::rdma_driver_id; 4] = [
    bindings::rdma_driver_id_RDMA_DRIVER_MLX5,
    bindings::rdma_driver_id_RDMA_DRIVER_MLX4,
    bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE,
    bindings::rdma_driver_id_RDMA_DRIVER_HNS,
];

/// Sizes of pages by which a device registers memory, one bit for each.
///
/// Drivers take a size that they do not know for another one (irdma for 4 KiB), and so pages for
/// pieces of others.
#[derive(Clone, Copy)]
pub(in crate::rdma) struct PageSizes(u64);

impl PageSizes {
    /// Returns the one size by which any device with this capability registers the kernel's pages. A driver that
    /// tells no size is believed to know the kernel's.
    pub(super) const fn new(capability: u64) -> Option<Self> {
        if capability == 0 || capability & PAGE_SIZE as u64 != 0 {
            Some(Self(PAGE_SIZE as u64))
        } else if capability & SMALL as u64 != 0 {
            Some(Self(SMALL as u64))
        } else {
            None
        }
    }

    /// Returns that size, and larger ones if devices of this driver can do with them.
    pub(super) fn of(capability: u64, driver: bindings::rdma_driver_id) -> Option<Self> {
        let Self(least) = Self::new(capability)?;
        let larger = match TELLS_SIZE.contains(&driver) {
            true => capability & !(least.wrapping_sub(1)),
            false => 0,
        };
        Some(Self(least | larger))
    }

    /// Returns the smallest one, in bytes: that of the kernel's pages, or a part of it.
    pub(in crate::rdma) fn least(self) -> u32 {
        1 << self.0.trailing_zeros().min(31)
    }

    /// Returns the largest one that is at most `most` bytes, or else the smallest.
    pub(in crate::rdma) fn largest(self, most: u32) -> u32 {
        let fit = self.0 & u64::from(most | most.wrapping_sub(1));
        fit.checked_ilog2().map_or(self.least(), |log| 1 << log)
    }
}

/// Looks for what a device lacks. May sleep.
///
/// # Safety
///
/// `raw` is a registered device of which a client is being told.
pub(super) unsafe fn examine(raw: *mut bindings::ib_device) -> Option<Unfit> {
    // SAFETY: The device is registered; these do not change.
    let (attrs, driver, ports) =
        unsafe { (&(*raw).attrs, (*raw).ops.driver_id, (*raw).phys_port_cnt) };
    let flags = u64::from(bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u32);
    if attrs.device_cap_flags & flags == 0 {
        return Some(Unfit::FastRegistration);
    }
    if PageSizes::new(attrs.page_size_cap).is_none() {
        return Some(Unfit::PageSize);
    }
    if driver == bindings::rdma_driver_id_RDMA_DRIVER_OCRDMA {
        return Some(Unfit::FirstByte);
    }
    // SAFETY: The device is registered, and the ports are its own.
    let roce = (1..=ports).any(|port| unsafe { bindings::rdma_protocol_roce(raw, port) });
    // SAFETY: By the function's contract.
    (roce && unsafe { refuses_queue_pairs(raw) }).then_some(Unfit::QueuePairs)
}

/// Makes the smallest queue pair there is, and takes it away again. True if the device says that it has no
/// such thing; for want of memory it may say so later.
///
/// # Safety
///
/// As for [`examine`].
unsafe fn refuses_queue_pairs(raw: *mut bindings::ib_device) -> bool {
    // SAFETY: The device is registered. What is made here is taken away in the opposite order, before
    // this returns; nobody else knows it, and no work is posted.
    unsafe {
        let name = bindings::module_name();
        let Ok(pd) = from_err_ptr(bindings::__ib_alloc_pd(raw, 0, name)) else {
            return false;
        };
        let context = bindings::ib_poll_context_IB_POLL_DIRECT;
        let cq = from_err_ptr(bindings::__ib_alloc_cq(
            raw,
            ptr::null_mut(),
            4,
            0,
            context,
            name,
        ));
        let refuses = cq.is_ok_and(|cq| {
            // Zero is a valid value of a plain C struct.
            let mut init: bindings::ib_qp_init_attr = mem::zeroed();
            init.send_cq = cq;
            init.recv_cq = cq;
            init.cap.max_send_wr = 1;
            init.cap.max_recv_wr = 1;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            init.sq_sig_type = bindings::ib_sig_type_IB_SIGNAL_REQ_WR;
            init.qp_type = bindings::ib_qp_type_IB_QPT_RC;
            let made = from_err_ptr(bindings::ib_create_qp_kernel(pd, &mut init, name));
            let refuses = match made {
                Ok(qp) => {
                    bindings::ib_destroy_qp_user(qp, ptr::null_mut());
                    false
                }
                Err(error) => error == EINVAL || EOPNOTSUPP.is(error),
            };
            bindings::ib_free_cq(cq);
            refuses
        });
        bindings::ib_dealloc_pd_user(pd, ptr::null_mut());
        refuses
    }
}
