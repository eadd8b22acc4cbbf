// SPDX-License-Identifier: GPL-2.0
//! Text of strangers, made harmless to read: a peer's host name, the name of another user's process
//! or control group may hold control characters, with which a terminal does as it is told, and
//! characters that hide or turn round what is beside them. They are shown as JSON writes them
//! (`\u001b`), so that output in JSON keeps its meaning.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "all of it is filtered here"
)]

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};

/// What this program itself tells a terminal: colours, and the place of the next picture.
const OWN: [&str; 8] = [
    "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m", "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J",
];

/// Returns whether a character is to be shown by its number: C0, DEL and C1, and the format
/// characters of Unicode that have no picture, or change the direction or the lines of others.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn push(text: &mut String, c: char) {
    if !is_hidden(c) {
        return text.push(c);
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(text, "\\u{unit:04x}");
    }
}

/// Text within a line, such as a cell: also line ends and tabs are shown.
pub fn text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    text.chars().for_each(|c| push(&mut shown, c));
    Cow::Owned(shown)
}

/// Text of several lines: line ends and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    filtered(text, &[])
}

/// [`lines`], in which these sequences stay, too.
fn filtered<'a>(text: &'a str, kept: &[&str]) -> Cow<'a, str> {
    let shows = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
    if text.chars().all(shows) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(own) = kept.iter().find(|own| rest.starts_with(**own)) {
            shown.push_str(own);
            rest = &rest[own.len()..];
            continue;
        }
        match shows(c) {
            true => shown.push(c),
            false => push(&mut shown, c),
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(shown)
}

/// Writes a line about what went wrong to standard error.
pub fn complain(program: &str, what: &dyn Display) {
    eprintln!("{program}: {}", lines(&what.to_string()));
}

/// Tells whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes bytes that are no text for people to standard output, as they are.
///
/// # Errors
/// Errors of writing.
pub fn write_raw(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Standard output of all commands: whatever is written comes out as [`lines`] has it, but for this
/// program's own sequences, which a terminal gets. So nothing depends on each place that prints.
#[derive(Debug)]
pub struct Output<W: Write> {
    out: W,
    kept: &'static [&'static str],
    /// The last line, which is not complete.
    line: Vec<u8>,
}

impl Output<io::StdoutLock<'static>> {
    /// That of this process.
    pub fn stdout() -> Self {
        Self::new(io::stdout().lock(), is_terminal())
    }
}

impl<W: Write> Output<W> {
    /// Writes to `out`, which is a terminal or is not.
    pub fn new(out: W, terminal: bool) -> Self {
        Self {
            out,
            kept: if terminal { &OWN } else { &[] },
            line: Vec::new(),
        }
    }

    /// Writes the first bytes that wait.
    fn pass(&mut self, length: usize) -> io::Result<()> {
        let bytes: Vec<u8> = self.line.drain(..length).collect();
        let text = String::from_utf8_lossy(&bytes);
        self.out.write_all(filtered(&text, self.kept).as_bytes())
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        // Neither a character nor a sequence reaches over the end of a line.
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            self.pass(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(self.line.len())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        for (given, shown) in [
            ("db1.example", "db1.example"),
            ("\x1b]52;c;YQ==\x07", "\\u001b]52;c;YQ==\\u0007"),
            (
                "\x1b[2Ja\r\nb\tc\x7f",
                "\\u001b[2Ja\\u000d\\u000ab\\u0009c\\u007f",
            ),
            // One character each that begins a sequence, and ends one, in C1.
            ("\u{9b}31m\u{9c}", "\\u009b31m\\u009c"),
            // What turns round or hides its neighbours.
            ("a\u{202e}b\u{2066}c\u{200b}", "a\\u202eb\\u2066c\\u200b"),
            ("\u{e0041}", "\\udb40\\udc41"),
            // Other scripts stay what they are.
            ("Zürich 東京 दिल्ली", "Zürich 東京 दिल्ली"),
        ] {
            assert_eq!(text(given), shown);
        }
        assert_eq!(lines("a\n\tb\x1b[0m\n"), "a\n\tb\\u001b[0m\n");
        // All of C0, DEL and C1.
        for c in (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32) {
            assert!(text(&c.to_string()).starts_with("\\u00"), "{c:?}");
        }
    }

    fn written(pieces: &[&[u8]], terminal: bool) -> String {
        let mut out = Output::new(Vec::new(), terminal);
        for piece in pieces {
            out.write_all(piece).unwrap();
        }
        out.flush().unwrap();
        String::from_utf8(out.out).unwrap()
    }

    #[test]
    fn nothing_gets_past_the_output() {
        let pieces: [&[u8]; 4] = [
            b"\x1b[3",
            b"1mTCP\x1b[0m ",
            b"\xc3",
            b"\xa9\x1b]0;x\x07\xff\nrest",
        ];
        assert_eq!(
            written(&pieces, true),
            "\x1b[31mTCP\x1b[0m é\\u001b]0;x\\u0007\u{fffd}\nrest"
        );
        assert!(written(&pieces, false).starts_with("\\u001b[31mTCP\\u001b[0m é"));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let name = "\x1b[2J\u{9b}\u{7f}\u{202e}\u{e0041}\\\"";
        let mut out = Output::new(Vec::new(), false);
        serde_json::to_writer_pretty(&mut out, &[name]).unwrap();
        out.flush().unwrap();
        let text = String::from_utf8(out.out).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [name]);
    }
}
