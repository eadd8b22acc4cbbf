// SPDX-License-Identifier: GPL-2.0

//! Any decisions, writes, ends and losses at both ends of a connection that is promoted, or at one while the other
//! says any marks and bytes: each byte comes once and in its order, no end turns before the other has agreed, and a
//! correct peer never breaks a rule.
//!
//! Nine bytes: the positions at which the two streams of TCP begin, and who is hostile. Then three for each operation.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::promotion::Side;

#[path = "../../sim/mod.rs"]
mod sim;

use sim::promotion::Ends;

fuzz_target!(|data: &[u8]| {
    let Some((head, ops)) = data.split_first_chunk::<9>() else {
        return;
    };
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
    let hostile = match head[8] % 4 {
        0 => Some(Side::Client),
        1 => Some(Side::Server),
        _ => None,
    };
    let mut ends = Ends::new(word(0), word(4), hostile);
    for raw in ops.chunks_exact(3) {
        ends.raw([raw[0], raw[1], raw[2]]);
    }
    ends.finish();
});
