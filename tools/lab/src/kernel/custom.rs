// SPDX-License-Identifier: GPL-2.0

//! Kernels built from Debian's source with our fragments over `allnoconfig`.

use super::{make, source, Arch, Kernel};
use crate::cache::{self, Key, Restart};
use crate::data::{self, Data, Flavour};
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns the kernel, building it if needed; an interrupted build is resumed.
pub fn get(name: &str, flavour: &Flavour) -> Result<Kernel> {
    let series = Data::get()
        .series
        .get(&flavour.series)
        .context("unknown series")?;
    let fragments = fragments(flavour)?;
    let mut variables = make::variables(flavour)?;
    variables.extend(flavour.kernel_make.iter().cloned());
    let mut key = Key::new();
    key.add("package", series.package.as_bytes())
        .add("fragments", fragments.as_bytes())
        .add("variables", variables.join(" ").as_bytes());
    sysroot::get()?.toolchain_key(&mut key)?;

    let source = source::get(&flavour.series)?;
    let dir = cache::entry("kernel", name, &key, Restart::Resume, |dir| {
        let _locks = make::exclusive()?;
        build(name, flavour, &source, &fragments, &variables, dir)
    })?;
    let build = dir.join("build");
    let release = fs::read_to_string(build.join("include/config/kernel.release"))?;
    Ok(Kernel {
        flavour: name.into(),
        arch: flavour.arch,
        release: release.trim().into(),
        image: match flavour.arch {
            Arch::Uml => build.join("linux"),
            Arch::X86 => build.join("arch/x86/boot/bzImage"),
            Arch::Arm64 => build.join("arch/arm64/boot/Image"),
        },
        modules: dir.join("modules"),
        build,
        source,
        debug: flavour.debug,
    })
}

fn fragments(flavour: &Flavour) -> Result<String> {
    let mut text = String::new();
    for fragment in &flavour.fragments {
        let path = data::dir()
            .join("configs")
            .join(format!("{fragment}.config"));
        text += &fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    }
    Ok(text)
}

fn build(
    name: &str,
    flavour: &Flavour,
    source: &Path,
    fragments: &str,
    variables: &[String],
    dir: &Path,
) -> Result<()> {
    let build = dir.join("build");
    let log = dir.join("log");
    fs::create_dir_all(&build)?;
    let all = dir.join("fragments.config");
    fs::write(&all, fragments)?;

    let mut configure = make::command(flavour.arch, source, &build, variables)?;
    configure
        .arg(format!("KCONFIG_ALLCONFIG={}", all.display()))
        .arg("allnoconfig");
    progress::run(&format!("kernel {name}: configuring"), &mut configure, &log)?;
    check(fragments, &fs::read_to_string(build.join(".config"))?)?;

    let mut compile = make::command(flavour.arch, source, &build, variables)?;
    if flavour.arch == Arch::X86 {
        compile.args(["bzImage", "modules"]);
    }
    progress::run(
        &format!("kernel {name}: building (8 to 14 minutes)"),
        &mut compile,
        &log,
    )?;

    let modules = dir.join("modules");
    cache::remove(&modules)?;
    let mut install = make::command(flavour.arch, source, &build, variables)?;
    install
        .arg(format!("INSTALL_MOD_PATH={}", modules.display()))
        .arg("modules_install");
    progress::run(
        &format!("kernel {name}: installing modules"),
        &mut install,
        &log,
    )
}

/// Checks that Kconfig kept every line of the fragments (the last one of a
/// symbol counts): an option dropped silently would make a test meaningless.
fn check(fragments: &str, config: &str) -> Result<()> {
    let parse = |text: &str| -> BTreeMap<String, String> {
        let pairs = text
            .lines()
            .filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
        pairs
            .map(|(symbol, value)| (symbol.to_string(), value.to_string()))
            .collect()
    };
    let config = parse(config);
    let lost: Vec<String> = parse(fragments)
        .into_iter()
        .filter(|(symbol, wanted)| config.get(symbol).map_or("n", String::as_str) != wanted)
        .map(|(symbol, wanted)| format!("CONFIG_{symbol}={wanted}"))
        .collect();
    if !lost.is_empty() {
        bail!("Kconfig did not keep {}", lost.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn lost_options_are_found() {
        let fragments = "CONFIG_A=y\nCONFIG_B=n\nCONFIG_A=m\n# CONFIG_X=y\n";
        assert!(check(fragments, "CONFIG_A=m\n# CONFIG_B is not set\n").is_ok());
        assert!(check(fragments, "CONFIG_A=y\n").is_err());
        assert!(check(fragments, "CONFIG_A=m\nCONFIG_B=y\n").is_err());
    }
}
