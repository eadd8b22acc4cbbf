// SPDX-License-Identifier: GPL-2.0

//! The stream reader: one message, not one byte more, however it arrives.

mod wire_common;

use proptest::prelude::*;
use smc_proto::{
    error::{
        ParseError,
        ReadError, //
    },
    reason::Reason,
    wire::{
        clc::*,
        ids::PeerId, //
    },
};
use wire_common::*;

fn decline() -> Vec<u8> {
    let mut buf = [0; 44];
    let d = Decline::new(2, Reason::NoDevice, PeerId([7; 8]));
    let n = d.emit(&mut buf).unwrap();
    buf[..n].to_vec()
}

/// Delivers `stream` in pieces of the given sizes (the last one repeats) through
/// the copying interface. Returns what was left of the stream.
fn feed<'a>(
    reader: &mut ClcReader<Vec<u8>>,
    mut stream: &'a [u8],
    sizes: &[usize],
) -> Result<&'a [u8], ReadError> {
    let mut i = 0;
    while !reader.is_complete() && !stream.is_empty() {
        let size = sizes[i.min(sizes.len() - 1)].clamp(1, stream.len());
        let used = reader.feed(&stream[..size])?;
        // Short only if the message ended.
        assert!(used == size || reader.is_complete());
        stream = &stream[used..];
        i += 1;
    }
    Ok(stream)
}

/// The same through the interface that receives in place, as the kernel does.
fn receive<'a>(
    reader: &mut ClcReader<Vec<u8>>,
    mut stream: &'a [u8],
    sizes: &[usize],
) -> Result<&'a [u8], ReadError> {
    let mut i = 0;
    while !reader.is_complete() && !stream.is_empty() {
        let wanted = reader.wanted();
        let space = reader.space();
        assert!(!space.is_empty() && space.len() <= wanted);
        let n = sizes[i.min(sizes.len() - 1)]
            .clamp(1, stream.len())
            .min(space.len());
        space[..n].copy_from_slice(&stream[..n]);
        stream = &stream[n..];
        let complete = reader.advance(n)?;
        assert_eq!(complete, reader.is_complete());
        i += 1;
    }
    Ok(stream)
}

/// Every way to cut a decline and the data after it into three pieces.
#[test]
fn every_cut_of_a_decline() {
    let mut stream = decline();
    stream.extend(b"data of the program, which starts like one: \xe2\xd4\xc3\xd9");
    for a in 1..stream.len() {
        for b in 1..=stream.len() - a {
            for deliver in [feed, receive] {
                let mut r = ClcReader::new(vec![0; 652], MsgType::Accept);
                let rest = deliver(&mut r, &stream, &[a, b, usize::MAX]).unwrap();
                assert_eq!(rest, &stream[44..]);
                let raw = r.message().unwrap();
                assert!(raw.is_whole());
                match Message::decode(raw) {
                    Ok(Message::Decline(d)) => assert_eq!(d.reason, Reason::NoDevice),
                    other => panic!("{other:?}"),
                }
                // Nothing more is wanted, and nothing more is taken.
                assert_eq!((r.wanted(), r.space().len()), (0, 0));
                assert_eq!(r.feed(b"xyz"), Ok(0));
                assert_eq!(r.advance(1), Err(ReadError::Misuse));
            }
        }
    }
}

#[test]
fn asks_for_the_header_then_for_the_rest() {
    let bytes = decline();
    let mut r = ClcReader::new(vec![0; 652], MsgType::Proposal);
    assert_eq!((r.wanted(), r.space().len()), (8, 8));
    assert_eq!(r.feed(&bytes[..3]), Ok(3));
    assert_eq!((r.wanted(), r.space().len()), (5, 5));
    assert_eq!(r.header(), None);
    assert_eq!(r.feed(&bytes[3..8]), Ok(5));
    assert_eq!((r.wanted(), r.space().len()), (36, 36));
    assert_eq!(r.header().unwrap().kind, MsgType::Decline);
    assert!(r.message().is_none());
    assert_eq!(r.end_of_stream(), ReadError::Cut);
}

#[test]
fn zero_bytes_change_nothing() {
    let mut r = ClcReader::new(vec![0; 652], MsgType::Proposal);
    assert_eq!(r.advance(0), Ok(false));
    assert_eq!(r.feed(&[]), Ok(0));
    assert_eq!(r.wanted(), 8);
    assert_eq!(r.end_of_stream(), ReadError::Closed);
}

/// A foreign protocol is recognized by its first wrong byte, and what was taken
/// can still be handed on.
#[test]
fn foreign_bytes() {
    let mut r = ClcReader::new(vec![0; 652], MsgType::Accept);
    assert_eq!(r.feed(b"SSH-2.0-OpenSSH"), Err(ReadError::NotClc));
    assert_eq!(r.taken(), b"SSH-2.0-");
    assert_eq!(r.end_of_stream(), ReadError::NotClc);
    assert_eq!(r.wanted(), 0);
    assert_eq!(r.feed(b"x"), Err(ReadError::NotClc));

    let mut r = ClcReader::new(vec![0; 652], MsgType::Accept);
    assert_eq!(r.feed(&[0xe2]), Ok(1));
    assert_eq!(r.feed(b"\n"), Err(ReadError::NotClc));
    assert_eq!(r.taken(), [0xe2, b'\n']);
}

#[test]
fn refused_by_the_header() {
    let try_head = |text: &str, expected| {
        let mut r = ClcReader::new(vec![0; 652], expected);
        r.feed(&hex(text)).unwrap_err()
    };
    use MsgType::*;
    // Another type than the awaited one, in both directions.
    assert_eq!(
        try_head("e2d4c3d9 02 0044 18", Proposal),
        ReadError::Unexpected(2)
    );
    assert_eq!(
        try_head("e2d4c3d9 01 009c 22", Decline),
        ReadError::Unexpected(1)
    );
    // Impossible types, versions and lengths.
    let malformed = |text, expected, e| {
        assert_eq!(try_head(text, expected), ReadError::Malformed(e));
    };
    malformed("e2d4c3d9 05 0044 18", Accept, ParseError::Type(5));
    malformed("e2d4c3d9 02 0044 08", Accept, ParseError::Version(0));
    malformed("e2d4c3d9 04 0000 10", Accept, ParseError::Length(0));
    malformed("e2d4c3d9 04 0007 10", Accept, ParseError::Length(7));
    malformed("e2d4c3d9 04 ffff 20", Accept, ParseError::Length(65535));
    malformed("e2d4c3d9 02 0043 18", Accept, ParseError::Length(67));
    malformed("e2d4c3d9 02 006b 28", Accept, ParseError::Length(107));
    malformed("e2d4c3d9 01 028d 22", Proposal, ParseError::Length(653));
    malformed("e2d4c3d9 01 0033 22", Proposal, ParseError::Length(51));
}

/// A confirm longer than the buffer is taken completely and still decoded.
#[test]
fn drains_what_it_cannot_keep() {
    let mut stream = hex(
        "e2d4c3d9 03 03e8 28 00..56 00..32 00..8 80 21 0000 20..32 ff 02 0001 00..12 \
         32 000000",
    );
    stream.resize(996, 0x11);
    stream.extend(SMCR);
    stream.extend(b"next");
    for cap in [108 - 4 + 52, 160, 200, 652, 999, 1000, 2000] {
        for size in [1, 7, 64, 100, 5000] {
            for deliver in [feed, receive] {
                let mut r = ClcReader::new(vec![0; cap], MsgType::Confirm);
                assert_eq!(deliver(&mut r, &stream, &[size]), Ok(&b"next"[..]));
                let raw = r.message().unwrap();
                assert_eq!(raw.bytes(), &stream[..cap.min(1000)]);
                assert_eq!(raw.is_whole(), cap >= 1000);
                match Message::decode(raw) {
                    Ok(Message::Confirm(c)) => {
                        assert_eq!(c.agreement.fce.unwrap().limits.unwrap().max_conns, 255);
                        assert!(c.gids.iter().all(|g| g.0 == [0x11; 16]));
                    }
                    other => panic!("{cap}: {other:?}"),
                }
            }
        }
    }
    // Nothing sensible in it: an error, but no byte of the next message taken.
    let mut r = ClcReader::new(vec![0; 64], MsgType::Confirm);
    assert_eq!(feed(&mut r, &stream, &[10]), Ok(&b"next"[..]));
    assert!(Message::decode(r.message().unwrap()).is_err());
}

#[test]
fn tiny_buffers() {
    for cap in 0..8 {
        let mut r = ClcReader::new(vec![0; cap], MsgType::Accept);
        assert_eq!(r.wanted(), 0);
        assert_eq!(r.feed(&decline()), Err(ReadError::Misuse));
    }
    let mut r = ClcReader::new(vec![0; 8], MsgType::Accept);
    assert_eq!(r.feed(&decline()), Ok(44));
    assert!(Message::decode(r.message().unwrap()).is_err());
}

#[test]
fn more_than_asked_for_is_misuse() {
    let mut r = ClcReader::new([0; 652], MsgType::Accept);
    assert_eq!(r.advance(9), Err(ReadError::Misuse));
    assert_eq!(r.advance(0), Err(ReadError::Misuse));
    assert!(r.message().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Any message, any segmentation, any buffer, either interface: the reader
    /// takes the message and leaves everything after it.
    #[test]
    fn any_segmentation(
        (kind, bytes) in message(),
        behind in proptest::collection::vec(any::<u8>(), 0..100),
        sizes in proptest::collection::vec(1..100usize, 1..20),
        cap in 8..800usize,
        in_place in any::<bool>(),
    ) {
        let mut stream = bytes.clone();
        stream.extend(&behind);
        let mut r = ClcReader::new(vec![0; cap], kind);
        let deliver = if in_place { receive } else { feed };
        let rest = deliver(&mut r, &stream, &sizes).unwrap();
        prop_assert_eq!(rest, &behind[..]);
        let raw = r.message().unwrap();
        prop_assert_eq!(raw.bytes(), &bytes[..cap.min(bytes.len())]);
        let decoded = Message::decode(raw).is_ok();
        prop_assert!(decoded || !raw.is_whole());
    }

    /// Any bytes at all: never a panic, never more taken than wanted.
    #[test]
    fn any_stream(
        mut stream in proptest::collection::vec(any::<u8>(), 0..300),
        head in any::<bool>(),
        kind in 1..=4u8,
        cap in 0..100usize,
        sizes in proptest::collection::vec(1..50usize, 1..10),
    ) {
        if head && stream.len() > 4 {
            stream[..4].copy_from_slice(&SMCD);
            stream[4] = kind;
        }
        let mut r = ClcReader::new(vec![0; cap], MsgType::from_code(kind).unwrap());
        if let Ok(rest) = feed(&mut r, &stream, &sizes) {
            if let Some(raw) = r.message() {
                let len = usize::from(raw.header().length);
                prop_assert_eq!(rest.len(), stream.len() - len);
                let _ = Message::decode(raw);
            }
        }
    }
}
