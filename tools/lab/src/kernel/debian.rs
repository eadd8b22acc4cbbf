// SPDX-License-Identifier: GPL-2.0

//! Debian's own kernels, with the Rust metadata their headers package lacks.
//!
//! The metadata is rebuilt from the same version's source with the same
//! configuration and compilers, by `tools/dkms/metadata`, which also proves that
//! the result belongs to the shipped kernel.

use super::{make, packages, source, Arch, Kernel};
use crate::cache::{self, Key, Restart};
use crate::cross;
use crate::data::{Data, Flavour};
use crate::progress;
use crate::sysroot;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

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
        .add("list", packages::list(series, flavour).join(" ").as_bytes())
        .add("variables", variables.join(" ").as_bytes());
    sysroot::get()?.toolchain_key(&mut key)?;

    let source = match cache::is_complete("kernel", name, &key) {
        true => source::get(&flavour.series)?,
        // Its packages are downloaded and unpacked while the source is.
        false => std::thread::scope(|scope| {
            let packages = scope.spawn(|| packages::kernel(flavour));
            let source = source::get(&flavour.series);
            packages.join().expect("a download does not panic")?;
            source
        })?,
    };
    let dir = cache::entry("kernel", name, &key, Restart::Clean, |dir| {
        let packages = packages::kernel(flavour)?;
        metadata(
            name,
            flavour.arch,
            &release,
            &source,
            &packages,
            &variables,
            dir,
        )?;
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
    arch: Arch,
    release: &str,
    source: &Path,
    packages: &Path,
    variables: &[String],
    dir: &Path,
) -> Result<()> {
    let build = dir.join("build");
    let headers = packages.join(format!("usr/src/linux-headers-{release}"));
    let mut make = cross::sysroot(arch)?.command("nice");
    make.args(["-n", "5"]).arg(script()).arg("make");
    make.arg(source).arg(headers).arg(build).args(variables);
    progress::run(
        &format!("kernel {name}: Rust metadata"),
        &mut make,
        &dir.join("log"),
    )
}

/// The script that makes and packs metadata, which DKMS uses as well.
pub fn script() -> PathBuf {
    cache::top().join("tools/dkms/metadata")
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
    use std::fs;
    use std::process::Command;

    /// Runs the script on Rust symbols of ours and a Module.symvers.
    fn compared(ours: &str, theirs: &str) -> (bool, String) {
        let dir = std::env::temp_dir().join(format!("lab-symbols-{}", std::process::id()));
        let rust = dir.join("rust");
        fs::create_dir_all(&rust).unwrap();
        for unit in ["core", "helpers", "bindings", "kernel"] {
            let text = if unit == "kernel" { ours } else { "" };
            fs::write(rust.join(format!("exports_{unit}_generated.h")), text).unwrap();
        }
        fs::write(dir.join("symvers"), theirs).unwrap();
        let mut command = Command::new("sh");
        command.arg(super::script()).arg("symbols").arg(&dir);
        let out = command.arg(dir.join("symvers")).output().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8(text).unwrap())
    }

    #[test]
    fn symbols_are_compared_both_ways() {
        let symvers = "0x0\t_RA\tvmlinux\tEXPORT_SYMBOL_GPL\t\n0x0\tprintk\tvmlinux\tx\t\n\
                       0x0\t_RB\tdrivers/x\tEXPORT_SYMBOL_GPL\t\n";
        let ours = |names: &[&str]| {
            let line = |name: &&str| format!("EXPORT_SYMBOL_RUST_GPL({name});\n");
            names.iter().map(line).collect::<String>()
        };
        let (fine, said) = compared(&ours(&["_RA"]), symvers);
        assert!(
            fine && said.starts_with("1 of 1 Rust symbols match"),
            "{said}"
        );
        for (names, sign) in [
            (
                ["_RA", "_RC"].as_slice(),
                "has the Rust symbol _RC, Module.symvers has not",
            ),
            (
                &["_RA", "_RB"],
                "has the Rust symbol _RB, Module.symvers has not",
            ),
            (
                &["printk"],
                "Module.symvers has the Rust symbol _RA, it has not",
            ),
        ] {
            let (fine, said) = compared(&ours(names), symvers);
            assert!(!fine && said.contains(sign), "{said}");
        }
        let (fine, said) = compared("", "0x0\tprintk\tvmlinux\tx\t\n");
        assert!(!fine && said.contains("exports no Rust symbol"), "{said}");
    }
}
