// SPDX-License-Identifier: GPL-2.0

//! Debian's own kernels, with the Rust metadata their headers package lacks.
//!
//! The metadata is rebuilt from the same version's source with the same
//! configuration and compilers. Guards prove that the result belongs to the
//! shipped kernel: the configuration survives unchanged, rustc is the very one
//! the kernel was built with, and the Rust symbols, whose names contain hashes
//! over crates and options, are those in the shipped `Module.symvers`.

use super::{make, packages, source, Kernel};
use crate::cache::{self, Key, Restart};
use crate::data::{Data, Flavour};
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Changes when the steps below do, so that old entries are made again.
const RECIPE: &str = "2";

/// Returns the kernel, downloading and preparing it if needed.
pub fn get(name: &str, flavour: &Flavour) -> Result<Kernel> {
    let series = Data::get()
        .series
        .get(&flavour.series)
        .context("unknown series")?;
    let release = format!("{}-{}", series.abi, flavour.variant);
    let mut variables = make::variables(flavour)?;
    variables.push(format!("KERNELRELEASE={release}"));
    let mut key = Key::new();
    key.add("recipe", RECIPE.as_bytes())
        .add("package", series.package.as_bytes())
        .add(
            "list",
            packages::list(series, &flavour.variant)
                .join(" ")
                .as_bytes(),
        )
        .add("variables", variables.join(" ").as_bytes());
    sysroot::get()?.toolchain_key(&mut key)?;

    let source = source::get(&flavour.series)?;
    let dir = cache::entry("kernel", name, &key, Restart::Clean, |dir| {
        let packages = packages::kernel(&flavour.series, &flavour.variant)?;
        metadata(name, &release, &source, &packages, &variables, dir)?;
        modules(name, &release, &packages, dir)
    })?;
    Ok(Kernel {
        flavour: name.into(),
        arch: flavour.arch,
        image: dir.join("vmlinuz"),
        modules: dir.join("modules"),
        build: dir.join("build"),
        source,
        debug: false,
        release,
    })
}

fn metadata(
    name: &str,
    release: &str,
    source: &Path,
    packages: &Path,
    variables: &[String],
    dir: &Path,
) -> Result<()> {
    let build = dir.join("build");
    let headers = packages.join(format!("usr/src/linux-headers-{release}"));
    fs::create_dir_all(&build)?;
    let shipped = fs::read_to_string(headers.join(".config"))?;
    fs::write(build.join(".config"), &shipped)?;

    let version = sysroot::get()?.rustc_version()?;
    if !shipped.contains(&format!("CONFIG_RUSTC_VERSION_TEXT=\"{version}\"\n")) {
        bail!("{name} was built with another rustc than the sysroot's '{version}'");
    }
    let mut prepare = make::command(source, &build, variables)?;
    prepare.args(["olddefconfig", "prepare", "modules_prepare"]);
    progress::run(
        &format!("kernel {name}: Rust metadata"),
        &mut prepare,
        &dir.join("log"),
    )?;
    if fs::read_to_string(build.join(".config"))? != shipped {
        bail!("{name}: olddefconfig changed Debian's configuration");
    }
    let symvers = fs::read_to_string(headers.join("Module.symvers"))?;
    let matching = compare(&exported(&build.join("rust"))?, &provided(&symvers))?;
    eprintln!("kernel {name}: {matching} of {matching} Rust symbols match Module.symvers");
    fs::write(build.join("Module.symvers"), symvers)?;
    Ok(())
}

/// Rust symbols the rebuilt crates would export.
fn exported(rust: &Path) -> Result<BTreeSet<String>> {
    let mut symbols = BTreeSet::new();
    for unit in ["core", "helpers", "bindings", "kernel"] {
        let path = rust.join(format!("exports_{unit}_generated.h"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once('(') {
                symbols.extend(rest.split(')').next().map(str::to_string));
            }
        }
    }
    Ok(symbols)
}

/// Symbols the shipped kernel itself exports.
fn provided(symvers: &str) -> BTreeSet<String> {
    let fields = symvers
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    fields
        .filter_map(|fields| match fields.as_slice() {
            [_, symbol, "vmlinux", ..] => Some(symbol.to_string()),
            _ => None,
        })
        .collect()
}

/// Every symbol of ours must be theirs, and every mangled Rust symbol of theirs
/// ours; returns the number of matching symbols.
fn compare(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Result<usize> {
    if ours.is_empty() {
        bail!("the rebuilt metadata exports no Rust symbol");
    }
    if let Some(symbol) = ours.difference(theirs).next() {
        bail!("rebuilt metadata has Rust symbol {symbol}, Module.symvers does not");
    }
    if let Some(symbol) = theirs
        .difference(ours)
        .find(|symbol| symbol.starts_with("_R"))
    {
        bail!("Module.symvers has Rust symbol {symbol}, the rebuilt metadata does not");
    }
    Ok(ours.len())
}

/// Lays the shipped modules out as `lib/modules` and runs depmod as the
/// packages' scripts would have done.
fn modules(name: &str, release: &str, packages: &Path, dir: &Path) -> Result<()> {
    let log = dir.join("log");
    let shipped = packages.join("usr/lib/modules").join(release);
    let lib = dir.join("modules/lib/modules");
    fs::create_dir_all(&lib)?;
    let mut copy = sysroot::get()?.command("cp");
    copy.args(["-a", "--link"]).arg(&shipped).arg(&lib);
    progress::run(&format!("kernel {name}: modules"), &mut copy, &log)?;
    for link in ["build", "source"] {
        let link = lib.join(release).join(link);
        if link.is_symlink() {
            fs::remove_file(link)?;
        }
    }
    let image = lib.join(release).join("vmlinuz");
    fs::rename(image, dir.join("vmlinuz"))?;
    let mut depmod = sysroot::get()?.command("depmod");
    depmod.arg("-b").arg(dir.join("modules")).arg(release);
    progress::run(&format!("kernel {name}: depmod"), &mut depmod, &log)
}

#[cfg(test)]
mod tests {
    use super::{compare, provided};

    #[test]
    fn symbols_are_compared_both_ways() {
        let symvers = "0x0\t_RA\tvmlinux\tEXPORT_SYMBOL_GPL\t\n0x0\tprintk\tvmlinux\tx\t\n\
                       0x0\t_RB\tdrivers/x\tEXPORT_SYMBOL_GPL\t\n";
        let theirs = provided(symvers);
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        assert_eq!(compare(&set(&["_RA"]), &theirs).ok(), Some(1));
        assert!(compare(&set(&["_RA", "_RC"]), &theirs).is_err());
        assert!(compare(&set(&[]), &theirs).is_err());
        assert!(compare(&set(&["_RA"]), &set(&["_RA", "_RD"])).is_err());
    }
}
