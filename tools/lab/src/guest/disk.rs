// SPDX-License-Identifier: GPL-2.0

//! Directories as disks, for guests whose kernel knows no 9p: images with ext4, which the host's `mke2fs`
//! fills without mounting anything.

use crate::cache::{self, Key, Restart};
use crate::kernel::Kernel;
use crate::progress;
use crate::sysroot::Sysroot;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Size of an image; what is not used of it takes no room.
const SIZE: &str = "16G";

/// Tells whether guests of this kernel need disks.
pub fn wanted(kernel: &Kernel) -> bool {
    !super::image::has_module(kernel, "9p")
}

/// Returns the image of the sysroot, which is made once (3 GB, a minute).
pub fn of_sysroot(sysroot: &Sysroot) -> Result<PathBuf> {
    let status = fs::read(sysroot.path.join("var/lib/dpkg/status"))?;
    let path = sysroot.path.to_string_lossy();
    let mut key = Key::new();
    key.add("sysroot", path.as_bytes()).add("status", &status);
    let dir = cache::entry("disk", "sysroot", &key, Restart::Clean, |dir| {
        make(&sysroot.path, &dir.join("image"), &dir.join("log"))
    })?;
    Ok(dir.join("image"))
}

/// Makes the image of a directory.
pub fn make(directory: &Path, image: &Path, log: &Path) -> Result<()> {
    let _ = fs::remove_file(image);
    let mut command = super::as_root("mke2fs");
    // Nobody writes to it: it needs no journal and no room for root alone.
    command.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"]);
    command.arg("-d").arg(directory).arg(image).arg(SIZE);
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    progress::run(&format!("disk of {name}"), &mut command, log)
        .context("a guest without 9p needs mke2fs (Debian's package: e2fsprogs)")
}

/// Where a guest's disk with the contents of a tag is.
pub fn path(name: &str, tag: &str) -> PathBuf {
    cache::work().join(format!("disk-{name}-{tag}-{}", std::process::id()))
}
