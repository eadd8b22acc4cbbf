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

/// Returns the number of the CPU on which the caller runs, or has just run.
pub fn current_cpu() -> u32 {
    // SAFETY: No preconditions.
    unsafe { bindings::some_cpu() }
}

/// Returns how many CPUs run.
pub fn online_cpus() -> u32 {
    // SAFETY: No preconditions.
    unsafe { bindings::online_cpus() }
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

impl Name {
    /// No name.
    pub const NONE: Self = Self([0; MAX + 1]);

    /// Has `read` write the name; it gets the buffer and its size.
    fn read(read: unsafe extern "C" fn(*mut ffi::c_char, usize)) -> Self {
        let mut this = Self::NONE;
        // SAFETY: There is room for as many bytes as told, and the name always ends within its array.
        unsafe { read(this.0.as_mut_ptr().cast(), this.0.len()) };
        this
    }
}

/// Returns the name of the machine, that of the initial UTS namespace.
///
/// While it is being changed the result may have some of the old and some of the new name.
pub fn name() -> Name {
    Name::read(bindings::host_name)
}

/// Returns the name of the machine as the current task knows it, that of its UTS namespace. As [`name`].
pub fn name_for_task() -> Name {
    Name::read(bindings::task_host_name)
}
