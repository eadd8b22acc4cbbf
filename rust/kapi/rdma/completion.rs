// SPDX-License-Identifier: GPL-2.0

//! Ends of work requests.

use kernel::prelude::*;
use smc_bindings as bindings;

/// Result of a work request (`enum ib_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It was done.
    Success,
    /// The queue pair was in error state, so it was not tried.
    Flushed,
    /// A message was longer than the buffers of the receiver (here or there).
    Length,
    /// The local memory key did not allow it.
    LocalProtection,
    /// The remote memory key or range did not allow it.
    RemoteAccess,
    /// The peer did not answer.
    Timeout,
    /// The peer had no receive posted for too long.
    ReceiverNotReady,
    /// Anything else, by its number.
    Other(u32),
}

impl Status {
    pub(super) fn from_raw(status: u32) -> Self {
        match status {
            bindings::ib_wc_status_IB_WC_SUCCESS => Status::Success,
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => Status::Flushed,
            bindings::ib_wc_status_IB_WC_LOC_LEN_ERR
            | bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR => Status::Length,
            bindings::ib_wc_status_IB_WC_LOC_PROT_ERR => Status::LocalProtection,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR => Status::RemoteAccess,
            bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR
            | bindings::ib_wc_status_IB_WC_RESP_TIMEOUT_ERR => Status::Timeout,
            bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
            other => Status::Other(other),
        }
    }

    /// Returns whether the work was done.
    #[inline]
    pub fn is_success(self) -> bool {
        self == Status::Success
    }

    /// Returns its meaning, for a reader of the kernel log.
    pub fn text(self) -> &'static str {
        match self {
            Status::Success => "done",
            Status::Flushed => "the queue pair was in error state",
            Status::Length => "a message longer than the receiver's buffers",
            Status::LocalProtection => "a local key that did not allow it",
            Status::RemoteAccess => "a remote key or range that did not allow it",
            Status::Timeout => "no acknowledgement from the peer's device",
            Status::ReceiverNotReady => "the peer takes no messages",
            Status::Other(_) => "an error of the device",
        }
    }

    /// Returns `EIO` unless the work was done.
    pub fn to_result(self) -> Result {
        if self.is_success() {
            Ok(())
        } else {
            Err(EIO)
        }
    }
}

/// Kind of a work request (`enum ib_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// A message was sent.
    Send,
    /// Remote memory was written.
    Write,
    /// A memory region was registered.
    Register,
    /// A memory region was invalidated.
    Invalidate,
    /// Unknown, always so when the status is not a success, and where the device did not tell of the end.
    Unknown,
}

/// What the end of a receive has brought.
pub(super) enum Arrival {
    /// Nothing: it has failed.
    Nothing(Status),
    /// The number that the peer has sent with a write to our memory. The buffer was not touched.
    Immediate(u32),
    /// A message of this many bytes.
    Message(u32),
}

impl Arrival {
    /// # Safety
    ///
    /// `wc` must be a valid work completion, of a receive.
    #[inline]
    pub(super) unsafe fn from_raw(wc: *const bindings::ib_wc) -> Self {
        // SAFETY: The caller's promise.
        let wc = unsafe { &*wc };
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            Self::Nothing(Status::from_raw(wc.status))
        } else if wc.opcode == bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM {
            // SAFETY: With this opcode this is the member that the driver sets; any bytes are a
            // valid number.
            Self::Immediate(u32::from_be(unsafe { wc.ex.imm_data }))
        } else {
            Self::Message(wc.byte_len)
        }
    }
}

/// The end of a chain of work requests.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The result: the first error in it, or success.
    pub status: Status,
    /// Kind of the last request.
    pub opcode: Opcode,
    /// The driver's own error number.
    pub vendor_error: u32,
}

impl Completion {
    /// Returns that of a chain of whose end the device does not tell, when one has ended that was posted later.
    #[inline]
    pub(super) const fn silent() -> Self {
        Self {
            status: Status::Success,
            opcode: Opcode::Unknown,
            vendor_error: 0,
        }
    }

    /// # Safety
    ///
    /// `wc` must be a valid work completion.
    #[inline]
    pub(super) unsafe fn from_raw(wc: *const bindings::ib_wc) -> Self {
        // SAFETY: The caller's promise.
        let wc = unsafe { &*wc };
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            return Self::failure(wc);
        }
        let opcode = match wc.opcode {
            bindings::ib_wc_opcode_IB_WC_SEND => Opcode::Send,
            bindings::ib_wc_opcode_IB_WC_RDMA_WRITE => Opcode::Write,
            bindings::ib_wc_opcode_IB_WC_REG_MR => Opcode::Register,
            bindings::ib_wc_opcode_IB_WC_LOCAL_INV => Opcode::Invalidate,
            _ => Opcode::Unknown,
        };
        Self {
            status: Status::Success,
            opcode,
            vendor_error: wc.vendor_err,
        }
    }

    #[cold]
    fn failure(wc: &bindings::ib_wc) -> Self {
        Self {
            status: Status::from_raw(wc.status),
            // The field is meaningless in an error.
            opcode: Opcode::Unknown,
            vendor_error: wc.vendor_err,
        }
    }

    /// Makes a completion that no hardware reported.
    pub(super) fn flushed() -> Self {
        Self {
            status: Status::Flushed,
            opcode: Opcode::Unknown,
            vendor_error: 0,
        }
    }
}
