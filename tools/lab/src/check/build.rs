// SPDX-License-Identifier: GPL-2.0

//! Builds that prove something without a guest.

use super::{Complaints, KERNEL};
use crate::kernel;
use crate::module;
use anyhow::Result;

/// A wrong layout of the bindings does not build.
pub fn layout() -> Result<Complaints> {
    module::layout_guard(&kernel::get(KERNEL)?)?;
    Ok(Vec::new())
}
