// SPDX-License-Identifier: GPL-2.0

//! A connect() whose address was rewritten: a BPF program of the control group (`BPF_CGROUP_INET4_CONNECT` and
//! `_INET6_CONNECT`) has put another one in its place, as balancers do for services.
//!
//! The program knows the address that it named, TCP the one that it connects to. Rules are asked about both, and what
//! is learned of the peer is remembered for both: the next connect() names the first again, and is asked about that
//! before TCP, and the BPF program, have seen it.

use kapi::{
    net::sockaddr::SockAddr,
    sys::word::{Count, Word}, //
};
use smc_proto::reason::Reason;

/// The address that was named, and what the rules say of the other one. Set before the SYN is answered, with
/// `handshake` locked.
pub(crate) struct Rewritten {
    /// The named address as IPv6.
    ip: [Count; 2],
    /// Its port; 0 if nothing was rewritten.
    port: Word,
    /// Code of the reason for which the rules keep the connection on TCP; 0 for none.
    denied: Word,
}

impl Rewritten {
    pub(super) fn new() -> Self {
        Self {
            ip: [const { Count::new(0) }; 2],
            port: Word::new(0),
            denied: Word::new(0),
        }
    }

    /// Returns the address that the program has named, if TCP's is another one.
    #[inline]
    pub(super) fn named(&self) -> Option<SockAddr> {
        let port = self.port.get() as u16;
        (port != 0).then(|| {
            let [high, low] = [self.ip[0].get(), self.ip[1].get()];
            SockAddr {
                v6: true,
                ip: (u128::from(high) << 64 | u128::from(low)).to_be_bytes(),
                port,
            }
        })
    }

    /// Returns the reason for which the rules keep the connection on TCP: what they say of TCP's address.
    #[inline]
    pub(super) fn denied(&self) -> Option<Reason> {
        match self.denied.get() {
            0 => None,
            code => Some(Reason::from_code(code)),
        }
    }

    /// Takes note of both, or that nothing was rewritten.
    pub(super) fn set(&self, named: Option<&SockAddr>, denied: Option<Reason>) {
        let ip = named.map_or(0, |named| u128::from_be_bytes(named.mapped()));
        for (half, shift) in self.ip.iter().zip([64, 0]) {
            half.release((ip >> shift) as u64);
        }
        let port = named.map_or(0, |named| named.port);
        self.port.set(u32::from(port));
        self.denied.set(denied.map_or(0, Reason::code));
    }
}
