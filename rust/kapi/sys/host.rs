// SPDX-License-Identifier: GPL-2.0

//! The machine.

use kernel::ffi;
use smc_bindings as bindings;

/// Longest host name that is kept, in bytes.
const MAX: usize = 64;

/// Returns how many pages of memory the machine has.
#[must_use]
pub fn memory_pages() -> usize {
    // SAFETY: No preconditions.
    unsafe { bindings::memory_pages() as usize }
}

/// The host's name.
#[derive(Clone, Copy)]
pub struct Name([u8; MAX + 1]);

impl Name {
    /// Returns the name, at most 63 bytes, without a NUL byte.
    pub fn text(&self) -> &[u8] {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(MAX);
        self.0.get(..end.min(MAX - 1)).unwrap_or(&[])
    }
}

/// Returns the name of the machine, that of the initial UTS namespace.
///
/// While it is being changed the result may have some of the old and some of the new name.
pub fn name() -> Name {
    let mut bytes = [0; MAX + 1];
    // SAFETY: There is room for as many bytes as told, and the name always ends within its array.
    unsafe { bindings::host_name(bytes.as_mut_ptr().cast::<ffi::c_char>(), bytes.len()) };
    Name(bytes)
}
