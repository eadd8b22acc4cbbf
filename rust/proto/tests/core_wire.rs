// SPDX-License-Identifier: GPL-2.0

//! LLC and CDC codecs: layouts checked byte by byte, round trips, and arbitrary input.

use proptest::prelude::*;
use smc_proto::cursor::Cursor;
use smc_proto::wire::bufsize::BufSize;
use smc_proto::wire::cdc::{self, Cdc, Offer, ProdFlags, RingNews, StateFlags};
use smc_proto::wire::ids::{AlertToken, Gid, Mac, Psn, Qpn, Rkey};
use smc_proto::wire::llc::header::{self, Header, Kind, Version};
use smc_proto::wire::llc::link::*;
use smc_proto::wire::llc::rkey::*;
use smc_proto::wire::llc::{self, Body, Message};

fn body(bytes: &[u8]) -> Body<'_> {
    Message::parse(bytes).unwrap().body
}

#[test]
fn confirm_link_layout() {
    let m = ConfirmLink {
        mac: Mac([1, 2, 3, 4, 5, 6]),
        gid: Gid([7; 16]),
        qpn: Qpn::new(0x0a0b0c),
        link_num: 1,
        link_uid: [9, 8, 7, 6],
        max_links: 2,
        max_conns: 255,
    };
    let mut b = [0xee; 44];
    // Worked by hand.
    assert_eq!(m.emit(Version::V2, false, &mut b), Ok(44));
    assert_eq!(b[..4], [0x21, 0x2c, 0x00, 0x03]);
    assert_eq!(b[4..10], [1, 2, 3, 4, 5, 6]);
    assert_eq!(b[10..26], [7; 16]);
    assert_eq!(b[26..36], [0x0a, 0x0b, 0x0c, 1, 9, 8, 7, 6, 2, 255]);
    assert_eq!(b[36..], [0; 8]);
    assert_eq!(body(&b), Body::ConfirmLink(m));
    assert_eq!(llc::reply(&b, 0)[..4], [0x21, 0x2c, 0x00, 0x83]);
    m.emit(Version::V1, true, &mut b).unwrap();
    assert_eq!(b[..4], [0x01, 44, 0, 0x83]);
    assert!(m.emit(Version::V1, true, &mut b[..43]).is_err());
}

#[test]
fn add_link_layout() {
    let keys = [
        KeyPair {
            on_old: Rkey(1),
            on_new: Rkey(2),
            addr: 3,
        },
        KeyPair {
            on_old: Rkey(0x01020304),
            on_new: Rkey(5),
            addr: 0x1122334455667788,
        },
    ];
    let m = AddLink {
        mac: Mac([1; 6]),
        gid: Gid([2; 16]),
        qpn: Qpn::new(3),
        link_num: 4,
        mtu: 5,
        psn: Psn::new(0xabcdef),
        ext: Some(AddLinkExt::default()),
    };
    let mut b = [0xee; llc::MAX_LEN];
    let n = m.emit(Version::V2, &keys, &mut b).unwrap();
    assert_eq!(n, 44 + 28 + 32);
    assert_eq!(b[..4], [0x22, n as u8, 0, 0]);
    assert_eq!(b[10..12], [0, 0]);
    assert_eq!(b[12..28], [2; 16]);
    assert_eq!(b[28..36], [0, 0, 3, 4, 5, 0xab, 0xcd, 0xef]);
    assert_eq!(b[70..72], [2, 0], "count is little-endian");
    let Body::AddLink(got) = body(&b[..n]) else {
        panic!()
    };
    assert_eq!((got.mac, got.qpn, got.psn), (m.mac, m.qpn, m.psn));
    assert_eq!(got.ext.unwrap().keys().collect::<Vec<_>>(), keys);
    // A big-endian host's count.
    b.swap(70, 71);
    let Body::AddLink(got) = body(&b[..n]) else {
        panic!()
    };
    assert_eq!(got.ext.unwrap().keys().count(), 2);
    // A count that lies is cut to what is there.
    b[70] = 0xff;
    b[71] = 0;
    let Body::AddLink(got) = body(&b[..n]) else {
        panic!()
    };
    assert_eq!(got.ext.unwrap().keys().count(), 2);
    // Version 1 has no extension.
    let n = m.emit(Version::V1, &keys, &mut b).unwrap();
    assert_eq!((n, b[0]), (44, 2));
    assert!(AddLink::default().is_suggestion());
    assert!(!m.is_suggestion());
}

#[test]
fn longest_message_fits() {
    let keys = [KeyPair::default(); 255];
    let m = AddLink {
        ext: Some(AddLinkExt::default()),
        ..AddLink::default()
    };
    let mut b = [0; llc::MAX_LEN];
    assert_eq!(m.emit(Version::V2, &keys, &mut b), Ok(llc::MAX_LEN));
    assert!(m
        .emit(Version::V2, &[KeyPair::default(); 256], &mut b)
        .is_err());
}

#[test]
fn other_link_layouts() {
    let mut b = [0xee; 64];
    let c = AddLinkCont {
        link_num: 1,
        left: 2,
        keys: [KeyPair {
            on_old: Rkey(1),
            on_new: Rkey(2),
            addr: 3,
        }; 2],
    };
    c.emit(&mut b).unwrap();
    assert_eq!(b[..12], [3, 44, 0, 0, 1, 2, 0, 0, 0, 0, 0, 1]);
    assert_eq!(body(&b[..44]), Body::AddLinkCont(c));

    let d = DeleteLink {
        link_num: 7,
        all: true,
        orderly: true,
        reason: DeleteReason::PROGRAM,
    };
    d.emit(Version::V2, false, &mut b).unwrap();
    assert_eq!(b[..9], [0x24, 44, 0, 0x60, 7, 0, 3, 0, 0]);
    assert_eq!(body(&b[..44]), Body::DeleteLink(d));

    let n = ReqAddLink::emit(&[Gid([4; 16]), Gid([5; 16])], &mut b).unwrap();
    assert_eq!(n, 60);
    assert_eq!(b[..4], [0x25, 60, 0, 0]);
    assert_eq!(b[24..28], [2, 0, 0, 0]);
    let Body::ReqAddLink(r) = body(&b[..n]) else {
        panic!()
    };
    assert_eq!(r.gids().collect::<Vec<_>>(), [Gid([4; 16]), Gid([5; 16])]);
    assert_eq!(ReqAddLink::emit(&[], &mut b), Ok(44));

    let t = TestLink { data: [3; 16] };
    t.emit(Version::V1, &mut b).unwrap();
    assert_eq!(b[..5], [7, 44, 0, 0, 3]);
    assert_eq!(body(&b[..44]), Body::TestLink(t));
}

#[test]
fn rkey_layouts() {
    let mut b = [0xee; 44];
    let k = ConfirmRkey {
        here: KeyOnLink {
            link_num: 1,
            rkey: Rkey(0x01020304),
            addr: 0x05060708090a0b0c,
        },
        others: [
            KeyOnLink {
                link_num: 2,
                rkey: Rkey(5),
                addr: 6,
            },
            KeyOnLink::default(),
        ],
    };
    k.emit(Version::V2, &mut b).unwrap();
    assert_eq!(
        b[..17],
        [0x26, 44, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    );
    assert_eq!(b[17], 2);
    assert_eq!(body(&b), Body::ConfirmRkey(k));
    assert_eq!(k.further().count(), 1);

    let keys: Vec<Rkey> = (1..=9).map(Rkey).collect();
    assert!(DeleteRkey::emit(Version::V1, &keys, &mut b).is_err());
    DeleteRkey::emit(Version::V1, &keys[..8], &mut b).unwrap();
    assert_eq!(b[..12], [9, 44, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(b[40..], [0; 4]);
    DeleteRkey::emit(Version::V2, &keys, &mut b).unwrap();
    assert_eq!(b[..6], [0x29, 44, 0, 0, 9, 0]);
    let Body::DeleteRkey(d) = body(&b) else {
        panic!()
    };
    assert_eq!(d.keys().collect::<Vec<_>>(), keys);
    let head = Message::parse(&b).unwrap().header;
    let r = DeleteRkey::reply(&b, &head, 3, 0xe0);
    assert_eq!(r[..6], [0x29, 44, 0, 0xa0, 9, 3]);
    let many: Vec<Rkey> = (1..=255).map(Rkey).collect();
    let mut big = [0; llc::MAX_LEN];
    let n = DeleteRkey::emit(Version::V2, &many, &mut big).unwrap();
    assert_eq!(n, 44 + (255 - 9) * 4);
    let Body::DeleteRkey(d) = body(&big[..n]) else {
        panic!()
    };
    assert_eq!(d.count(), 255);
}

#[test]
fn kinds_and_versions() {
    for v in [Version::V1, Version::V2] {
        for k in [
            Kind::ConfirmLink,
            Kind::AddLink,
            Kind::AddLinkCont,
            Kind::DeleteLink,
            Kind::ReqAddLink,
            Kind::ConfirmRkey,
            Kind::TestLink,
            Kind::ConfirmRkeyCont,
            Kind::DeleteRkey,
        ] {
            let h = Header::request(v, k);
            assert_eq!(h.kind(), k.exists_in(v).then_some(k));
            assert!(!h.response());
            assert!(h.with_flags(header::RESPONSE).response());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Cdc::parse(&bytes);
        if let Ok(m) = Message::parse(&bytes) {
            match m.body {
                Body::AddLink(a) => {
                    let _ = a.is_suggestion();
                    if let Some(e) = a.ext {
                        prop_assert!(e.keys().count() <= 255);
                    }
                }
                Body::ReqAddLink(r) => prop_assert!(r.gids().count() <= 255),
                Body::DeleteRkey(d) => prop_assert_eq!(d.keys().count(), d.count()),
                Body::ConfirmRkey(k) => prop_assert!(k.further().count() <= 2),
                _ => {}
            }
        }
    }

    #[test]
    fn known_types_round_trip(kind in 1u8..=9, v2: bool, rest in prop::array::uniform32(any::<u8>())) {
        let mut b = [0u8; 44];
        b[0] = kind | if v2 { 0x20 } else { 0 };
        b[1] = 44;
        b[4..36].copy_from_slice(&rest);
        let version = if v2 { Version::V2 } else { Version::V1 };
        let mut out = [0u8; 44];
        match body(&b) {
            Body::ConfirmLink(m) => {
                m.emit(version, false, &mut out).unwrap();
                prop_assert_eq!(&out[4..36], &b[4..36]);
            }
            Body::ConfirmRkey(m) => {
                m.emit(version, &mut out).unwrap();
                prop_assert_eq!(&out[4..43], &b[4..43]);
            }
            Body::DeleteLink(m) => {
                m.emit(version, false, &mut out).unwrap();
                prop_assert_eq!(&out[4..9], &b[4..9]);
            }
            Body::TestLink(m) => {
                m.emit(version, &mut out).unwrap();
                prop_assert_eq!(&out[4..20], &b[4..20]);
            }
            Body::AddLinkCont(m) => {
                m.emit(&mut out).unwrap();
                prop_assert_eq!(&out[8..36], &b[8..36]);
            }
            _ => {}
        }
    }

    #[test]
    fn cdc_round_trips(
        seq: u16,
        token: u32,
        pw: u16,
        pc: u32,
        cw: u16,
        cc: u32,
        flags: [u8; 2],
        into: u8,
        ring: Option<(u8, u64, u32)>,
        unread in 0..=cdc::MOST_UNREAD,
    ) {
        let [pf, sf] = flags;
        let offer = ring.map(|(size, addr, rkey)| Offer {
            number: into | 1,
            size: BufSize::from_code(size),
            addr,
            rkey: Rkey(rkey),
        });
        let m = Cdc {
            seq,
            token: AlertToken(token),
            prod: Cursor { wrap: pw, count: pc },
            cons: Cursor { wrap: cw, count: cc },
            prod_flags: ProdFlags::from_wire(pf),
            state_flags: StateFlags::from_wire(sf),
            rings: RingNews { into, offer },
            unread,
        };
        let b = m.encode();
        prop_assert_eq!(b.len(), cdc::LEN);
        prop_assert_eq!(Cdc::parse(&b), Ok(m));
    }
}
