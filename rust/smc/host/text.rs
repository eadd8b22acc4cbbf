// SPDX-License-Identifier: GPL-2.0

//! Names and addresses as user space reads them.

use core::fmt::{Error, Result, Write};
use smc_proto::wire::ids::Gid;

/// Returns a name without the zeros after it.
pub(crate) fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or(bytes)
}

/// A GID in the notation of verbs: eight groups of four digits.
pub(crate) struct GidText {
    bytes: [u8; 39],
    len: usize,
}

impl GidText {
    /// Formats a GID.
    pub(crate) fn new(gid: &Gid) -> Self {
        let mut this = Self {
            bytes: [0; 39],
            len: 0,
        };
        for (i, byte) in gid.0.iter().enumerate() {
            let colon = if i != 0 && i % 2 == 0 { ":" } else { "" };
            // It fits.
            let _ = write!(this, "{colon}{byte:02x}");
        }
        this
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl Write for GidText {
    fn write_str(&mut self, part: &str) -> Result {
        let end = self.len.saturating_add(part.len());
        self.bytes
            .get_mut(self.len..end)
            .ok_or(Error)?
            .copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}
