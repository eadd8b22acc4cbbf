// SPDX-License-Identifier: GPL-2.0
//! `rsmc up`: loads the module, and puts in place what is configured.

use crate::cli::UpArgs;
use crate::enable::{mode, unit};
use crate::error::{Error, Result};
use crate::module;
use crate::policy::rule::Rule;
use crate::policy::{self, kept, live};
use crate::settings;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Puts everything in place, or what a unit needs.
///
/// # Errors
/// `NotThere` without the module, `Usage` for files that are wrong, or the kernel's.
pub fn run(args: &UpArgs, out: &mut dyn Write) -> Result<()> {
    let done = match &args.unit {
        None => everything(),
        Some(name) => unit_rules(name)
            .and_then(|rules| bring(&rules))
            .map_err(|error| error.before(&format!("{name} starts over TCP"))),
    };
    Ok(writeln!(out, "{}", done?)?)
}

/// The file with a unit's rules.
pub(crate) fn rule_file(name: &str) -> String {
    format!("{}/{name}.conf", kept::DIRECTORY)
}

/// The rules of a unit, or of its template.
fn unit_rules(name: &str) -> Result<Vec<Rule>> {
    let unit = unit::parse(name)?;
    let names = [Some(unit.name.clone()), unit.template()];
    let mut files = names
        .into_iter()
        .flatten()
        .map(|name| PathBuf::from(rule_file(&name)));
    match files.find(|file| file.exists()) {
        Some(file) => kept::file(&file),
        None => Err(Error::Table(format!(
            "there is no {}",
            rule_file(&unit.name)
        ))),
    }
}

/// Puts in place all that is configured, also where the module was there: a boot may have loaded it before.
fn everything() -> Result<String> {
    module::ensure()?;
    let fine = settings::apply();
    let done = bring(&[])?;
    match fine {
        true => Ok(done),
        false => Err(Error::Io(std::io::Error::other(format!(
            "{done}; not all settings of sysctl.d could be set"
        )))),
    }
}

/// Loads the module, all rules where there are none, and those of `more` that are missing. Says what there is then.
fn bring(more: &[Rule]) -> Result<String> {
    module::ensure()?;
    // A namespace with rules was set up before; what has been changed there since stays.
    let fresh = policy::collect()?.is_empty();
    if fresh {
        if let Some(rules) = kept::all(Path::new("/"))? {
            live::replace(&rules)?;
        }
    }
    live::ensure(more)?;
    if fresh {
        begin()?;
    }
    let mode = mode::live().unwrap_or(0);
    let wanted = mode::configured(Path::new("/")).map(|wanted| (wanted.value, wanted.file));
    let but = match wanted {
        Some((value, file)) if mode == 0 && value != 0 => format!(
            ", so that sockets stay TCP; somebody has changed it ({} has {value})",
            file.display()
        ),
        _ => String::new(),
    };
    Ok(format!(
        "rules: {}, net.smc.tcp2smc: {mode}{but}",
        policy::collect()?.len()
    ))
}

/// Gives `net.smc.tcp2smc` its configured value if it is 0; returns the values before and after.
pub(crate) fn begin() -> Result<(i32, i32)> {
    let now = mode::live().unwrap_or(0);
    match mode::configured(Path::new("/")) {
        Some(wanted) if now == 0 && wanted.value != 0 => {
            mode::set(wanted.value)?;
            Ok((now, wanted.value))
        }
        _ => Ok((now, now)),
    }
}
