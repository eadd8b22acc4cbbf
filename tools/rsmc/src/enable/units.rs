// SPDX-License-Identifier: GPL-2.0
//! Units: the files and rules that each has.

use super::files::{below, Change, MARK};
use super::unit::{self, Kind};
use super::{mode, System};
use crate::cli::{DisableArgs, EnableArgs, PolicyTest};
use crate::error::{Error, Result};
use crate::policy::rule::{self, Rule};
use crate::policy::{self, kept, live};
use crate::{cgroup, module, up};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn drop_in_file(name: &str) -> String {
    format!("/etc/systemd/system/{name}.d/50-rsmc.conf")
}

/// The contents of a drop-in.
fn drop_in(program: &str) -> String {
    format!(
        "{MARK}\n# Module and rule are there before the service starts. Without them it starts all the same, over TCP.\n\
         [Service]\nExecStartPre=-+{program} up --unit %n\n"
    )
}

/// The path of this program in the system below `root`, as systemd reads it.
fn program(system: &System<'_>) -> Result<String> {
    if !system.live {
        let places = ["/usr/local/bin/rsmc", "/usr/bin/rsmc"];
        let there = |place: &&&str| below(&system.root, place).is_ok_and(|path| path.exists());
        return Ok(places.iter().find(there).unwrap_or(&places[0]).to_string());
    }
    let program = std::env::current_exe()?;
    let path = program.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    if !path.chars().all(plain) {
        return Err(Error::Usage(format!(
            "{path}: a path that systemd would not take as it is; install rsmc in /usr/local/bin"
        )));
    }
    // systemd is to run it as root at each start of a service.
    match only_roots(&program)? {
        None => Ok(path),
        Some(at) => Err(Error::Usage(format!(
            "{path}: others than root can change {}, and services would run it as root; install rsmc in /usr/local/bin",
            at.display()
        ))),
    }
}

/// Returns what others than root can change of a file and the directories above it, if anything: what belongs to
/// another user, or its group or everybody may write. A mode bit of the group stands for access control lists, too.
pub(super) fn only_roots(file: &Path) -> Result<Option<PathBuf>> {
    for at in file.ancestors() {
        let facts = std::fs::symlink_metadata(at).map_err(|error| Error::at(at, error))?;
        if facts.uid() != 0 || facts.mode() & 0o022 != 0 {
            return Ok(Some(at.into()));
        }
    }
    Ok(None)
}

/// The rules of a unit.
fn rules(cgroup: &str, mptcp: bool) -> Result<Vec<Rule>> {
    let condition = format!("cgroup={cgroup}");
    let words = |more: &[&str]| -> Vec<String> {
        let first = ["allow", &condition];
        first
            .iter()
            .chain(more)
            .map(|word| word.to_string())
            .collect()
    };
    let mut rules = vec![rule::from_words(&words(&[]))?];
    if mptcp {
        rules.push(rule::from_words(&words(&["mptcp"]))?);
    }
    Ok(rules)
}

/// The rules of a file; lines that are none count for nothing.
fn lines_of(path: &Path) -> Vec<Rule> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let rules = text
        .lines()
        .filter_map(|line| rule::from_file("", line).ok());
    rules.flatten().collect()
}

pub(super) fn lines(rules: &[Rule]) -> String {
    let mut text = String::new();
    for rule in rules {
        text.push_str(&rule::verdict_text(rule.verdict));
        text.push(' ');
        text.push_str(&rule::conditions(rule));
        text.push('\n');
    }
    text
}

/// Enables units.
///
/// # Errors
/// As [`super::enable`].
pub(super) fn enable(system: &mut System<'_>, args: &EnableArgs) -> Result<()> {
    if system.live {
        cgroup::host_root()?;
    }
    let program = program(system)?;
    let (mut changes, mut all, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut running, mut cgroups) = (Vec::new(), Vec::new());
    for given in &args.what.units {
        let mut unit = unit::parse(given)?;
        let place = system.place(&mut unit)?;
        let rules = rules(&place.cgroup, args.mptcp)?;
        let text = format!("{MARK}\n{}", lines(&rules));
        changes.extend(system.file(&up::rule_file(&unit.name), Some(text))?);
        if unit.kind == Kind::Service {
            changes.extend(system.file(&drop_in_file(&unit.name), Some(drop_in(&program)))?);
        } else {
            remarks.push(format!(
                "{}: a slice starts no commands; the boot service rsmc.service loads its rule",
                unit.name
            ));
        }
        if !place.sockets.is_empty() {
            remarks.push(format!(
                "{}: systemd listens for it ({}), and its own sockets stay TCP",
                unit.name,
                place.sockets.join(", ")
            ));
        }
        if place.active && unit.kind == Kind::Service {
            running.push(unit.name.clone());
        }
        cgroups.push((unit.name, place.cgroup));
        all.extend(rules);
    }
    match system.configured() {
        None => changes.extend(system.file(mode::FILE, Some(mode::contents(mode::RULES)))?),
        Some(found) => remarks.extend(about(&found)),
    }
    system.change(&changes)?;
    for remark in remarks {
        system.say(&remark)?;
    }
    if !system.live || system.dry {
        return Ok(());
    }
    system.reload()?;
    in_kernel(system, &all, &cgroups)
        .map_err(|error| error.before("enabled for the next start, and not now"))?;
    system.restart(args.what.restart, &running)
}

/// What to say about a value that somebody has chosen.
fn about(found: &mode::Configured) -> Option<String> {
    let file = found.file.display();
    match found.value {
        0 => Some(format!(
            "{file} has net.smc.tcp2smc = 0, so that no socket changes: make that 2, or remove the line"
        )),
        mode::RULES => None,
        value => Some(format!("{file} has net.smc.tcp2smc = {value}, which stays")),
    }
}

/// Gives the running kernel the rules and the value.
fn in_kernel(system: &mut System<'_>, rules: &[Rule], units: &[(String, String)]) -> Result<()> {
    module::ensure()?;
    if policy::collect()?.is_empty() {
        // As `rsmc up` would, which then finds that it has been done.
        if let Some(kept) = kept::all(Path::new("/"))? {
            live::replace(&kept)?;
        }
    }
    live::ensure(rules)?;
    let (before, now) = up::begin()?;
    match before == now {
        true => system.say(&format!("net.smc.tcp2smc is {now}"))?,
        false => system.say(&format!("net.smc.tcp2smc is {now} (it was {before})"))?,
    }
    for (name, cgroup) in units {
        let answer = policy::test::ask(&PolicyTest {
            cgroup: Some(cgroup.clone()),
            ..PolicyTest::default()
        })?;
        if !answer.smc {
            system.say(&format!("{name}: its sockets stay {}", answer.text))?;
        }
    }
    Ok(())
}

/// Takes back what [`enable`] did.
///
/// # Errors
/// As [`super::disable`].
pub(super) fn disable(system: &mut System<'_>, args: &DisableArgs) -> Result<()> {
    let (mut changes, mut unwanted, mut running) = (Vec::new(), Vec::new(), Vec::new());
    for given in &args.what.units {
        let mut unit = unit::parse(given)?;
        // It may be gone; then its name is as it was given.
        let place = system.place(&mut unit).unwrap_or_default();
        let path = below(&system.root, &up::rule_file(&unit.name))?;
        let rules = system.file(&up::rule_file(&unit.name), None)?;
        let drop_in = system.file(&drop_in_file(&unit.name), None)?;
        if rules.is_none() && drop_in.is_none() {
            return Err(Error::Table(format!("{} is not enabled", unit.name)));
        }
        unwanted.extend(lines_of(&path));
        // The drop-in first: it asks for the rule.
        changes.extend(drop_in);
        changes.extend(rules);
        if place.active && unit.kind == Kind::Service {
            running.push(unit.name);
        }
    }
    let gone = |path: &PathBuf| changes.iter().any(|change| change.path == *path);
    let main = below(&system.root, crate::cli::POLICY_FILE)?;
    let mut kept = kept::files(&system.root)?.into_iter().chain([main]);
    let is_used = kept.any(|path| {
        !gone(&path) && path.exists() && kept::file(&path).map_or(true, |rules| !rules.is_empty())
    });
    let last = system
        .configured()
        .is_some_and(|found| found.value == mode::RULES && found.is_ours() && !is_used);
    if last {
        changes.extend(system.file(mode::FILE, None)?);
    }
    system.change(&changes)?;
    if !system.dry {
        tidy(system, &changes)?;
    }
    if !system.live || system.dry {
        return Ok(());
    }
    system.reload()?;
    if let Some(value) = mode::live() {
        let left = live::remove(|rule| unwanted.contains(rule))?;
        if last && left == 0 && value == mode::RULES {
            mode::set(0)?;
            system.say("net.smc.tcp2smc is 0 (it was 2)")?;
        } else {
            system.say(&format!("net.smc.tcp2smc is {value}; rules: {left}"))?;
        }
    }
    system.restart(args.what.restart, &running)
}

/// Removes the directories that were made for the files that are gone. One with other files stays.
fn tidy(system: &System<'_>, gone: &[Change]) -> Result<()> {
    for Change { path, .. } in gone {
        let own = path
            .parent()
            .filter(|at| at.extension().is_some_and(|kind| kind == "d"));
        if let Some(own) = own.filter(|own| !own.ends_with("etc/sysctl.d")) {
            let _ = std::fs::remove_dir(own);
        }
    }
    let _ = std::fs::remove_dir(below(&system.root, "/etc/rsmc")?);
    Ok(())
}
