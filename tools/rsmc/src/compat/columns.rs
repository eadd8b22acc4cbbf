// SPDX-License-Identifier: GPL-2.0
//! Columns as smc-tools print them: a column has its place, whatever is in it,
//! for scripts that cut lines by position.

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
/// Those of writing.
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
            let width = column.width;
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
    }
}
