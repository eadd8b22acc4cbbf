// SPDX-License-Identifier: GPL-2.0
//! Judges requests to `RSMC_POLICY` by what its attributes are: a second reading of the same bytes, which
//! shares nothing with the module's.

/// What a request must come to. `Unknown` is what a later version of the family may give a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Bad,
    Unknown,
}

use Verdict::{Bad, Good, Unknown};

/// An attribute that was found: its number and contents.
type Found<'a> = (u16, &'a [u8]);

/// Top level attributes.
pub const RULE: u16 = 1;
pub const POSITION: u16 = 2;
pub const ID: u16 = 3;
pub const FACTS: u16 = 4;

/// The last attribute of rules in requests; three more are in answers alone.
pub const CONDITIONS: u16 = 10;
const OF_ANSWERS: u16 = 13;
/// Numbers up to which a later version may know more.
const LATER: u16 = 63;
/// Longest text.
const TEXT: usize = 255;

/// Splits bytes into attributes; `None` where a length leads outside.
pub fn split(mut bytes: &[u8]) -> Option<Vec<Found<'_>>> {
    let mut found = vec![];
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        found.push((kind, bytes.get(4..length)?));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

fn last<'a>(all: &[Found<'a>], kind: u16) -> Option<&'a [u8]> {
    all.iter().rev().find(|a| a.0 == kind).map(|a| a.1)
}

fn ports(bytes: &[u8]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    bytes.len() == 4 && half(0) <= half(2)
}

fn length_of_text(bytes: &[u8]) -> usize {
    bytes.split(|b| *b == 0).next().unwrap_or_default().len()
}

/// A rule.
pub fn rule(bytes: &[u8]) -> Verdict {
    let Some(all) = split(bytes) else {
        return Bad;
    };
    let mut unknown = false;
    for (kind, _) in &all {
        match *kind {
            1..=CONDITIONS => {}
            kind if kind > OF_ANSWERS && kind <= LATER => unknown = true,
            _ => return Bad,
        }
    }
    let share = last(&all, 2).is_some_and(|share| matches!(share, [0..=100]));
    let verdict = match last(&all, 1) {
        Some([0..=2]) => true,
        Some([3]) => share,
        _ => false,
    };
    let absent_or = |kind, good: fn(&[u8]) -> bool| last(&all, kind).is_none_or(good);
    let text = |bytes: &[u8]| (1..=TEXT).contains(&length_of_text(bytes));
    let good = verdict
        && (3..=5).all(|kind| absent_or(kind, text))
        && absent_or(6, |uid| uid.len() == 4)
        && absent_or(7, ports)
        && absent_or(8, |peer| peer.len() == 17 && peer[16] <= 128)
        && absent_or(9, ports)
        && absent_or(10, |mptcp| mptcp.len() == 1);
    match (good, unknown) {
        (false, false) => Bad,
        (_, true) => Unknown,
        (true, false) => Good,
    }
}

/// A request to add a rule.
pub fn add(bytes: &[u8]) -> Verdict {
    let Some(all) = split(bytes) else {
        return Bad;
    };
    match last(&all, POSITION) {
        Some(position) if position.len() != 4 => Bad,
        _ => last(&all, RULE).map_or(Bad, rule),
    }
}

/// A request to replace all rules; and how many there are then.
pub fn replace(bytes: &[u8]) -> (Verdict, usize) {
    let Some(all) = split(bytes) else {
        return (Bad, 0);
    };
    let verdicts: Vec<_> = all
        .iter()
        .filter(|a| a.0 == RULE)
        .map(|a| rule(a.1))
        .collect();
    let verdict = match (verdicts.contains(&Bad), verdicts.contains(&Unknown)) {
        (true, _) => Bad,
        (_, true) => Unknown,
        _ => Good,
    };
    (verdict, verdicts.len())
}

/// A request to remove one of these rules.
pub fn remove(bytes: &[u8], ids: &[u32]) -> Verdict {
    let id = split(bytes).and_then(|all| last(&all, ID)?.try_into().ok());
    match id.is_some_and(|id| ids.contains(&u32::from_ne_bytes(id))) {
        true => Good,
        false => Bad,
    }
}

/// A question about a socket.
pub fn test(bytes: &[u8]) -> Verdict {
    let facts = split(bytes).and_then(|all| split(last(&all, FACTS)?));
    let Some(all) = facts else {
        return Bad;
    };
    let absent_or = |kind, good: fn(&[u8]) -> bool| last(&all, kind).is_none_or(good);
    let peer = match last(&all, 8) {
        None => true,
        Some(peer) => peer.len() == 17 && peer[16] <= 128 && absent_or(9, ports),
    };
    let good = peer
        && (3..=5).all(|kind| absent_or(kind, |text| length_of_text(text) <= TEXT))
        && absent_or(6, |uid| uid.len() == 4)
        && absent_or(7, ports)
        && absent_or(10, |mptcp| mptcp.len() == 1);
    match good {
        true => Good,
        false => Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use st::netlink::attribute;

    fn of(all: &[(u16, &[u8])]) -> Vec<u8> {
        all.iter().flat_map(|a| attribute(a.0, a.1)).collect()
    }

    #[test]
    fn rules() {
        for good in [
            &[(1, &[0][..])][..],
            &[(1, &[9]), (1, &[1])],
            &[(1, &[3]), (2, &[100])],
            &[(1, &[1]), (2, &[200, 1])],
            &[(1, &[1]), (3, b"/a\0"), (7, &[1, 0, 1, 0]), (8, &[0; 17])],
        ] {
            assert_eq!(rule(&of(good)), Good, "{good:?}");
        }
        for bad in [
            &[][..],
            &[(1, &[4][..])],
            &[(1, &[3])],
            &[(1, &[3]), (2, &[101])],
            &[(1, &[1]), (3, b"\0")],
            &[(1, &[1]), (5, &[b'a'; 256])],
            &[(1, &[1]), (7, &[2, 0, 1, 0])],
            &[(1, &[1]), (8, &[129; 17])],
            &[(1, &[1]), (11, &[1])],
            &[(1, &[1]), (200, &[1])],
        ] {
            assert_eq!(rule(&of(bad)), Bad, "{bad:?}");
        }
        assert_eq!(rule(&of(&[(1, &[1]), (20, &[1])])), Unknown);
    }

    #[test]
    fn requests() {
        let allow = of(&[(1, &[1])]);
        assert_eq!(add(&of(&[(RULE, &allow), (POSITION, &[0; 4])])), Good);
        assert_eq!(add(&of(&[(RULE, &allow), (POSITION, &[0; 3])])), Bad);
        assert_eq!(add(&[9, 0, 1, 0, 1]), Bad);
        let two = of(&[(RULE, &allow), (9, &[1]), (RULE, &allow)]);
        assert_eq!(replace(&two), (Good, 2));
        assert_eq!(replace(&[]), (Good, 0));
        assert_eq!(remove(&of(&[(ID, &[7, 0, 0, 0])]), &[7]), Good);
        assert_eq!(remove(&of(&[(ID, &[7, 0, 0, 0])]), &[8]), Bad);
        assert_eq!(test(&of(&[(FACTS, &[])])), Good);
        assert_eq!(test(&of(&[(FACTS, &of(&[(9, &[1])]))])), Good);
        assert_eq!(test(&of(&[(FACTS, &of(&[(8, &[0; 17]), (9, &[1])]))])), Bad);
    }
}
