// SPDX-License-Identifier: GPL-2.0

//! Takes a crossing decline out of the user's data.
//!
//! If both sides decline at the same moment, each has fallen back before the other's decline
//! arrives, and its first received bytes are that decline, not the program's data (the class of
//! CVE-2023-52775). After such an end ([`Outcome::Fallback`](super::Outcome) with `strip`) the
//! caller shows the first bytes of the TCP stream to [`judge`] before the program may read.

use crate::wire::clc::Decline;

/// Verdicts on the first bytes of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The program's data, from the first byte on.
    Data,
    /// So far they could be the start of a decline: look again when more has come. If the stream
    /// ends here, they are data.
    NeedMore,
    /// A decline of this many bytes: discard them, the rest is data.
    Decline(usize),
}

/// Eyecatcher, type and the two possible lengths of a decline.
const STARTS: [[u8; 7]; 4] = [
    [0xe2, 0xd4, 0xc3, 0xd9, 4, 0, 44],
    [0xe2, 0xd4, 0xc3, 0xd9, 4, 0, 28],
    [0xe2, 0xd4, 0xc3, 0xc4, 4, 0, 44],
    [0xe2, 0xd4, 0xc3, 0xc4, 4, 0, 28],
];

/// Judges the first bytes of the stream; 44 always suffice.
#[must_use]
pub fn judge(first: &[u8]) -> Verdict {
    let head = first.get(..7).unwrap_or(first);
    let Some(start) = STARTS.iter().find(|s| s.starts_with(head)) else {
        return Verdict::Data;
    };
    if head.len() < start.len() {
        return Verdict::NeedMore;
    }
    let [.., len] = *start;
    let len = usize::from(len);
    match first.get(..len) {
        None => Verdict::NeedMore,
        Some(message) if Decline::parse(message).is_ok() => Verdict::Decline(len),
        Some(_) => Verdict::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::wire::ids::PeerId;

    #[test]
    fn declines_are_found_at_any_segmentation() {
        for version in [1, 2] {
            let mut b = [0x55u8; 64];
            let d = Decline::new(version, Reason::ConfirmLinkTimeout, PeerId([3; 8]));
            let n = d.emit(&mut b).unwrap();
            for i in 0..n {
                assert_eq!(judge(&b[..i]), Verdict::NeedMore, "{version} {i}");
            }
            for i in n..64 {
                assert_eq!(judge(&b[..i]), Verdict::Decline(n));
            }
        }
    }

    #[test]
    fn data_is_data() {
        assert_eq!(judge(b"GET / HTTP/1.1\r\n"), Verdict::Data);
        assert_eq!(judge(&[0xe2, 0xd4, 0xc3, 0xd9, 1]), Verdict::Data);
        assert_eq!(judge(&[0xe2, 0xd4, 0xc4]), Verdict::Data);
        assert_eq!(judge(&[0xe2, 0xd4, 0xc3, 0xd9, 4, 0, 29]), Verdict::Data);
    }
}
