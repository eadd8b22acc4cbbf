// SPDX-License-Identifier: GPL-2.0
//! Forked children that write to a pipe and are killed when their time is up.

use crate::fd::Fd;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::time::{Duration, Instant};

/// End of a child.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum End {
    /// Exit status.
    Exit(i32),
    /// Signal.
    Signal(i32),
    /// Killed by us: its time was up.
    Timeout,
}

/// Runs `f` in a forked child with a pipe to write to; returns what it wrote and how it ended.
/// The child leads its own process group, which is killed as a whole afterwards.
pub fn run(ms: u64, f: impl FnOnce(&mut std::fs::File)) -> (String, End) {
    let mut p = [0i32; 2];
    // SAFETY: array of two ints.
    assert_eq!(
        unsafe { libc::pipe2(p.as_mut_ptr(), libc::O_CLOEXEC) },
        0,
        "pipe"
    );
    let _ = std::io::stdout().flush();
    // SAFETY: the program is single threaded where it calls this.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: no pointers; the write end is owned from here on.
        let mut w = unsafe {
            libc::setpgid(0, 0);
            libc::close(p[0]);
            std::fs::File::from_raw_fd(p[1])
        };
        let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&mut w))).is_ok();
        let _ = w.flush();
        // SAFETY: ends the process without running the parent's exit handlers.
        unsafe { libc::_exit(if ok { 0 } else { 101 }) };
    }
    // SAFETY: the write end belongs to the child only.
    unsafe { libc::close(p[1]) };
    let r = Fd::new(p[0]);
    let mut out = Vec::new();
    let deadline = Instant::now() + Duration::from_millis(ms);
    let end = collect(pid, &r, &mut out, deadline);
    // SAFETY: no pointers. The group exists as long as a member lives; else ESRCH.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    drain(&r, &mut out);
    (String::from_utf8_lossy(&out).into_owned(), end)
}

fn drain(r: &Fd, out: &mut Vec<u8>) -> bool {
    let mut b = [0u8; 4096];
    while matches!(crate::sys::poll1(r.raw(), libc::POLLIN, 0), Ok(e) if e != 0) {
        // SAFETY: buffer and length agree.
        let n = unsafe { libc::read(r.raw(), b.as_mut_ptr().cast(), b.len()) };
        if n <= 0 {
            return true;
        }
        out.extend(&b[..n as usize]);
    }
    false
}

fn collect(pid: i32, r: &Fd, out: &mut Vec<u8>, deadline: Instant) -> End {
    let mut eof = false;
    loop {
        if !eof {
            let _ = crate::sys::poll1(r.raw(), libc::POLLIN, 10);
            eof = drain(r, out);
        } else {
            crate::sys::sleep_ms(1);
        }
        if let Some(e) = reap(pid, libc::WNOHANG) {
            return e;
        }
        if Instant::now() > deadline {
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // A child that even SIGKILL does not end hangs in the kernel: say so, do not hang too.
            let t = Instant::now();
            while t.elapsed() < Duration::from_secs(5) {
                if reap(pid, libc::WNOHANG).is_some() {
                    return End::Timeout;
                }
                crate::sys::sleep_ms(10);
            }
            out.extend(b"\n!unkillable child\n");
            return End::Timeout;
        }
    }
}

/// Waits for a child; `None` while it runs (with `WNOHANG`).
pub fn reap(pid: i32, flags: i32) -> Option<End> {
    let mut st = 0;
    // SAFETY: `st` is an int.
    let r = unsafe { libc::waitpid(pid, &mut st, flags) };
    if r == 0 {
        None
    } else if r < 0 {
        Some(End::Exit(-1))
    } else if libc::WIFEXITED(st) {
        Some(End::Exit(libc::WEXITSTATUS(st)))
    } else {
        Some(End::Signal(libc::WTERMSIG(st)))
    }
}

/// Forks a child that runs `f` and exits with its value; the parent gets the pid.
pub fn spawn(f: impl FnOnce() -> i32) -> i32 {
    let _ = std::io::stdout().flush();
    // SAFETY: single threaded callers.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(101);
        // SAFETY: as in `run`.
        unsafe { libc::_exit(r) };
    }
    pid
}

/// Ends a child as failed, without the noise of a panic.
pub fn fail() -> ! {
    // SAFETY: ends the process at once; what was recorded is already written.
    unsafe { libc::_exit(1) }
}
