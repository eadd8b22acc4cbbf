// SPDX-License-Identifier: GPL-2.0
//! Showing something again and again.

use crate::cli::Repeat;
use crate::error::Result;
use crate::visible;
use std::io::Write;

/// Clears a terminal and goes to its upper left corner.
pub const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Calls `show` once, or as the arguments say. Between two times a terminal is cleared and other
/// output gets an empty line, but not where `lines` says that each time is a line of its own.
///
/// # Errors
/// Errors of `show`, and of writing to `out`.
pub fn repeat(
    repeat: Repeat,
    lines: bool,
    out: &mut dyn Write,
    mut show: impl FnMut(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let Some(interval) = repeat.watch else {
        return show(out);
    };
    let clear = !lines && visible::is_terminal();
    let mut shown = 0;
    loop {
        // Whole before the old picture goes.
        let mut frame = Vec::new();
        show(&mut frame)?;
        if clear {
            out.write_all(CLEAR)?;
        } else if shown > 0 && !lines {
            writeln!(out)?;
        }
        out.write_all(&frame)?;
        out.flush()?;
        shown += 1;
        if repeat.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn as_often_as_asked() {
        let mut out = Vec::new();
        let mut calls = 0;
        let mut times = |repetition: Repeat, lines| {
            repeat(repetition, lines, &mut out, |out| {
                calls += 1;
                Ok(writeln!(out, "{calls}")?)
            })
        };
        let once = Repeat {
            watch: None,
            count: None,
        };
        times(once, false).unwrap();
        let thrice = Repeat {
            watch: Some(Duration::from_millis(1)),
            count: Some(3),
        };
        times(thrice, true).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1\n2\n3\n4\n");
    }
}
