// SPDX-License-Identifier: GPL-2.0

//! Sleeping until something about a socket changes.

use super::{sock::Sock, socket::BsdSocket};
use crate::sys::word::order;
use core::{mem::MaybeUninit, ptr};
use kernel::{ffi, prelude::*};
use smc_bindings as bindings;

/// Kind of a wait: how many a wake-up is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every waiter is woken.
    Shared,
    /// One such waiter is woken for each event, as in accept().
    Exclusive,
}

/// Sleeps, interruptibly, until `condition` holds.
///
/// `timeout` is in jiffies; 0 does not sleep at all. Returns what is left of it.
///
/// # Errors
///
/// `EAGAIN` when the time is over, `EINTR` or `ERESTARTSYS` on a signal.
#[inline]
pub fn until(
    socket: &BsdSocket,
    kind: Kind,
    timeout: isize,
    mut condition: impl FnMut() -> bool,
) -> Result<isize> {
    if condition() {
        return Ok(timeout);
    }
    until_changed(socket, kind, timeout, condition)
}

/// Sleeps like [`until`], for a caller who has just seen that `condition` does not hold: without a
/// timeout nobody looks again.
///
/// # Errors
///
/// As [`until`].
pub fn until_changed(
    socket: &BsdSocket,
    kind: Kind,
    mut timeout: isize,
    mut condition: impl FnMut() -> bool,
) -> Result<isize> {
    if timeout == 0 {
        return Err(EAGAIN);
    }
    let head = socket.wait_head();
    let mut entry = MaybeUninit::<bindings::wait_queue_entry>::uninit();
    let entry = entry.as_mut_ptr();
    // SAFETY: The entry is memory on this stack frame, initialised here, and leaves the queue
    // before this function returns. The queue belongs to `socket`, which outlives the call.
    unsafe {
        bindings::init_wait_woken(entry);
        match kind {
            Kind::Shared => bindings::add_wait_queue(head, entry),
            Kind::Exclusive => bindings::add_wait_queue_exclusive(head, entry),
        }
    }
    // The entry is seen by whoever makes `condition` true after it has been looked at: wake-ups leave
    // an empty queue alone, which they look at without its lock, after a full barrier
    // (`wq_has_sleeper`); this is the other one.
    // SAFETY: No preconditions.
    unsafe { bindings::full_memory_barrier() };
    let mut passes_on = false;
    let result = loop {
        // Asked first, so that a caller whose condition holds while it finds nothing can be killed.
        // SAFETY: Reads a flag of the current task.
        let signal = unsafe { bindings::signal_pending_current() };
        if !signal && condition() {
            break Ok(timeout);
        }
        if timeout == 0 {
            break Err(EAGAIN);
        }
        if signal {
            // It may have been woken alone, for what another one is to find then.
            passes_on = kind == Kind::Exclusive && condition();
            break Err(Sock::interrupted(timeout));
        }
        // SAFETY: The entry is on a queue and was initialised for `wait_woken`.
        timeout = unsafe {
            bindings::wait_woken(entry, bindings::TASK_INTERRUPTIBLE, timeout as ffi::c_long)
                as isize
        };
    };
    // SAFETY: The entry was added above.
    unsafe { bindings::remove_wait_queue(head, entry) };
    if passes_on {
        socket.sock().wake_readers();
    }
    result
}

/// Sleeps, interruptibly, for `msecs` milliseconds, or as long as `timeout` allows, whatever happens to the
/// socket meanwhile. Returns what is left of the timeout.
///
/// # Errors
///
/// As [`until`].
pub fn a_while(socket: &BsdSocket, msecs: u32, timeout: isize) -> Result<isize> {
    let pause = isize::try_from(kernel::time::msecs_to_jiffies(msecs)).unwrap_or(isize::MAX);
    let pause = pause.max(1).min(timeout);
    match until_changed(socket, Kind::Shared, pause, || false) {
        Err(err) if err != EAGAIN => Err(Sock::interrupted(timeout)),
        // A limit that there is not stays.
        _ if timeout == isize::MAX => Ok(timeout),
        _ if timeout == pause => Err(EAGAIN),
        _ => Ok(timeout.saturating_sub(pause)),
    }
}

/// Sleeps like [`until_changed`], as one of all who are woken, with fewer steps: who wakes this takes it off the
/// queue. `condition` is asked while the task is about to sleep, so it must not sleep itself: it may look at
/// numbers, and take no lock but spinlocks.
///
/// # Errors
///
/// As [`until`].
#[inline]
pub fn until_seen(
    socket: &BsdSocket,
    mut timeout: isize,
    mut condition: impl FnMut() -> bool,
) -> Result<isize> {
    if timeout == 0 {
        return Err(EAGAIN);
    }
    let head = socket.wait_head();
    let mut entry = MaybeUninit::<bindings::wait_queue_entry>::uninit();
    let entry = entry.as_mut_ptr();
    // SAFETY: The entry is memory on this stack frame.
    unsafe { bindings::init_wait_entry(entry, 0) };
    let (result, slept) = loop {
        // The entry is on the queue, and the task's state set, before anything is looked at; a full barrier
        // stands between, as one does where wake-ups look whether somebody waits (`wq_has_sleeper`).
        // SAFETY: The entry was initialised above and leaves the queue before this function returns. The
        // queue belongs to `socket`, which outlives the call.
        unsafe {
            bindings::prepare_to_wait(head, entry, bindings::TASK_INTERRUPTIBLE as ffi::c_int)
        };
        if condition() {
            break (Ok(timeout), false);
        }
        if timeout == 0 {
            break (Err(EAGAIN), false);
        }
        if timeout == isize::MAX {
            // SAFETY: The caller may sleep, as for every wait. A signal that is pending ends this at once.
            unsafe { bindings::schedule() };
        } else {
            // SAFETY: The caller may sleep, as for every wait. A signal that is pending ends this at once.
            timeout = unsafe { bindings::schedule_timeout(timeout as ffi::c_long) as isize };
        }
        // Most often that was it, and the entry is off the queue already.
        if condition() {
            break (Ok(timeout), true);
        }
        // SAFETY: Reads a flag of the current task.
        if unsafe { bindings::signal_pending_current() } {
            break (Err(Sock::interrupted(timeout)), true);
        }
    };
    // After a sleep the task's state is that of one that runs.
    // SAFETY: The entry was initialised above. Where it is off the queue there is nothing to finish.
    unsafe {
        if !(slept && is_off(entry)) {
            bindings::finish_wait(head, entry);
        }
    }
    result
}

/// Tells whether whoever has woken the task has taken its entry off the queue, and is not at it any more: as
/// `list_empty_careful()` of C.
///
/// # Safety
///
/// The entry was initialised, and is on this stack.
#[inline(always)]
unsafe fn is_off(entry: *const bindings::wait_queue_entry) -> bool {
    // SAFETY: By the caller's promise; a waker changes each pointer whole, `prev` before `next`.
    unsafe {
        let list = &raw const (*entry).entry;
        let next = ptr::read_volatile(&raw const (*list).next);
        // What the waker did before it is seen, too.
        order();
        let prev = ptr::read_volatile(&raw const (*list).prev);
        ptr::eq(next, list) && ptr::eq(prev, next)
    }
}
