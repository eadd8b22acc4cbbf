// SPDX-License-Identifier: GPL-2.0

//! Being told, in atomic context, that time has passed; [`crate::net::wait_hook`] tells of a socket.
//!
//! A hook owns an `Arc` of its target, so the target cannot vanish under it; the owner breaks the cycle by dropping the
//! hook when it has heard enough.

use core::marker::PhantomPinned;
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
    types::Opaque, //
};
use smc_bindings as bindings;

/// Something that can be told in atomic context (softirq, with a spinlock held).
pub trait Notify: Send + Sync + 'static {
    /// Acts when the hook fires. Must not sleep, and must not drop the hook.
    fn notify(this: ArcBorrow<'_, Self>);

    /// Returns whether this wake-up, of which [`Notify::notify`] is told, is suppressed for the others that wait for
    /// the socket. As that, must not sleep.
    ///
    /// `of_state`: it is `sk_state_change()`'s, and one by `sk_error_report()` would wake the same waiters.
    fn suppresses_wakeup(_this: ArcBorrow<'_, Self>, _of_state: bool) -> bool {
        false
    }
}

/// Calls [`Notify::notify`] once, some time after [`TimerHook::arm`].
#[pin_data(PinnedDrop)]
pub struct TimerHook<T: Notify> {
    #[pin]
    timer: Opaque<bindings::timer_list>,
    target: Arc<T>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: A `timer_list` has its own locking; the rest is `Send`.
unsafe impl<T: Notify> Send for TimerHook<T> {}
// SAFETY: `arm` may be called from any CPU, `mod_timer` serialises.
unsafe impl<T: Notify> Sync for TimerHook<T> {}

impl<T: Notify> TimerHook<T> {
    /// Makes a timer for `target` that does not run yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(target: Arc<T>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                timer <- Opaque::ffi_init(|timer| {
                    // SAFETY: `timer` is memory for a timer.
                    unsafe { bindings::timer_setup(timer, Some(Self::fire)) };
                }),
                target,
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    /// Lets the timer fire in `msecs` milliseconds, whatever it was set to before.
    pub fn arm(&self, msecs: u32) {
        // SAFETY: The timer is set up and pinned.
        unsafe { bindings::mod_timer(self.timer.get(), jiffies_in(msecs)) };
    }

    /// Lets the timer fire in `msecs` milliseconds, or when it was to fire before, if that is earlier.
    pub fn arm_by(&self, msecs: u32) {
        // SAFETY: The timer is set up and pinned.
        unsafe { bindings::timer_reduce(self.timer.get(), jiffies_in(msecs)) };
    }

    /// # Safety
    ///
    /// Called by the kernel alone. The timer that [`TimerHook::new`] has set up has expired;
    /// softirq.
    unsafe extern "C" fn fire(timer: *mut bindings::timer_list) {
        // SAFETY: `timer` is a field of a `TimerHook<T>`, which is alive: `drop` waits for this
        // function before the memory goes.
        let hook = unsafe { &*kernel::container_of!(Opaque::cast_from(timer), Self, timer) };
        T::notify(hook.target.as_arc_borrow());
    }
}

/// Returns the jiffies in `msecs` milliseconds. They wrap by design.
pub(crate) fn jiffies_in(msecs: u32) -> usize {
    let delay = kernel::time::msecs_to_jiffies(msecs);
    // SAFETY: No preconditions.
    unsafe { bindings::jiffies_now() }.wrapping_add(delay)
}

#[pinned_drop]
impl<T: Notify> PinnedDrop for TimerHook<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The timer is set up; process context, and `notify` does not drop the hook, so
        // this does not wait for itself.
        unsafe { bindings::timer_shutdown_sync(self.timer.get()) };
    }
}
