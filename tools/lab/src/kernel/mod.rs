// SPDX-License-Identifier: GPL-2.0

//! Kernels the lab can boot.
//!
//! One [`Kernel`] per *flavour* named in `lab.toml`: Debian's own kernels with
//! rebuilt Rust metadata ([`debian`]) and kernels built from Debian's source
//! with our configuration fragments ([`custom`]). Everything about a kernel
//! lives in the cache; nothing here knows how a guest is booted.

pub mod custom;
pub mod debian;
pub mod helper;
pub mod leakroots;
pub mod make;
pub mod packages;
pub mod source;

use crate::data::{Data, Origin};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Architecture of a kernel, which decides how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// A user-mode Linux program (`ARCH=um`).
    Uml,
    /// An x86-64 image for QEMU.
    X86,
    /// An arm64 image for QEMU, from another architecture's compilers.
    Arm64,
}

impl Arch {
    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Uml => "um",
            Arch::X86 => "x86",
            Arch::Arm64 => "arm64",
        }
    }

    /// Debian's name of it, where it is not this machine's.
    pub fn foreign(self) -> Option<&'static str> {
        match self {
            Arch::Uml | Arch::X86 => None,
            Arch::Arm64 => Some("arm64"),
        }
    }
}

/// A kernel that is ready to boot and to build modules against.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name in `lab.toml`, for instance `debian-7.2` or `uml`.
    pub flavour: String,
    /// Architecture.
    pub arch: Arch,
    /// `uname -r` of the running kernel.
    pub release: String,
    /// The bzImage, or the UML program (runs inside the sysroot only).
    pub image: PathBuf,
    /// The directory that contains `lib/modules/<release>`, with `modules.dep`.
    pub modules: PathBuf,
    /// The `O=` directory modules are built against.
    pub build: PathBuf,
    /// The source tree belonging to `build`.
    pub source: PathBuf,
    /// True where a debug configuration makes the kernel slow.
    pub debug: bool,
}

/// Returns the kernel of a flavour, building it first if the cache lacks it.
/// A name without version, as in the plan, is that of the one that can be booted.
pub fn get(flavour: &str) -> Result<Kernel> {
    let data = Data::get();
    let flavour = data.versioned(flavour);
    let entry = data.flavour(flavour)?;
    match entry.origin {
        Origin::Debian => debian::get(flavour, entry),
        Origin::Custom => custom::get(flavour, entry),
    }
    .with_context(|| format!("kernel {flavour}"))
}
