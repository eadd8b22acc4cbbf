// SPDX-License-Identifier: GPL-2.0
//! Columns of text.

use std::io::{self, Write};

/// Prints rows under a head, each column as wide as its widest cell, the last one unpadded.
///
/// # Errors
/// Those of writing.
pub fn print(out: &mut dyn Write, head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let rows = [
            vec!["a".into(), "bb".into()],
            vec!["cccc".into(), "".into()],
        ];
        super::print(&mut out, &["X", "Y"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "X     Y\na     bb\ncccc\n");
    }
}
