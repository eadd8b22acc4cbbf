// SPDX-License-Identifier: GPL-2.0
//! `rsmc policy`: the rules that say which TCP sockets become SMC sockets.

pub mod kept;
mod learned;
pub mod live;
pub mod rule;
pub(crate) mod test;
mod wire;

use crate::cli::{PolicyAction, PolicyArgs, POLICY_FILE};
use crate::error::{Error, Result};
use crate::netlink::genl::Family;
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::{absent, diag, table, visible};
use rule::Rule;
use rustix::io::Errno;
use serde::Serialize;
use std::io::{Read, Write};
use std::path::Path;
use wire::{attribute, command, Listed};

/// Shows or changes the rules.
///
/// # Errors
/// `NotThere` without the netlink family, `Usage` for a rule that is none, or the kernel's.
pub fn run(args: &PolicyArgs, out: &mut dyn Write) -> Result<()> {
    match &args.action {
        None => list(false, out),
        Some(PolicyAction::List { json }) => list(*json, out),
        Some(PolicyAction::Add { at, rule }) => add(*at, rule),
        Some(PolicyAction::Del { id }) => del(*id),
        Some(PolicyAction::Flush) => {
            let mut family = family()?;
            let request = family.command(command::FLUSH, NLM_F_ACK);
            family.ask("removing all rules", &request).map(|_| ())
        }
        Some(PolicyAction::Load { file, check }) => load(file.as_deref(), *check, out),
        Some(PolicyAction::Save { file }) => save(file, out),
        Some(PolicyAction::Prune) => crate::run::scope::prune(out),
        Some(PolicyAction::Test(socket)) => test::run(socket, out),
        Some(PolicyAction::Learned { json }) => learned::list(*json, out),
        Some(PolicyAction::Forget) => learned::forget(),
    }
}

fn family() -> Result<Family> {
    let missing = || match diag::has_smc_protocol() {
        true => "the loaded SMC module has no policy (netlink family RSMC_POLICY)".into(),
        false => absent::line(),
    };
    Family::find("RSMC_POLICY", 1, missing)
}

/// The rules in their order.
///
/// # Errors
/// `NotThere` without the netlink family, or the kernel's.
pub fn collect() -> Result<Vec<Listed>> {
    let mut family = family()?;
    let request = family.command(command::LIST, NLM_F_DUMP);
    let bodies = family.ask("listing the rules", &request)?;
    bodies.iter().map(wire::decode).collect()
}

/// A rule as `--json` prints it. The names are an interface.
#[derive(Serialize)]
struct Shown {
    id: u32,
    verdict: String,
    conditions: String,
    decided: u64,
}

fn list(json: bool, out: &mut dyn Write) -> Result<()> {
    let rules = collect()?.into_iter().map(|listed| Shown {
        id: listed.id,
        verdict: rule::verdict_text(listed.rule.verdict),
        conditions: rule::conditions(&listed.rule),
        decided: listed.hits,
    });
    if json {
        serde_json::to_writer_pretty(&mut *out, &rules.collect::<Vec<_>>())?;
        writeln!(out)?;
        return Ok(());
    }
    let rows: Vec<_> = rules
        .map(|rule| {
            let all = match rule.conditions.is_empty() {
                true => "(all)".into(),
                false => rule.conditions,
            };
            vec![
                rule.id.to_string(),
                rule.decided.to_string(),
                rule.verdict,
                all,
            ]
        })
        .collect();
    table::print(out, &["Id", "Decided", "Verdict", "Conditions"], &rows)?;
    Ok(())
}

fn add(at: Option<u32>, words: &[String]) -> Result<()> {
    // One argument may be a whole rule.
    let words = match words {
        [line] => shlex::split(line).unwrap_or_default(),
        _ => words.to_vec(),
    };
    let rule = rule::from_words(&words)?;
    live::add(&rule, at.map(|at| at - 1))
}

/// Says of a table that is full that it is.
fn full(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::Refused(what, Errno::TOOBIG)) => Err(Error::Table(format!(
            "{what}: a namespace has at most 4096 rules, whose patterns for programs have at most 4112 bytes with \
             something behind a star"
        ))),
        other => other,
    }
}

fn del(id: u32) -> Result<()> {
    let mut family = family()?;
    let request = family
        .command(command::DEL, NLM_F_ACK)
        .attribute(attribute::ID, &id.to_ne_bytes());
    match family.ask("removing a rule", &request) {
        Err(Error::Refused(what, Errno::NOENT)) => {
            Err(Error::Table(format!("{what}: there is none with id {id}")))
        }
        other => other.map(|_| ()),
    }
}

/// The rules of a file, or of all that are kept, and the name for them.
fn read(file: Option<&Path>) -> Result<(String, Vec<Rule>)> {
    let Some(file) = file else {
        let missing = || Error::at(Path::new(POLICY_FILE), Errno::NOENT.into());
        let rules = kept::all(Path::new("/"))?.ok_or_else(missing)?;
        return Ok((POLICY_FILE.into(), rules));
    };
    let name = file.display().to_string();
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        let rules = rule::from_file(&name, &text)?;
        return Ok((name, rules));
    }
    Ok((name, kept::file(file)?))
}

fn load(file: Option<&Path>, check: bool, out: &mut dyn Write) -> Result<()> {
    let (name, rules) = read(file)?;
    if check {
        writeln!(out, "{name}: {} rules, all right", rules.len())?;
        return Ok(());
    }
    live::replace(&rules)
}

fn save(file: &Path, out: &mut dyn Write) -> Result<()> {
    let mut text = String::from("# Rules of net.smc.tcp2smc; see `rsmc help policy`.\n");
    // What the directory has would come twice.
    let others = match file == Path::new(POLICY_FILE) {
        true => kept::of_directory(Path::new("/"))?,
        false => Vec::new(),
    };
    let listed = collect()?.into_iter();
    for listed in listed.filter(|listed| !others.contains(&listed.rule)) {
        let line = format!(
            "{} {}",
            rule::verdict_text(listed.rule.verdict),
            rule::conditions(&listed.rule)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if file == Path::new("-") {
        // For a file or a program they are as they will be read again.
        match visible::is_terminal() {
            true => out.write_all(text.as_bytes())?,
            false => visible::write_raw(text.as_bytes())?,
        }
        return Ok(());
    }
    // A reader finds the old rules or the new ones, never half of them.
    let new = file.with_extension("new");
    std::fs::write(&new, text).map_err(|error| Error::at(&new, error))?;
    std::fs::rename(&new, file).map_err(|error| Error::at(file, error))
}
