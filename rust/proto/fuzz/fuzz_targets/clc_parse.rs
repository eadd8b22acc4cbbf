// SPDX-License-Identifier: GPL-2.0

//! Any bytes as any CLC message: no panic, and what is accepted is written and
//! read again as the same.
//!
//! The first byte says whether to repair what random bytes rarely get right
//! (eyecatchers, type, length), so that the parsers behind it are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::wire::clc::*;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    let mut bytes = data.to_vec();
    let len = bytes.len();
    if mode & 1 == 1 && len >= 12 {
        bytes[..4].copy_from_slice(&Eyecatcher::Smcr.bytes());
        bytes[4] = 1 + (mode >> 1) % 4;
        bytes[5..7].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[len - 4..].copy_from_slice(&Eyecatcher::Smcd.bytes());
    }
    let mut buf = [0; 700];
    if let Ok(m) = Proposal::parse(&bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert!(n <= proposal::MAX_LEN && n == m.wire_len());
        assert_eq!(Proposal::parse(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Agreement::parse_accept(&bytes) {
        let n = m.emit_accept(&mut buf).unwrap();
        assert!(n <= bytes.len());
        assert_eq!(Agreement::parse_accept(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Confirm::parse(&bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert_eq!(Confirm::parse(&buf[..n]), Ok(m));
    }
    if let Ok(m) = Decline::parse(&bytes) {
        let n = m.emit(&mut buf).unwrap();
        assert_eq!(n, bytes.len());
        assert_eq!(Decline::parse(&buf[..n]), Ok(m));
    }
});
