// SPDX-License-Identifier: GPL-2.0
//! Columns and short numbers as smc-tools print them: a column has its place, whatever is in it,
//! for scripts that cut lines by position.

use crate::visible;
use std::io::{self, Write};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    width: usize,
    gap: usize,
    right: bool,
}

/// A column whose cells begin at its left; `gap` blanks follow it.
pub const fn left(head: &'static str, width: usize, gap: usize) -> Column {
    Column {
        head,
        width,
        gap,
        right: false,
    }
}

/// A column whose cells end at its right; `gap` blanks follow it.
pub const fn right(head: &'static str, width: usize, gap: usize) -> Column {
    Column {
        head,
        width,
        gap,
        right: true,
    }
}

/// Prints rows under the columns' heads. A row may end early; a cell too long for its column moves
/// what follows it.
///
/// # Errors
/// Errors of writing to `out`.
pub fn print(out: &mut dyn Write, columns: &[Column], rows: &[Vec<String>]) -> io::Result<()> {
    let mut head = String::new();
    for column in columns {
        let place = (column.width + column.gap).max(column.head.len() + 1);
        head.push_str(&format!("{:place$}", column.head));
    }
    writeln!(out, "{}", head.trim_end())?;
    for row in rows {
        let mut line = String::new();
        for (column, cell) in columns.iter().zip(row) {
            let (width, cell) = (column.width, visible::text(cell));
            match column.right {
                true => line.push_str(&format!("{cell:>width$}")),
                false => line.push_str(&format!("{cell:width$}")),
            }
            line.push_str(&" ".repeat(column.gap));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A number in six characters: 999, or four digits and a unit in steps of 1000 (`1.500K`).
pub fn short(number: u64) -> String {
    if number < 1000 {
        return number.to_string();
    }
    let (mut scaled, mut unit) = (number as f64 / 1000.0, "K");
    for next in ["M", "G", "T", "P", "E"] {
        // What would be rounded up to 1000 has the next unit.
        if scaled < 999.95 {
            break;
        }
        (scaled, unit) = (scaled / 1000.0, next);
    }
    let places = match scaled {
        scaled if scaled < 9.9995 => 3,
        scaled if scaled < 99.995 => 2,
        _ => 1,
    };
    format!("{scaled:.places$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_in_its_place() {
        let columns = [left("A", 3, 1), right("Long", 2, 1), left("C", 1, 0)];
        let row = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect();
        let rows = [row(&["x", "1", "z"]), row(&["wide", "12"]), row(&[])];
        let mut out = Vec::new();
        print(&mut out, &columns, &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "A   Long C\nx    1 z\nwide 12\n\n");
        let mut out = Vec::new();
        print(&mut out, &columns, &[row(&["\x1b[2J\n"])]).unwrap();
        assert!(out.ends_with(b"\n\\u001b[2J\\u000a\n"));
    }

    #[test]
    fn numbers_get_shorter() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.000K"),
            (9000, "9.000K"),
            (131_072, "131.1K"),
            (999_940, "999.9K"),
            (999_960, "1.000M"),
            (12_345_678, "12.35M"),
            (9_999_600, "10.00M"),
            (123_456_789_012_345, "123.5T"),
            (u64::MAX, "18.45E"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
