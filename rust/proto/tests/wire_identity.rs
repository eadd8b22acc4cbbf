// SPDX-License-Identifier: GPL-2.0

//! The option by which two kernels with this module know each other.

use proptest::prelude::*;
use smc_proto::wire::{
    identity::{Identity, Numbers, Proof, LEN},
    tcp_option::{scan, OPTION},
};

const PROOF: Proof = Proof([1, 2, 3, 4, 5, 6, 7]);

#[test]
fn the_bytes() {
    let identity = Identity {
        proof: PROOF,
        answer: true,
        strict: false,
        joins: false,
        first: false,
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
        proof: PROOF,
        answer: false,
        strict: false,
        joins: false,
        first: true,
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
        proof: PROOF,
        answer: false,
        strict: false,
        joins: false,
        first: false,
    }
    .bytes();
    for (at, value) in [
        (0, 254),
        (1, 11),
        (2, b'x'),
        (3, b'x'),
        (4, 0x20),
        (4, 0x19),
        (4, 0x1a),
        (4, 0x1c),
    ] {
        let mut bytes = good;
        bytes[at] = value;
        assert_eq!(Identity::parse(&bytes), None, "byte {at} is {value:#x}");
    }
    assert_eq!(Identity::parse(&good[..11]), None);
}

proptest! {
    #[test]
    fn comes_back(proof: [u8; 7], answer: bool, strict: bool, joins: bool, first: bool) {
        let first = first && !(answer || strict || joins);
        let identity = Identity { proof: Proof(proof), answer, strict, joins, first };
        prop_assert_eq!(Identity::parse(&identity.bytes()), Some(identity));
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..41)) {
        let _ = Identity::parse(&bytes);
        let _ = scan(&bytes);
    }
}

#[test]
fn a_proof_is_siphash() {
    // Computed by another program, which has the result of SipHash's reference implementation for its key and message.
    let secret = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    let numbers = Numbers::SynAck(0x0b0a_0908, 0x0f0e_0d0c);
    let proof = Proof::of(secret, 0x0706_0504_0302_0100, numbers);
    assert_eq!(proof.0, [0xe7, 0x7f, 0x71, 0xc3, 0x60, 0x1f, 0xe4]);
}

fn bits(secret: u64, scope: u64, numbers: Numbers) -> u64 {
    let [a, b, c, d, e, f, g] = Proof::of([secret, !secret], scope, numbers).0;
    u64::from_le_bytes([a, b, c, d, e, f, g, 0])
}

#[test]
fn proofs_of_one_host_do_not_tell_of_each_other() {
    // The difference between two scopes, or two connections, is another one for each secret.
    let differ = |one: (u64, u32), other: (u64, u32)| {
        let of = |secret, (scope, number)| bits(secret, scope, Numbers::Syn(number));
        assert_ne!(of(1, one) ^ of(1, other), of(2, one) ^ of(2, other));
        assert_ne!(
            of(1, one).wrapping_sub(of(1, other)),
            of(2, one).wrapping_sub(of(2, other))
        );
    };
    for (one, other) in [(1, 2), (0, 1), (4096, 4097)] {
        differ((one, 7), (other, 7));
        differ((7, one as u32), (7, other as u32));
    }
}

#[test]
fn an_answer_is_no_syn() {
    // Not even where the server's number is 0.
    assert_ne!(
        bits(1, 2, Numbers::Syn(3)),
        bits(1, 2, Numbers::SynAck(3, 0))
    );
    assert_ne!(
        bits(1, 2, Numbers::SynAck(3, 4)),
        bits(1, 2, Numbers::SynAck(4, 3))
    );
}
