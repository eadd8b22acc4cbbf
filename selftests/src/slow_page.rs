// SPDX-License-Identifier: GPL-2.0
//! A page whose first touch sleeps for as long as the test likes (the kernel module `slow_page`).

use crate::errno::{cvt, Errno};
use crate::fd::Fd;
use std::time::{Duration, Instant};

/// Size of a page.
pub const PAGE: usize = 4096;

/// A page that is not there, behind one that is. The processes that fork after it was made share it.
pub struct SlowPage {
    file: Fd,
    start: *mut u8,
}

impl SlowPage {
    /// Makes one that will hold `bytes`; loads the module if that has not been done.
    ///
    /// # Errors
    ///
    /// What could not be done.
    pub fn new(bytes: &[u8]) -> Result<SlowPage, String> {
        const FILE: &std::ffi::CStr = c"/proc/slow_page";
        let open = || {
            // SAFETY: A string that lives during the call.
            let fd = unsafe { libc::open(FILE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
            cvt(fd.into()).map(|fd| Fd::new(fd as i32))
        };
        let file = match open() {
            Err(Errno(libc::ENOENT)) => {
                crate::net::sh("insmod /rsmc/kmod/slow_page.ko")?;
                open()
            }
            other => other,
        };
        let file = file.map_err(|e| format!("/proc/slow_page: {e}"))?;
        // SAFETY: A buffer and its length; memory at a place of the kernel's choice, half of which is replaced.
        let start = unsafe {
            libc::write(file.raw(), bytes.as_ptr().cast(), bytes.len());
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let anonymous = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, anonymous, -1, 0);
            let second = start.cast::<u8>().wrapping_add(PAGE).cast();
            let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
            match libc::mmap(second, PAGE, access, fixed, file.raw(), 0) {
                libc::MAP_FAILED => return Err("mmap of /proc/slow_page".into()),
                _ => start.cast::<u8>(),
            }
        };
        Ok(SlowPage { file, start })
    }

    /// Returns the address `before` bytes before the page.
    #[must_use]
    pub fn at(&self, before: usize) -> *mut u8 {
        self.start.wrapping_add(PAGE - before)
    }

    /// Returns how many sleep there.
    #[must_use]
    pub fn sleepers(&self) -> i32 {
        let mut number = 0i32;
        // SAFETY: An int.
        let got = unsafe { libc::read(self.file.raw(), (&raw mut number).cast(), 4) };
        if got == 4 {
            number
        } else {
            0
        }
    }

    /// Waits until somebody sleeps there.
    ///
    /// # Errors
    ///
    /// Nobody does, for seconds.
    pub fn wait_for_sleeper(&self) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(5 * crate::guest::slow());
        while self.sleepers() == 0 {
            if Instant::now() > end {
                return Err("nobody touches the slow page".into());
            }
            crate::sys::sleep_ms(1);
        }
        Ok(())
    }

    /// Releases all threads that sleep there, and later ones.
    pub fn let_go(&self) {
        // Any number that is not every file's; 1 is FIBMAP.
        // SAFETY: No pointers.
        unsafe { libc::ioctl(self.file.raw(), 0x5350, 0) };
    }
}

impl Drop for SlowPage {
    fn drop(&mut self) {
        self.let_go();
        // SAFETY: The two pages that `new` has mapped.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}
