// SPDX-License-Identifier: GPL-2.0

//! Builds that prove something without a guest.

use super::{kernel, Complaints};
use crate::module;
use anyhow::Result;

/// A wrong layout of the bindings does not build.
pub fn layout() -> Result<Complaints> {
    module::layout_guard(&kernel()?)?;
    Ok(Vec::new())
}
