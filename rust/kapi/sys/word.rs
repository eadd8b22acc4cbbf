// SPDX-License-Identifier: GPL-2.0

//! Numbers that are only read and written whole.
//!
//! Where the kernel is built without `RUST_INLINE_HELPERS`, as Debian's is, each access to an `Atomic`
//! of the kernel crate is a call of a C function. On the way of every message that is too dear: 64
//! bytes there and back on a local path take 4,907 instructions with the types below and 5,223 with
//! `Atomic` in `Word` and `Count`; 16 KiB take 9,067 and 9,303 (`lab bench --local`, x86-64).

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{compiler_fence, AtomicI32, AtomicU64, Ordering}, //
};
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use smc_bindings as bindings;

/// A number for several threads, without any order to what is around it: `READ_ONCE()` and
/// `WRITE_ONCE()` of C. Locks give the order where one is needed.
pub struct Word(UnsafeCell<u32>);

// SAFETY: All accesses are volatile and of one aligned machine word or less, which the kernel's memory
// model takes for whole.
unsafe impl Sync for Word {}

impl Word {
    /// Makes a word of a number.
    pub const fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the number.
    #[inline]
    pub fn get(&self) -> u32 {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Writes the number.
    #[inline]
    pub fn set(&self, value: u32) {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::write_volatile(self.0.get(), value) };
    }
}

/// An address that one thread at a time writes and others read, each of which then sees what was done before it was
/// written: `smp_store_release()` and `smp_load_acquire()` of C. What it is the address of is the users' affair.
pub(crate) struct Pointer<T>(UnsafeCell<*mut T>);

// SAFETY: An address has no thread.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: All accesses are volatile and of one aligned machine word, which the kernel's memory model takes for whole.
unsafe impl<T> Sync for Pointer<T> {}

impl<T> Pointer<T> {
    /// The null pointer.
    pub(crate) const fn null() -> Self {
        Self(UnsafeCell::new(ptr::null_mut()))
    }

    /// Reads the address.
    #[inline]
    pub(crate) fn acquire(&self) -> *mut T {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        let value = unsafe { ptr::read_volatile(self.0.get()) };
        order();
        value
    }

    /// Writes the address.
    #[inline]
    pub(crate) fn release(&self, value: *mut T) {
        order();
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::write_volatile(self.0.get(), value) };
    }
}

/// A count that one thread at a time writes and others read, each of which then sees what was done before
/// the number was written: `smp_store_release()` and `smp_load_acquire()` of C.
pub struct Count(UnsafeCell<u64>);

// SAFETY: All accesses are volatile or atomic, and of one aligned machine word, as a u64 is where the
// module is built.
unsafe impl Sync for Count {}

impl Count {
    /// Makes a count.
    pub const fn new(value: u64) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the number, without any order.
    #[inline]
    pub fn get(&self) -> u64 {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Reads the number; what follows sees what the writer did before it.
    #[inline]
    pub fn acquire(&self) -> u64 {
        let value = self.get();
        order();
        value
    }

    /// Writes the number; a thread that acquires it sees what was done before.
    #[inline]
    pub fn release(&self, value: u64) {
        order();
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::write_volatile(self.0.get(), value) };
    }

    /// Replaces `old` by `new`, in order to everything around it; whether that was the number.
    pub fn replace(&self, old: u64, new: u64) -> bool {
        // SAFETY: The place is valid and aligned, and all other accesses are of whole words.
        let atomic = unsafe { Atomic::from_ptr(self.0.get()) };
        atomic.cmpxchg(old, new, Full).is_ok()
    }
}

/// A number of threads that are somewhere. It changes in order to everything around it.
pub(crate) struct Crowd(UnsafeCell<i32>);

// SAFETY: All accesses are volatile or atomic, and of one aligned word.
unsafe impl Sync for Crowd {}
// SAFETY: A number has no thread.
unsafe impl Send for Crowd {}

impl Crowd {
    /// Makes one of a number.
    pub(crate) const fn new(value: i32) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the number, without any order.
    #[inline]
    pub(crate) fn get(&self) -> i32 {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Reads the number; what follows sees what those did before who have changed it.
    #[inline]
    pub(crate) fn acquire(&self) -> i32 {
        let value = self.get();
        order();
        value
    }

    /// Adds to the number, and returns what it was.
    #[inline]
    pub(crate) fn add(&self, by: i32) -> i32 {
        if cfg!(CONFIG_X86) {
            // SAFETY: The place is valid and aligned, and all accesses are atomic.
            let number = unsafe { AtomicI32::from_ptr(self.0.get()) };
            // The instruction of `atomic_add()`, without the call: a full barrier.
            number.fetch_add(by, Ordering::SeqCst)
        } else {
            // SAFETY: As above.
            let number = unsafe { Atomic::from_ptr(self.0.get()) };
            number.fetch_add(by, Full)
        }
    }

    /// Replaces `old` by `new`; whether that was the number.
    #[inline]
    pub(crate) fn replace(&self, old: i32, new: i32) -> bool {
        if cfg!(CONFIG_X86) {
            // SAFETY: The place is valid and aligned, and all accesses are atomic.
            let number = unsafe { AtomicI32::from_ptr(self.0.get()) };
            let replaced = number.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
            replaced.is_ok()
        } else {
            // SAFETY: As above.
            let number = unsafe { Atomic::from_ptr(self.0.get()) };
            number.cmpxchg(old, new, Full).is_ok()
        }
    }

    /// Replaces the number by what `change` makes of it.
    #[inline]
    pub(crate) fn change(&self, change: impl Fn(i32) -> i32) {
        loop {
            let old = self.get();
            if self.replace(old, change(old)) {
                return;
            }
        }
    }
}

/// A number that any thread adds to, without any order to what is around it. Reading it is cheap, so one
/// may look at many of which few have changed.
pub struct Tally(UnsafeCell<u64>);

// SAFETY: Plain accesses are volatile and of one aligned machine word; all others are the processor's
// atomic ones.
unsafe impl Sync for Tally {}

impl Tally {
    /// Makes a tally.
    pub const fn new(value: u64) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the number.
    #[inline]
    pub fn get(&self) -> u64 {
        // SAFETY: The place is valid and aligned, nobody has a reference into it, and all accesses are
        // of the whole word.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Adds to the number, which wraps around.
    #[inline]
    pub fn add(&self, by: u64) {
        if cfg!(CONFIG_X86) {
            // SAFETY: The place is valid and aligned, and all other accesses are of whole words.
            let word = unsafe { AtomicU64::from_ptr(self.0.get()) };
            // The instruction of `atomic64_add()`, without the call.
            word.fetch_add(by, Ordering::Relaxed);
        } else {
            self.atomic().add(by, Relaxed);
        }
    }

    /// Reads the number and leaves 0.
    #[inline]
    pub fn take(&self) -> u64 {
        self.atomic().xchg(0, Relaxed)
    }

    #[inline]
    fn atomic(&self) -> &Atomic<u64> {
        // SAFETY: The place is valid and aligned, and all other accesses are of whole words.
        unsafe { Atomic::from_ptr(self.0.get()) }
    }
}

/// Orders earlier loads before all later accesses, and earlier stores before later stores, as
/// `smp_load_acquire()` and `smp_store_release()` do.
#[inline]
pub(crate) fn order() {
    if cfg!(CONFIG_X86) {
        // The processor keeps this order itself.
        compiler_fence(Ordering::AcqRel);
    } else {
        // SAFETY: No preconditions.
        unsafe { bindings::full_memory_barrier() };
    }
}

/// Orders earlier loads before later loads, as `smp_rmb()` does.
#[inline]
pub fn read_barrier() {
    if cfg!(CONFIG_X86) {
        // The processor keeps this order itself.
        compiler_fence(Ordering::AcqRel);
    } else {
        // SAFETY: No preconditions.
        unsafe { bindings::read_memory_barrier() };
    }
}

/// Keeps all loads and stores before this before all after it: `smp_mb()` of C.
#[inline]
pub fn full_barrier() {
    // SAFETY: No preconditions.
    unsafe { bindings::full_memory_barrier() };
}
