// SPDX-License-Identifier: GPL-2.0
//! A stream that tells of any piece of it where that belongs, and the pieces that were read.

use std::collections::{BTreeMap, HashMap};

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Words of a stream: no test gets that far.
const MOST: u64 = 1 << 40;

/// The inverse of [`ODD`] modulo 2^64, by Newton's method.
fn inverse() -> u64 {
    (0..6).fold(ODD, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(ODD.wrapping_mul(x)))
    })
}

/// A stream: its seed.
#[derive(Clone, Copy, Debug)]
pub struct Stream(pub u64);

impl Stream {
    fn word(self, number: u64) -> [u8; 8] {
        (number.wrapping_mul(ODD) ^ self.0).to_le_bytes()
    }

    /// The bytes at a position.
    pub fn bytes(self, position: u64, len: usize) -> Vec<u8> {
        let skip = (position % 8) as usize;
        let words = (position / 8..).take((skip + len).div_ceil(8));
        let all: Vec<u8> = words.flat_map(|n| self.word(n)).collect();
        all[skip..skip + len].to_vec()
    }

    /// Where a piece belongs; `None` if it has no whole word, an error if it belongs nowhere.
    pub fn place(self, piece: &[u8]) -> Result<Option<u64>, String> {
        let mut whole = false;
        for (at, word) in piece.windows(8).take(8).enumerate() {
            // A piece of less than fifteen bytes may not have a word, wherever it begins.
            whole = at == 7;
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let number = (word ^ self.0).wrapping_mul(inverse());
            let position = (number * 8).checked_sub(at as u64);
            match position {
                Some(p) if number < MOST && self.bytes(p, piece.len()) == piece => {
                    return Ok(Some(p));
                }
                _ => {}
            }
        }
        match whole {
            true => Err(format!(
                "{} bytes of no stream: {:02x?}",
                piece.len(),
                &piece[..16.min(piece.len())]
            )),
            false => Ok(None),
        }
    }
}

/// The pieces of a stream that were read: each byte once.
#[derive(Debug, Default)]
pub struct Cover {
    /// Beginning and end of what was read, in runs that do not touch.
    runs: BTreeMap<u64, u64>,
    /// Pieces too short to say where they belong, and how often each was read.
    short: HashMap<Vec<u8>, u64>,
    /// Bytes in all.
    pub bytes: u64,
    /// Pieces in all.
    pub pieces: u64,
}

impl Cover {
    /// Adds a piece. An error says which bytes came twice.
    pub fn add(&mut self, place: Option<u64>, piece: &[u8]) -> Result<(), String> {
        self.bytes += piece.len() as u64;
        self.pieces += 1;
        match place {
            Some(from) => self.run(from, from + piece.len() as u64),
            None => {
                *self.short.entry(piece.to_vec()).or_default() += 1;
                Ok(())
            }
        }
    }

    fn run(&mut self, mut from: u64, mut to: u64) -> Result<(), String> {
        let before = self.runs.range(..=from).next_back().map(|(a, b)| (*a, *b));
        let after = self.runs.range(from..).next().map(|(a, b)| (*a, *b));
        if before.is_some_and(|b| b.1 > from) || after.is_some_and(|a| a.0 < to) {
            return Err(format!(
                "bytes {from}..{to} came twice: {before:?} {after:?}"
            ));
        }
        if let Some(b) = before.filter(|b| b.1 == from) {
            self.runs.remove(&b.0);
            from = b.0;
        }
        if let Some(a) = after.filter(|a| a.0 == to) {
            self.runs.remove(&a.0);
            to = a.1;
        }
        self.runs.insert(from, to);
        Ok(())
    }

    /// Checks that it is all of the first `sent` bytes of `stream`: the short pieces fill the gaps.
    pub fn check_all(mut self, stream: Stream, sent: u64) -> Result<u64, String> {
        let short = self.short.values().sum::<u64>();
        if self.bytes != sent {
            return Err(format!("{} bytes came of {sent}", self.bytes));
        }
        let mut at = 0;
        let ends: Vec<(u64, u64)> = self.runs.iter().map(|r| (*r.0, *r.1)).collect();
        for (from, to) in ends.into_iter().chain([(sent, sent)]) {
            if from < at || from > sent {
                return Err(format!("bytes {from}..{to} of a stream of {sent}"));
            }
            if !self.fill(stream, at, from) {
                return Err(format!(
                    "bytes {at}..{from} of {sent} never came; {short} short pieces"
                ));
            }
            at = to;
        }
        self.short.retain(|_, left| *left > 0);
        match self.short.is_empty() {
            true => Ok(short),
            false => Err(format!("pieces that belong nowhere: {:02x?}", self.short)),
        }
    }

    /// Fills a gap with short pieces, the longest that fit first: what is longer is there seldom by chance.
    fn fill(&mut self, stream: Stream, from: u64, to: u64) -> bool {
        if from == to {
            return true;
        }
        for len in (1..=(to - from).min(14)).rev() {
            let piece = stream.bytes(from, len as usize);
            if self.short.get(&piece).is_none_or(|left| *left == 0) {
                continue;
            }
            self.short
                .entry(piece.clone())
                .and_modify(|left| *left -= 1);
            if self.fill(stream, from + len, to) {
                return true;
            }
            self.short.entry(piece).and_modify(|left| *left += 1);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_find_their_place() {
        let s = Stream(0x1234_5678_9abc_def0);
        for (at, len) in [(0, 8), (16, 9), (3, 15), (77, 400), (123_456_789, 64)] {
            assert_eq!(s.place(&s.bytes(at, len)), Ok(Some(at)));
        }
        assert_eq!(s.place(&s.bytes(3, 7)), Ok(None));
        assert!(s.place(&[7; 64]).is_err());
        let mut swapped = s.bytes(0, 32);
        swapped.swap(20, 21);
        assert!(s.place(&swapped).is_err());
    }

    #[test]
    fn every_byte_once() {
        let s = Stream(7);
        let mut c = Cover::default();
        for (at, len) in [(0u64, 20usize), (43, 57), (20, 20)] {
            let b = s.bytes(at, len);
            c.add(s.place(&b).unwrap(), &b).unwrap();
        }
        c.add(None, &s.bytes(40, 3)).unwrap();
        assert!(c.add(Some(50), &s.bytes(50, 20)).is_err());
        assert_eq!(c.check_all(s, 100), Ok(1));
        let mut c = Cover::default();
        c.add(Some(0), &s.bytes(0, 20)).unwrap();
        c.bytes = 21;
        assert!(c.check_all(s, 21).is_err());
    }
}
