// SPDX-License-Identifier: GPL-2.0

//! Enterprise ids: two hosts with a common one may use SMC version 2.

use crate::wire::bytes::Reader;
use core::fmt;

/// An EID, 32 bytes, padded with blanks at the end. ASCII on Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Eid(pub [u8; Eid::LEN]);

impl Eid {
    /// Length in bytes.
    pub const LEN: usize = 32;
    /// No EID: all zero.
    pub const NONE: Eid = Eid([0; Eid::LEN]);

    /// Pads `text` with blanks. Nothing if it is too long or no valid user EID.
    pub fn from_text(text: &[u8]) -> Option<Eid> {
        let mut eid = [b' '; Eid::LEN];
        eid.get_mut(..text.len())?.copy_from_slice(text);
        Some(Eid(eid)).filter(Eid::is_valid_user)
    }

    /// C's rule for user EIDs: upper case letters, digits, `.` and `-`, the
    /// first one a letter or digit, white space at the end only.
    pub fn is_valid_user(&self) -> bool {
        let text = self.text();
        match text.first() {
            None | Some(b'.' | b'-') => false,
            Some(_) => text
                .iter()
                .all(|c| matches!(c, b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-')),
        }
    }

    /// Reports whether this is an EID at all, not [`Eid::NONE`].
    #[inline]
    pub fn is_some(&self) -> bool {
        !matches!(self.0, [0, ..])
    }

    /// The EID without the white space that pads it.
    pub fn text(&self) -> &[u8] {
        let mut text: &[u8] = &self.0;
        while let [head @ .., b' ' | 9..=13] = text {
            text = head;
        }
        text
    }

    /// Reads an EID.
    #[inline]
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Eid, crate::error::ParseError> {
        Ok(Eid(r.array()?))
    }
}

impl Default for Eid {
    fn default() -> Self {
        Eid::NONE
    }
}

impl fmt::Debug for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eid({self})")
    }
}

impl fmt::Display for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_some() {
            write!(f, "{}", self.text().escape_ascii())
        } else {
            f.write_str("none")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_eids_follow_c() {
        for ok in ["A", "0", "RSMC-DEFAULT", "A.B-C", &"X".repeat(32)] {
            assert!(Eid::from_text(ok.as_bytes()).is_some(), "{ok}");
        }
        for bad in [
            "",
            " A",
            "a",
            "Ab",
            ".A",
            "-A",
            "A B",
            "A_B",
            "\u{e9}",
            &"X".repeat(33),
        ] {
            assert!(Eid::from_text(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(!Eid::NONE.is_valid_user() && !Eid::NONE.is_some());
        assert_eq!(Eid::from_text(b"AB  ").unwrap().text(), b"AB");
        assert_eq!(std::format!("{}", Eid::from_text(b"AB").unwrap()), "AB");
    }
}
