// SPDX-License-Identifier: GPL-2.0

//! Support for the wire tests: hex text, generators of valid messages.

#![allow(dead_code)]

use proptest::{
    collection::vec,
    prelude::*, //
};
use smc_proto::{
    reason::Reason,
    wire::{
        bufsize::BufSize,
        clc::{
            self,
            fce::Limits,
            proposal::*,
            *, //
        },
        ids::*,
        list::List,
    },
};

/// Bytes from hex text; white space is ignored, `..` after a byte and before a
/// decimal number repeats it (`00..12`).
pub fn hex(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        let (digits, times) = match word.split_once("..") {
            Some((digits, n)) => (digits, n.parse().unwrap()),
            None => (word, 1),
        };
        assert!(digits.len() % 2 == 0, "{word}");
        let bytes: Vec<u8> = (0..digits.len() / 2)
            .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        for _ in 0..times {
            out.extend(&bytes);
        }
    }
    out
}

/// "SMCR" and "SMCD" as they stand at the end of messages.
pub const SMCR: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];
pub const SMCD: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xc4];

fn list<T, const N: usize>(items: impl Strategy<Value = T>) -> impl Strategy<Value = List<T, N>>
where
    T: Copy + Default + std::fmt::Debug,
{
    vec(items, 0..=N).prop_map(|v| List::from_slice(&v).unwrap())
}

pub fn eid() -> impl Strategy<Value = Eid> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(Eid),
        "[A-Z0-9][A-Z0-9.-]{0,31}".prop_map(|s| Eid::from_text(s.as_bytes()).unwrap()),
    ]
}

pub fn path() -> impl Strategy<Value = Path> {
    (0..4u8).prop_map(Path::from_bits)
}

fn gid_chid() -> impl Strategy<Value = GidChid> {
    any::<(u64, u16)>().prop_map(|(g, c)| GidChid {
        gid: IsmGid(g),
        chid: Chid(c),
    })
}

fn prefixes() -> impl Strategy<Value = Prefixes> {
    let v6 = any::<([u8; 16], u8)>().prop_map(|(addr, len)| Ipv6Prefix { addr, len });
    (any::<([u8; 4], u8)>(), list(v6)).prop_map(|((addr, len), ipv6)| Prefixes {
        ipv4: Ipv4Prefix { addr, len },
        ipv6,
    })
}

fn v2_ext() -> impl Strategy<Value = V2Ext> {
    (any::<([u8; 16], u8, u8, u16, bool)>(), 0..16u8, list(eid())).prop_map(
        |((gid, max_conns, max_links, features, has_seid), release, eids)| V2Ext {
            release,
            has_seid,
            roce_gid: Gid(gid),
            max_conns,
            max_links,
            features,
            eids,
        },
    )
}

fn ism_v2_ext() -> impl Strategy<Value = IsmV2Ext> {
    (eid(), list(gid_chid())).prop_map(|(seid, gids)| IsmV2Ext { seid, gids })
}

/// Any proposal that can be written.
pub fn proposal() -> impl Strategy<Value = Proposal> {
    (
        (1..16u8, path(), path(), any::<bool>()),
        any::<([u8; 8], [u8; 16], [u8; 6], [u8; 8])>(),
        (gid_chid(), prefixes(), v2_ext(), ism_v2_ext()),
    )
        .prop_map(|((version, p1, p2, area), ids, parts)| {
            let v2 = version > 1;
            let path_v1 = if !v2 && p1 == Path::None { Path::R } else { p1 };
            let path_v2 = if v2 { p2 } else { Path::None };
            let mut p = Proposal {
                version,
                path_v1,
                path_v2,
                peer_id: PeerId(ids.0),
                gid: Gid(ids.1),
                mac: Mac(ids.2),
                has_area: area || v2 || path_v1.has_d(),
                ..Proposal::EMPTY
            };
            if p.has_area {
                p.vendor = ids.3;
            }
            if path_v1.has_d() {
                p.ism_v1 = parts.0;
            }
            if path_v1 != Path::None {
                p.prefix_block = parts.1;
            }
            if path_v2 != Path::None {
                p.v2_ext = parts.2;
            }
            if path_v2.has_d() {
                p.ism_v2_ext = parts.3;
            }
            p
        })
}

fn rdma_end() -> impl Strategy<Value = RdmaEnd> {
    (
        any::<([u8; 8], [u8; 16], [u8; 6])>(),
        any::<(u32, u32, u8, u32, u8, u64, u32)>(),
    )
        .prop_map(|(ids, n)| RdmaEnd {
            peer_id: PeerId(ids.0),
            gid: Gid(ids.1),
            mac: Mac(ids.2),
            qpn: Qpn::new(n.0),
            rkey: Rkey(n.1),
            rmbe_idx: n.2,
            token: AlertToken(n.3),
            size: BufSize::from_code(n.4 >> 4),
            mtu: Mtu::from_code(n.4),
            addr: n.5,
            psn: Psn::new(n.6),
        })
}

fn ism_end(v2: bool) -> impl Strategy<Value = IsmEnd> {
    any::<(u64, u64, u8, u8, u32, u16, u64)>().prop_map(move |n| IsmEnd {
        gid: IsmGid(n.0),
        token: DmbToken(n.1),
        dmbe_idx: n.2,
        size: BufSize::from_code(n.3),
        group: GroupId(n.4),
        chid: Chid(if v2 { n.5 } else { 0 }),
        gid_ext: IsmGid(if v2 { n.6 } else { 0 }),
    })
}

/// A first contact extension as senders write it: whatever has the long form in
/// release 0 has zeroes there.
fn fce() -> impl Strategy<Value = FirstContact> {
    (
        any::<(bool, u8, [u8; 32])>(),
        any::<(u8, u8, u16, u32)>(),
        0..16u8,
        any::<bool>(),
    )
        .prop_map(|((direct, os, hostname), l, release, long)| FirstContact {
            direct,
            os: Os(os & 15),
            release,
            hostname,
            limits: match (release, long) {
                (0, false) => None,
                (0, true) => Some(Limits::default()),
                _ => Some(Limits {
                    max_conns: l.0,
                    max_links: l.1,
                    features: l.2,
                    vendor: l.3,
                }),
            },
        })
}

/// Any content of an accept that can be written.
pub fn agreement() -> impl Strategy<Value = Agreement> {
    (1..16u8, any::<bool>(), any::<bool>()).prop_flat_map(|(version, first_contact, r)| {
        let v2 = version > 1;
        let end = if r {
            rdma_end().prop_map(End::R).boxed()
        } else {
            ism_end(v2).prop_map(End::D).boxed()
        };
        (end, eid(), fce()).prop_map(move |(end, eid, fce)| Agreement {
            version,
            first_contact,
            end,
            eid: if v2 { eid } else { Eid::NONE },
            fce: (v2 && first_contact).then_some(fce),
        })
    })
}

/// Any confirm that can be written.
pub fn confirm() -> impl Strategy<Value = Confirm> {
    (agreement(), list(any::<[u8; 16]>().prop_map(Gid))).prop_map(|(agreement, gids)| {
        let has_list = agreement.fce.is_some() && matches!(agreement.end, End::R(_));
        Confirm {
            agreement,
            gids: if has_list { gids } else { List::new() },
        }
    })
}

/// Any decline that can be written.
pub fn decline() -> impl Strategy<Value = Decline> {
    let reason = prop_oneof![
        any::<u32>().prop_map(Reason::from_code),
        (0..Reason::ALL.len()).prop_map(|i| Reason::ALL[i]),
    ];
    (1..16u8, any::<(bool, [u8; 8], u8, [u32; 4])>(), reason).prop_map(|(version, n, reason)| {
        Decline {
            version,
            out_of_sync: n.0,
            peer_id: PeerId(n.1),
            reason,
            os: Os(n.2 & 15),
            more: if version > 1 { n.3 } else { [0; 4] },
        }
    })
}

/// The bytes of any valid message, with its type.
pub fn message() -> impl Strategy<Value = (MsgType, Vec<u8>)> {
    fn written(emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut buf = vec![0xaa; clc::MAX_LEN];
        let len = emit(&mut buf);
        buf.truncate(len);
        buf
    }
    prop_oneof![
        proposal().prop_map(|m| (MsgType::Proposal, written(|b| m.emit(b).unwrap()))),
        agreement().prop_map(|m| (MsgType::Accept, written(|b| m.emit_accept(b).unwrap()))),
        confirm().prop_map(|m| (MsgType::Confirm, written(|b| m.emit(b).unwrap()))),
        decline().prop_map(|m| (MsgType::Decline, written(|b| m.emit(b).unwrap()))),
    ]
}

/// Reports whether `bytes` are a complete valid message of this type.
pub fn parses(kind: MsgType, bytes: &[u8]) -> bool {
    match kind {
        MsgType::Proposal => Proposal::parse(bytes).is_ok(),
        MsgType::Accept => Agreement::parse_accept(bytes).is_ok(),
        MsgType::Confirm => Confirm::parse(bytes).is_ok(),
        MsgType::Decline => Decline::parse(bytes).is_ok(),
    }
}
