// SPDX-License-Identifier: GPL-2.0

//! The table of what may be attached to a local path: the documentation has a row for each test, and the
//! test for each row.

use super::{read, Complaints};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &str = "Documentation/operator.md";
const HEADING: &str = "### What a local path passes by, and what ends it";
const TEST: &str = "selftests/src/bin/attach/main.rs";

/// Compares the two.
pub fn table() -> Result<Complaints> {
    let (rows, points) = (
        rows(&read(Path::new(TABLE))?),
        points(&read(Path::new(TEST))?),
    );
    let missing = |names: &BTreeSet<String>, others: &BTreeSet<String>, what: &str| {
        let missing = names.difference(others);
        missing
            .map(|name| format!("{what}: {name}"))
            .collect::<Vec<_>>()
    };
    let mut found = missing(
        &rows,
        &points,
        &format!("{TABLE} has a row that {TEST} does not show"),
    );
    found.extend(missing(
        &points,
        &rows,
        &format!("{TEST} has points without a row in {TABLE}"),
    ));
    if rows.is_empty() {
        found.push(format!("{TABLE} has no table below \"{HEADING}\""));
    }
    Ok(found)
}

/// The names in the first column of the table below the heading.
fn rows(text: &str) -> BTreeSet<String> {
    let below = text.split_once(HEADING).map_or("", |(_, below)| below);
    let section = below.split("\n#").next().unwrap_or("");
    let names = section.lines().filter_map(|line| {
        let cell = line.strip_prefix("| `")?;
        cell.split_once("` |").map(|(name, _)| name.to_owned())
    });
    names.collect()
}

/// The names of points, up to the first dot.
fn points(text: &str) -> BTreeSet<String> {
    let names = text.split("point!(\"").skip(1);
    let names = names.filter_map(|rest| rest.split(['.', '"']).next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{points, rows, HEADING};

    #[test]
    fn names_are_found() {
        let table = format!(
            "| `no` | x |\n{HEADING}\n| test |\n| `nft` | a |\n| `tc` | b |\n## Next\n| `no` | x |"
        );
        let names =
            |names: std::collections::BTreeSet<String>| names.into_iter().collect::<Vec<_>>();
        assert_eq!(names(rows(&table)), ["nft", "tc"]);
        assert_eq!(
            names(points("point!(\"nft\", f), point!(\"tc.on\", g)")),
            ["nft", "tc"]
        );
    }
}
