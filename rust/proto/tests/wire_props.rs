// SPDX-License-Identifier: GPL-2.0

//! Properties of all codecs over all messages.

mod wire_common;

use proptest::prelude::*;
use smc_proto::wire::clc::*;
use wire_common::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn proposal_round_trip(m in proposal()) {
        let mut buf = [0xaa; 700];
        let n = m.emit(&mut buf).unwrap();
        prop_assert_eq!(n, m.wire_len());
        prop_assert!(n <= proposal::MAX_LEN);
        prop_assert_eq!(Proposal::parse(&buf[..n]), Ok(m));
    }

    #[test]
    fn accept_round_trip(m in agreement()) {
        let mut buf = [0xaa; 700];
        let n = m.emit_accept(&mut buf).unwrap();
        prop_assert!(n <= accept::MAX_LEN);
        prop_assert_eq!(Agreement::parse_accept(&buf[..n]), Ok(m));
    }

    #[test]
    fn confirm_round_trip(m in confirm()) {
        let mut buf = [0xaa; 700];
        let n = m.emit(&mut buf).unwrap();
        prop_assert!(n <= confirm::MAX_LEN);
        prop_assert_eq!(Confirm::parse(&buf[..n]), Ok(m));
    }

    #[test]
    fn decline_round_trip(m in decline()) {
        let mut buf = [0xaa; 700];
        let n = m.emit(&mut buf).unwrap();
        prop_assert_eq!(Decline::parse(&buf[..n]), Ok(m));
    }

    /// No prefix of a message and no message with a byte more is a message,
    /// whether or not the length field is adapted (version 2 accept and confirm
    /// may grow, which is tolerated).
    #[test]
    fn truncations_and_wrong_lengths((kind, bytes) in message()) {
        prop_assert!(parses(kind, &bytes));
        for n in 0..bytes.len() {
            prop_assert!(!parses(kind, &bytes[..n]));
        }
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(!parses(kind, &longer));
        for field in 0..=2000u16 {
            let mut bytes = bytes.clone();
            bytes[5..7].copy_from_slice(&field.to_be_bytes());
            prop_assert_eq!(parses(kind, &bytes), usize::from(field) == bytes.len());
        }
    }

    /// A message cut short whose length field says so, with a trailer where the
    /// message now ends: only the tolerant types may still take it, and only
    /// down to what they need.
    #[test]
    fn consistent_truncations((kind, bytes) in message()) {
        let v2 = bytes[7] >> 4 > 1;
        let base = if bytes[7] & 1 == 1 { 78 } else { 108 };
        for n in 12..bytes.len() {
            let mut cut = bytes[..n].to_vec();
            cut[5..7].copy_from_slice(&(n as u16).to_be_bytes());
            cut[n - 4..].copy_from_slice(&SMCR);
            let may = match kind {
                MsgType::Accept | MsgType::Confirm => v2 && n >= base,
                _ => false,
            };
            prop_assert!(may || !parses(kind, &cut), "{:?} {}", kind, n);
        }
    }

    /// A buffer that is too small is refused and nothing beyond it is touched.
    #[test]
    fn emit_needs_room(m in proposal(), c in confirm(), d in decline()) {
        let mut buf = [0; 700];
        for n in 0..m.wire_len() {
            prop_assert!(m.emit(&mut buf[..n]).is_err());
        }
        let n = c.emit(&mut buf).unwrap();
        for n in 0..n {
            prop_assert!(c.emit(&mut buf[..n]).is_err());
        }
        let n = d.emit(&mut buf).unwrap();
        for n in 0..n {
            prop_assert!(d.emit(&mut buf[..n]).is_err());
        }
    }

    /// Arbitrary bytes, with and without a plausible start: never a panic, and
    /// what is accepted can be written again and is then read as the same.
    #[test]
    fn arbitrary_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..800),
        kind in 1..=4u8,
        plausible in any::<bool>(),
    ) {
        let len = bytes.len();
        if plausible && len >= 12 {
            bytes[..4].copy_from_slice(&SMCR);
            bytes[4] = kind;
            bytes[5..7].copy_from_slice(&(len as u16).to_be_bytes());
            bytes[len - 4..].copy_from_slice(&SMCD);
        }
        check_any(&bytes);
    }

    /// Valid messages with a few bytes changed.
    #[test]
    fn mutated_messages(
        (_, mut bytes) in message(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        check_any(&bytes);
    }
}

/// Parses `bytes` as everything; what is accepted must survive a round trip.
fn check_any(bytes: &[u8]) {
    let mut buf = [0; 700];
    if let Ok(m) = Proposal::parse(bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert_eq!(Proposal::parse(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Agreement::parse_accept(bytes) {
        let n = m.emit_accept(&mut buf).unwrap();
        assert_eq!(Agreement::parse_accept(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Confirm::parse(bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert_eq!(Confirm::parse(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Decline::parse(bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert_eq!(Decline::parse(&buf[..n]), Ok(m));
    }
}
