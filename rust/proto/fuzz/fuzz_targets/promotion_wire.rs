// SPDX-License-Identifier: GPL-2.0

//! Any bytes as the message of a side connection, and as marks at the beginning of a ring, against a second
//! reading of both.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::wire::promotion::*;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn join(bytes: &[u8]) -> Option<Join> {
    (&bytes[..8] == b"RSMCJOIN" && bytes[8] == 1).then(|| Join {
        client: word(bytes, 12),
        server: word(bytes, 16),
    })
}

fn mark(bytes: &[u8]) -> Option<Mark> {
    match (&bytes[..3], bytes[3], word(bytes, 4)) {
        (b"RSP", 1, 0) => Some(Mark::Ready),
        (b"RSP", 2, 0) => Some(Mark::Go),
        (b"RSP", 3, position) => Some(Mark::Cut(position)),
        (b"RSP", 4, 0) => Some(Mark::Stays),
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<JOIN_LEN>() {
        let read = Join::parse(bytes);
        assert_eq!(read, join(bytes));
        if let Some(read) = read {
            // What is reserved may have any value, and is said as zero.
            let mut said = *bytes;
            said[9..12].fill(0);
            said[20..].fill(0);
            assert_eq!(read.bytes(), said);
        }
    }
    for bytes in data.chunks_exact(MARK_LEN) {
        let bytes: [u8; MARK_LEN] = bytes.try_into().expect("eight");
        let read = Mark::parse(bytes);
        assert_eq!(read, mark(&bytes));
        assert!(read.is_none_or(|read| read.bytes() == bytes));
    }
});
