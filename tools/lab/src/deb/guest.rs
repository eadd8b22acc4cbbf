// SPDX-License-Identifier: GPL-2.0

//! Scripts of `tools/deb/test` in guests with Debian's kernel and the small root.

use super::test::release;
use crate::cache;
use crate::data::Data;
use crate::guest::cluster::{Cluster, Job, Options, Stream, Topology};
use crate::guest::pace;
use crate::kernel::{self, Arch};
use crate::root;
use crate::run::boot::loads;
use crate::run::stage::Stage;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Lays out the packages and the scripts for a guest.
pub fn stage(debs: &Path) -> Result<Stage> {
    let stage = Stage::new("packages", Arch::X86, None, &[])?;
    stage.copy_directory(debs, "debs")?;
    stage.copy_directory(&cache::top().join("tools/deb/test"), "test")?;
    Ok(stage)
}

/// Runs a script in a guest of the default kernel; true if it passed, and what it said.
pub fn run(
    stage: &Stage,
    options: Options,
    script: &[&str],
    log: &Path,
) -> Result<(bool, Vec<String>)> {
    let kernel = kernel::get(Data::default_flavour())?;
    let options = Options {
        root: Some(root::small()?.directory()?.to_owned()),
        ..options
    };
    let begun = Instant::now();
    let mut cluster = Cluster::boot(&kernel, Topology::Netns, &stage.path, options)?;
    let mut lines = vec![format!("booted in {} s", begun.elapsed().as_secs())];
    let (name, arguments) = script.split_first().context("no script")?;
    let mut argv = vec!["sh".to_owned(), format!("/rsmc/test/{name}")];
    argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let job = Job {
        id: "packages".into(),
        timeout: Duration::from_secs(400) * pace::factor(),
        env: vec![
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(),
            "HOME=/root".into(),
        ],
        argv,
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
    fs::write(log, all.join("\n"))?;
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

/// The file that DKMS has installed for a kernel in a root whose changes are in `dir`.
pub fn built(dir: &Path, release: &str) -> Result<PathBuf> {
    let directory = dir.join(format!("upper/usr/lib/modules/{release}/updates/dkms"));
    // Compressed if the kernel's own modules are there and are.
    let forms = ["rsmc.ko", "rsmc.ko.xz"].map(|name| directory.join(name));
    let found = forms.into_iter().find(|path| path.exists());
    found.with_context(|| format!("no module in {}", directory.display()))
}

/// Boots both kernels with the modules that DKMS has built for them.
pub fn both_boot(dir: &Path, work: &Path, lines: &mut Vec<String>) -> Result<()> {
    for flavour in [Data::default_flavour(), &Data::get().next] {
        let release = release(flavour)?;
        let mut file = built(dir, &release)?;
        if file.extension().is_some_and(|extension| extension == "xz") {
            let mut unpack = std::process::Command::new("xz");
            let out = unpack.arg("-dc").arg(&file).output()?;
            if !out.status.success() {
                bail!("{}: {}", file.display(), out.status);
            }
            file = work.join(format!("{flavour}.ko"));
            fs::write(&file, out.stdout)?;
        }
        loads(flavour, &file)?;
        lines.push(format!("{release} boots, and loads and unloads its module"));
    }
    Ok(())
}
