// SPDX-License-Identifier: GPL-2.0

//! Debian's kernel packages of one version, downloaded and unpacked.

use crate::cache::{self, Key, Restart};
use crate::cross;
use crate::data::{Data, Flavour, Series};
use crate::kernel::Arch;
use crate::progress;
use crate::sysroot::{self, Sysroot};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory with the source package of a series.
pub fn source(series: &str) -> Result<PathBuf> {
    get(
        Arch::X86,
        &format!("{series}-source"),
        &[format!("linux-source-{series}")],
        series,
    )
}

/// Returns the directory with what a kernel of a series consists of: the bootable image, its modules and headers.
pub fn kernel(flavour: &Flavour) -> Result<PathBuf> {
    let series = &flavour.series;
    let list = list(find(series)?, flavour);
    get(
        flavour.arch,
        &format!("{series}-{}", flavour.variant),
        &list,
        series,
    )
}

/// Returns the names of a kernel's packages.
pub fn list(series: &Series, flavour: &Flavour) -> Vec<String> {
    let abi = &series.abi;
    let arch = flavour.arch.foreign();
    let arch = arch.map_or(String::new(), |name| format!(":{name}"));
    let own = |part: &str| format!("linux-{part}-{abi}-{}{arch}", flavour.variant);
    vec![
        own("headers"),
        format!("linux-headers-{abi}-common"),
        // Programs, which run here.
        format!("linux-kbuild-{abi}"),
        own("base"),
        own("binary"),
        own("modules"),
    ]
}

fn find(series: &str) -> Result<&'static Series> {
    Data::get().series.get(series).context("unknown series")
}

/// Downloads packages in exactly the series' version with the sysroot's apt
/// (so signatures are checked) and returns the directory they are unpacked in.
fn get(arch: Arch, name: &str, list: &[String], series: &str) -> Result<PathBuf> {
    let version = &find(series)?.package;
    let exact: Vec<String> = list.iter().map(|one| format!("{one}={version}")).collect();
    let mut key = Key::new();
    key.add("list", exact.join(" ").as_bytes());
    cache::entry("packages", name, &key, Restart::Clean, |dir| {
        let sysroot = cross::sysroot(arch)?;
        let log = dir.join("log");
        // Each has its own indexes.
        let state = cache::root().join(match arch.foreign() {
            Some(name) => format!("apt-{name}"),
            None => "apt".into(),
        });
        {
            let _lock = cache::lock("apt")?;
            fs::create_dir_all(state.join("lists/partial"))?;
            fs::create_dir_all(state.join("archives/partial"))?;
            let what = format!("packages of Linux {name}: reading the archive's index");
            progress::run(&what, apt(&sysroot, &state, dir).args(UPDATE), &log)?;
            let what = format!("packages of Linux {name}: downloading");
            let mut download = apt(&sysroot, &state, dir);
            progress::run(&what, download.arg("download").args(&exact), &log)?;
        }
        unpack_debs(&sysroot, &format!("packages of Linux {name}"), dir)
    })
}

/// Arguments that read the archive's index. One that could not be fetched is only a warning to apt otherwise.
pub const UPDATE: [&str; 3] = ["update", "-o", "APT::Update::Error-Mode=any"];

/// An `apt-get` of the sysroot that works in `dir` and keeps its indexes and packages below `state`.
pub fn apt(sysroot: &Sysroot, state: &Path, dir: &Path) -> Command {
    let mut command = sysroot.command("apt-get");
    command
        .args(["-q", "-o", "APT::Sandbox::User=root"])
        .args(["-o", "Acquire::Retries=3"])
        .args(["-o", "Acquire::Languages=none"])
        .arg("-o")
        .arg(format!("Dir::State::Lists={}/lists", state.display()))
        .arg("-o")
        .arg(format!("Dir::Cache={}", state.display()))
        .current_dir(dir);
    command
}

/// Unpacks the packages that a directory holds, there, and removes them.
pub fn unpack_debs(sysroot: &Sysroot, what: &str, dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = sysroot.command("dpkg-deb");
            unpack.arg("-x").arg(&path).arg(dir);
            progress::run(&format!("{what}: unpacking"), &mut unpack, &dir.join("log"))?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// `tar` is the sysroot's: the host's may lack xz.
pub fn unpack(archive: &Path, into: &Path) -> Result<Command> {
    let mut command = sysroot::get()?.command("tar");
    command
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .arg("--no-same-owner");
    Ok(command)
}
