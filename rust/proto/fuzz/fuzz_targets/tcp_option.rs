// SPDX-License-Identifier: GPL-2.0

//! Any bytes as a TCP header, and the walk over its options against a second,
//! index-based one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::wire::tcp_option::*;

/// The first valid SMC option, found the old-fashioned way.
fn model(o: &[u8]) -> Option<Found> {
    let mut i = 0;
    while i < o.len() {
        match o[i] {
            0 => return None,
            1 => i += 1,
            kind => {
                if i + 1 >= o.len() {
                    return None;
                }
                let len = usize::from(o[i + 1]);
                if len < 2 || i + len > o.len() {
                    return None;
                }
                let content = &o[i + 2..i + len];
                if kind == 254 && len % 2 == 0 && content.starts_with(&OPTION[4..]) {
                    return Some(Found { offset: i, len });
                }
                i += len;
            }
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    assert_eq!(find(data), model(data));
    let announced = announces_smc(data);
    assert!(!announced || options(data).and_then(model).is_some());

    match edit(data) {
        Ok(e) => {
            assert!(!announced && e.insert_at >= 20 && e.insert_at <= 52);
            let mut out = data[..e.insert_at].to_vec();
            out.extend(e.bytes);
            out.extend(&data[e.insert_at..]);
            out[12] = e.doff_byte();
            assert!(announces_smc(&out));
            assert_eq!(edit(&out), Err(Refusal::Present));
            let _ = e.checksum(0x1234, data.len() as u16);
        }
        Err(Refusal::Present) => assert!(announced),
        Err(_) => {}
    }

    let mut blanked = data.to_vec();
    assert_eq!(blank(&mut blanked), model(data).is_some());
    assert_eq!(model(&blanked), None);
    assert_eq!(blanked.len(), data.len());
});
