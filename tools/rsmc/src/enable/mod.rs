// SPDX-License-Identifier: GPL-2.0
//! `rsmc enable` and `rsmc disable`: services, or a host, whose TCP sockets become SMC sockets.
//!
//! What is to hold at each boot is in files of their own, all of which change or none ([`files`]): a rule for the
//! unit's cgroup, a drop-in that calls `rsmc up` before the unit starts, and the value of `net.smc.tcp2smc`. Then the
//! running kernel gets the same.

pub mod files;
mod host;
pub mod mode;
mod place;
pub mod unit;
mod units;

use crate::cli::{DisableArgs, EnableArgs, Services};
use crate::error::{Error, Result};
use crate::visible;
use files::{below, look, Change, Found};
use place::Place;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use unit::Unit;

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
        Ok(writeln!(self.out, "{}", visible::text(line))?)
    }

    /// Whether systemd runs it.
    fn has_systemd(&self) -> bool {
        self.live && Path::new("/run/systemd/system").is_dir()
    }

    fn place(&self, unit: &mut Unit) -> Result<Place> {
        match self.has_systemd() {
            true => place::ask(unit),
            false => place::find(&self.root, unit),
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

/// Enables units, or all sockets of this host.
///
/// # Errors
/// `Usage` for names that are none, `Table` where somebody else's file is in the way, errors of files, or the kernel's.
pub fn enable(args: &EnableArgs, out: &mut dyn Write) -> Result<()> {
    let mut system = System::new(&args.what, out);
    match args.what.all_on_this_host {
        true => host::enable(&mut system, args.yes),
        false => units::enable(&mut system, args),
    }
}

/// Takes back what [`enable`] did.
///
/// # Errors
/// As [`enable`]; `Table` for what is not enabled.
pub fn disable(args: &DisableArgs, out: &mut dyn Write) -> Result<()> {
    let mut system = System::new(&args.what, out);
    match args.what.all_on_this_host {
        true => host::disable(&mut system),
        false => units::disable(&mut system, args),
    }
}

#[cfg(test)]
mod tests;
