// SPDX-License-Identifier: GPL-2.0
//! TCP sockets whose bytes a BPF program hands to the peer's receive queue on the same host: a hash of
//! sockets, and a program for what is sent on them that redirects by the peer's addresses and ports.
//!
//! It is what sidecars do today with `bpf_msg_redirect_hash(BPF_F_INGRESS)`. They put sockets into the
//! hash by another program, for the events of sockets in a cgroup; here both ends are put into it
//! by `bpf()`, as the kernel on which costs are counted has no programs for cgroups. A message whose peer is not
//! in the hash is dropped, so that a send() that was not redirected fails.

use st::bpf::Sockhash;
use st::errno::R;
use st::fd::Fd;
use st::sys;
use std::net::{IpAddr, SocketAddr};

const SK_MSG: u32 = 16;
const SK_MSG_VERDICT: u32 = 7;
/// `bpf_msg_redirect_hash()`.
const REDIRECT_HASH: i32 = 71;
/// `BPF_F_INGRESS`: to what the other socket receives, not to what it sends.
const INGRESS: i32 = 1;
/// Enough for both ends of all that is measured at once.
const ENTRIES: u32 = 8192;

/// Offsets in `struct sk_msg_md`.
const REMOTE_IP4: i16 = 20;
const LOCAL_IP4: i16 = 24;
const REMOTE_PORT: i16 = 60;
const LOCAL_PORT: i16 = 64;

/// The address of a socket, its peer's, its port and its peer's, four bytes each.
const KEY: i16 = 16;

/// An instruction.
fn op(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    u64::from(code)
        | (u64::from(to) << 8)
        | (u64::from(from) << 12)
        | (u64::from(offset as u16) << 16)
        | (u64::from(value as u32) << 32)
}

/// Makes the peer's key on the stack and redirects.
fn program(map: i32) -> Vec<u64> {
    let load = |field| op(0x61, 2, 1, field, 0);
    let store = |at: i16| op(0x63, 10, 2, at - KEY, 0);
    let swap = op(0xdc, 2, 0, 0, 32);
    vec![
        load(REMOTE_IP4),
        store(0),
        load(LOCAL_IP4),
        store(4),
        // In network order, in the upper half of the word.
        load(REMOTE_PORT),
        swap,
        store(8),
        load(LOCAL_PORT),
        store(12),
        // The map, by its descriptor.
        op(0x18, 2, 1, 0, map),
        0,
        // The key.
        op(0xbf, 3, 10, 0, 0),
        op(0x07, 3, 0, 0, -i32::from(KEY)),
        op(0xb7, 4, 0, 0, INGRESS),
        op(0x85, 0, 0, 0, REDIRECT_HASH),
        op(0x95, 0, 0, 0, 0),
    ]
}

/// The hash with its program.
pub fn hash() -> R<Sockhash> {
    let mut map = Sockhash::empty(KEY as usize, ENTRIES)?;
    let code = program(map.raw());
    map.run(SK_MSG, SK_MSG_VERDICT, &code)?;
    Ok(map)
}

fn octets(a: &SocketAddr) -> [u8; 4] {
    match a.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => panic!("sockmap has IPv4 only"),
    }
}

/// Puts a connected socket into the hash.
pub fn put(map: &Sockhash, socket: &Fd) -> R<()> {
    let (own, peer) = (sys::sockname(socket.raw())?, sys::peername(socket.raw())?);
    let mut key = Vec::from(octets(&own));
    key.extend(octets(&peer));
    key.extend(u32::from(own.port()).to_ne_bytes());
    key.extend(u32::from(peer.port()).to_ne_bytes());
    map.put_by(&key, socket).map(drop)
}
