// SPDX-License-Identifier: GPL-2.0

//! The data file `lab.toml`: suites, packages, kernels.

use crate::cache;
use crate::kernel::Arch;
use anyhow::{bail, Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Debian's binary packages.
    Debian,
    /// Built here from Debian's source package.
    Custom,
}

/// `[sysroot]`: the distribution everything is built and run in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "some of it is for tools/bootstrap only")]
pub struct Sysroot {
    /// Release name of the distribution.
    pub suite: String,
    /// Name of the suite the kernels come from.
    pub backports: String,
    /// Packages whose versions kernels depend on.
    pub toolchain: Vec<String>,
    /// All other packages.
    pub packages: Vec<String>,
}

/// `[series.*]`: one kernel version of the backports suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Part of the package names, for instance `7.2.12+deb13`.
    pub abi: String,
    /// Exact version of all its packages.
    pub package: String,
}

/// `[flavour.*]`: one kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flavour {
    /// Where it comes from.
    pub origin: Origin,
    /// Architecture.
    pub arch: Arch,
    /// Key into the series table.
    pub series: String,
    /// End of the names of its packages: `amd64`, or for instance `rt-amd64`.
    #[serde(default = "amd64")]
    pub variant: String,
    /// One line for people.
    pub about: String,
    /// Configuration fragments, in order.
    #[serde(default)]
    pub fragments: Vec<String>,
    /// Key into the compiler table.
    #[serde(default = "gcc")]
    pub compiler: String,
    /// Variables for make when the kernel is built, but not modules.
    #[serde(default)]
    pub kernel_make: Vec<String>,
    /// Slow because of its debug options.
    #[serde(default)]
    pub debug: bool,
    /// Never booted by `make test`.
    #[serde(default)]
    pub build_only: bool,
}

impl Flavour {
    /// Tells whether the C module is built with it, by our fragments.
    pub fn has_smc(&self) -> bool {
        matches!(self.origin, Origin::Custom)
    }

    /// Tells whether the C module has a way within a host, by our fragments.
    pub fn has_smc_d(&self) -> bool {
        self.fragments.iter().any(|fragment| fragment == "dibs")
    }
}

fn amd64() -> String {
    "amd64".into()
}

fn gcc() -> String {
    "gcc".into()
}

/// `[compiler.*]`: kernel make variables that select a compiler.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compiler {
    /// Variables for the make command line.
    pub make: Vec<String>,
}

/// `[cross.*]`: an architecture that is not this machine's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// Rust's name of the target.
    pub target: String,
    /// The GNU tools' name of it.
    pub gnu: String,
    /// Packages over the sysroot: compilers, and QEMU.
    pub tools: Vec<String>,
    /// Packages of the guests, besides the essential ones.
    pub guest: Vec<String>,
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// The flavour that is taken where none is named.
    pub default: String,
    /// Debian's kernel after that one.
    pub next: String,
    /// The distribution.
    pub sysroot: Sysroot,
    /// Kernel versions by series.
    pub series: BTreeMap<String, Series>,
    /// Kernels by name.
    pub flavour: BTreeMap<String, Flavour>,
    /// Compilers by name.
    pub compiler: BTreeMap<String, Compiler>,
    /// Other architectures by Debian's names.
    pub cross: BTreeMap<String, Cross>,
    /// What makes the documentation a site.
    pub docs: Docs,
    /// What `lab check` needs besides.
    pub check: Layer,
    /// What `lab deb` needs besides.
    pub packaging: Layer,
}

/// What is laid over the sysroot.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Debian packages.
    pub packages: Vec<String>,
}

/// What makes the documentation a site.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Docs {
    /// Version of mdBook.
    pub mdbook: String,
}

static DATA: OnceLock<Data> = OnceLock::new();

impl Data {
    /// The flavour that is taken where none is named.
    pub fn default_flavour() -> &'static str {
        &Data::get().default
    }

    /// Reads and checks the file; the first thing `main` does.
    pub fn load() -> Result<()> {
        let path = dir().join("lab.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let data: Data = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for (name, flavour) in &data.flavour {
            if !data.series.contains_key(&flavour.series) {
                bail!(
                    "lab.toml: flavour {name} names unknown series {}",
                    flavour.series
                );
            }
            if !data.compiler.contains_key(&flavour.compiler) {
                bail!(
                    "lab.toml: flavour {name} names unknown compiler {}",
                    flavour.compiler
                );
            }
        }
        for booted in [&data.default, &data.next] {
            if data.flavour(booted)?.build_only {
                bail!("lab.toml: the kernel {booted} is not booted");
            }
        }
        DATA.set(data).ok();
        Ok(())
    }

    /// The data. Empty tables before [`Data::load`], which `main` never allows.
    pub fn get() -> &'static Data {
        DATA.get_or_init(|| Data {
            default: String::new(),
            next: String::new(),
            sysroot: Sysroot {
                suite: String::new(),
                backports: String::new(),
                toolchain: Vec::new(),
                packages: Vec::new(),
            },
            series: BTreeMap::new(),
            flavour: BTreeMap::new(),
            compiler: BTreeMap::new(),
            cross: BTreeMap::new(),
            docs: Docs {
                mdbook: String::new(),
            },
            check: Layer::default(),
            packaging: Layer::default(),
        })
    }

    /// A flavour's name without its version: `debian` for `debian-7.2`.
    pub fn kind(flavour: &str) -> &str {
        match flavour.rsplit_once('-') {
            Some((kind, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => kind,
            _ => flavour,
        }
    }

    /// The name with its version, if there is such a flavour to boot: `debian-7.2` for `debian`.
    pub fn versioned<'a>(&'a self, name: &'a str) -> &'a str {
        let belongs = |known: &str| {
            let version = known
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'));
            version.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.flavour
            .iter()
            .find(|(known, flavour)| !flavour.build_only && belongs(known))
            .map_or(name, |(known, _)| known)
    }

    /// Looks a flavour up; the error lists the known ones.
    pub fn flavour(&self, name: &str) -> Result<&Flavour> {
        self.flavour.get(name).with_context(|| {
            let known: Vec<&str> = self.flavour.keys().map(String::as_str).collect();
            format!(
                "no kernel flavour '{name}'; there are: {}",
                known.join(", ")
            )
        })
    }
}

/// The directory of the lab's data files in the checkout.
pub fn dir() -> PathBuf {
    cache::top().join("tools/lab")
}
