// SPDX-License-Identifier: GPL-2.0

//! `lab test-packages`: the packages in Debian roots that have nothing else of
//! ours, and in a guest with Debian's kernel.
//!
//! A case is a function of `tools/deb/test/cases.sh` or `guest.sh`, run in a layer
//! of its own; it passes if it exits with 0. Its lines that begin with `#` are shown.

use super::cases::{Base, Case, CASES, SECOND};
use super::root::{self, Root, Setting};
use super::{make, Arguments as Deb};
use crate::cache;
use crate::data::Data;
use crate::guest::cluster::{Cluster, Job, Options, Stream, Topology};
use crate::kernel;
use crate::progress;
use crate::run::boot::loads;
use crate::run::stage::Stage;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

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

/// Copies a module that DKMS installed; it compresses them where the kernel's own are.
fn unpack(from: &Path, to: &Path) -> Result<()> {
    if from.exists() {
        fs::copy(from, to)?;
        return Ok(());
    }
    let packed = from.with_extension("ko.xz");
    let out = Command::new("xz").arg("-dc").arg(&packed).output()?;
    if !out.status.success() {
        bail!("{}: {}", packed.display(), out.status);
    }
    Ok(fs::write(to, out.stdout)?)
}

/// Copies packages that are there already.
fn packages(from: &Path, to: &Path) -> Result<()> {
    cache::remove(to)?;
    fs::create_dir_all(to)?;
    for path in super::sorted(from)? {
        fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

impl Roots {
    /// The release of a kernel of Debian's.
    fn release(flavour: &str) -> Result<String> {
        let data = Data::get();
        let flavour = data.flavour(flavour)?;
        let series = data.series.get(&flavour.series).context("unknown series")?;
        Ok(format!("{}-{}", series.abi, flavour.variant))
    }

    fn root(base: Base) -> Result<Root> {
        let small = root::small()?;
        let apt = "apt-get -q update\napt-get -qy install --no-install-recommends";
        match base {
            Base::Small | Base::Guest | Base::Again => Ok(small),
            Base::Lintian => small.with("lintian", &format!("{apt} lintian\napt-get clean")),
            Base::Kernel => {
                let image = format!("linux-image-{}", Self::release(Data::default_flavour())?);
                // With what it needs of its suite.
                let suite = &Data::get().sysroot.backports;
                small.with("kernel", &format!("{apt} -t {suite} {image}\napt-get clean"))
            }
            Base::Dkms | Base::Built => {
                let needed = fs::read_to_string(cache::top().join("tools/deb/dkms/depends"))?;
                let needed: Vec<&str> = needed
                    .split(',')
                    .filter_map(|package| package.split_whitespace().next())
                    .collect();
                let headers = format!("linux-headers-{}", Self::release(Data::default_flavour())?);
                let needed = needed.join(" ");
                small.with("dkms", &format!("{apt} {needed} {headers}\napt-get clean"))
            }
        }
    }

    /// Runs a case; true if it passed, and what it said.
    fn run(&self, case: &Case) -> Result<(bool, Vec<String>)> {
        match case.base {
            Base::Guest => return self.guest(),
            Base::Again => return self.again(),
            _ => {}
        }
        let root = Self::root(case.base)?;
        let built = self.work.join("built");
        let dir = self.work.join(case.name);
        cache::remove(&dir)?;
        if case.base == Base::Built {
            // Each of these begins where the build ended.
            if case.name == "dkms_built" || !built.join("done").exists() {
                cache::remove(&built)?;
                self.shell(
                    &root,
                    &built,
                    Setting::default(),
                    "dkms_build",
                    &built.join("log"),
                )?;
                fs::write(built.join("done"), "")?;
            }
            let mut copy = Command::new("cp");
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
        let text = fs::read_to_string(&log)?;
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("# "))
            .map(str::to_owned)
            .collect();
        let done = done.and_then(|()| match case.name {
            SECOND => self.both_boot(&dir, &mut lines),
            _ => Ok(()),
        });
        if let Err(error) = &done {
            lines.push(format!("{error:#}"));
        }
        cache::remove(&dir)?;
        Ok((done.is_ok(), lines))
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

    /// Boots both kernels with the modules that DKMS has built for them.
    fn both_boot(&self, dir: &Path, lines: &mut Vec<String>) -> Result<()> {
        for flavour in [Data::default_flavour(), &Data::get().next] {
            let release = Self::release(flavour)?;
            let directory = format!("upper/usr/lib/modules/{release}/updates/dkms");
            let module = self.work.join(format!("{flavour}.ko"));
            unpack(&dir.join(directory).join("rsmc.ko"), &module)?;
            loads(flavour, &module)?;
            lines.push(format!("{release} boots, and loads and unloads its module"));
        }
        Ok(())
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
        let bound: [(&Path, &str); 2] = [(&self.debs, "/debs"), (&tests, "/test")];
        let mut command = root.command(dir, setting, &bound)?;
        command
            .args(["sh", "/run/test/cases.sh", case])
            .arg(Self::release(Data::default_flavour())?)
            .arg(Self::release(&Data::get().next)?);
        progress::run(&format!("packages.{case}"), &mut command, log)
    }

    /// Installs the packages in a guest with Debian's kernel and uses them.
    fn guest(&self) -> Result<(bool, Vec<String>)> {
        let kernel = kernel::get(Data::default_flavour())?;
        let stage = Stage::new("packages", kernel.arch, None, &[])?;
        stage.copy_directory(&self.debs, "debs")?;
        stage.copy_directory(&cache::top().join("tools/deb/test"), "test")?;
        let options = Options {
            root: Some(root::small()?.directory()?.to_owned()),
            ..Options::default()
        };
        let begun = Instant::now();
        let mut cluster = Cluster::boot(&kernel, Topology::Netns, &stage.path, options)?;
        let mut lines = vec![format!("booted in {} s", begun.elapsed().as_secs())];
        let job = Job {
            id: "packages".into(),
            timeout: Duration::from_secs(400),
            env: vec![
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(),
                "HOME=/root".into(),
            ],
            argv: ["sh", "/rsmc/test/guest.sh"].map(str::to_owned).into(),
        };
        let mut all = Vec::new();
        let outcomes = cluster.run(&[Some(job)], &mut |_, stream, line| {
            let line = match stream {
                Stream::Out => line.to_owned(),
                Stream::Err => format!("stderr: {line}"),
            };
            all.push(line);
        })?;
        cluster.shut_down();
        let outcome = outcomes.into_iter().next().unwrap_or_default();
        let fine = outcome.status == 0 && outcome.reports.is_empty();
        fs::write(self.work.join("guest.log"), all.join("\n"))?;
        if fine {
            all.retain(|line| line.starts_with("# "));
        } else {
            let from = all.len().saturating_sub(40);
            all.drain(..from);
            all.extend(outcome.reports);
            all.push(format!("exit status {} {}", outcome.status, outcome.why));
        }
        lines.extend(all);
        Ok((fine, lines))
    }
}
