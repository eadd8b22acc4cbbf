// SPDX-License-Identifier: GPL-2.0

//! The short form of the plan: blocks that stand for several entries, and named sets of arguments
//! and settings. All is done with tables of TOML; what an entry may say is known to [`Test`] alone.

use super::Test;
use anyhow::{bail, Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Named sets.
    #[serde(default)]
    args: BTreeMap<String, Table>,
    /// Blocks.
    #[serde(default)]
    test: Vec<Table>,
}

/// Sets, and the names of those that were used.
struct Sets<'a> {
    all: &'a BTreeMap<String, Table>,
    used: BTreeSet<String>,
}

/// Reads the entries of all blocks, in the order of the file.
pub fn expand(text: &str) -> Result<Vec<Test>> {
    let file: File = toml::from_str(text)?;
    let mut sets = Sets {
        all: &file.args,
        used: BTreeSet::new(),
    };
    let mut tests = Vec::new();
    for mut block in file.test {
        let name = word(&mut block, "name")?.context("a test has no name")?;
        let variants = list(&mut block, "with")
            .and_then(|with| Ok((with, sets.applied(Table::new(), block)?)))
            .and_then(|(with, base)| sets.variants(&name, &base, with))
            .with_context(|| format!("test {name}"))?;
        for (name, mut entry) in variants {
            entry.insert("name".into(), Value::String(name.clone()));
            let test = Value::Table(entry).try_into();
            tests.push(test.with_context(|| format!("test {name}"))?);
        }
    }
    match file.args.keys().find(|name| !sets.used.contains(*name)) {
        Some(name) => bail!("no test is with the arguments '{name}'"),
        None => Ok(tests),
    }
}

impl Sets<'_> {
    /// Names and tables of what a block stands for.
    fn variants(
        &mut self,
        name: &str,
        base: &Table,
        with: Option<Vec<Value>>,
    ) -> Result<Vec<(String, Table)>> {
        let Some(with) = with else {
            return Ok(vec![(name.to_owned(), base.clone())]);
        };
        if with.is_empty() {
            bail!("'with' is empty");
        }
        let mut found = Vec::new();
        for variant in with {
            let (suffix, more) = match variant {
                // The name says which sets: "c_server.rdma" are two.
                Value::String(sets) => {
                    let names = sets.split('.').filter(|name| !name.is_empty());
                    let names = names.map(|name| Value::String(name.to_owned())).collect();
                    let more = Table::from_iter([("as".to_owned(), Value::Array(names))]);
                    (sets, more)
                }
                Value::Table(mut own) => (word(&mut own, "name")?.unwrap_or_default(), own),
                other => bail!("'with' has {other}, neither a name nor a table"),
            };
            let name = match suffix.as_str() {
                "" => name.to_owned(),
                _ => format!("{name}.{suffix}"),
            };
            found.push((name, self.applied(base.clone(), more)?));
        }
        Ok(found)
    }

    /// Adds to a table what another says: first the sets that it names, then its own.
    fn applied(&mut self, mut to: Table, mut from: Table) -> Result<Table> {
        for name in list(&mut from, "as")?.unwrap_or_default() {
            let name = name.as_str().context("'as' takes names")?;
            let set = self.all.get(name);
            let set = set.with_context(|| format!("there is no [args.{name}]"))?;
            self.used.insert(name.to_owned());
            merge(&mut to, set.clone());
        }
        merge(&mut to, from);
        Ok(to)
    }
}

/// Takes a text out of a table.
fn word(table: &mut Table, key: &str) -> Result<Option<String>> {
    match table.remove(key) {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => bail!("{key} = {other}: expected a text"),
        None => Ok(None),
    }
}

/// Takes a list out of a table.
fn list(table: &mut Table, key: &str) -> Result<Option<Vec<Value>>> {
    match table.remove(key) {
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => bail!("{key} = {other}: expected a list"),
        None => Ok(None),
    }
}

/// Adds a table to another: lists are joined, but for the kernels; anything else is replaced.
fn merge(to: &mut Table, from: Table) {
    for (key, value) in from {
        match (to.get_mut(&key), value) {
            (Some(Value::Array(old)), Value::Array(new)) if key != "kernels" => old.extend(new),
            (_, value) => drop(to.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const SETS: &str = "[args.v4]\nargs = [\"--ip\", \"v4\"]\n[args.rdma]\nrdma = true\nargs = [\"--mode\", \"0\"]\n";

    /// Names and commands of a plan of one block.
    fn lines(with: &str) -> Vec<String> {
        let block = format!(
            "{SETS}[[test]]\nname = \"x\"\nprogram = \"bin/x\"\nargs = [\"all\"]\nkernels = [\"uml\"]\ntimeout = 5\n{with}\n"
        );
        let tests = parse(&block).unwrap_or_else(|error| panic!("{error:#}"));
        let line = |test: &super::Test| test.to_string();
        tests.iter().map(line).collect()
    }

    #[test]
    fn names_of_variants_are_names_of_sets() {
        assert_eq!(
            lines("with = [\"\", \"v4\", \"v4.rdma\"]"),
            [
                "x: uml; netns; 5 s; [\"/rsmc/bin/x\", \"all\"]",
                "x.v4: uml; netns; 5 s; [\"/rsmc/bin/x\", \"all\", \"--ip\", \"v4\"]",
                "x.v4.rdma: uml; netns; 5 s; rdma; [\"/rsmc/bin/x\", \"all\", \"--ip\", \"v4\", \"--mode\", \"0\"]",
            ]
        );
    }

    #[test]
    fn tables_have_the_last_word() {
        assert_eq!(
            lines("as = [\"rdma\"]\nwith = [{ name = \"few\", as = [\"v4\"], kernels = [\"debian\"], rdma = false, args = [\"3\"], timeout = 9 }]"),
            ["x.few: debian; netns; 9 s; [\"/rsmc/bin/x\", \"--mode\", \"0\", \"all\", \"--ip\", \"v4\", \"3\"]"]
        );
    }

    #[test]
    fn mistakes_are_found() {
        let start = "[[test]]\nname = \"x\"\nprogram = \"x\"\nkernels = [\"uml\"]\ntimeout = 1\n";
        for (text, part) in [
            ("[args.unused]\nrdma = true", "'unused'"),
            ("with = [\"none\"]", "[args.none]"),
            ("with = []", "empty"),
            ("with = [\"\", \"\"]", "two tests are named x"),
            ("with = [{ typo = 1 }]", "typo"),
            ("with = [1]", "neither"),
            ("with = \"v4\"", "expected a list"),
            (
                "with = [\"a\"]\n[args.a]\nas = [\"a\"]",
                "unknown field `as`",
            ),
        ] {
            let error = parse(&format!("{start}{text}\n")).expect_err(text);
            let error = format!("{error:#}");
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = parse("[[test]]\nprogram = \"x\"\n").expect_err("no name");
        assert!(format!("{error:#}").contains("no name"));
    }
}
