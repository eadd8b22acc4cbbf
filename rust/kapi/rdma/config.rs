// SPDX-License-Identifier: GPL-2.0

//! The sizes of a queue pair, and the way to its peer.

use super::wr::HEAD;

/// The size of a queue pair and the timers of its protocol.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Chains that may be under way at a time.
    pub send_slots: u16,
    /// Requests that may be under way at a time; the device may allow fewer.
    pub send_wrs: u32,
    /// Requests of one chain.
    pub chain_wrs: u16,
    /// Elements of one request; the device may allow fewer.
    pub send_sges: u32,
    /// The longest message to send, in bytes, at most a page.
    pub message: u16,
    /// Bytes to send inline if the device can.
    pub inline: u32,
    /// Receive buffers.
    pub recv_slots: u16,
    /// The usual length of a message, at most [`HEAD`].
    pub recv_first: u16,
    /// Further bytes that a message may have.
    pub recv_spill: u16,
    /// The interrupt vector; without it they are taken in turn.
    pub vector: Option<u16>,
    /// Local ACK timeout: 4.096 us times 2 to this power.
    pub ack_timeout: u8,
    /// Retries without an answer, 0 to 7.
    pub retries: u8,
    /// Retries while the peer has no receive posted; 7 is for ever.
    pub rnr_retries: u8,
    /// The code of the time that the peer shall wait when we have no receive posted.
    pub rnr_timer: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_slots: 64,
            send_wrs: 256,
            chain_wrs: 8,
            send_sges: 30,
            message: 64,
            inline: 64,
            recv_slots: 64,
            recv_first: HEAD as u16,
            recv_spill: 0,
            vector: None,
            ack_timeout: 15,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 5,
        }
    }
}

/// The way to the peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The path MTU as the code of `enum ib_mtu`, 1 to 5.
    pub mtu: u8,
    /// The number of the peer's queue pair, 24 bits.
    pub qpn: u32,
    /// The first packet sequence number of the peer, 24 bits.
    pub psn: u32,
    /// The GID to send from.
    pub sgid: [u8; 16],
    /// The entry of our port's GID table where it was found.
    pub sgid_index: u16,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// The MAC address of the next hop.
    pub dmac: [u8; 6],
    /// The hop limit; 1 stays in the subnet.
    pub hop_limit: u8,
    /// The byte of the packets' IP header that says how routers treat them: DSCP and ECN.
    pub traffic_class: u8,
    /// In which class the device queues them, 0 to 7; on a VLAN also the priority in their tag.
    pub service_level: u8,
}
