// SPDX-License-Identifier: GPL-2.0

//! The receiver's rules: what is refused, and what is tolerated.

mod wire_common;

use smc_proto::{
    error::ParseError,
    wire::clc::{
        fce::Limits, //
        *,
    },
};
use wire_common::*;

const P_V2: &str = "e2d4c3d9 01 007c 22 00..8 00..16 00..6 0000 \
    00..8 0000 001c 00..8 00..20 00 00 00 10 0000 0000 00..16 ff 02 0001 00..12 e2d4c3d9";
const P_V1: &str = "e2d4c3d9 01 005c 10 00..8 00..16 00..6 0028 \
    00..8 0000 0000 00..8 00..20 0a000000 18 0000 00 e2d4c3d9";
const P_DV2: &str = "e2d4c3d9 01 00ac 26 00..8 00..16 00..6 0000 \
    00..8 0000 001c 00..8 00..20 00 00 00 10 0000 0020 00..16 ff 02 0001 00..12 \
    00..32 00..16 e2d4c3d9";

/// Parses `text` with single bytes replaced.
fn parse(text: &str, patches: &[(usize, &str)]) -> Result<Proposal, ParseError> {
    let mut bytes = hex(text);
    for (at, patch) in patches {
        let patch = hex(patch);
        bytes[*at..*at + patch.len()].copy_from_slice(&patch);
    }
    Proposal::parse(&bytes)
}

#[test]
fn proposals_as_they_should_be() {
    assert!(parse(P_V2, &[]).is_ok());
    assert!(parse(P_V1, &[]).is_ok());
    assert!(parse(P_DV2, &[]).is_ok());
}

#[test]
fn proposal_refused() {
    use ParseError::*;
    // Eyecatcher, type, version, trailer.
    assert_eq!(parse(P_V2, &[(3, "c5")]), Err(Eyecatcher));
    assert_eq!(parse(P_V2, &[(4, "02")]), Err(Type(2)));
    assert_eq!(parse(P_V2, &[(4, "00")]), Err(Type(0)));
    assert_eq!(parse(P_V2, &[(7, "02")]), Err(Version(0)));
    assert_eq!(parse(P_V2, &[(120, "00")]), Err(Trailer));
    // Offsets.
    assert_eq!(parse(P_V2, &[(38, "0029")]), Err(Offset(41)));
    assert_eq!(parse(P_V2, &[(38, "ffff")]), Err(Offset(65535)));
    assert_eq!(parse(P_V2, &[(50, "0000")]), Err(Offset(0)));
    assert_eq!(parse(P_V2, &[(50, "00ad")]), Err(Offset(173)));
    assert_eq!(parse(P_V2, &[(50, "001d")]), Err(Truncated));
    assert_eq!(parse(P_DV2, &[(86, "0000")]), Err(Offset(0)));
    assert_eq!(parse(P_DV2, &[(86, "0121")]), Err(Offset(289)));
    assert_eq!(parse(P_DV2, &[(86, "0021")]), Err(Truncated));
    // SMC-D version 1 needs its area in place.
    assert_eq!(parse(P_V1, &[(7, "11"), (38, "0027")]), Err(Offset(39)));
    // Version 1 that offers nothing.
    assert_eq!(parse(P_V1, &[(7, "12")]), Err(Path(2)));
    // Counts that the message has no room for, or that are beyond all limits.
    assert_eq!(parse(P_V1, &[(87, "01")]), Err(Truncated));
    assert_eq!(parse(P_V2, &[(80, "01")]), Err(Truncated));
    assert_eq!(parse(P_DV2, &[(81, "01")]), Err(Truncated));
    // Parts that the length does not account for.
    assert_eq!(parse(P_V2, &[(7, "20")]), Err(Length(124)));
    assert_eq!(parse(P_V2, &[(7, "2a")]), Err(Length(124)));
    assert_eq!(parse(P_DV2, &[(7, "22")]), Err(Length(172)));
    assert_eq!(parse(P_V1, &[(38, "0020")]), Err(Length(92)));
}

/// Nine of anything is too much even where the message has room for them.
#[test]
fn proposal_counts() {
    let v6 = format!("0a000000 18 0000 09 {} ", "00..17 ".repeat(9));
    let text = format!(
        "e2d4c3d9 01 00f5 10 00..8 00..16 00..6 0028 00..8 0000 0000 00..8 00..20 {v6} e2d4c3d9"
    );
    assert_eq!(Proposal::parse(&hex(&text)), Err(ParseError::Count(9)));
    let text = format!(
        "e2d4c3d9 01 019c 22 00..8 00..16 00..6 0000 00..8 0000 001c 00..8 00..20 \
         09 00 00 10 0000 0000 00..16 ff 02 0001 00..12 {} e2d4c3d9",
        "41..32 ".repeat(9)
    );
    assert_eq!(Proposal::parse(&hex(&text)), Err(ParseError::Count(9)));
    let text = format!(
        "{} {} e2d4c3d9",
        P_DV2
            .replace("01 00ac 26", "01 0106 26")
            .replace("00 00 00 10 0000 0020", "00 09 00 10 0000 0020")
            .trim_end_matches("e2d4c3d9"),
        "00..10 ".repeat(9)
    );
    assert_eq!(Proposal::parse(&hex(&text)), Err(ParseError::Count(9)));
}

#[test]
fn proposal_tolerated() {
    // Reserved bytes, unknown flags and features, later releases and versions.
    for (at, patch) in [
        (60, "ff..20"),
        (82, "ff"),
        (83, "fe"),
        (84, "ffff"),
        (106, "fffe"),
    ] {
        assert!(parse(P_V2, &[(at, patch)]).is_ok(), "{at}");
    }
    let p = parse(P_V2, &[(7, "f2")]).unwrap();
    assert_eq!((p.version, p.path_v2), (15, Path::R));
    assert_eq!(parse(P_V2, &[(83, "f0")]).unwrap().v2_ext.release, 15);
    // Either eyecatcher at either end.
    assert!(parse(P_V2, &[(3, "c4")]).is_ok());
    assert!(parse(P_V2, &[(123, "c4")]).is_ok());
    // Offering nothing at all in version 2 is for the server to decline.
    let text = "e2d4c3d9 01 0054 2a 00..8 00..16 00..6 0000 00..40 e2d4c3d9";
    let p = Proposal::parse(&hex(text)).unwrap();
    assert!(p.prefixes().is_none() && p.v2().is_none() && p.ism_v2().is_none());
    // The version 2 offset means nothing in version 1.
    assert!(parse(P_V1, &[(50, "ffff")]).is_ok());
    // Without version 1 paths nobody looks for prefixes (C does).
    assert!(parse(P_V2, &[(47, "ff")]).is_ok());
}

#[test]
fn a_failed_parse_leaves_nothing_behind() {
    let mut p = parse(P_V2, &[]).unwrap();
    assert!(p.parse_into(&hex(P_V2)[..50]).is_err());
    assert_eq!(p, Proposal::EMPTY);
    // Also if the error comes late.
    let late = P_V2.replace("22 00..8 00..16 00..6", "20 11..8 22..16 33..6");
    assert_eq!(p.parse_into(&hex(&late)), Err(ParseError::Length(124)));
    assert_eq!(p, Proposal::EMPTY);
}

const R_V2: &str = "00..64 00..32 00..8"; // after the header, one too long by 8

fn accept_r(length: &str, bits: &str, tail: &str) -> Result<Agreement, ParseError> {
    let body = R_V2.replace("00..64", "00..56");
    let text = format!("e2d4c3d9 02 {length} {bits} {body} {tail} e2d4c3d9");
    Agreement::parse_accept(&hex(&text))
}

#[test]
fn accept_rules() {
    assert!(accept_r("006c", "20", "").is_ok());
    // Unknown bytes after what is known.
    assert!(accept_r("0074", "20", "ff..8").is_ok());
    // First contact needs its extension, release 1 needs the long form.
    assert_eq!(accept_r("006c", "28", ""), Err(ParseError::Truncated));
    assert_eq!(
        accept_r("0090", "28", "00 21 0000 20..32"),
        Err(ParseError::Truncated)
    );
    assert!(accept_r("0090", "28", "00 20 0000 20..32").is_ok());
    let a = accept_r("00a0", "28", "00 20 0000 20..32 00..16").unwrap();
    assert_eq!(a.fce.unwrap().limits, Some(Limits::default()));
    // Only a confirm has a GID list that could follow the short form.
    let a = accept_r("00a4", "28", "00 20 0000 20..32 01 00..19").unwrap();
    assert_eq!(a.fce.unwrap().limits, Some(Limits::default()));
    // The other path bits mean nothing here but must be R or D.
    assert!(accept_r("006c", "24", "").is_ok());
    assert_eq!(accept_r("006c", "22", ""), Err(ParseError::Path(2)));
    assert_eq!(accept_r("006c", "23", ""), Err(ParseError::Path(3)));
    // Version 1 has one length only, version 2 a lower limit.
    assert_eq!(accept_r("006c", "10", ""), Err(ParseError::Length(108)));
    let v1 = |len: &str, bits: &str, body: &str| {
        let text = format!("e2d4c3d9 02 {len} {bits} {body} e2d4c3d9");
        Agreement::parse_accept(&hex(&text))
    };
    assert!(v1("0044", "10", "00..56").is_ok());
    assert_eq!(v1("0043", "10", "00..55"), Err(ParseError::Length(67)));
    assert_eq!(v1("0045", "10", "00..57"), Err(ParseError::Length(69)));
    assert_eq!(v1("006b", "20", "00..95"), Err(ParseError::Length(107)));
    assert!(v1("0030", "11", "00..36").is_ok());
    assert_eq!(v1("0031", "11", "00..37"), Err(ParseError::Length(49)));
    assert_eq!(v1("004d", "21", "00..65"), Err(ParseError::Length(77)));
    assert!(v1("004e", "21", "00..66").is_ok());
}

#[test]
fn confirm_gid_list() {
    let confirm = |len: &str, tail: &str| {
        let text = format!(
            "e2d4c3d9 03 {len} 28 00..56 00..32 00..8 00 21 0000 20..32 ff 02 0001 00..12 {tail} e2d4c3d9"
        );
        Confirm::parse(&hex(&text))
    };
    // No list, an empty one, more than are kept.
    assert!(confirm("00a0", "").unwrap().gids.is_empty());
    assert!(confirm("00a4", "00 000000").unwrap().gids.is_empty());
    let many = format!("09 000000 {}", "11..16 ".repeat(9));
    assert_eq!(confirm("0134", &many).unwrap().gids.len(), 8);
    // Bytes after it.
    assert!(confirm("00ac", "00 000000 ff..8").is_ok());
    // Longer than the message.
    assert_eq!(
        confirm("00b3", "01 000000 11..15"),
        Err(ParseError::Truncated)
    );
    assert_eq!(confirm("00a1", "00"), Err(ParseError::Truncated));
}

#[test]
fn decline_rules() {
    let decline = |len: &str, bits: &str, tail: &str| {
        Decline::parse(&hex(&format!("e2d4c3d9 04 {len} {bits} 00..16 {tail}")))
    };
    // The trailer is not looked at.
    assert!(decline("001c", "10", "00000000").is_ok());
    assert!(decline("002c", "20", "00..16 12345678").is_ok());
    assert!(decline("002c", "f0", "00..16 00000000").is_ok());
    // One length per version.
    assert_eq!(decline("001c", "20", "00..4"), Err(ParseError::Length(28)));
    assert_eq!(decline("002c", "10", "00..20"), Err(ParseError::Length(44)));
    assert_eq!(decline("0018", "10", ""), Err(ParseError::Length(24)));
    assert_eq!(decline("002d", "20", "00..21"), Err(ParseError::Length(45)));
    assert_eq!(decline("001c", "00", "00..4"), Err(ParseError::Version(0)));
}

#[test]
fn header_tells_how_to_read() {
    let h = Header::parse(&hex("e2d4c3d9 03 0400 28").try_into().unwrap()).unwrap();
    assert!(h.flag() && h.is_v2() && h.check_length().is_ok());
    let plan = h.plan(652);
    assert_eq!((plan.keep, plan.drain), (644, 372));
    let plan = h.plan(2000);
    assert_eq!((plan.keep, plan.drain), (1016, 0));
    let plan = h.plan(0);
    assert_eq!((plan.keep, plan.drain), (0, 1016));
    assert_eq!(h.flags_byte(), 0x28);
}

/// Content that cannot be expressed is not written.
#[test]
fn emit_refuses_nonsense() {
    let mut buf = [0; 700];
    let ok = Proposal::EMPTY;
    assert!(ok.emit(&mut buf).is_ok());
    for bad in [
        Proposal { version: 0, ..ok },
        Proposal { version: 16, ..ok },
        Proposal { version: 1, ..ok },
        Proposal {
            version: 1,
            path_v1: Path::R,
            path_v2: Path::R,
            ..ok
        },
        Proposal {
            has_area: false,
            ..ok
        },
        Proposal {
            version: 1,
            path_v1: Path::D,
            has_area: false,
            ..ok
        },
    ] {
        assert!(bad.emit(&mut buf).is_err(), "{bad:?}");
    }
    let mut p = Proposal {
        path_v2: Path::R,
        ..ok
    };
    p.v2_ext.release = 16;
    assert!(p.emit(&mut buf).is_err());

    let end = End::D(IsmEnd {
        chid: smc_proto::wire::ids::Chid(1),
        ..IsmEnd::default()
    });
    let a = Agreement {
        version: 1,
        first_contact: false,
        end,
        eid: Eid::NONE,
        fce: None,
    };
    // Version 1 has no channel id and no EID, version 2 needs the extension.
    assert!(a.emit_accept(&mut buf).is_err());
    let end = End::D(IsmEnd::default());
    let eid = Eid([1; 32]);
    assert!(Agreement { end, eid, ..a }.emit_accept(&mut buf).is_err());
    let a = Agreement {
        end,
        version: 2,
        first_contact: true,
        ..a
    };
    assert!(a.emit_accept(&mut buf).is_err());
}
