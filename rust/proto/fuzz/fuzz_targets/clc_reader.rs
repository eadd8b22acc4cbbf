// SPDX-License-Identifier: GPL-2.0

//! Any stream in any segmentation through the reader, compared with the same
//! stream in one piece: same verdict, same message, and exactly the message's
//! bytes taken.
//!
//! Input: message type, buffer size, number of segment sizes, the sizes, stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::{
    error::ReadError,
    wire::clc::*, //
};

fuzz_target!(|data: &[u8]| {
    let [kind, cap, n, rest @ ..] = data else {
        return;
    };
    let Some((sizes, stream)) = rest.split_at_checked(usize::from(*n) % 16) else {
        return;
    };
    let expected = MsgType::from_code(1 + kind % 4).unwrap();
    let cap = usize::from(*cap) * 4;

    let mut whole = ClcReader::new(vec![0; cap], expected);
    let want = whole.feed(stream);

    let mut r = ClcReader::new(vec![0; cap], expected);
    let got = deliver(&mut r, stream, sizes);
    match (want, got) {
        (Ok(used), Ok(taken)) => assert_eq!(used, taken),
        // In pieces a foreign stream is recognized by its first foreign byte.
        (Err(a), Err(b)) => assert_eq!(a, b),
        other => panic!("{other:?}"),
    }
    match (whole.message(), r.message()) {
        (Some(a), Some(b)) => {
            assert_eq!(a.bytes(), b.bytes());
            let len = usize::from(a.header().length);
            assert_eq!(a.bytes(), &stream[..len.min(cap)]);
            assert_eq!(want, Ok(len));
            let _ = Message::decode(a);
        }
        (None, None) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(r.message().is_some(), r.is_complete());
    assert!(!r.is_complete() || r.wanted() == 0);
});

/// Delivers `stream` in place in pieces; the sizes repeat.
fn deliver(
    r: &mut ClcReader<Vec<u8>>,
    mut stream: &[u8],
    sizes: &[u8],
) -> Result<usize, ReadError> {
    let total = stream.len();
    let mut sizes = sizes.iter().cycle();
    if r.wanted() == 0 {
        r.advance(0)?;
    }
    while r.wanted() > 0 && !stream.is_empty() {
        let size = sizes.next().map_or(1, |s| usize::from(*s).max(1));
        let wanted = r.wanted();
        let space = r.space();
        assert!(!space.is_empty() && space.len() <= wanted);
        let n = size.min(space.len()).min(stream.len());
        space[..n].copy_from_slice(&stream[..n]);
        stream = &stream[n..];
        r.advance(n)?;
    }
    Ok(total - stream.len())
}
