// SPDX-License-Identifier: GPL-2.0

//! The TCP header of a packet, as far as its options go.

use super::SynAck;
use core::{mem::size_of, slice};
use kernel::ffi;
use smc_bindings as bindings;

/// Length without options, in bytes.
pub(super) const FIXED: usize = 20;
/// Room for options, in bytes.
pub(super) const OPTIONS_MAX: usize = 40;
/// Offset of the sequence number.
pub(super) const SEQ: usize = 4;
/// Offset of the acknowledgment number.
pub(super) const ACK_SEQ: usize = 8;
pub(super) const FLAG_SYN: u8 = 0x02;
pub(super) const FLAG_ACK: u8 = 0x10;
pub(super) const FLAG_RST: u8 = 0x04;

/// A TCP header in the linear part of a packet.
pub(super) struct Header {
    tcp: *mut u8,
    /// Its length with options, in bytes.
    pub(super) len: usize,
}

impl Header {
    /// # Safety
    ///
    /// `skb` is a TCP packet with its transport header set; it is not changed while the value
    /// returned is in use.
    pub(super) unsafe fn of(skb: *mut bindings::sk_buff) -> Option<Self> {
        // SAFETY: The packet is valid.
        unsafe {
            let tcp: *mut u8 = bindings::skb_transport_header(skb).cast();
            let start = (tcp as usize).checked_sub((*skb).data as usize);
            // The header may lie before `data` on receive, where it has been pulled already.
            let linear_end =
                ((*skb).data as usize).checked_add(bindings::skb_headlen(skb) as usize)?;
            let room = linear_end.checked_sub(tcp as usize)?;
            if start.is_some() && room < FIXED {
                return None;
            }
            let len = usize::from(*tcp.add(12) >> 4) * 4;
            if len < FIXED || (start.is_some() && room < len) {
                return None;
            }
            Some(Self { tcp, len })
        }
    }

    /// Returns what this header says, if it is a SYN-ACK's.
    pub(super) fn syn_ack(&self) -> SynAck<'_> {
        SynAck {
            numbers: (self.word(ACK_SEQ).wrapping_sub(1), self.seq()),
            options: self.options(),
        }
    }

    /// Returns the sequence number.
    pub(super) fn seq(&self) -> u32 {
        self.word(SEQ)
    }

    fn word(&self, at: usize) -> u32 {
        // SAFETY: `of` checked the length, and the fixed part has both words.
        u32::from_be_bytes(unsafe { self.tcp.add(at).cast::<[u8; 4]>().read() })
    }

    pub(super) fn flags(&self) -> u8 {
        // SAFETY: `of` checked the length.
        unsafe { *self.tcp.add(13) }
    }

    pub(super) fn options(&self) -> &[u8] {
        // SAFETY: `of` checked the length.
        unsafe { slice::from_raw_parts(self.tcp.add(FIXED), self.len - FIXED) }
    }
}

/// Returns whether a packet of IPv6 has a TCP header where its transport header is.
///
/// # Safety
///
/// `skb` is a packet of IPv6 with its network and transport headers set, the former linear.
pub(super) unsafe fn carries_tcp6(skb: *const bindings::sk_buff) -> bool {
    // SAFETY: By the caller's promise; the function checks what is beyond the linear part.
    unsafe {
        let ip: *const bindings::ipv6hdr = bindings::skb_network_header(skb).cast();
        let mut next = (*ip).nexthdr;
        let mut fragment = 0;
        let start = bindings::skb_network_offset(skb)
            .wrapping_add(size_of::<bindings::ipv6hdr>() as ffi::c_int);
        let start = bindings::ipv6_skip_exthdr(skb, start, &mut next, &mut fragment);
        u32::from(next) == bindings::IPPROTO_TCP && start == bindings::skb_transport_offset(skb)
    }
}
