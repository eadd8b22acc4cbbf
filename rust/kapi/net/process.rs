// SPDX-License-Identifier: GPL-2.0

//! Facts about the current task.

use crate::net::netns::Net;
use core::ptr;
use kernel::{ffi, sync::rcu};
use smc_bindings as bindings;

/// Longest path that is kept, in bytes.
const PATH: usize = 256;
/// Length of a thread's name with its NUL byte.
const COMM: usize = 16;
/// What the kernel appends to the path of a file that has been removed or replaced.
const DELETED: &[u8] = b" (deleted)";

/// Returns a number that stands for the user to whom the calling task's resources are counted: its real
/// user; within user namespaces the user that made the outermost of them, or that namespace itself
/// if root made it.
#[must_use]
pub fn account() -> u64 {
    // SAFETY: No preconditions: the task has credentials, and they hold its user namespace with all those around it.
    unsafe { bindings::current_account() }
}

/// A text of at most `N` bytes.
#[derive(Clone)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    first: usize,
    end: usize,
}

impl<const N: usize> Text<N> {
    const NONE: Self = Self {
        bytes: [0; N],
        first: 0,
        end: 0,
    };

    /// Returns its bytes.
    pub fn get(&self) -> &[u8] {
        self.bytes.get(self.first..self.end).unwrap_or(&[])
    }
}

/// What to find out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// [`Process::exe`].
    pub exe: bool,
    /// [`Process::cgroup`].
    pub cgroup: bool,
}

/// Facts about a task. What there is not, or is longer than 255 bytes, is empty.
#[derive(Clone)]
pub struct Process {
    /// Path of the program's file below the task's root directory; that of a file which has been replaced
    /// since, too.
    pub exe: Text<PATH>,
    /// Path of its cgroup in the hierarchy of version 2, from the host's root.
    pub cgroup: Text<PATH>,
    /// Name of the thread.
    pub comm: Text<COMM>,
    /// Effective user, as the user namespace that owns a network namespace knows it.
    pub uid: u32,
}

impl Process {
    /// Returns the facts about the current task. Does not sleep; not for softirqs.
    #[inline]
    pub fn current(net: &Net, wanted: Wanted) -> Self {
        // Filled where it is: it is large.
        let mut this = Self {
            exe: Text::NONE,
            cgroup: Text::NONE,
            comm: Text::NONE,
            uid: 0,
        };
        let comm = &mut this.comm;
        // SAFETY: There is room for the name with its NUL byte. The namespace is alive.
        this.uid = unsafe {
            bindings::current_comm(comm.bytes.as_mut_ptr().cast());
            bindings::current_euid_in(net.as_ptr())
        };
        comm.end = comm.bytes.iter().position(|b| *b == 0).unwrap_or(COMM);
        if wanted.exe {
            find_exe(&mut this.exe);
        }
        if wanted.cgroup {
            find_cgroup(&mut this.cgroup);
        }
        this
    }
}

/// Writes the path of the current task's program into `text`, which is empty.
fn find_exe(text: &mut Text<PATH>) {
    let file = {
        let _rcu = rcu::read_lock();
        // SAFETY: In an RCU section, as it wants. It returns null, or takes a reference.
        unsafe { bindings::current_exe_file() }
    };
    if file.is_null() {
        return;
    }
    let start = text.bytes.as_mut_ptr().cast::<ffi::c_char>();
    // SAFETY: The reference keeps the file and thus its path, and there is room for as many bytes as
    // told. The result is an error or a place in the buffer, whose last byte is the text's NUL.
    unsafe {
        let at = bindings::file_path(file, start, PATH as ffi::c_int);
        bindings::fput(file);
        let first = (at as usize).wrapping_sub(start as usize);
        if first < PATH {
            text.first = first;
            text.end = PATH - 1;
        }
    }
    if text.get().ends_with(DELETED) {
        text.end = text.end.saturating_sub(DELETED.len());
    }
}

/// Writes the path of the current task's cgroup into `text`, which is empty.
fn find_cgroup(text: &mut Text<PATH>) {
    let _rcu = rcu::read_lock();
    // SAFETY: In an RCU section, as it wants; there is room for as many bytes as told.
    let len = unsafe { bindings::current_cgroup_path(text.bytes.as_mut_ptr().cast(), PATH) };
    // As many as it has, which may be more than there is room for.
    text.end = usize::try_from(len)
        .ok()
        .filter(|len| *len < PATH)
        .unwrap_or(0);
}

/// Returns a random number below `limit`.
pub fn random_below(limit: u32) -> u32 {
    let mut number = [0; 4];
    // SAFETY: The array may be written.
    unsafe { bindings::get_random_bytes(ptr::from_mut(&mut number).cast(), number.len()) };
    u32::from_ne_bytes(number).checked_rem(limit).unwrap_or(0)
}
