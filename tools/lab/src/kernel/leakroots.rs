// SPDX-License-Identifier: GPL-2.0

//! `leakroots.ko`, which makes kmemleak see UML's `.lbss` section; see
//! `kmod/leakroots`.

use super::{helper, Arch, Kernel};
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::path::PathBuf;

const SOURCES: [(&str, &str); 2] = [
    ("Kbuild", include_str!("../../kmod/leakroots/Kbuild")),
    (
        "leakroots.c",
        include_str!("../../kmod/leakroots/leakroots.c"),
    ),
];

/// The module and its parameters, for kernels that need it.
pub fn get(kernel: &Kernel) -> Result<Option<(PathBuf, String)>> {
    if kernel.arch != Arch::Uml || !kernel.debug {
        return Ok(None);
    }
    let Some((start, size)) = section(kernel, ".lbss")? else {
        return Ok(None);
    };
    let sources = SOURCES.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let module = helper::build(kernel, "leakroots", &sources)?;
    let parameters = format!("start={start:#x} size={size:#x}");
    Ok(Some((module, parameters)))
}

/// Address and length of a section of the kernel's image.
fn section(kernel: &Kernel, name: &str) -> Result<Option<(u64, u64)>> {
    let output = sysroot::get()?
        .command("readelf")
        .args(["-SW"])
        .arg(&kernel.image)
        .output()
        .context("readelf")?;
    if !output.status.success() {
        bail!("readelf {}: {}", kernel.image.display(), output.status);
    }
    Ok(find(&String::from_utf8_lossy(&output.stdout), name))
}

/// A line of readelf is `[Nr] name type address offset size ...`.
fn find(listing: &str, name: &str) -> Option<(u64, u64)> {
    listing.lines().find_map(|line| {
        let mut words = line.split(']').nth(1)?.split_whitespace();
        if words.next()? != name {
            return None;
        }
        let address = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let size = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        Some((address, size))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_section_is_found() {
        let listing = "\
  [54] .bss              NOBITS          0000000061da2000 1da1b58 005098 00  WA  0   0 4096
  [55] .lbss             NOBITS          0000000061da8000 1da1b58 7d2840 00 WAl  0   0 16384
";
        assert_eq!(
            super::find(listing, ".lbss"),
            Some((0x61da_8000, 0x7d_2840))
        );
        assert_eq!(super::find(listing, ".data"), None);
    }
}
