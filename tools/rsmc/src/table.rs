// SPDX-License-Identifier: GPL-2.0
//! Columns of text, colours on terminals, and numbers for people.

use crate::visible;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

/// The colours used, by what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// As it should be.
    Green,
    /// Works, and could be better.
    Yellow,
    /// Does not work.
    Red,
}

impl Colour {
    /// The text in this colour.
    pub fn paint(self, text: &str) -> String {
        let number = match self {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        format!("\x1b[{number}m{text}\x1b[0m")
    }
}

/// True if standard output is a terminal and the user did not ask for none (`NO_COLOR`).
pub fn has_colours() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        !unwanted && !dumb && visible::is_terminal()
    })
}

/// Rows under a head, each column as wide as its widest cell, the last one unpadded.
#[derive(Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
    colour: fn(usize, &str) -> Option<Colour>,
    coloured: bool,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    Note(String),
}

impl Table {
    /// A table without rows.
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|cell| cell.to_string()).collect(),
            rows: Vec::new(),
            colour: |_, _| None,
            coloured: has_colours(),
        }
    }

    /// Where there are colours, the cell of a column gets this one.
    #[must_use]
    pub fn coloured(mut self, colour: fn(usize, &str) -> Option<Colour>) -> Self {
        self.colour = colour;
        self
    }

    /// Adds a row. Its cells may be strangers' text.
    pub fn row(&mut self, cells: Vec<String>) {
        let shown = |cell: String| match visible::text(&cell) {
            Cow::Borrowed(_) => cell,
            Cow::Owned(shown) => shown,
        };
        self.rows
            .push(Row::Cells(cells.into_iter().map(shown).collect()));
    }

    /// Adds an indented line below the last row, of any length.
    pub fn note(&mut self, text: String) {
        self.rows.push(Row::Note(visible::text(&text).into_owned()));
    }

    /// Prints it.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        writeln!(out, "{}", line(&widths, &self.head, |_, _| None))?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) if self.coloured => {
                    writeln!(out, "{}", line(&widths, cells, self.colour))?;
                }
                Row::Cells(cells) => writeln!(out, "{}", line(&widths, cells, |_, _| None))?,
                Row::Note(text) => writeln!(out, "    {text}")?,
            }
        }
        Ok(())
    }
}

fn line(widths: &[usize], cells: &[String], colour: fn(usize, &str) -> Option<Colour>) -> String {
    let mut line = String::new();
    for (column, (width, cell)) in widths.iter().zip(cells).enumerate() {
        let padding = width.saturating_sub(cell.chars().count()) + 2;
        match colour(column, cell) {
            Some(colour) => line.push_str(&colour.paint(cell)),
            None => line.push_str(cell),
        }
        line.push_str(&" ".repeat(padding));
    }
    line.trim_end().to_string()
}

/// Prints rows under a head.
///
/// # Errors
/// Errors of writing to `out`.
pub fn print(out: &mut dyn Write, head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut table = Table::new(head);
    rows.iter().for_each(|row| table.row(row.clone()));
    table.print(out)
}

/// A number of bytes in at most six characters: 999, 1.2K, 34M.
pub fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0)
}

/// A number in at most six characters, in steps of 1000.
pub fn count(number: f64) -> String {
    scaled(number, 1000.0)
}

/// A time of so many nanoseconds with its unit: 128 us, 1.0 ms.
pub fn time(nanos: u64) -> String {
    let (unit, size) = match nanos {
        0..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    match nanos as f64 / size {
        number if number < 99.95 && size > 1.0 => format!("{number:.1} {unit}"),
        number => format!("{number:.0} {unit}"),
    }
}

fn scaled(mut number: f64, step: f64) -> String {
    for unit in ["", "K", "M", "G", "T", "P"] {
        if number < step - 0.5 {
            return match unit {
                "" if number.fract() == 0.0 || number >= 99.95 => format!("{number:.0}"),
                _ if number < 99.95 => format!("{number:.1}{unit}"),
                _ => format!("{number:.0}{unit}"),
            };
        }
        number /= step;
    }
    format!("{number:.0}E")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &Table) -> String {
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["X", "Y"]);
        table.row(vec!["a".into(), "bb".into()]);
        table.note("more".into());
        table.row(vec!["cccc".into(), "".into()]);
        assert_eq!(text(&table), "X     Y\na     bb\n    more\ncccc\n");
        // Colours take no room.
        let mut table = table.coloured(|_, cell| (cell == "a").then_some(Colour::Red));
        table.coloured = true;
        assert!(text(&table).contains("\n\x1b[31ma\x1b[0m     bb\n"));
    }

    #[test]
    fn cells_tell_a_terminal_nothing() {
        let mut table = Table::new(&["Host", "Y"]);
        table.row(vec!["a\x1b[2J\nLISTEN".into(), "b".into()]);
        table.note("\x1b]0;x\x07\r".into());
        assert_eq!(
            text(&table),
            "Host                    Y\na\\u001b[2J\\u000aLISTEN  b\n    \\u001b]0;x\\u0007\\u000d\n"
        );
    }

    #[test]
    fn numbers() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (100 * 1024, "100K"),
            ((1 << 20) - 1, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16384P"),
        ] {
            let text = size(bytes);
            assert!(text == shown || bytes == u64::MAX, "{bytes}: {text}");
        }
        assert_eq!(count(0.25), "0.2");
        assert_eq!(count(1500.0), "1.5K");
        assert_eq!(count(12.0), "12");
        for (nanos, shown) in [
            (0, "0 ns"),
            (1500, "1.5 us"),
            (128_000, "128 us"),
            (1_024_000, "1.0 ms"),
            (4_194_304_000, "4.2 s"),
        ] {
            assert_eq!(time(nanos), shown);
        }
    }
}
