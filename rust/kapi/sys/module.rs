// SPDX-License-Identifier: GPL-2.0

//! Keeping this module loaded, and whether it stays.

use core::mem;
use smc_bindings as bindings;

/// A count of this module: it is not unloaded meanwhile.
pub(crate) struct Kept(());

impl Kept {
    /// Takes a count, unless the module is being unloaded. Any context.
    ///
    /// Both are decided by one atomic operation of `delete_module`: with a count it refuses, and after
    /// its decision no count can be had.
    pub(crate) fn take() -> Option<Self> {
        // SAFETY: No preconditions: who calls is code of this module.
        let taken = unsafe { bindings::keep_this_module() };
        // Made only if taken: dropping one gives a count back.
        taken.then(|| Self(()))
    }

    /// Never gives the count back: the module stays until the machine is booted again.
    pub(crate) fn for_ever(self) {
        mem::forget(self);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: The count was taken in `take`, and is given back once. Whoever drops this runs on behalf
        // of something else that keeps the module's code: a file, or work, or a function without sleep, that
        // unloading waits for.
        unsafe { bindings::release_this_module() };
    }
}
