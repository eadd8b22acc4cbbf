// SPDX-License-Identifier: GPL-2.0

//! Builds that prove something without a guest.

use super::{Complaints, KERNEL};
use crate::data::Data;
use crate::kernel;
use crate::module;
use anyhow::Result;

/// The module builds without a warning for the kernels nobody boots.
pub fn others() -> Result<Complaints> {
    let mut found = Vec::new();
    for (name, flavour) in &Data::get().flavour {
        if flavour.build_only {
            let build = module::Build {
                name: "module",
                variables: &[],
            };
            let built = module::make(&kernel::get(name)?, &build)?;
            found.extend(
                built
                    .warnings
                    .into_iter()
                    .map(|line| format!("{name}: {line}")),
            );
        }
    }
    Ok(found)
}

/// A wrong layout of the bindings does not build.
pub fn layout() -> Result<Complaints> {
    module::layout_guard(&kernel::get(KERNEL)?)?;
    Ok(Vec::new())
}
