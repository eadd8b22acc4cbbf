// SPDX-License-Identifier: GPL-2.0

//! Unpacked kernel source of a series, shared by all builds (`O=` elsewhere).

use super::packages;
use crate::cache::{self, Key, Restart};
use crate::data::Data;
use crate::progress;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Returns the source tree of a series.
pub fn get(name: &str) -> Result<PathBuf> {
    let series = Data::get().series.get(name).context("unknown series")?;
    let mut key = Key::new();
    key.add("series", name.as_bytes())
        .add("package", series.package.as_bytes());
    let dir = cache::entry("source", name, &key, Restart::Clean, |dir| {
        let archive = packages::source(name)?.join(format!("usr/src/linux-source-{name}.tar.xz"));
        let what = format!("source of Linux {name}: unpacking");
        progress::run(
            &what,
            &mut packages::unpack(&archive, dir)?,
            &dir.join("log"),
        )
    })?;
    Ok(dir.join(format!("linux-source-{name}")))
}
