// SPDX-License-Identifier: GPL-2.0

//! `lab test-packages`: the packages in Debian roots that have nothing else of
//! ours, and in a guest with Debian's kernel.
//!
//! A case is a function of `tools/deb/test/cases.sh` or `guest.sh`, run in a layer
//! of its own; it passes if it exits with 0. Its lines that begin with `#` are shown.

use super::cases::{Base, Case, CASES, SECOND};
use super::{guest, make, monitoring, secure_boot, Arguments as Deb};
use crate::cache;
use crate::data::Data;
use crate::guest::cluster::Options;
use crate::progress;
use crate::root::{self, Root, Setting};
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `lab test-packages`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Only cases whose name begins with this
    #[arg(long)]
    only: Option<String>,
    /// Also those that build the module by DKMS: minutes each, and gigabytes
    #[arg(long)]
    long: bool,
    /// Take the packages of this directory instead of making them
    #[arg(long)]
    packages: Option<PathBuf>,
}

/// The layers, each made when a case first needs it.
struct Roots {
    debs: PathBuf,
    work: PathBuf,
}

/// Runs `lab test-packages`.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|case| {
            let only = arguments.only.as_deref();
            only.is_none_or(|only| case.name.starts_with(only)) && (arguments.long || !case.long)
        })
        .collect();
    if chosen.is_empty() {
        bail!("no case is called that, or it needs --long");
    }
    let work = cache::work().join("test-packages");
    fs::create_dir_all(&work)?;
    let _lock = cache::lock_file(&work.join("lock"))?;
    let debs = work.join("debs");
    match &arguments.packages {
        Some(path) => packages(path, &debs)?,
        None => drop(make(&Deb {
            out: debs.clone(),
            ..Deb::default()
        })?),
    }
    let roots = Roots { debs, work };
    println!("KTAP version 1\n1..{}", chosen.len());
    let mut failed = 0;
    for (index, case) in chosen.iter().enumerate() {
        let (fine, lines) = roots.run(case).unwrap_or_else(|error| {
            let lines = format!("{error:#}").lines().map(str::to_owned).collect();
            (false, lines)
        });
        let verdict = if fine { "ok" } else { "not ok" };
        println!("{verdict} {} - packages.{}", index + 1, case.name);
        for line in &lines {
            println!("# {}", line.trim_start_matches("# "));
        }
        failed += usize::from(!fine);
    }
    println!(
        "{} passed, {failed} failed, 0 skipped",
        chosen.len() - failed
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Copies packages that are there already.
fn packages(from: &Path, to: &Path) -> Result<()> {
    // Those of the last run.
    if to.exists() && fs::canonicalize(from)? == fs::canonicalize(to)? {
        return Ok(());
    }
    cache::remove(to)?;
    fs::create_dir_all(to)?;
    for path in super::sorted(from)? {
        fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// The release of a kernel of Debian's.
pub fn release(flavour: &str) -> Result<String> {
    let data = Data::get();
    let flavour = data.flavour(flavour)?;
    let series = data.series.get(&flavour.series).context("unknown series")?;
    Ok(format!("{}-{}", series.abi, flavour.variant))
}

/// The lines of a log that are to be shown.
pub fn said(log: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(log)?;
    let shown = text.lines().filter(|line| line.starts_with("# "));
    Ok(shown.map(str::to_owned).collect())
}

impl Roots {
    fn root(base: Base) -> Result<Root> {
        let small = root::small()?;
        let apt = "apt-get -q update\napt-get -qy install --no-install-recommends";
        match base {
            Base::Lintian => small.with("lintian", &format!("{apt} lintian\napt-get clean")),
            Base::Autopkgtest => {
                let packages = "autopkgtest dpkg-dev python3-debian";
                small.with("autopkgtest", &format!("{apt} {packages}\napt-get clean"))
            }
            Base::Kernel => {
                let image = format!("linux-image-{}", release(Data::default_flavour())?);
                // With what it needs of its suite.
                let suite = &Data::get().sysroot.backports;
                small.with(
                    "kernel",
                    &format!("{apt} -t {suite} {image}\napt-get clean"),
                )
            }
            Base::Dkms | Base::Built => {
                let needed = fs::read_to_string(cache::top().join("debian/rsmc-dkms.depends"))?;
                let needed: Vec<&str> = needed
                    .split(',')
                    .filter_map(|package| package.split_whitespace().next())
                    .collect();
                let headers = format!("linux-headers-{}", release(Data::default_flavour())?);
                let needed = needed.join(" ");
                small.with("dkms", &format!("{apt} {needed} {headers}\napt-get clean"))
            }
            _ => Ok(small),
        }
    }

    /// Runs a case; true if it passed, and what it said.
    fn run(&self, case: &Case) -> Result<(bool, Vec<String>)> {
        match case.base {
            Base::Guest => return self.guest(),
            Base::SecureBoot => {
                return secure_boot::run(&self.debs, &self.built(false)?, &self.work)
            }
            Base::Monitoring => return monitoring::run(&self.debs, &self.work),
            Base::Again => return self.again(),
            _ => {}
        }
        let root = Self::root(case.base)?;
        let dir = self.work.join(case.name);
        cache::remove(&dir)?;
        if case.base == Base::Built {
            // Each of these begins where the build ended.
            let built = self.built(case.name == "dkms_built")?;
            let mut copy = std::process::Command::new("cp");
            copy.args(["-a", "--reflink=auto"]).arg(&built).arg(&dir);
            progress::run(
                "copying what was built",
                &mut copy,
                &dir.with_extension("log"),
            )?;
        }
        let log = self.work.join(format!("{}.log", case.name));
        fs::write(&log, "")?;
        let done = self.shell(&root, &dir, case.setting, case.name, &log);
        let mut lines = said(&log)?;
        let done = done.and_then(|()| match case.name {
            SECOND => guest::both_boot(&dir, &self.work, &mut lines),
            _ => Ok(()),
        });
        if let Err(error) = &done {
            lines.push(format!("{error:#}"));
        }
        cache::remove(&dir)?;
        Ok((done.is_ok(), lines))
    }

    /// The changes to a root in which DKMS has built the module; kept until one is wanted `anew`.
    fn built(&self, anew: bool) -> Result<PathBuf> {
        let built = self.work.join("built");
        if anew || !built.join("done").exists() {
            cache::remove(&built)?;
            let root = Self::root(Base::Built)?;
            let log = built.join("log");
            self.shell(&root, &built, Setting::default(), "dkms_build", &log)?;
            fs::write(built.join("done"), "")?;
        }
        Ok(built)
    }

    /// Installs the packages in a guest with Debian's kernel and uses them.
    fn guest(&self) -> Result<(bool, Vec<String>)> {
        let stage = guest::stage(&self.debs)?;
        let log = self.work.join("guest.log");
        guest::run(&stage, Options::default(), &["guest.sh"], &log)
    }

    /// Makes all packages again, from nothing, and compares them.
    fn again(&self) -> Result<(bool, Vec<String>)> {
        super::forget()?;
        let out = self.work.join("again");
        cache::remove(&out)?;
        let second = make(&Deb {
            out,
            ..Deb::default()
        })?;
        let (mut fine, mut lines) = (!second.is_empty(), Vec::new());
        for path in second {
            let name = path.file_name().unwrap_or_default();
            let same = fs::read(self.debs.join(name)).ok() == Some(fs::read(&path)?);
            fine &= same;
            let verdict = if same { "the same" } else { "other bytes" };
            lines.push(format!("{}: {verdict}", name.to_string_lossy()));
        }
        Ok((fine, lines))
    }

    fn shell(
        &self,
        root: &Root,
        dir: &Path,
        setting: Setting,
        case: &str,
        log: &Path,
    ) -> Result<()> {
        let tests = cache::top().join("tools/deb/test");
        let debian = cache::top().join("debian");
        let bound: [(&Path, &str); 3] = [
            (&self.debs, "/debs"),
            (&tests, "/test"),
            (&debian, "/debian"),
        ];
        let mut command = root.command(dir, setting, &bound)?;
        command
            .args(["sh", "/run/test/cases.sh", case])
            .arg(release(Data::default_flavour())?)
            .arg(release(&Data::get().next)?);
        progress::run(&format!("packages.{case}"), &mut command, log)
    }
}
