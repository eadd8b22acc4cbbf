// SPDX-License-Identifier: GPL-2.0

//! The TCP option: found where it is, added where it may be, nothing else.

mod wire_common;

use proptest::prelude::*;
use smc_proto::wire::tcp_option::*;
use wire_common::hex;

/// A header with these option bytes and flags, after it `data`.
fn tcp(flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    assert!(options.len() % 4 == 0);
    let mut h = hex("d431 0050 11223344 00000000 00 00 faf0 0000 0000");
    h[12] = ((5 + options.len() / 4) << 4) as u8;
    h[13] = flags;
    h.extend(options);
    h.extend(data);
    h
}

const LINUX_SYN: &str = "020405b4 0402 080a 00112233 00000000 01 030307";

#[test]
fn the_bytes() {
    assert_eq!(OPTION.to_vec(), hex("0101 fe06 e2d4c3d9"));
}

#[test]
fn found_behind_the_usual_options() {
    let mut o = hex(LINUX_SYN);
    assert_eq!(find(&o), None);
    o.extend(OPTION);
    assert_eq!(find(&o), Some(Found { offset: 22, len: 6 }));
    assert!(announces_smc(&tcp(0x02, &o, &[])));
    assert!(announces_smc(&tcp(0x12, &o, &[])));
    // ECN bits do no harm; without SYN it means nothing.
    assert!(announces_smc(&tcp(0xc2, &o, &[])));
    for flags in [0x10, 0x18, 0x14, 0x06, 0x03, 0x00] {
        assert!(!announces_smc(&tcp(flags, &o, &[])), "{flags:#x}");
    }
}

#[test]
fn c_rules_of_validity() {
    let found = |text: &str| find(&hex(text)).map(|f| (f.offset, f.len));
    assert_eq!(found("fe06 e2d4c3d9"), Some((0, 6)));
    assert_eq!(found("fe08 e2d4c3d9 ffff"), Some((0, 8)));
    assert_eq!(found("fe07 e2d4c3d9 ff"), None);
    assert_eq!(found("fe06 e2d4c3c4"), None);
    assert_eq!(found("fd06 e2d4c3d9"), None);
    assert_eq!(found("fe04 e2d4"), None);
    // Another experiment (fast open) first.
    assert_eq!(found("fe04 f989 fe06 e2d4c3d9"), Some((4, 6)));
    // After the end of options, cut off, after an impossible length.
    assert_eq!(found("00 fe06 e2d4c3d9"), None);
    assert_eq!(found("fe06 e2d4c3"), None);
    assert_eq!(found("0300 fe06 e2d4c3d9"), None);
    assert_eq!(found("0301 fe06 e2d4c3d9"), None);
    assert_eq!(found("03ff fe06 e2d4c3d9"), None);
    assert_eq!(found("fe"), None);
    assert_eq!(found(""), None);
    // The magic inside of another option is not an option.
    assert_eq!(found("1308 fe06e2d4c3d9"), None);
}

#[test]
fn signatures_and_garbage_are_reported() {
    assert!(scan(&hex("1312 00..16 0101")).signed);
    assert!(scan(&hex("1d10 00..14")).signed);
    assert!(!scan(&hex("2204 0000")).signed);
    let s = scan(&hex("fe06 e2d4c3d9 0300"));
    assert!(s.malformed && s.smc.is_some());
    assert!(scan(&hex("03")).malformed);
    assert!(!scan(&hex("0101 00 03")).malformed);
}

#[test]
fn blanking() {
    let mut o = hex("fe06 e2d4c3d9 020405b4 fe08 e2d4c3d9 0000");
    assert!(blank(&mut o));
    assert_eq!(o, hex("01..6 020405b4 01..8"));
    assert!(!blank(&mut o));
    let mut o = hex(LINUX_SYN);
    assert!(!blank(&mut o));
    assert_eq!(o, hex(LINUX_SYN));
}

#[test]
fn room() {
    let roomy: Vec<u8> = (0..=255).filter(|d| has_room(*d)).collect();
    assert_eq!(roomy, (5..=13).collect::<Vec<u8>>());
}

/// Applies an edit as the kernel would.
fn apply(e: &Edit, segment: &[u8]) -> Vec<u8> {
    let mut out = segment[..e.insert_at].to_vec();
    out.extend(e.bytes);
    out.extend(&segment[e.insert_at..]);
    out[12] = e.doff_byte();
    out
}

#[test]
fn the_edit() {
    let syn = tcp(0x02, &hex(LINUX_SYN), b"");
    let e = edit(&syn).unwrap();
    assert_eq!((e.insert_at, e.bytes), (40, OPTION));
    assert_eq!((e.old_word, e.new_word), (0xa002, 0xc002));
    let out = apply(&e, &syn);
    assert_eq!(out.len(), 48);
    assert_eq!(
        out[20..],
        hex(&format!("{LINUX_SYN} 0101 fe06 e2d4c3d9"))[..]
    );
    assert!(announces_smc(&out));
    assert_eq!(edit(&out), Err(Refusal::Present));
    // Data of fast open stays after the header.
    let syn = tcp(0x02, &[], b"GET /");
    let out = apply(&edit(&syn).unwrap(), &syn);
    assert_eq!((out[12], &out[28..]), (0x70, &b"GET /"[..]));
}

#[test]
fn who_signs_is_not_offered() {
    // As the in-tree module sends it: signed, no timestamps, and the option.
    let option = "fe06 e2d4c3d9";
    let signatures = ["1312 00..16", "1d10 00..14"];
    assert!(scan(&hex(option)).offers());
    for signature in signatures {
        let o = hex(&format!("020405b4 0101 0402 {signature} 0101 {option}"));
        assert!(scan(&o).smc.is_some() && !scan(&o).offers());
    }
    assert!(!scan(&hex(LINUX_SYN)).offers());
}

#[test]
fn no_edit() {
    let o = hex(LINUX_SYN);
    assert_eq!(edit(&tcp(0x10, &o, &[])), Err(Refusal::NotSyn));
    assert_eq!(edit(&tcp(0x06, &o, &[])), Err(Refusal::NotSyn));
    assert_eq!(
        edit(&tcp(2, &hex("1312 00..16 0101"), &[])),
        Err(Refusal::Signed)
    );
    assert_eq!(
        edit(&tcp(2, &hex("1d10 00..14"), &[])),
        Err(Refusal::Signed)
    );
    assert_eq!(edit(&tcp(2, &hex("01..36"), &[])), Err(Refusal::NoRoom));
    assert_eq!(edit(&tcp(2, &hex("01..40"), &[])), Err(Refusal::NoRoom));
    assert!(edit(&tcp(2, &hex("01..32"), &[])).is_ok());
    assert_eq!(
        edit(&tcp(2, &hex("0300 01..2"), &[])),
        Err(Refusal::Malformed)
    );
    // Not a header: too short, or a data offset that cannot be.
    let syn = tcp(2, &o, &[]);
    for n in 0..40 {
        assert_eq!(edit(&syn[..n]), Err(Refusal::Malformed), "{n}");
        assert!(!announces_smc(&syn[..n]));
    }
    let mut bad = syn.clone();
    bad[12] = 0x40;
    assert_eq!(edit(&bad), Err(Refusal::Malformed));
    assert_eq!(options(&bad), None);
    // Options ended early: NOPs and option after an end marker would not be
    // seen by anybody.
    assert_eq!(
        edit(&tcp(2, &hex("020405b4 00..4"), &[])),
        Err(Refusal::Ended)
    );
}

/// The sum that the checksum is the complement of.
fn sum(addrs: &[u8], segment: &[u8]) -> u16 {
    let mut bytes = addrs.to_vec();
    bytes.extend([0, 6]);
    bytes.extend((segment.len() as u16).to_be_bytes());
    bytes.extend(segment);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let mut sum: u32 = 0;
    for w in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([w[0], w[1]]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Zero and all ones are the same number in one's complement.
fn same(a: u16, b: u16) -> bool {
    a == b || (a ^ b == 0xffff && (a == 0 || b == 0))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn checksum_updates_are_right(
        addrs in any::<[u8; 8]>(),
        options in prop::collection::vec(Just([1u8; 4]), 0..=8),
        noise in any::<[u8; 12]>(),
        data in prop::collection::vec(any::<u8>(), 0..1400),
        syn_ack in any::<bool>(),
    ) {
        let mut seg = tcp(if syn_ack { 0x12 } else { 0x02 }, &options.concat(), &data);
        seg[..12].copy_from_slice(&noise);
        let old = !sum(&addrs, &seg);
        let e = edit(&seg).unwrap();
        let out = apply(&e, &seg);
        prop_assert!(same(e.checksum(old, seg.len() as u16), !sum(&addrs, &out)));

        let pseudo = |len: usize| {
            let mut b = addrs.to_vec();
            b.extend([0, 6]);
            b.extend((len as u16).to_be_bytes());
            b.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>()
        };
        let fold = |mut s: u32| {
            while s > 0xffff { s = (s & 0xffff) + (s >> 16); }
            s as u16
        };
        let got = e.partial_checksum(fold(pseudo(seg.len())), seg.len() as u16);
        prop_assert!(same(got, fold(pseudo(out.len()))));
    }

    #[test]
    fn arbitrary_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let s = scan(&bytes);
        if let Some(f) = s.smc {
            prop_assert_eq!(&bytes[f.offset + 2..f.offset + 6], &OPTION[4..]);
            prop_assert!(f.offset + f.len <= bytes.len());
        }
        let _ = announces_smc(&bytes);
        if let Ok(e) = edit(&bytes) {
            prop_assert!(announces_smc(&apply(&e, &bytes)));
        }
        let had = blank(&mut bytes);
        prop_assert_eq!(had, s.smc.is_some());
        prop_assert_eq!(find(&bytes), None);
    }

    /// The option is found wherever it stands among others.
    #[test]
    fn any_position(
        before in prop::collection::vec(prop::sample::select(vec![
            vec![1u8], vec![2, 4, 5, 0xb4], vec![4, 2], vec![3, 3, 7],
            vec![254, 4, 0xf9, 0x89], vec![30, 4, 0, 0],
        ]), 0..6),
        behind in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut o = before.concat();
        let at = o.len();
        o.extend(&OPTION[2..]);
        o.extend(behind);
        prop_assert_eq!(find(&o), Some(Found { offset: at, len: 6 }));
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let identity = vec![253, 12, b'r', b's', 0x18, 1, 2, 3, 4, 5, 6, 7];
    prop_oneof![
        Just(OPTION.to_vec()),
        Just(identity),
        Just(vec![1]),
        proptest::collection::vec(any::<u8>(), 1..6),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn the_short_way_finds_what_a_walk_does(
        pieces in proptest::collection::vec(piece(), 0..4),
        change in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut rest = pieces.concat();
        if let (Some((at, value)), false) = (change, rest.is_empty()) {
            let at = at.index(rest.len());
            rest[at] = value;
        }
        let usual = [2, 4, 5, 0xb4, 4, 2, 8, 10, 9, 9, 9, 9, 0, 0, 0, 0, 1, 3, 3, 7];
        // Options that do not count, and are not the usual ones.
        let others = [1; 20];
        prop_assert_eq!(
            scan(&[&usual[..], &rest].concat()),
            scan(&[&others[..], &rest].concat())
        );
    }
}
