// SPDX-License-Identifier: GPL-2.0

//! Keeping this module loaded, and whether it stays.

use core::mem;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
    types::Opaque, //
};
use smc_bindings as bindings;

/// True once a count was lent to a task.
static LENT: Atomic<bool> = Atomic::new(false);

/// A count of this module: it is not unloaded meanwhile.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a count, unless the module is being unloaded. Any context.
    ///
    /// Both are decided by one atomic operation of `delete_module`: with a count it refuses, and after
    /// its decision no count can be had.
    pub(crate) fn take() -> Option<Self> {
        // SAFETY: No preconditions: the caller is code of this module.
        let taken = unsafe { bindings::keep_this_module() };
        // Made only if taken: dropping one gives a count back.
        taken.then(|| Self(()))
    }

    /// Gives the count back when the current task returns to user space, and not before. Called in a system call.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and `ESRCH` for a task that does not return: the count is given back at once.
    pub(crate) fn until_return(self) -> Result {
        let work = KBox::new(Opaque::<bindings::callback_head>::uninit(), GFP_KERNEL)?;
        // Written once: all CPUs look here.
        if !LENT.load(Relaxed) {
            LENT.store(true, Relaxed);
        }
        let work = KBox::into_raw(work);
        // SAFETY: The memory is ours, for one `callback_head`, and stays until the task has run `returned`.
        let added = unsafe { bindings::task_work_add_current(work.cast(), Some(returned)) };
        let added = to_result(added);
        match added {
            Ok(()) => mem::forget(self),
            // SAFETY: It comes from `into_raw`, and nobody has it.
            Err(_) => drop(unsafe { KBox::from_raw(work) }),
        }
        added
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: The count was taken in `take`, and is given back once. Whoever drops this runs on behalf
        // of something else that keeps the module's code: a file, or work, or a function without sleep that
        // unloading waits for: by [`wait_for_returns`] for [`returned`], by the end of the redirection for a
        // redirected call.
        unsafe { bindings::release_this_module() };
    }
}

/// Gives back what [`ModuleRef::until_return`] has lent.
///
/// # Safety
///
/// Called by the kernel alone, with the work that `until_return` has added, once.
unsafe extern "C" fn returned(work: *mut bindings::callback_head) {
    // SAFETY: It comes from `into_raw`, and the kernel has no use for it any more.
    drop(unsafe { KBox::from_raw(work.cast::<Opaque<bindings::callback_head>>()) });
    drop(ModuleRef(()));
}

/// Waits until no task is in [`ModuleRef::until_return`]'s last steps, after the end of its count. Called while the
/// module is unloaded, when no count is left and none can be had. May sleep.
pub(crate) fn wait_for_returns() {
    if LENT.load(Relaxed) {
        // SAFETY: No preconditions. This waits for each task that has not slept since it began, and the steps do not
        // sleep. (With PREEMPT_RT a probe at the tracepoint `module_put` could, by a lock of its own.)
        unsafe { bindings::wait_for_running_tasks() };
    }
}
