// SPDX-License-Identifier: GPL-2.0

//! The IP subnets of a connection's interface, by which the ends of version 1 know that they are on one link.
//!
//! As in C: a client tells its IPv4 subnet, or all its IPv6 prefixes, and the server looks for an equal one of its own.

use crate::smcr::LocalPort;
use kapi::net::sock::Sock;
use smc_proto::{
    handshake::V1Offer,
    wire::{
        clc::proposal::{Ipv4Prefix, Ipv6Prefix, Prefixes},
        ids::Gid, //
    }, //
};

/// Returns what a client offers by version 1 with the port `v1`; `None` where its interface has no subnet.
#[inline(never)]
pub(super) fn offer(sock: &Sock, v1: &LocalPort) -> Option<V1Offer> {
    let mut prefixes = Prefixes::NONE;
    let found = match Gid(sock.local_addr().mapped()).ipv4() {
        Some(own) => sock.find_interface_v4(|addr, len| {
            prefixes.ipv4 = Ipv4Prefix::of(addr, len);
            prefixes.has_v4(Ipv4Prefix::of(own, len))
        }),
        None => {
            sock.find_interface_v6(|addr, len| {
                // Until there is no more room.
                !is_link_local(addr) && !prefixes.ipv6.push(Ipv6Prefix::of(addr, len))
            });
            !prefixes.ipv6.is_empty()
        }
    };
    found.then_some(V1Offer {
        gid: v1.gid,
        prefixes,
    })
}

/// Tells whether the interface of a server's connection is in a subnet of the client's.
pub(super) fn has_common(sock: &Sock, client: &Prefixes) -> bool {
    match client.ipv6.is_empty() {
        true => sock.find_interface_v4(|addr, len| client.has_v4(Ipv4Prefix::of(addr, len))),
        false => sock.find_interface_v6(|addr, len| {
            !is_link_local(addr) && client.has_v6(Ipv6Prefix::of(addr, len))
        }),
    }
}

fn is_link_local(addr: [u8; 16]) -> bool {
    Ipv6Prefix::of(addr, 128).is_link_local()
}
