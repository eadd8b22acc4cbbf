// SPDX-License-Identifier: GPL-2.0

//! Debian's kernel packages of one series, downloaded and unpacked.

use crate::cache::{self, Key, Restart};
use crate::data::{Data, Series};
use crate::progress;
use crate::sysroot;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Downloads exactly the series' version of its packages with the sysroot's apt
/// (so signatures are checked) and returns the directory they are unpacked in.
pub fn get(name: &str) -> Result<PathBuf> {
    let series = Data::get().series.get(name).context("unknown series")?;
    let mut key = Key::new();
    key.add("series", name.as_bytes())
        .add("abi", series.abi.as_bytes())
        .add("package", series.package.as_bytes())
        .add("list", list(name, series).join(" ").as_bytes());
    cache::entry("packages", name, &key, Restart::Clean, |dir| {
        let sysroot = sysroot::get()?;
        let log = dir.join("log");
        let state = cache::root().join("apt");
        {
            let _lock = cache::lock("apt")?;
            fs::create_dir_all(state.join("lists/partial"))?;
            fs::create_dir_all(state.join("archives/partial"))?;
            let apt = || {
                let mut command = sysroot.command("apt-get");
                command
                    .args([
                        "-q",
                        "-o",
                        "APT::Sandbox::User=root",
                        "-o",
                        "Acquire::Retries=3",
                    ])
                    .args(["-o", "Acquire::Languages=none"])
                    .arg("-o")
                    .arg(format!("Dir::State::Lists={}/lists", state.display()))
                    .arg("-o")
                    .arg(format!("Dir::Cache={}", state.display()))
                    .current_dir(dir);
                command
            };
            let what = format!("packages of Linux {name}: reading the archive's index");
            // An index that could not be fetched is only a warning to apt.
            let update = ["update", "-o", "APT::Update::Error-Mode=any"];
            progress::run(&what, apt().args(update), &log)?;
            let what = format!("packages of Linux {name}: downloading");
            progress::run(&what, apt().arg("download").args(list(name, series)), &log)?;
        }
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = sysroot.command("dpkg-deb");
                unpack.arg("-x").arg(&path).arg(dir);
                progress::run(
                    &format!("packages of Linux {name}: unpacking"),
                    &mut unpack,
                    &log,
                )?;
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    })
}

fn list(name: &str, series: &Series) -> Vec<String> {
    let abi = &series.abi;
    let mut packages = vec![
        format!("linux-source-{name}"),
        format!("linux-headers-{abi}-amd64"),
        format!("linux-headers-{abi}-common"),
        format!("linux-kbuild-{abi}"),
        format!("linux-base-{abi}-amd64"),
    ];
    packages.extend(series.image.clone());
    packages.push(format!("linux-modules-{abi}-amd64"));
    for package in &mut packages {
        *package += &format!("={}", series.package);
    }
    packages
}

/// `tar` is the sysroot's: the host's may lack xz.
pub fn unpack(archive: &std::path::Path, into: &std::path::Path) -> Result<Command> {
    let mut command = sysroot::get()?.command("tar");
    command
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .arg("--no-same-owner");
    Ok(command)
}
