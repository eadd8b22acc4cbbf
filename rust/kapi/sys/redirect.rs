// SPDX-License-Identifier: GPL-2.0

//! Redirection of calls of a function of the kernel to one of the module's, by ftrace.
//!
//! C header: [`include/linux/ftrace.h`](srctree/include/linux/ftrace.h)

use kernel::prelude::*;

#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
use kernel::{error::to_result, ffi, types::Opaque};
#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
use smc_bindings as bindings;

/// The callback changes where the function goes on, and `sysctl kernel.ftrace_enabled` cannot turn it off.
/// It calls nothing that could come back to it, and does without the kernel's guard against that
/// (`FTRACE_OPS_FL_RECURSION`): every socket of the host passes here.
#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
const FLAGS: ffi::c_ulong =
    (bindings::FTRACE_OPS_FL_IPMODIFY | bindings::FTRACE_OPS_FL_PERMANENT) as ffi::c_ulong;

/// Sends all calls of a function elsewhere while it is on, and at most for as long as it lives.
///
/// Turning it on or off takes `ftrace_lock`, on which loading of modules, tracing and BPF programs depend. Turning it
/// off holds that lock until no task is preempted in the function (`synchronize_rcu_tasks`), which takes tenths of a
/// second and more. So callers limit how often they do it.
#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
#[pin_data(PinnedDrop)]
pub(crate) struct Redirect {
    #[pin]
    ops: Opaque<bindings::ftrace_ops>,
    /// True while `ops` are registered.
    registered: bool,
}

/// Where the kernel cannot redirect calls there is none.
#[cfg(not(CONFIG_DYNAMIC_FTRACE_WITH_ARGS))]
pub(crate) struct Redirect(core::convert::Infallible);

#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
// SAFETY: Dropping is the only operation, and it may happen on any thread.
unsafe impl Send for Redirect {}
#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Redirect {}

impl Redirect {
    /// Prepares to redirect the calls of the function `name` to `target`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` on a kernel without ftrace for functions and their arguments, `EINVAL` when it knows
    /// no such function; `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `target` is the address of a function of this module with the signature of `name`, which may run
    /// wherever `name` does. It sleeps only while it has a count of the module.
    #[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
    pub(crate) unsafe fn new(name: &'static CStr, target: *const ()) -> Result<Pin<KBox<Self>>> {
        let this = KBox::pin_init(
            pin_init!(Self {
                registered: false,
                ops <- Opaque::new(bindings::ftrace_ops {
                    func: Some(divert),
                    flags: FLAGS,
                    private: target.cast_mut().cast(),
                    ..Default::default()
                }),
            }),
            GFP_KERNEL,
        )?;
        let mut text = [0u8; 64];
        let bytes = name.to_bytes();
        text.get_mut(..bytes.len())
            .ok_or(EINVAL)?
            .copy_from_slice(bytes);
        let ops = this.ops.get();
        // SAFETY: The structure is pinned and known to us alone; the text may be changed, as the
        // function's parser does. What the call allocates `drop` frees.
        to_result(unsafe {
            bindings::ftrace_set_filter(ops, text.as_mut_ptr().cast(), bytes.len() as ffi::c_int, 0)
        })?;
        Ok(this)
    }

    /// Begins to redirect, if it does not yet. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` when another module has redirected the function, or while ftrace is turned off (`sysctl
    /// kernel.ftrace_enabled`); `ENOMEM`.
    #[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
    pub(crate) fn on(self: Pin<&mut Self>) -> Result {
        // SAFETY: Nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if !this.registered {
            // SAFETY: The operations are pinned, filled in and not registered; `off` or `drop` ends that.
            to_result(unsafe { bindings::register_ftrace_function(this.ops.get()) })?;
            this.registered = true;
        }
        Ok(())
    }

    /// Ends the redirection, and returns when no task is in the callback, or in the target outside of what counts
    /// the module. May sleep, for long.
    #[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
    pub(crate) fn off(self: Pin<&mut Self>) {
        // SAFETY: Nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.registered {
            // SAFETY: What `on` has registered is unregistered, once. For operations outside of the kernel's
            // own image that waits until no task is in the callback, or in the target outside of what counts the
            // module, since it cannot sleep there (`synchronize_rcu_tasks_rude`, and `synchronize_rcu_tasks` where
            // tasks are preempted).
            unsafe { bindings::unregister_ftrace_function(this.ops.get()) };
            this.registered = false;
        }
    }

    /// Never called: there is none.
    #[cfg(not(CONFIG_DYNAMIC_FTRACE_WITH_ARGS))]
    pub(crate) fn on(self: Pin<&mut Self>) -> Result {
        match self.0 {}
    }

    /// Never called: there is none.
    #[cfg(not(CONFIG_DYNAMIC_FTRACE_WITH_ARGS))]
    pub(crate) fn off(self: Pin<&mut Self>) {
        match self.0 {}
    }

    /// Says that this kernel cannot.
    ///
    /// # Errors
    ///
    /// Always `EOPNOTSUPP`.
    ///
    /// # Safety
    ///
    /// None is needed here.
    #[cfg(not(CONFIG_DYNAMIC_FTRACE_WITH_ARGS))]
    pub(crate) unsafe fn new(_name: &'static CStr, _target: *const ()) -> Result<Pin<KBox<Self>>> {
        Err(crate::errno::EOPNOTSUPP.into())
    }
}

/// Goes on at the target instead of in the function that was called.
///
/// # Safety
///
/// Called by the kernel alone. Ftrace calls it at the entry of the function of `ops`, whose registers
/// `regs` are and may be changed.
#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
unsafe extern "C" fn divert(
    _ip: ffi::c_ulong,
    _parent: ffi::c_ulong,
    ops: *mut bindings::ftrace_ops,
    regs: *mut bindings::ftrace_regs,
) {
    // SAFETY: The operations are those of `Redirect::new`, and live: unregistering waits for callbacks.
    // The registers are those at the function's entry, where nothing of it has run yet: the target, of
    // the same signature, finds arguments and return address where that would have.
    unsafe {
        let target = (*ops).private as ffi::c_ulong;
        bindings::ftrace_regs_set_ip(regs, target);
    }
}

#[cfg(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)]
#[pinned_drop]
impl PinnedDrop for Redirect {
    fn drop(mut self: Pin<&mut Self>) {
        self.as_mut().off();
        // SAFETY: The operations are not registered any more. An empty filter may be freed, too.
        unsafe { bindings::ftrace_free_filter(self.ops.get()) };
    }
}
