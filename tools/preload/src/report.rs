// SPDX-License-Identifier: GPL-2.0
//! Debug lines (`RSMC_DEBUG=1`), composed in a fixed buffer and written with one write(2).

/// A line being composed. What does not fit is cut; the newline always fits.
pub struct Line {
    bytes: [u8; Line::SIZE],
    used: usize,
}

impl Line {
    /// Longest line including its newline, in bytes.
    pub const SIZE: usize = 160;

    /// An empty line.
    pub const fn new() -> Line {
        Line {
            bytes: [0; Line::SIZE],
            used: 0,
        }
    }

    /// Adds text.
    pub fn text(mut self, text: &str) -> Line {
        for byte in text.as_bytes() {
            self.push(*byte);
        }
        self
    }

    /// Adds a number in decimal.
    pub fn number(mut self, number: i32) -> Line {
        if number < 0 {
            self.push(b'-');
        }
        let mut rest = number.unsigned_abs();
        let mut scale = 1_000_000_000u32;
        while scale > 1 && rest < scale {
            scale /= 10;
        }
        while scale > 0 {
            // A decimal digit: always below 10.
            self.push(b'0'.wrapping_add((rest / scale) as u8));
            rest %= scale;
            scale /= 10;
        }
        self
    }

    /// The finished line with its newline.
    pub fn end(&mut self) -> &[u8] {
        if let Some(slot) = self.bytes.get_mut(self.used) {
            *slot = b'\n';
            self.used = self.used.saturating_add(1);
        }
        self.bytes.get(..self.used).unwrap_or(&[])
    }

    fn push(&mut self, byte: u8) {
        if self.used < Line::SIZE - 1 {
            if let Some(slot) = self.bytes.get_mut(self.used) {
                *slot = byte;
                self.used = self.used.saturating_add(1);
            }
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text() {
        let mut line = Line::new()
            .text("a ")
            .number(0)
            .text(" ")
            .number(-120)
            .text(" ")
            .number(i32::MIN)
            .text(" ")
            .number(i32::MAX);
        assert_eq!(line.end(), b"a 0 -120 -2147483648 2147483647\n");
    }

    #[test]
    fn too_long_is_cut_but_ends() {
        let long = "x".repeat(1000);
        let mut line = Line::new().text(&long).number(5);
        let end = line.end();
        assert_eq!(end.len(), Line::SIZE);
        assert_eq!(end.last(), Some(&b'\n'));
    }
}
