// SPDX-License-Identifier: GPL-2.0

//! The option by which two kernels with this module know each other.

use proptest::prelude::*;
use smc_proto::wire::{
    identity::{HostId, Identity, LEN},
    tcp_option::{scan, OPTION},
};

const HOST: HostId = HostId([1, 2, 3, 4, 5, 6, 7]);

#[test]
fn the_bytes() {
    let identity = Identity {
        host: HOST,
        answer: true,
        strict: false,
    };
    let bytes = [253, 12, b'r', b's', 0x11, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(identity.bytes(), bytes);
    assert_eq!(Identity::parse(&bytes), Some(identity));
    assert_eq!(bytes.len(), LEN);
}

#[test]
fn fills_the_header_together_with_the_usual_options() {
    // MSS, SACK permitted, time stamps, window scale: 20 bytes.
    let usual = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let mut options = usual.to_vec();
    options.extend(OPTION);
    let syn = Identity {
        host: HOST,
        answer: false,
        strict: true,
    };
    options.extend(syn.bytes());
    assert_eq!(options.len(), 40);
    let scan = scan(&options);
    assert_eq!(scan.identity, Some(syn));
    assert!(scan.offers());
}

#[test]
fn others_are_none() {
    let good = Identity {
        host: HOST,
        answer: false,
        strict: false,
    }
    .bytes();
    for (at, value) in [
        (0, 254),
        (1, 11),
        (2, b'x'),
        (3, b'x'),
        (4, 0x20),
        (4, 0x14),
    ] {
        let mut bytes = good;
        bytes[at] = value;
        assert_eq!(Identity::parse(&bytes), None, "byte {at} is {value:#x}");
    }
    assert_eq!(Identity::parse(&good[..11]), None);
}

proptest! {
    #[test]
    fn comes_back(host: [u8; 7], answer: bool, strict: bool) {
        let identity = Identity { host: HostId(host), answer, strict };
        prop_assert_eq!(Identity::parse(&identity.bytes()), Some(identity));
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..41)) {
        let _ = Identity::parse(&bytes);
        let _ = scan(&bytes);
    }
}

#[test]
fn a_scopes_number_is_siphash() {
    // The key and message of eight bytes of SipHash's reference implementation.
    let secret = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    let number = HostId::of(secret, 0x0706_0504_0302_0100);
    assert_eq!(number.0, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5]);
}

#[test]
fn numbers_of_one_host_do_not_tell_of_each_other() {
    let of = |secret: u64, scope| {
        let [a, b, c, d, e, f, g] = HostId::of([secret, !secret], scope).0;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    };
    // The difference between two scopes is another one for each secret.
    for (one, other) in [(1, 2), (0, 1), (4096, 4097)] {
        assert_ne!(of(1, one) ^ of(1, other), of(2, one) ^ of(2, other));
        assert_ne!(
            of(1, one).wrapping_sub(of(1, other)),
            of(2, one).wrapping_sub(of(2, other))
        );
    }
}
