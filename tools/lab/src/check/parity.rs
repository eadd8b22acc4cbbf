// SPDX-License-Identifier: GPL-2.0

//! The table of what a replaced socket does as TCP: each row of the documentation names its tests, as they are
//! called on a command line, and there are such.

use super::{read, Complaints};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const TABLE: &str = "Documentation/programmer.md";
const HEADING: &str = "## A replaced socket, option by option";
const PROGRAMS: &str = "selftests/src/bin";

/// Looks for the tests of each row.
pub fn table() -> Result<Complaints> {
    let rows = rows(&read(Path::new(TABLE))?);
    let mut found = Vec::new();
    if rows.is_empty() {
        found.push(format!("{TABLE} has no table below \"{HEADING}\""));
    }
    for (row, tests) in rows {
        if tests.is_empty() {
            found.push(format!("{TABLE}: the row {row} names no test"));
        }
        for (program, prefix) in tests {
            let Ok(text) = source(&program) else {
                found.push(format!("{TABLE}: there is no test program {program}"));
                continue;
            };
            if !has(&text, &prefix) {
                found.push(format!("{TABLE}: {program} has no test {prefix}"));
            }
        }
    }
    Ok(found)
}

/// All that a test program consists of.
fn source(program: &str) -> Result<String> {
    let file = PathBuf::from(PROGRAMS).join(format!("{program}.rs"));
    if file.exists() {
        return read(&file);
    }
    let folder = PathBuf::from(PROGRAMS).join(program);
    let mut all = String::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        all += &read(&entry?.path())?;
    }
    Ok(all)
}

/// Tells whether a test's name begins so: it is a text, or the function of a list.
fn has(text: &str, prefix: &str) -> bool {
    let starts = [format!("\"{prefix}"), format!("fn {prefix}")];
    starts.iter().any(|start| text.contains(start))
}

/// A test program, and the beginning of the names of some of its tests.
type Test = (String, String);

/// The first cell of each row of the table below the heading, and the tests in its last one.
fn rows(text: &str) -> Vec<(String, Vec<Test>)> {
    let below = text.split_once(HEADING).map_or("", |(_, below)| below);
    let section = below.split("\n#").next().unwrap_or("");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    // The head and the line below it.
    let rows = rows.skip(2).filter_map(|line| {
        let mut cells = line.trim_matches(['|', ' ']).split(" | ");
        let (first, last) = (cells.next()?, cells.last()?);
        let tests = last.split('`').skip(1).step_by(2);
        let tests = tests.filter_map(|test| test.split_once(' '));
        let tests = tests.map(|(program, prefix)| (program.to_owned(), prefix.to_owned()));
        Some((first.to_owned(), tests.collect()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::{has, rows, HEADING};

    #[test]
    fn tests_are_found() {
        let text = format!(
            "| `no` | x | `y z` |\n{HEADING}\n\n| thing | test |\n| --- | --- |\n\
             | `A` | as TCP | `api a_`, `attach b.c` |\n| B | - | none |\n## Next\n| `no` | `x y` |"
        );
        let rows = rows(&text);
        assert_eq!(rows.len(), 2);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(rows[0].1, [pair("api", "a_"), pair("attach", "b.c")]);
        assert_eq!(rows[1], ("B".to_owned(), vec![]));
        assert!(has("point!(\"b.c.d\", x)", "b.c") && has("fn a_b(t", "a_"));
        assert!(!has("fn xa_b(t", "a_"));
    }
}
