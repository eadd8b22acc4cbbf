// SPDX-License-Identifier: GPL-2.0
//! Two byte rings in memory that two processes share, with a futex for each way of waiting: no
//! library, no descriptor, nothing that a socket has. The floor under everything that copies twice.

use crate::ends::Duplex;
use st::errno::R;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// As many bytes as fit into a pipe.
const SIZE: usize = 64 << 10;

/// A count that others wait for.
#[repr(C, align(64))]
struct Count {
    /// Bytes so far; wraps.
    value: AtomicU32,
    /// Set by the process that waits for the next change.
    awaited: AtomicU32,
}

#[repr(C)]
struct Ring {
    written: Count,
    read: Count,
    bytes: UnsafeCell<[u8; SIZE]>,
}

// SAFETY: There is one writer and one reader; each touches only bytes that the counts give it.
unsafe impl Sync for Ring {}

impl Count {
    fn futex(&self, op: i32, value: u32) {
        let none = ptr::null::<libc::timespec>();
        // SAFETY: The word lives as long as the mapping, which is never undone.
        unsafe { libc::syscall(libc::SYS_futex, self.value.as_ptr(), op, value, none) };
    }

    /// Waits while it is `seen`.
    fn wait(&self, seen: u32) {
        self.awaited.store(1, Ordering::SeqCst);
        if self.value.load(Ordering::SeqCst) == seen {
            self.futex(libc::FUTEX_WAIT, seen);
        }
    }

    /// Adds, and wakes the process that waits for it.
    fn add(&self, n: usize) {
        self.value.fetch_add(n as u32, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) != 0 {
            self.awaited.store(0, Ordering::SeqCst);
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }
}

impl Ring {
    /// Runs `copy` with the place of a byte in the ring, the offset in the caller's buffer and a
    /// length, once or, around the end, twice.
    fn runs(&self, at: u32, n: usize, mut copy: impl FnMut(*mut u8, usize, usize)) {
        let begin = at as usize % SIZE;
        let first = n.min(SIZE - begin);
        let base = self.bytes.get().cast::<u8>();
        // SAFETY: `begin` is less than the size.
        copy(unsafe { base.add(begin) }, 0, first);
        if first < n {
            copy(base, first, n - first);
        }
    }

    fn write(&self, mut b: &[u8]) {
        while !b.is_empty() {
            let at = self.written.value.load(Ordering::Relaxed);
            let read = self.read.value.load(Ordering::Acquire);
            let n = b.len().min(SIZE - at.wrapping_sub(read) as usize);
            if n == 0 {
                self.read.wait(read);
                continue;
            }
            self.runs(at, n, |to, from, len| {
                // SAFETY: These bytes of the ring are free, hence the writer's; `b` has as many.
                unsafe { ptr::copy_nonoverlapping(b.as_ptr().add(from), to, len) };
            });
            self.written.add(n);
            b = &b[n..];
        }
    }

    /// Reads some bytes, at least one.
    fn read(&self, b: &mut [u8]) -> usize {
        loop {
            let at = self.read.value.load(Ordering::Relaxed);
            let written = self.written.value.load(Ordering::Acquire);
            let n = b.len().min(written.wrapping_sub(at) as usize);
            if n == 0 {
                self.written.wait(written);
                continue;
            }
            self.runs(at, n, |from, to, len| {
                // SAFETY: These bytes of the ring are written, hence the reader's; `b` has as many.
                unsafe { ptr::copy_nonoverlapping(from, b.as_mut_ptr().add(to), len) };
            });
            self.read.add(n);
            return n;
        }
    }
}

/// One end: a ring for each way.
pub struct Half {
    from: &'static Ring,
    to: &'static Ring,
}

/// Makes both ends. The mapping stays until the process ends.
pub fn halves() -> (Half, Half) {
    let len = 2 * size_of::<Ring>();
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
    );
    // SAFETY: A new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "mmap");
    let at = at.cast::<Ring>();
    // SAFETY: The mapping has room for two, is aligned to pages and never goes; zeroes are a ring.
    let (there, back) = unsafe { (&*at, &*at.add(1)) };
    let client = Half {
        from: back,
        to: there,
    };
    let server = Half {
        from: there,
        to: back,
    };
    (client, server)
}

impl Duplex for Half {
    fn put(&self, b: &[u8]) -> R<()> {
        self.to.write(b);
        Ok(())
    }

    fn take(&self, b: &mut [u8]) -> R<usize> {
        Ok(self.from.read(b))
    }
}
