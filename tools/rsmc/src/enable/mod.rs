// SPDX-License-Identifier: GPL-2.0
//! `rsmc enable` and `rsmc disable`: services, or a host, whose TCP sockets become SMC sockets.
//!
//! What is to hold at each boot is in files of their own, all of which change or none ([`files`]): a rule for the
//! unit's cgroup, a drop-in that calls `rsmc up` before the unit starts, and the value of `net.smc.tcp2smc`. Then the
//! running kernel gets the same.

pub mod files;
mod host;
pub mod mode;
pub mod unit;

use crate::cli::{DisableArgs, EnableArgs, PolicyTest, Services};
use crate::error::{Error, Result};
use crate::policy::rule::{self, Rule};
use crate::policy::{self, kept, live};
use crate::{cgroup, module, up};
use files::{below, look, Change, Found, MARK};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use unit::{Kind, Place, Unit};

/// The system whose files are changed.
struct System<'a> {
    root: PathBuf,
    /// It is the one that runs.
    live: bool,
    dry: bool,
    out: &'a mut dyn Write,
}

impl<'a> System<'a> {
    fn new(what: &Services, out: &'a mut dyn Write) -> Self {
        Self {
            root: what.root.clone().unwrap_or_else(|| "/".into()),
            live: what.root.is_none(),
            dry: what.dry_run,
            out,
        }
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Whether systemd runs it.
    fn has_systemd(&self) -> bool {
        self.live && Path::new("/run/systemd/system").is_dir()
    }

    fn place(&self, unit: &mut Unit) -> Result<Place> {
        match self.has_systemd() {
            true => unit::ask(unit),
            false => unit::find(&self.root, unit),
        }
    }

    /// Says what changes, and makes the changes.
    fn change(&mut self, changes: &[Change]) -> Result<()> {
        let would = if self.dry { "would be " } else { "" };
        if !self.dry {
            files::apply(changes)?;
        }
        for Change { path, contents } in changes {
            let path = path.display();
            match contents {
                None => self.say(&format!("{path}: {would}removed"))?,
                Some(text) => {
                    self.say(&format!("{path}: {would}written"))?;
                    for line in text.lines().filter(|line| !line.starts_with('#')) {
                        self.say(&format!("    {line}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A change of a file of `rsmc enable`; `None` if there is nothing to change.
    fn file(&self, path: &str, contents: Option<String>) -> Result<Option<Change>> {
        let path = below(&self.root, path)?;
        let same = match (look(&path)?, &contents) {
            (Found::Foreign, _) => {
                return Err(Error::Table(format!(
                    "{}: `rsmc enable` did not make this file; move it away",
                    path.display()
                )));
            }
            (Found::Missing, None) => true,
            (Found::Ours(old), Some(new)) => old == *new,
            _ => false,
        };
        Ok((!same).then_some(Change { path, contents }))
    }

    /// The value that the files give `net.smc.tcp2smc`.
    fn configured(&self) -> Option<mode::Configured> {
        mode::configured(&self.root)
    }

    fn reload(&mut self) -> Result<()> {
        match self.has_systemd() {
            true => systemctl(&["daemon-reload"]),
            false => Ok(()),
        }
    }

    fn restart(&mut self, now: bool, units: &[String]) -> Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        let units: Vec<&str> = units.iter().map(String::as_str).collect();
        match now {
            false => self.say(&format!(
                "sockets that exist stay what they are; for new ones: systemctl restart {}",
                units.join(" ")
            )),
            true => {
                systemctl(&[&["try-restart", "--"], &units[..]].concat())?;
                self.say(&format!("restarted: {}", units.join(" ")))
            }
        }
    }
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    let line = || format!("systemctl {}", arguments.join(" "));
    let done = Command::new("systemctl").args(arguments).status();
    match done.map_err(|error| Error::from(error).before(&line()))? {
        status if status.success() => Ok(()),
        status => Err(std::io::Error::other(format!("{}: {status}", line())).into()),
    }
}

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
    let path = std::env::current_exe()?.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    match path.chars().all(plain) {
        true => Ok(path),
        false => Err(Error::Usage(format!(
            "{path}: a path that systemd would not take as it is; install rsmc in /usr/local/bin"
        ))),
    }
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

fn lines(rules: &[Rule]) -> String {
    rules
        .iter()
        .map(|rule| {
            format!(
                "{} {}\n",
                rule::verdict_text(rule.verdict),
                rule::conditions(rule)
            )
        })
        .collect()
}

/// Enables units, or all sockets of this host.
///
/// # Errors
/// `Usage` for names that are none, `Table` where somebody else's file is in the way, errors of files, or the kernel's.
pub fn enable(args: &EnableArgs, out: &mut dyn Write) -> Result<()> {
    let mut system = System::new(&args.what, out);
    match args.what.all_on_this_host {
        true => host::enable(&mut system, args.yes),
        false => enable_units(&mut system, args),
    }
}

fn enable_units(system: &mut System<'_>, args: &EnableArgs) -> Result<()> {
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
/// As [`enable`]; `Table` for what is not enabled.
pub fn disable(args: &DisableArgs, out: &mut dyn Write) -> Result<()> {
    let mut system = System::new(&args.what, out);
    match args.what.all_on_this_host {
        true => host::disable(&mut system),
        false => disable_units(&mut system, args),
    }
}

fn disable_units(system: &mut System<'_>, args: &DisableArgs) -> Result<()> {
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

#[cfg(test)]
mod tests;
