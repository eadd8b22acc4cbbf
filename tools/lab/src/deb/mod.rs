// SPDX-License-Identifier: GPL-2.0

//! `lab deb`: Debian packages, the same bytes from the same commit.
//!
//! Builds what goes into them with no path of this machine in it, and leaves the
//! packing to `tools/deb/build.sh` and debhelper. [`version`] says which version it is, [`mod@test`]
//! installs them in a [`root`](crate::root) or a [`guest`], by [`cases`].

mod cases;
mod guest;
mod monitoring;
mod secure_boot;
pub mod test;
pub mod version;

use crate::cache;
use crate::data::{Data, Origin};
use crate::kernel::{self, Kernel};
use crate::module::{self, Build};
use crate::run::user;
use crate::{progress, sysroot};
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use version::Version;

/// Arguments of `lab deb`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Arguments {
    /// Directory for the packages; below the checkout or the cache
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// The packages' version instead of the one that git tells
    #[arg(long)]
    package_version: Option<String>,
    /// Private key to sign the modules with; with --sign-cert
    #[arg(long, requires = "sign_cert")]
    sign_key: Option<PathBuf>,
    /// Its certificate
    #[arg(long, requires = "sign_key")]
    sign_cert: Option<PathBuf>,
    /// Only these: tools, dkms, modules, or a kernel of Debian's by its name in lab.toml
    only: Vec<String>,
}

impl Arguments {
    /// True if a package is wanted.
    fn wants(&self, names: &[&str]) -> bool {
        let wanted = |only: &String| names.contains(&only.as_str());
        self.only.is_empty() || self.only.iter().any(wanted)
    }
}

/// Runs `lab deb`.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    for entry in make(arguments)? {
        let size = fs::metadata(&entry)?.len();
        println!("{} ({} KB)", entry.display(), size / 1024);
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the packages that are wanted and returns all of this version.
pub fn make(arguments: &Arguments) -> Result<Vec<PathBuf>> {
    let known = |name: &&String| {
        ["tools", "dkms", "modules"].contains(&name.as_str())
            || debian().any(|flavour| flavour == *name)
    };
    if let Some(name) = arguments.only.iter().find(|name| !known(name)) {
        bail!("there is no package '{name}'; there are: tools, dkms, modules");
    }
    let version = version::get(arguments.package_version.as_deref())?;
    let out = cache::top().join(&arguments.out);
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let packer = Packer {
        out: fs::canonicalize(&out)?,
        work: cache::work().join("deb"),
        version,
        arguments,
    };
    fs::create_dir_all(&packer.work)?;
    let _lock = cache::lock_file(&packer.work.join("lock"))?;
    packer.clear()?;
    if arguments.wants(&["tools"]) {
        packer.tools()?;
    }
    if arguments.wants(&["dkms"]) {
        packer.pack("rsmc-dkms", &[])?;
    }
    for flavour in debian() {
        if arguments.wants(&["modules", flavour]) {
            packer.modules(flavour)?;
        }
    }
    sorted(&packer.out)
}

/// Removes what packages were built from, so that the next ones are built from nothing.
pub fn forget() -> Result<()> {
    let work = cache::work();
    for flavour in debian() {
        cache::remove(&work.join("deb").join(flavour))?;
    }
    cache::remove(&programs_directory())
}

/// The kernels that modules are packaged for.
fn debian() -> impl Iterator<Item = &'static str> {
    let flavours = Data::get().flavour.iter();
    let of_debian = flavours.filter(|(_, flavour)| {
        flavour.origin == Origin::Debian && flavour.arch.foreign().is_none()
    });
    of_debian.map(|(name, _)| name.as_str())
}

/// The packages in a directory.
pub fn sorted(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

struct Packer<'a> {
    out: PathBuf,
    work: PathBuf,
    version: Version,
    arguments: &'a Arguments,
}

impl Packer<'_> {
    /// Removes our packages of other versions, so that `./rsmc-*.deb` is one set.
    fn clear(&self) -> Result<()> {
        let this = format!("_{}_", self.version.text);
        for path in sorted(&self.out)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("rsmc-") && !name.contains(&this) {
                cache::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.work.join("log")
    }

    /// Has debhelper make a package; `given` are further variables of `debian/rules`.
    fn pack(&self, package: &str, given: &[(&str, &Path)]) -> Result<()> {
        let layer = sysroot::with("packaging", &Data::get().packaging.packages)?;
        let mut command = layer.command("sh");
        command
            .arg(cache::top().join("tools/deb/build.sh"))
            .env("PACKAGE", package)
            .envs(given.iter().copied())
            .env("TOP", cache::top())
            .env("OUT", &self.out)
            .env("WORK", &self.work)
            .env("VERSION", &self.version.text)
            .env("SOURCE_DATE_EPOCH", self.version.time.to_string());
        if let Some(name) = std::env::var_os("RSMC_MAINTAINER") {
            command.env("RSMC_MAINTAINER", name);
        }
        for (name, path) in [
            ("SIGN_KEY", &self.arguments.sign_key),
            ("SIGN_CERT", &self.arguments.sign_cert),
        ] {
            if let Some(path) = path {
                let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
                command.env(name, path);
            }
        }
        progress::run(&format!("package {package}"), &mut command, &self.log())
    }

    /// Programs, with the list of what they contain.
    fn tools(&self) -> Result<()> {
        let built = programs()?;
        let list = self.work.join("crates");
        fs::write(&list, crates()?)?;
        self.pack("rsmc-tools", &[("PROGRAMS", &built), ("CRATES", &list)])
    }

    fn modules(&self, flavour: &str) -> Result<()> {
        let kernel = kernel::get(flavour)?;
        let module = module(&kernel)?;
        let sign = kernel.build.join("scripts/sign-file");
        let given: [(&str, &Path); 3] = [
            ("RELEASE", Path::new(&kernel.release)),
            ("MODULE", &module),
            ("SIGN_FILE", &sign),
        ];
        self.pack(&format!("rsmc-modules-{}", kernel.release), &given)
    }
}

/// Builds the programs and returns their directory.
fn programs() -> Result<PathBuf> {
    let Some(mut command) = user::cargo("tools", "build")? else {
        bail!("the checkout has no tools");
    };
    let target = programs_directory();
    command
        .args(["--release", "-p", "rsmc", "-p", "rsmc-preload"])
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("RUSTFLAGS", renamed("--remap-path-prefix=").join(" "));
    let log = cache::work().join("deb.log");
    fs::write(&log, "")?;
    progress::run("programs: building", &mut command, &log)?;
    Ok(target.join("release"))
}

/// Where they are built: a directory of its own, as other flags would build everything again, for either.
fn programs_directory() -> PathBuf {
    cache::work().join("target/deb")
}

/// Options that put names in the place of this machine's paths.
fn renamed(option: &str) -> Vec<String> {
    let name = |path: PathBuf, name: &str| format!("{option}{}={name}", path.display());
    // The last that fits counts.
    vec![
        name(cache::root(), "/cache"),
        name(cache::root().join("cargo/registry/src"), "/crates"),
        name(cache::top(), "/rsmc"),
    ]
}

/// The crates that the programs contain, with their licences.
fn crates() -> Result<String> {
    let Some(mut command) = user::cargo("tools", "tree")? else {
        bail!("the checkout has no tools");
    };
    command.args([
        "-p",
        "rsmc",
        "-p",
        "rsmc-preload",
        "-e",
        "normal,no-proc-macro",
    ]);
    command.args(["--prefix", "none", "--no-dedupe", "-f", "{p}\t{l}"]);
    let out = command.output()?;
    if !out.status.success() {
        bail!(
            "cargo tree: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let mut lines: Vec<String> = text.lines().filter_map(licence).collect();
    lines.sort();
    lines.dedup();
    Ok(format!("\nCrates:\n{}\n", lines.join("\n")))
}

/// A line of the list; none for what is ours, whose path is in it.
fn licence(line: &str) -> Option<String> {
    let (package, licence) = line.split_once('\t')?;
    (!package.contains('/')).then(|| format!(" {package}: {licence}"))
}

/// Builds the module without this machine's paths.
fn module(kernel: &Kernel) -> Result<PathBuf> {
    let tree = cache::work().join("deb").join(&kernel.flavour).join("tree");
    let mut rust = renamed("--remap-path-prefix=");
    let mut c = renamed("-ffile-prefix-map=");
    for (flags, option) in [
        (&mut rust, "--remap-path-prefix="),
        (&mut c, "-ffile-prefix-map="),
    ] {
        for (path, name) in [
            (&kernel.source, "/linux"),
            (&kernel.build, "/linux"),
            (&tree, "/rsmc"),
        ] {
            flags.push(format!("{option}{}={name}", path.display()));
        }
    }
    let variables = [
        format!("KRUSTFLAGS={}", rust.join(" ")),
        format!("KCFLAGS={}", c.join(" ")),
    ];
    let build = Build {
        name: "deb",
        variables: &variables,
    };
    let built = module::make(kernel, &build)?;
    for warning in &built.warnings {
        eprintln!("{warning}");
    }
    Ok(built.module)
}

/// A command of git in the checkout; none if it has no history.
pub(crate) fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(cache::top()).args(arguments);
    let out = command.output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_ours_is_not_listed() {
        let licence = super::licence;
        assert_eq!(
            licence("clap v4.5.1\tMIT OR Apache-2.0").as_deref(),
            Some(" clap v4.5.1: MIT OR Apache-2.0")
        );
        assert_eq!(licence("rsmc v0.1.0 (/x/tools/rsmc)\tGPL-2.0"), None);
    }
}
