// SPDX-License-Identifier: GPL-2.0

//! Messages byte for byte: what is written, and that the same bytes are read
//! back. The hex text was laid out by hand from the field tables, so it does not
//! depend on the code under test.

mod wire_common;

use smc_proto::{
    reason::Reason,
    wire::{
        bufsize::BufSize,
        clc::{
            fce::Limits,
            proposal::*,
            *, //
        },
        ids::*,
        list::List,
    },
};
use wire_common::*;

const PEER: PeerId = PeerId([0x12, 0x34, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01]);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn gid(last: u8) -> Gid {
    Gid::from_ipv4([10, 0, 0, last])
}

fn default_eid() -> Eid {
    Eid::from_text(b"RSMC-DEFAULT").unwrap()
}

const DEFAULT_EID: &str = "52534d43 2d444546 41554c54 20..20";
const GID1: &str = "00..10 ffff 0a000001";
const GID2: &str = "00..10 ffff 0a000002";

/// Writes `p`, compares with `text`, reads it back.
fn check_proposal(p: &Proposal, text: &str) {
    let want = hex(text);
    let mut buf = [0xaa; 700];
    let n = p.emit(&mut buf).unwrap();
    assert_eq!(buf[..n], want[..]);
    assert_eq!(n, p.wire_len());
    assert!(buf[n..].iter().all(|b| *b == 0xaa));
    assert_eq!(Proposal::parse(&want).as_ref(), Ok(p));
}

fn check_accept(a: &Agreement, text: &str) {
    let want = hex(text);
    let mut buf = [0xaa; 700];
    let n = a.emit_accept(&mut buf).unwrap();
    assert_eq!(buf[..n], want[..]);
    assert_eq!(Agreement::parse_accept(&want).as_ref(), Ok(a));
}

fn check_confirm(c: &Confirm, text: &str) {
    let want = hex(text);
    let mut buf = [0xaa; 700];
    let n = c.emit(&mut buf).unwrap();
    assert_eq!(buf[..n], want[..]);
    assert_eq!(Confirm::parse(&want).as_ref(), Ok(c));
}

fn check_decline(d: &Decline, text: &str) {
    let want = hex(text);
    let mut buf = [0xaa; 44];
    let n = d.emit(&mut buf).unwrap();
    assert_eq!(buf[..n], want[..]);
    assert_eq!(Decline::parse(&want).as_ref(), Ok(d));
}

/// The case of RoCE v2 only: nothing of version 1, one EID.
#[test]
fn proposal_v2_only_r() {
    let p = Proposal {
        path_v2: Path::R,
        peer_id: PEER,
        mac: MAC,
        v2_ext: V2Ext {
            release: 1,
            has_seid: false,
            roce_gid: gid(1),
            max_conns: 255,
            max_links: 2,
            features: FEATURE_EMULATED_ISM,
            eids: List::from_slice(&[default_eid()]).unwrap(),
        },
        ..Proposal::EMPTY
    };
    assert_eq!(p.wire_len(), 156);
    check_proposal(
        &p,
        &format!(
            "e2d4c3d9 01 009c 22  1234020000000001 00..16 020000000001 0000 \
             00..8 0000 001c 00..8 00..20 \
             01 00 00 10 0000 0000 {GID1} ff 02 0001 00..12 {DEFAULT_EID} e2d4c3d9"
        ),
    );
}

/// The same with no EID at all: 124 bytes, EID block would be at 120.
#[test]
fn proposal_v2_lengths() {
    for e in 0..=MAX_EIDS {
        let mut p = Proposal {
            path_v2: Path::R,
            ..Proposal::EMPTY
        };
        p.v2_ext.eids = List::from_slice(&vec![default_eid(); e]).unwrap();
        let mut buf = [0; 700];
        let n = p.emit(&mut buf).unwrap();
        assert_eq!(n, 124 + 32 * e);
        assert_eq!(buf[7], 0x22);
        assert_eq!(buf[38..40], [0, 0]);
        assert_eq!(buf[50..52], [0, 28]);
        if e > 0 {
            assert_eq!(buf[120..152], default_eid().0);
        }
        // With an emulated SMC-D device on top: 48 + 2 entries.
        p.path_v2 = Path::Both;
        p.ism_v2_ext.gids = List::from_slice(&[GidChid::default(); 2]).unwrap();
        assert_eq!(p.emit(&mut buf), Ok(124 + 32 * e + 48 + 20));
        assert_eq!(buf[7], 0x2e);
        assert_eq!(buf[86..88], ((32 + 32 * e) as u16).to_be_bytes());
    }
}

/// Header byte 7 for the offers of a C peer.
#[test]
fn proposal_path_bits() {
    let bits = |v1, v2| {
        let p = Proposal {
            path_v1: v1,
            path_v2: v2,
            ..Proposal::EMPTY
        };
        let mut buf = [0; 700];
        p.emit(&mut buf).unwrap();
        buf[7]
    };
    assert_eq!(bits(Path::None, Path::R), 0x22);
    assert_eq!(bits(Path::None, Path::Both), 0x2e);
    assert_eq!(bits(Path::R, Path::R), 0x20);
    assert_eq!(bits(Path::R, Path::None), 0x28);
    assert_eq!(bits(Path::Both, Path::Both), 0x2f);
}

/// Everything at once, at its largest: 652 bytes.
#[test]
fn proposal_everything() {
    let v6 = |n| Ipv6Prefix {
        addr: [n; 16],
        len: 64,
    };
    let eid = |n| Eid([b'A' + n; 32]);
    let entry = |n: u64| GidChid {
        gid: IsmGid(0x0100 + n),
        chid: Chid(0xffff),
    };
    let p = Proposal {
        path_v1: Path::Both,
        path_v2: Path::Both,
        peer_id: PEER,
        gid: gid(1),
        mac: MAC,
        ism_v1: GidChid {
            gid: IsmGid(0x1122334455667788),
            chid: Chid(0x99aa),
        },
        vendor: [1, 2, 3, 4, 5, 6, 7, 8],
        prefix_block: Prefixes {
            ipv4: Ipv4Prefix {
                addr: [10, 0, 0, 0],
                len: 24,
            },
            ipv6: List::from_slice(&[1, 2, 3, 4, 5, 6, 7, 8].map(v6)).unwrap(),
        },
        v2_ext: V2Ext {
            release: 1,
            has_seid: true,
            roce_gid: gid(2),
            max_conns: 16,
            max_links: 1,
            features: 0x8001,
            eids: List::from_slice(&[0, 1, 2, 3, 4, 5, 6, 7].map(eid)).unwrap(),
        },
        ism_v2_ext: IsmV2Ext {
            seid: Eid([b'S'; 32]),
            gids: List::from_slice(&[0, 1, 2, 3, 4, 5, 6, 7].map(entry)).unwrap(),
        },
        ..Proposal::EMPTY
    };
    assert_eq!(p.wire_len(), smc_proto::wire::clc::MAX_LEN);
    assert_eq!(smc_proto::wire::clc::MAX_LEN, 652);
    let texts = |each: &dyn Fn(u8) -> String| (0..8).map(each).collect::<Vec<_>>().concat();
    let v6_text = texts(&|n| format!("{:02x}..16 40 ", n + 1));
    let eid_text = texts(&|n| format!("{:02x}..32 ", 0x41 + n));
    let gid_text = texts(&|n| format!("00..6 01 {n:02x} ffff "));
    check_proposal(
        &p,
        &format!(
            "e2d4c3d9 01 028c 2f  1234020000000001 {GID1} 020000000001 0028 \
             1122334455667788 99aa 00ac 010203 0405060708 00..20 \
             0a000000 18 0000 08 {v6_text} \
             08 08 00 11 0000 0120 {GID2} 10 01 8001 00..12 {eid_text} \
             53..32 00..16 {gid_text} e2d4c3d9"
        ),
    );
}

/// Version 1, from peers of both generations.
#[test]
fn proposal_v1() {
    let mut p = Proposal {
        version: 1,
        path_v1: Path::R,
        peer_id: PEER,
        gid: gid(1),
        mac: MAC,
        has_area: false,
        ..Proposal::EMPTY
    };
    p.prefix_block.ipv4 = Ipv4Prefix {
        addr: [192, 168, 0, 0],
        len: 16,
    };
    check_proposal(
        &p,
        &format!(
            "e2d4c3d9 01 0034 10 1234020000000001 {GID1} 020000000001 0000 \
             c0a80000 10 0000 00 e2d4c3d9"
        ),
    );
    p.has_area = true;
    p.path_v1 = Path::D;
    p.ism_v1.gid = IsmGid(0x42);
    check_proposal(
        &p,
        &format!(
            "e2d4c3d9 01 005c 11 1234020000000001 {GID1} 020000000001 0028 \
             00..7 42 0000 0000 00..8 00..20 c0a80000 10 0000 00 e2d4c3d9"
        ),
    );
}

fn rdma(last: u8) -> RdmaEnd {
    RdmaEnd {
        peer_id: PEER,
        gid: gid(last),
        mac: MAC,
        qpn: Qpn::new(0x010203),
        rkey: Rkey(0x0a0b0c0d),
        rmbe_idx: 1,
        token: AlertToken(0x01000001),
        size: BufSize::from_code(2),
        mtu: Mtu::from_code(3),
        addr: 0xffff_8880_1234_5000,
        psn: Psn::new(0xfedcba),
    }
}

const RDMA1: &str = "1234020000000001 00..10 ffff 0a000001 020000000001 010203 \
    0a0b0c0d 01 01000001 23 00 ffff888012345000 00 fedcba";
const HOST: &str = "686f7374 20..28";

fn fce(limits: Option<Limits>) -> FirstContact {
    FirstContact {
        direct: true,
        os: Os::LINUX,
        release: 1,
        hostname: FirstContact::pad_hostname(b"host"),
        limits,
    }
}

const LIMITS: Limits = Limits {
    max_conns: 255,
    max_links: 2,
    features: 1,
    vendor: 0,
};

#[test]
fn accept_r() {
    let mut a = Agreement {
        version: 1,
        first_contact: true,
        end: End::R(rdma(1)),
        eid: Eid::NONE,
        fce: None,
    };
    check_accept(&a, &format!("e2d4c3d9 02 0044 18 {RDMA1} e2d4c3d9"));
    a.first_contact = false;
    check_accept(&a, &format!("e2d4c3d9 02 0044 10 {RDMA1} e2d4c3d9"));

    // Version 2, reused group: 108 bytes.
    a.version = 2;
    a.eid = default_eid();
    let text = format!("e2d4c3d9 02 006c 20 {RDMA1} {DEFAULT_EID} 00..8 e2d4c3d9");
    check_accept(&a, &text);

    // v2.1, first contact: 160 bytes.
    a.first_contact = true;
    a.fce = Some(fce(Some(LIMITS)));
    check_accept(
        &a,
        &format!(
            "e2d4c3d9 02 00a0 28 {RDMA1} {DEFAULT_EID} 00..8 \
             80 21 0000 {HOST} ff 02 0001 00000000 00..8 e2d4c3d9"
        ),
    );

    // v2.0 as kernels before 6.7 sent it: 144 bytes.
    a.fce = Some(FirstContact {
        direct: false,
        release: 0,
        ..fce(None)
    });
    check_accept(
        &a,
        &format!(
            "e2d4c3d9 02 0090 28 {RDMA1} {DEFAULT_EID} 00..8 \
             00 20 0000 {HOST} e2d4c3d9"
        ),
    );
}

#[test]
fn accept_d() {
    let end = IsmEnd {
        gid: IsmGid(0x1122334455667788),
        token: DmbToken(0x99aabbccddeeff00),
        dmbe_idx: 0,
        size: BufSize::from_code(6),
        group: GroupId(0x00010000),
        chid: Chid(0),
        gid_ext: IsmGid(0),
    };
    let d0 = "1122334455667788 99aabbccddeeff00 00 60 0000 00010000";
    let mut a = Agreement {
        version: 1,
        first_contact: false,
        end: End::D(end),
        eid: Eid::NONE,
        fce: None,
    };
    // Version 1, reused group: 48 bytes, 0x11.
    check_accept(&a, &format!("e2d4c3c4 02 0030 11 {d0} 00..12 e2d4c3c4"));

    // Version 2: 78 bytes.
    a.version = 2;
    a.eid = default_eid();
    a.end = End::D(IsmEnd {
        chid: Chid(0xffff),
        gid_ext: IsmGid(0x0102030405060708),
        ..end
    });
    let d1 = format!("{d0} ffff {DEFAULT_EID} 0102030405060708");
    check_accept(&a, &format!("e2d4c3c4 02 004e 21 {d1} e2d4c3c4"));

    // First contact, 0x29, both releases.
    a.first_contact = true;
    a.fce = Some(FirstContact {
        direct: false,
        release: 0,
        ..fce(None)
    });
    check_accept(
        &a,
        &format!("e2d4c3c4 02 0072 29 {d1} 00 20 0000 {HOST} e2d4c3c4"),
    );
    a.fce = Some(FirstContact {
        direct: false,
        ..fce(Some(Limits {
            max_conns: 0,
            max_links: 0,
            ..LIMITS
        }))
    });
    check_accept(
        &a,
        &format!("e2d4c3c4 02 0082 29 {d1} 00 21 0000 {HOST} 00 00 0001 00..12 e2d4c3c4"),
    );
}

#[test]
fn confirm_r() {
    let mut c = Confirm {
        agreement: Agreement {
            version: 2,
            first_contact: true,
            end: End::R(rdma(1)),
            eid: default_eid(),
            fce: Some(fce(Some(LIMITS))),
        },
        gids: List::from_slice(&[gid(1)]).unwrap(),
    };
    let base = format!("{RDMA1} {DEFAULT_EID} 00..8");
    let long = format!("80 21 0000 {HOST} ff 02 0001 00000000 00..8");
    check_confirm(
        &c,
        &format!("e2d4c3d9 03 00b4 28 {base} {long} 01 000000 {GID1} e2d4c3d9"),
    );
    c.gids = List::from_slice(&[gid(1), gid(2)]).unwrap();
    check_confirm(
        &c,
        &format!("e2d4c3d9 03 00c4 28 {base} {long} 02 000000 {GID1} {GID2} e2d4c3d9"),
    );
    // Release 0: short form, and the long one with zeroes.
    c.agreement.fce = Some(FirstContact {
        release: 0,
        ..fce(None)
    });
    check_confirm(
        &c,
        &format!(
            "e2d4c3d9 03 00b4 28 {base} 80 20 0000 {HOST} \
             02 000000 {GID1} {GID2} e2d4c3d9"
        ),
    );
    c.agreement.fce = Some(FirstContact {
        release: 0,
        ..fce(Some(Limits::default()))
    });
    check_confirm(
        &c,
        &format!(
            "e2d4c3d9 03 00c4 28 {base} 80 20 0000 {HOST} 00..16 \
             02 000000 {GID1} {GID2} e2d4c3d9"
        ),
    );
    // Reuse.
    c.gids = List::new();
    c.agreement.first_contact = false;
    c.agreement.fce = None;
    check_confirm(&c, &format!("e2d4c3d9 03 006c 20 {base} e2d4c3d9"));
    c.agreement.version = 1;
    c.agreement.eid = Eid::NONE;
    check_confirm(&c, &format!("e2d4c3d9 03 0044 10 {RDMA1} e2d4c3d9"));
}

#[test]
fn declines() {
    check_decline(
        &Decline::by_client(false, Reason::NoDevice, PEER),
        "e2d4c3d9 04 001c 10 1234020000000001 03030000 00 000000 e2d4c3d9",
    );
    check_decline(
        &Decline::by_client(true, Reason::NoDevice, PEER),
        "e2d4c3d9 04 002c 20 1234020000000001 03030000 20 000000 00..16 e2d4c3d9",
    );
    check_decline(
        &Decline::new(2, Reason::SyncError, PeerId::ZERO),
        "e2d4c3d9 04 002c 28 00..8 04000000 20 000000 00..16 e2d4c3d9",
    );
    // From z/OS, with words of its own and a code nobody knows.
    check_decline(
        &Decline {
            version: 2,
            out_of_sync: false,
            peer_id: PEER,
            reason: Reason::Other(0x03060007),
            os: Os::ZOS,
            more: [1, 2, 3, 0xffffffff],
        },
        "e2d4c3d9 04 002c 20 1234020000000001 03060007 10 000000 \
         00000001 00000002 00000003 ffffffff e2d4c3d9",
    );
}

#[test]
fn version_of_the_declines() {
    let header = |version| Header {
        eyecatcher: Eyecatcher::Smcr,
        kind: MsgType::Proposal,
        length: 0,
        version,
        path_v2: 0,
        path_v1: 0,
    };
    let by_server = |h: Option<Header>| Decline::by_server(h.as_ref(), Reason::NoDevice, PEER);
    assert_eq!(by_server(None).version, 1);
    assert_eq!(by_server(Some(header(1))).version, 1);
    assert_eq!(by_server(Some(header(2))).version, 2);
    assert_eq!(by_server(Some(header(9))).version, 2);
    let after = |v| Decline::by_client_after_accept(&header(v), Reason::SyncError, PEER);
    assert_eq!((after(1).version, after(1).out_of_sync), (1, true));
    assert_eq!((after(2).version, after(2).os), (2, Os::LINUX));
    assert!(!by_server(Some(header(2))).out_of_sync);
}

/// Version 1 as the C module of Linux 7.2 speaks it without an EID, captured (`selftests/interop/v1.sh`).
#[test]
fn captured_from_c() {
    let p = Proposal::parse(&hex(C_PROPOSAL)).unwrap();
    assert_eq!((p.version, p.path_v1, p.path_v2), (2, Path::R, Path::None));
    assert_eq!(p.gid, Gid::from_ipv4([10, 77, 0, 1]));
    // Two random bytes, and the MAC.
    assert_eq!(p.peer_id.0[2..], p.mac.0);
    let prefixes = p.prefixes().unwrap();
    assert_eq!(prefixes.ipv4, Ipv4Prefix::of([10, 77, 0, 1], 24));
    check_proposal(&p, C_PROPOSAL);

    for (text, first) in [(C_ACCEPT_FIRST, true), (C_ACCEPT_JOIN, false)] {
        let a = Agreement::parse_accept(&hex(text)).unwrap();
        assert_eq!((a.version, a.first_contact, a.fce), (1, first, None));
        check_accept(&a, text);
    }
    for (text, first) in [(C_CONFIRM_FIRST, true), (C_CONFIRM_JOIN, false)] {
        let c = Confirm::parse(&hex(text)).unwrap();
        assert_eq!((c.agreement.version, c.agreement.first_contact), (1, first));
        check_confirm(&c, text);
    }
}

const C_PROPOSAL: &str = "e2d4c3d9 01 005c 28 dcc74e67794deacd \
    00..10 ffff 0a4d0001 4e67794deacd 0028 00..10 0000 00..28 \
    0a4d0000 18 0000 00 e2d4c3d9";
const C_ACCEPT_FIRST: &str = "e2d4c3d9 02 0044 18 7c9ed2ac0353d5fd \
    00..10 ffff 0a4d0002 d2ac0353d5fd 000011 00000320 01 00000001 23 00 \
    0000000063040000 00 b02072 e2d4c3d9";
const C_ACCEPT_JOIN: &str = "e2d4c3d9 02 0044 10 7c9ed2ac0353d5fd \
    00..10 ffff 0a4d0002 d2ac0353d5fd 000011 000006aa 01 00000002 23 00 \
    0000000063070000 00 b02072 e2d4c3d9";
const C_CONFIRM_FIRST: &str = "e2d4c3d9 03 0044 18 dcc74e67794deacd \
    00..10 ffff 0a4d0001 4e67794deacd 000011 000003c1 01 00000001 23 00 \
    0000000061ac0000 00 3422a6 e2d4c3d9";
const C_CONFIRM_JOIN: &str = "e2d4c3d9 03 0044 10 dcc74e67794deacd \
    00..10 ffff 0a4d0001 4e67794deacd 000011 000004a1 01 00000002 23 00 \
    00000000619d0000 00 3422a6 e2d4c3d9";
