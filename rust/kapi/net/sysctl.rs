// SPDX-License-Identifier: GPL-2.0

//! Numbers in `/proc/sys`, of which each network namespace has its own.
//!
//! C header: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h)

use crate::net::netns::Net;
use core::{mem::size_of, ptr};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    sync::atomic::{Atomic, Full, Relaxed}, //
};
use smc_bindings as bindings;

/// A number: its file, what it is at first, and what it may be.
pub struct Entry {
    /// The file's name.
    pub name: &'static CStr,
    /// The value in a new namespace.
    pub default: i32,
    /// Values that may be written.
    pub range: Range,
}

/// The values that a file takes; others are refused with `EINVAL`.
pub enum Range {
    /// From the first to the second, both included.
    Int(i32, i32),
    /// Any `u32`; [`Table::get`] returns its bits.
    Unsigned,
    /// As `Int`, but the function makes the change that a writer wants, or refuses it with an error. It may be
    /// called by several writers at once. While it waits, the namespace's end waits, too, unless it heeds
    /// [`Switch::is_closing`].
    Switched(i32, i32, fn(&Switch<'_>, i32) -> Result),
}

/// A number of [`Range::Switched`], in the hands of the function that changes it.
pub struct Switch<'a> {
    value: &'a Atomic<i32>,
    closing: &'a Atomic<i32>,
}

impl Switch<'_> {
    /// Returns the value.
    pub fn get(&self) -> i32 {
        self.value.load(Relaxed)
    }

    /// Sets the value. The caller holds the lock under which it has decided that.
    pub fn set(&self, to: i32) {
        self.value.store(to, Relaxed);
    }

    /// Tells whether the files are being removed ([`Table::close`]): that waits for the writer.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed) != 0
    }
}

/// A directory of `N` numbers; dropping it removes the files.
///
/// # Invariants
///
/// `header` is null, or what the registration of `entries` returned; `entries` points into `values` and to
/// `closing`, whose memory does not move.
pub struct Table<const N: usize> {
    header: Atomic<*mut bindings::ctl_table_header>,
    /// Freed after `header` is gone.
    _entries: KVec<bindings::ctl_table>,
    values: KBox<[Atomic<i32>; N]>,
    /// 1 once the files are about to be removed.
    closing: KBox<Atomic<i32>>,
}

// SAFETY: The values are atomic, the header is taken out atomically, and nobody but the core uses
// the entries.
unsafe impl<const N: usize> Send for Table<N> {}
// SAFETY: A shared reference reads and writes the values by single accesses, and takes the header out by an atomic
// exchange, so that one caller alone unregisters it.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    /// Makes the files of `entries` in the directory `path` below `/proc/sys`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also when the files exist.
    pub fn new(net: &Net, path: &'static CStr, entries: &'static [Entry; N]) -> Result<Self> {
        let values = KBox::new([const { Atomic::new(0) }; N], GFP_KERNEL)?;
        let closing = KBox::new(Atomic::new(0), GFP_KERNEL)?;
        for (value, entry) in values.iter().zip(entries) {
            value.store(entry.default, Relaxed);
        }
        let mut table = KVec::with_capacity(entries.len(), GFP_KERNEL)?;
        for (entry, value) in entries.iter().zip(values.iter()) {
            let mut line = bindings::ctl_table {
                procname: entry.name.as_char_ptr(),
                data: value.as_ptr().cast(),
                maxlen: size_of::<i32>() as i32,
                mode: 0o644,
                ..Default::default()
            };
            match &entry.range {
                Range::Int(min, max) => {
                    line.proc_handler = Some(bindings::proc_dointvec_minmax);
                    line.extra1 = ptr::from_ref(min).cast_mut().cast();
                    line.extra2 = ptr::from_ref(max).cast_mut().cast();
                }
                Range::Unsigned => line.proc_handler = Some(bindings::proc_douintvec),
                Range::Switched(..) => {
                    line.proc_handler = Some(switched);
                    line.extra1 = ptr::from_ref(entry).cast_mut().cast();
                    line.extra2 = closing.as_ptr().cast();
                }
            }
            table.push(line, GFP_KERNEL)?;
        }
        // SAFETY: The namespace is alive. The entries stay until they are unregistered, in `remove`;
        // so do the values, which the handlers read and write with single accesses, and the limits,
        // which are only read.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net.as_ptr(),
                path.as_char_ptr(),
                table.as_mut_ptr(),
                table.len(),
            )
        };
        if header.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: Moving a `KVec` or a `KBox` does not move what it holds.
        Ok(Self {
            header: Atomic::new(header),
            _entries: table,
            values,
            closing,
        })
    }

    /// Returns the value of the entry with this index; 0 if there is none.
    #[inline]
    pub fn get(&self, index: usize) -> i32 {
        self.values.get(index).map_or(0, |value| {
            // SAFETY: An aligned number that lives as long as this; the handlers read and write it whole. In
            // place, because an `Atomic` calls a function for it.
            unsafe { ptr::read_volatile(value.as_ptr()) }
        })
    }

    /// Changes a value. The caller knows its range.
    pub fn set(&self, index: usize, to: i32) {
        if let Some(value) = self.values.get(index) {
            value.store(to, Relaxed);
        }
    }

    /// Has [`Switch::is_closing`] say so. Whoever then wakes the writers who wait has [`Table::remove`] wait for
    /// none of them.
    pub fn close(&self) {
        self.closing.store(1, Relaxed);
    }

    /// Removes the files, after their last user has left. Must happen before the namespace ends.
    pub fn remove(&self) {
        let header = self.header.xchg(ptr::null_mut(), Full);
        if !header.is_null() {
            // SAFETY: Registered by `new`, and taken out by nobody else.
            unsafe { bindings::unregister_net_sysctl_table(header) };
        }
    }
}

/// Reads or changes a number of [`Range::Switched`] (`proc_handler`).
///
/// # Safety
///
/// Called by the kernel alone. `line` is an entry of a [`Table`] that is registered; `buffer` is
/// the kernel's and has `*len` bytes.
unsafe extern "C" fn switched(
    line: *const bindings::ctl_table,
    write: ffi::c_int,
    buffer: *mut ffi::c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> ffi::c_int {
    from_result(|| {
        // SAFETY: `Table::new` has put a `&'static Entry`, a value of the table and its `closing` there, which
        // stay until the files are removed; that waits for this function.
        let (entry, switch) = unsafe {
            (
                &*(*line).extra1.cast::<Entry>(),
                Switch {
                    value: &*(*line).data.cast::<Atomic<i32>>(),
                    closing: &*(*line).extra2.cast::<Atomic<i32>>(),
                },
            )
        };
        let Range::Switched(min, max, change) = &entry.range else {
            return Err(EINVAL);
        };
        let mut new = switch.get();
        let copy = bindings::ctl_table {
            data: (&raw mut new).cast(),
            maxlen: size_of::<i32>() as i32,
            extra1: ptr::from_ref(min).cast_mut().cast(),
            extra2: ptr::from_ref(max).cast_mut().cast(),
            ..Default::default()
        };
        // SAFETY: The caller's arguments, and a line whose number and limits live during the call.
        let ret = unsafe { bindings::proc_dointvec_minmax(&copy, write, buffer, len, pos) };
        to_result(ret)?;
        if write != 0 {
            change(&switch, new)?;
        }
        Ok(ret)
    })
}

impl<const N: usize> Drop for Table<N> {
    fn drop(&mut self) {
        self.remove();
    }
}
