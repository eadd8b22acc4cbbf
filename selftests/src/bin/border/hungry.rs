// SPDX-License-Identifier: GPL-2.0
//! A sender for whose bytes TCP has room but no memory sleeps, and can be killed.

use st::fd::Fd;
use st::{path, sys};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// `net.ipv4.tcp_mem` of the host: the memory of all TCP sockets, in pages.
pub struct Limit {
    file: File,
    before: String,
}

impl Limit {
    /// Opens it. It is in the initial namespace alone.
    pub fn open() -> Option<Self> {
        const PATH: &str = "/proc/sys/net/ipv4/tcp_mem";
        let before = std::fs::read_to_string(PATH).ok()?;
        let file = File::options().write(true).open(PATH).ok()?;
        Some(Self { file, before })
    }

    fn set(&self, to: &str) -> Result<(), String> {
        let written = self.file.write_all_at(to.as_bytes(), 0);
        written.map_err(|e| format!("tcp_mem: {e}"))
    }
}

/// Waits until the sender, which has sent something, sleeps and sends no more. Returns false when it ends before.
fn falls_asleep(c: &Fd, child: i32) -> bool {
    let sent = || sys::ioctl_get(c.raw(), libc::TIOCOUTQ).unwrap_or(0);
    let sleeps = || {
        let all = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let state = all.rsplit(')').next().unwrap_or_default().trim_start();
        match state.as_bytes().first() {
            Some(b'S') => Some(true),
            Some(b'Z') | None => None,
            Some(_) => Some(false),
        }
    };
    let (mut before, mut same) = (0, 0);
    for _ in 0..1000 * st::guest::slow() {
        let now = sent();
        match sleeps() {
            None => return false,
            Some(true) if now != 0 && now == before => same += 1,
            Some(_) => (before, same) = (now, 0),
        }
        // TCP, too, looks for memory again and again.
        if same >= 50 {
            break;
        }
        sys::sleep_ms(20);
    }
    true
}

/// Sends on `c` what `s` does not read, while there is no memory.
pub fn run(limit: &Limit, c: &Fd, s: &Fd) -> Result<String, String> {
    path::prove_local(c, s)?;
    // From now on by TCP, but by the calls of a local path.
    sys::setopt(s.raw(), libc::IPPROTO_TCP, 36 /* TCP_INQ */, 1).map_err(|e| format!("{e}"))?;
    // A size that TCP does not lower when memory is short, and more than it takes before it counts: up to a MiB on each
    // processor, and as much again that has been given back and is not counted yet.
    let size = 16 << 20;
    sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size)
        .map_err(|e| format!("SO_SNDBUFFORCE: {e}"))?;
    // SAFETY: The child only sends, and ends by `_exit` or a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        sys::sleep_ms(300);
        let _ = sys::send(c.raw(), &vec![1; 64 << 20], 0);
        // SAFETY: Ends the process.
        unsafe { libc::_exit(0) };
    }
    limit.set("0 0 1")?;
    let mut status = 0;
    // SAFETY: An int; a child of ours.
    let ended = |status: &mut i32| unsafe { libc::waitpid(child, status, libc::WNOHANG) } != 0;
    let early = !falls_asleep(c, child) && ended(&mut status);
    let room = sys::poll1(c.raw(), libc::POLLOUT, 0).unwrap_or(0);
    // SAFETY: As above.
    unsafe { libc::kill(child, libc::SIGTERM) };
    let begin = Instant::now();
    let mut killed = early;
    while !killed && begin.elapsed() < Duration::from_secs(20 * st::guest::slow()) {
        sys::sleep_ms(10);
        killed = ended(&mut status);
    }
    limit.set(&limit.before)?;
    let after = begin.elapsed().as_millis();
    if !killed {
        // Now it can.
        while !ended(&mut status) {
            sys::sleep_ms(10);
        }
        return Err("the sender could not be killed".into());
    }
    if early {
        return Err(format!("the sender ended by itself: {status:#x}"));
    }
    if room & libc::POLLOUT == 0 {
        return Err("it waits for room, not for memory".into());
    }
    Ok(format!("killed after {after} ms"))
}
