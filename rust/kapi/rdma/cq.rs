// SPDX-License-Identifier: GPL-2.0

//! Completion queues of a queue pair, and the NAPI context that polls them.
//!
//! A queue pair has two completion queues of its own. The queue of receives is always armed: an arrival raises an
//! interrupt, which has the NAPI context poll both queues until they are empty.
//!
//! The queue of sends is not armed as a rule, and most sends have no completion (`sq.rs`). The end of a send matters only
//! when its slot or its bytes are wanted, and by then an arrival has nearly always had the queue polled. So a send causes
//! no interrupt. Where a thread or a connection does wait for the end of what was posted, [`Poller::expect`] arms the
//! queue, and each poll arms it again until that many chains have ended. Whatever nobody waits for is seen to
//! [`LATEST_MS`] after it was posted.
//!
//! NAPI polls in softirq context, on the CPU of the interrupt; one at a time for each context, also with `PREEMPT_RT`.
//! Sockets can poll it themselves (`SO_BUSY_POLL`), as that of a network card.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    device::{Device, DeviceUse},
    sq::Counts, //
};
use crate::sys::{
    hook::jiffies_in,
    word::{full_barrier, Pointer, Word}, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    mem,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::{c_int, c_void},
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    },
    types::Opaque, //
};
use smc_bindings as bindings;

/// Completions taken from a queue at a time.
const BATCH: usize = 16;

/// Completions of sends that are handled in one poll, beside the budget.
const SENDS: usize = 64;

/// Time after which the device is to tell of the end of a send if nobody waits for it, or its end is handled, in
/// milliseconds.
const LATEST_MS: u32 = 10;

/// Counts queue pairs, to spread them over the interrupt vectors of their devices.
static NEXT_VECTOR: Atomic<u32> = Atomic::new(0);

/// The completion queues of a queue pair.
///
/// # Invariants
///
/// Both are alive, of the device that is used.
pub(super) struct Queues {
    send: NonNull<bindings::ib_cq>,
    recv: NonNull<bindings::ib_cq>,
    device: DeviceUse,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for Queues {}

impl Queues {
    /// Makes queues with room for this many completions, which `poller` polls. May sleep.
    ///
    /// `vector` chooses the interrupt vector; without it they are taken in turn.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EINVAL` for more entries than a queue has, `ENOMEM`, or the driver's error.
    ///
    /// # Safety
    ///
    /// `poller` stays where it is until both queues have been destroyed.
    pub(super) unsafe fn new(
        device: &Arc<Device>,
        sends: u32,
        receives: u32,
        vector: Option<u16>,
        poller: &Poller,
    ) -> Result<Self> {
        let limit = device.limits()?.cq_entries;
        if sends > limit || receives > limit {
            return Err(EINVAL);
        }
        let device = device.hold()?;
        let chosen = vector.map_or_else(|| NEXT_VECTOR.fetch_add(1, Relaxed), u32::from);
        // SAFETY: The device is registered while `device` lives; the field does not change.
        let vectors = unsafe { (*device.raw()).num_comp_vectors };
        let vectors = u32::try_from(vectors).unwrap_or(1).max(1);
        let attr = |entries| bindings::ib_cq_init_attr {
            cqe: entries,
            comp_vector: chosen.checked_rem(vectors).unwrap_or(0),
            flags: 0,
        };
        let make = |entries| {
            // SAFETY:
            // - The device is registered while `device` lives.
            // - `completed` takes a NAPI context, which stays where it is until the queue is destroyed, as the caller
            //   promises.
            let cq = from_err_ptr(unsafe {
                bindings::__ib_create_cq(
                    device.raw(),
                    Some(completed),
                    None,
                    poller.napi.get().cast(),
                    &attr(entries),
                    bindings::module_name(),
                )
            })?;
            NonNull::new(cq).ok_or(ENOMEM)
        };
        let recv = make(receives)?;
        match make(sends) {
            // INVARIANT: Both have just been made.
            Ok(send) => Ok(Self { send, recv, device }),
            Err(error) => {
                // SAFETY: Made just now, and nothing uses it.
                unsafe { bindings::ib_destroy_cq_user(recv.as_ptr(), ptr::null_mut()) };
                Err(error)
            }
        }
    }

    /// Returns the queue for completions of sends.
    pub(super) fn send(&self) -> *mut bindings::ib_cq {
        self.send.as_ptr()
    }

    /// Returns the queue for completions of receives.
    pub(super) fn recv(&self) -> *mut bindings::ib_cq {
        self.recv.as_ptr()
    }

    /// Destroys the queues, whose queue pair is gone. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's: the device may still tell of completions. Its removal waits for ever.
    pub(super) fn destroy(self) -> Result {
        let mut result = Ok(());
        for cq in [self.send, self.recv] {
            // SAFETY: Alive by the invariant, and `self` is not used again.
            let ret = unsafe { bindings::ib_destroy_cq_user(cq.as_ptr(), ptr::null_mut()) };
            result = result.and(to_result(ret));
        }
        if result.is_err() {
            mem::forget(self.device);
        }
        result
    }
}

/// Has the queues polled of which the device tells.
///
/// # Safety
///
/// Called by the driver, in any context, with what [`Queues::new`] has given it: a NAPI context that stays until the
/// queue is destroyed. No call comes after that.
unsafe extern "C" fn completed(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: The NAPI context is initialised before a queue is armed for the first time, see `Poller::start`.
    unsafe { bindings::napi_schedule(context.cast()) };
}

/// Polls the completion queues of a queue pair, and calls the `ib_cqe` of each request.
///
/// # Invariants
///
/// * From [`Poller::start`] to [`Poller::stop`] `napi` is enabled, and `send` and `recv` are queues that live that
///   long.
/// * `wcs` is used by [`Poller::poll`] alone, which NAPI calls one at a time.
#[pin_data]
pub(super) struct Poller {
    #[pin]
    napi: Opaque<bindings::napi_struct>,
    #[pin]
    timer: Opaque<bindings::timer_list>,
    send: Pointer<bindings::ib_cq>,
    recv: Pointer<bindings::ib_cq>,
    wcs: UnsafeCell<[bindings::ib_wc; BATCH]>,
    /// Has the device tell of chains of whose end it does not, called by the timer.
    overdue: unsafe fn(&Self),
    /// Number of chains that are posted and have not ended. Written under the send lock.
    under_way: Word,
    /// Number of those of whose end the device tells. Written under the send lock.
    told: Word,
    /// Number of those, from the oldest on, for whose end somebody waits. Written under the send lock.
    expected: Word,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: A NAPI context and a timer may be used by any thread; for `wcs` see the invariant.
unsafe impl Send for Poller {}
// SAFETY: Shared references reach functions that have their own locking, atomics and words; for `wcs` see the
// invariant.
unsafe impl Sync for Poller {}

impl Poller {
    /// Makes a poller that does not run yet. `overdue` is called by its timer, from [`Poller::start`] to
    /// [`Poller::stop`].
    pub(super) fn new(overdue: unsafe fn(&Self)) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `napi` is memory for a NAPI context, and zero is what a driver's has before it is added.
            napi <- Opaque::ffi_init(|napi: *mut bindings::napi_struct| unsafe { napi.write_bytes(0, 1) }),
            timer <- Opaque::ffi_init(|timer| {
                // SAFETY: `timer` is memory for a timer.
                unsafe { bindings::timer_setup(timer, Some(Self::fire)) };
            }),
            send: Pointer::null(),
            recv: Pointer::null(),
            // SAFETY: Zero is a valid value of a plain C struct.
            wcs: UnsafeCell::new(unsafe { mem::zeroed() }),
            overdue,
            under_way: Word::new(0),
            told: Word::new(0),
            expected: Word::new(0),
            _pin: PhantomPinned,
        })
    }

    /// Begins to poll `queues`. Sleeps.
    ///
    /// # Safety
    ///
    /// * Called once, and [`Poller::stop`] is called before the queues are destroyed and before `self` goes.
    /// * All requests whose completions reach the queues have an `ib_cqe`, which may be called until then.
    pub(super) unsafe fn start(&self, device: &Device, queues: &Queues) {
        self.send.release(queues.send());
        self.recv.release(queues.recv());
        // SAFETY:
        // - The client's network device lives as long as a use of a device, which `queues` has.
        // - The context is zeroed memory that stays where it is until `stop`, and was not added before.
        // - The queue of receives is alive. What it tells of finds an enabled context.
        unsafe {
            bindings::netif_napi_add(
                device.napi_netdev().as_ptr(),
                self.napi.get(),
                Some(Self::poll),
            );
            bindings::napi_enable(self.napi.get());
            bindings::ib_arm_cq(queues.recv());
        }
    }

    /// Returns the number by which others may have the NAPI context polled; 0 if they may not.
    pub(super) fn id(&self) -> u32 {
        // SAFETY: The context was added. Enabling it has set the number, which stays.
        unsafe { bindings::napi_id_of(self.napi.get()) }
    }

    /// Ends polling. On return no `ib_cqe` is being called, and none will be. Sleeps.
    ///
    /// # Safety
    ///
    /// Called once, after [`Poller::start`], and not from a callback.
    pub(super) unsafe fn stop(&self) {
        // SAFETY:
        // - The timer is set up, and `timer_shutdown_sync` waits for `fire`.
        // - The context is enabled. `napi_disable` waits until no poll is under way but for its last steps, after
        //   `napi_complete_done`. Those run with bottom halves off or under RCU, and `netif_napi_del` waits for a grace
        //   period, as for those who have found the context by its number.
        // - A call of `completed` that comes later finds a context that is disabled, and does nothing.
        unsafe {
            bindings::timer_shutdown_sync(self.timer.get());
            bindings::napi_disable(self.napi.get());
            bindings::netif_napi_del(self.napi.get());
        }
    }

    /// Takes note of how many chains are under way. Called under the send lock.
    #[inline]
    pub(super) fn set_counts(&self, counts: Counts) {
        self.under_way.set(counts.under_way);
        self.told.set(counts.told);
        self.expected.set(counts.expected);
    }

    /// Has the queue of sends tell of its next completion, or the queues polled if there is one. As
    /// [`Poller::kick`], with the send lock held and the queue pair not closed.
    #[inline]
    pub(super) fn expect(&self) {
        // SAFETY:
        // - `start` has set the queue, which lives until `stop` by the invariant.
        // - Closing takes the send lock, which the caller holds, before it stops the poller.
        // - Arming takes locks of the device alone, and runs no callback.
        let missed = unsafe { bindings::ib_arm_cq(self.send.acquire()) > 0 };
        if missed {
            self.kick();
        }
    }

    /// Has the queues polled now. To be called between [`Poller::start`] and [`Poller::stop`], not in hard
    /// interrupts, and with no lock held but such as keep bottom halves off.
    pub(super) fn kick(&self) {
        // SAFETY: The context was added.
        unsafe { bindings::napi_schedule_now(self.napi.get()) };
    }

    /// Has the queues polled some time after a chain was posted, whatever happens.
    #[inline]
    pub(super) fn poll_later(&self) {
        // Either this finds a timer that is still to fire, or `fire` finds the chain.
        full_barrier();
        // SAFETY: The timer is set up and pinned; after `stop` this does nothing.
        unsafe {
            if !bindings::timer_is_pending(self.timer.get()) {
                bindings::mod_timer(self.timer.get(), jiffies_in(LATEST_MS));
            }
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone: the timer of [`Poller::poll_later`] has expired. [`Poller::stop`] waits for the
    /// call.
    unsafe extern "C" fn fire(timer: *mut bindings::timer_list) {
        // SAFETY: `timer` is a field of a `Poller`, which is alive until `stop` has returned.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(timer), Self, timer) };
        // With the one in `poll_later`: the timer is not pending any more.
        full_barrier();
        if this.under_way.get() != 0 {
            // SAFETY: The timer of the poller calls it, before `stop` has returned.
            unsafe { (this.overdue)(this) };
            this.kick();
        }
    }

    /// # Safety
    ///
    /// Called by NAPI alone, for a context that [`Poller::start`] has added, one at a time, in softirq context or from
    /// a thread that polls it. [`Poller::stop`] waits for the call.
    unsafe extern "C" fn poll(napi: *mut bindings::napi_struct, budget: c_int) -> c_int {
        // SAFETY: `napi` is a field of a `Poller`, which is alive until `stop` has returned.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(napi), Self, napi) };
        let recv = this.recv.acquire();
        let send = this.send.acquire();
        // First, so that what answers an arrival finds free slots.
        let mut sent = 0;
        if this.told.get() != 0 {
            // SAFETY: This is the one call, and the queue is alive by the invariant.
            sent = unsafe { this.process(send, SENDS) };
        }
        let most = usize::try_from(budget).unwrap_or(0);
        // SAFETY: As before.
        let received = unsafe { this.process(recv, most) };
        // At most the budget, so it fits.
        let done = received as c_int;
        if received >= most || sent >= SENDS {
            // There may be more, so NAPI calls again.
            return budget;
        }
        // SAFETY: NAPI has called us, and not all of the budget is used. After that both queues may be armed: what
        // arrives then schedules the context again.
        unsafe {
            if bindings::napi_complete_done(napi, done) {
                let mut missed = bindings::ib_arm_cq(recv) > 0;
                if this.expected.get() != 0 {
                    missed |= bindings::ib_arm_cq(send) > 0;
                }
                if missed {
                    bindings::napi_schedule(napi);
                }
            }
        }
        if this.under_way.get() != 0 {
            this.poll_later();
        }
        done
    }

    /// Handles at most `most` completions of `cq`; returns how many there were.
    ///
    /// # Safety
    ///
    /// From [`Poller::poll`] alone; `cq` is one of its queues.
    #[inline]
    unsafe fn process(&self, cq: *mut bindings::ib_cq, most: usize) -> usize {
        let room = most.min(BATCH);
        if room == 0 {
            return 0;
        }
        // SAFETY: As the caller promises.
        let got = unsafe { self.take(cq, room) };
        match got < room {
            // Most often.
            true => got,
            // SAFETY: As the caller promises.
            false => unsafe { self.process_more(cq, most, got) },
        }
    }

    /// Goes on after `total` completions were handled.
    ///
    /// # Safety
    ///
    /// As for [`Poller::process`].
    #[inline(never)]
    unsafe fn process_more(
        &self,
        cq: *mut bindings::ib_cq,
        most: usize,
        mut total: usize,
    ) -> usize {
        while total < most {
            let room = most.wrapping_sub(total).min(BATCH);
            // SAFETY: As the caller promises.
            let got = unsafe { self.take(cq, room) };
            total = total.wrapping_add(got);
            if got < room {
                break;
            }
        }
        total
    }

    /// Handles at most `room` completions of `cq`, of which a batch has as many; returns how many there were.
    ///
    /// # Safety
    ///
    /// As for [`Poller::process`].
    #[inline]
    unsafe fn take(&self, cq: *mut bindings::ib_cq, room: usize) -> usize {
        let wcs = self.wcs.get().cast::<bindings::ib_wc>();
        let room = room.min(BATCH);
        // SAFETY: The queue is alive, and there is room for as many completions, which nobody else uses.
        let got = unsafe { bindings::ib_poll_cq(cq, room as c_int, wcs) };
        // An error of the driver is no completion.
        let got = usize::try_from(got).unwrap_or(0).min(room);
        for at in 0..got {
            // SAFETY: The driver has filled in as many. All requests have an `ib_cqe`, which may be called.
            unsafe {
                let wc = wcs.add(at);
                let cqe = (*wc).__bindgen_anon_1.wr_cqe;
                if let Some(done) = (*cqe).done {
                    done(cq, wc);
                }
            }
        }
        got
    }
}
