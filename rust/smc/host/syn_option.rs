// SPDX-License-Identifier: GPL-2.0

//! The TCP option by which two ends find out that both speak SMC (RFC 7609, section 3.1).
//!
//! Some servers and middleboxes send back whatever options a SYN had. Believing such an answer
//! would put CLC messages into a stream that the server takes for its own. So a client's SYN
//! carries, if there is room, a second experimental option that no SMC peer ever answers with: its
//! return shows an echo.

use kapi::{
    net::syn,
    sys::clock, //
};
use kernel::sync::atomic::{Atomic, Relaxed};
use smc_proto::wire::tcp_option;

/// Kind 253, "RFC 3692-style experiment 1", length 8, "rsmc" and two bytes of zero.
const CANARY: [u8; 8] = [253, 8, b'r', b's', b'm', b'c', 0, 0];
/// Room for options in a TCP header.
const OPTIONS_MAX: usize = 40;

const fn concat(a: [u8; 8], b: [u8; 8]) -> [u8; 16] {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = a;
    let [b0, b1, b2, b3, b4, b5, b6, b7] = b;
    [
        a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7,
    ]
}

static OPTION: [u8; 8] = tcp_option::OPTION;
static OPTION_AND_CANARY: [u8; 16] = concat(tcp_option::OPTION, CANARY);

/// Time of the last SYN-ACK with the option, in seconds since boot, plus one; 0 for never.
static LAST_OFFER: Atomic<u64> = Atomic::new(0);
/// Longest time between the SYN-ACK and the end of a connection's TCP handshake, in seconds: the
/// kernel retries for a minute.
const OFFER_LIFETIME: u64 = 180;

/// Tells whether connections that speak SMC may be arriving.
pub(crate) fn offers_outstanding() -> bool {
    let last = LAST_OFFER.load(Relaxed);
    last != 0 && clock::seconds().saturating_sub(last) < OFFER_LIFETIME
}

/// Tells whether a SYN or SYN-ACK carries the option, and its answer may. (The in-tree module puts
/// it into signed SYNs, too.)
pub(crate) fn offered(options: &[u8]) -> bool {
    tcp_option::scan(options).offers()
}

fn echoed(options: &[u8]) -> bool {
    options.windows(6).any(|w| CANARY.starts_with(w))
}

fn fitting(options: &[u8], canary: bool) -> Option<&'static [u8]> {
    let scan = tcp_option::scan(options);
    if scan.signed || scan.malformed || scan.smc.is_some() {
        return None;
    }
    let room = OPTIONS_MAX.saturating_sub(options.len());
    if canary && room >= OPTION_AND_CANARY.len() {
        Some(&OPTION_AND_CANARY)
    } else if room >= OPTION.len() {
        Some(&OPTION)
    } else {
        None
    }
}

/// The policy of the SYN hooks.
pub(crate) struct Announce;

impl syn::Policy for Announce {
    fn syn(options: &[u8]) -> Option<&'static [u8]> {
        fitting(options, true)
    }

    fn syn_ack(syn: &[u8], options: &[u8]) -> Option<&'static [u8]> {
        if !offered(syn) {
            return None;
        }
        let bytes = fitting(options, false)?;
        LAST_OFFER.store(clock::seconds().saturating_add(1), Relaxed);
        Some(bytes)
    }

    fn accepted(options: &[u8]) -> bool {
        offered(options) && !echoed(options)
    }
}
