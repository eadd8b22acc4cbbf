// SPDX-License-Identifier: GPL-2.0

//! Any programs on both ends of a connection, in the pair simulator, which checks every byte.
//!
//! Eight bytes of shape and seed, then three bytes per operation.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../sim/mod.rs"]
mod sim;

use sim::pair::{Op, Pair, Shape};

fuzz_target!(|data: &[u8]| {
    let Some((shape, ops)) = data.split_first_chunk::<8>() else {
        return;
    };
    let mut pair = Pair::new(&Shape {
        seed: u64::from(u16::from_be_bytes([shape[0], shape[1]])),
        rings: [shape[2], shape[3], shape[4], shape[5]],
        slots: usize::from(shape[6] % 20),
        autocork: u32::from(shape[7]) * 64,
    });
    for op in ops.chunks_exact(3) {
        let side = usize::from(op[0] >> 7);
        let arg = u16::from_be_bytes([op[1], op[2]]);
        pair.op(side, Op::from_raw(op[0], arg));
    }
    pair.finish();
});
