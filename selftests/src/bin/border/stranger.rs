// SPDX-License-Identifier: GPL-2.0
//! An end that sleeps in a call, for a page of its memory or for its control group, keeps nobody at the other
//! end waiting; and what a call was told at its beginning is still so at its end.

use st::cgroup::Hierarchy;
use st::child::{self, End};
use st::errno::{show, Errno};
use st::fd::Fd;
use st::slow_page::SlowPage;
use st::{net, sys};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

fn e(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| format!("{what}: {e}")
}

/// A child that is killed, whatever becomes of the test.
struct Child(i32);

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: A child of ours.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        let _ = child::reap(self.0, 0);
    }
}

fn spawn(f: impl FnOnce() -> i32) -> Child {
    Child(child::spawn(f))
}

/// Has both ends meet: the server has sent, and the client, from whose end nothing has been sent, has received.
fn meet(client: &Fd, server: &Fd) -> Result<(), String> {
    sys::send_all(server.raw(), b"m").map_err(e("send"))?;
    sys::recv_all(client.raw(), 1).map_err(e("recv"))?;
    Ok(())
}

/// The server's end of a connection is used and closed while the client's has its socket locked, for a page that
/// is not there, and another of its processes sends.
pub fn frozen(client: Fd, server: Fd) -> Result<(), String> {
    meet(&client, &server)?;
    let page = SlowPage::new(&[])?;
    let (c, s) = (client.raw(), server.raw());
    let owner = spawn(|| {
        // SAFETY: Descriptors of this process, an option of 8 bytes, the last four of them in the slow page.
        unsafe {
            libc::close(s);
            let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
            libc::setsockopt(c, level, name, page.at(4).cast(), 8)
        }
    });
    page.wait_for_sleeper()?;
    let sender = spawn(|| {
        // SAFETY: A descriptor of this process.
        unsafe { libc::close(s) };
        i32::from(sys::send(c, b"x", 0).is_err())
    });
    // Until it waits for the socket.
    sys::sleep_ms(200 * st::guest::slow());
    let other = std::thread::spawn(move || {
        let got = sys::recv_vec(s, 8, libc::MSG_DONTWAIT).map(|b| b.len());
        (show(&got), show(&server.close()))
    });
    let end = Instant::now() + Duration::from_millis(3000 * st::guest::slow());
    while !other.is_finished() && Instant::now() < end {
        sys::sleep_ms(1);
    }
    let hangs = !other.is_finished();
    let asleep = page.sleepers();
    page.let_go();
    drop((owner, sender));
    let (got, closed) = other.join().map_err(|_| "panic")?;
    match (hangs, asleep) {
        (true, _) => Err("recv() that does not wait, or close(), waits for the other end".into()),
        (false, 1) if got == "EAGAIN" && closed == "0" => Ok(()),
        _ => Err(format!("recv {got}, close {closed}, {asleep} asleep")),
    }
}

/// Returns how often the calling thread has gone to sleep.
fn sleeps() -> i64 {
    // SAFETY: Plain data, and a valid pointer to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// The server's end is asked for bytes, without waiting, while the client's end is held up by its control group
/// for the memory of a ring.
pub fn charged(outer: Option<&File>, client: &Fd, server: &Fd) -> Result<String, String> {
    const LARGE: usize = 16 << 20;
    meet(client, server)?;
    net::sysctl("net.smc.path_ring", &LARGE.to_string())?;
    // That of the initial namespace, which the limit is, too.
    let outer = outer.ok_or("no path_ring")?;
    let set = |bytes: usize| outer.write_all_at(bytes.to_string().as_bytes(), 0);
    set(LARGE).map_err(|e| format!("path_ring: {e}"))?;
    let all = Hierarchy::new()?;
    let root = all.inside().parent().map(std::path::PathBuf::from);
    let root = root.ok_or("no parent")?;
    std::fs::write(root.join("cgroup.subtree_control"), "+memory")
        .map_err(|e| format!("memory controller: {e}"))?;
    let c = client.raw();
    let inside = all.inside();
    let sender = spawn(|| {
        let bytes = vec![1; LARGE];
        // So much that the program itself is not held up.
        let high = std::fs::write(inside.join("memory.high"), "1048576");
        if high.is_err() || std::fs::write(inside.join("cgroup.procs"), "0").is_err() {
            return 1;
        }
        i32::from(sys::send(c, &bytes, libc::MSG_DONTWAIT).is_err())
    });
    let events = || std::fs::read_to_string(all.inside().join("memory.events")).unwrap_or_default();
    let held = |text: &str| {
        let mut lines = text.lines();
        let high = lines.find_map(|line| line.strip_prefix("high ")?.parse().ok());
        high.unwrap_or(0) != 0
    };
    // It may take the sender a while to come to that.
    let last = Instant::now() + Duration::from_secs(60 * st::guest::slow());
    let mut end = None;
    let mut longest = Duration::ZERO;
    let mut calls = 0u32;
    while Instant::now() < end.unwrap_or(last) {
        if end.is_none() && calls % 100 == 0 && held(&events()) {
            end = Some(Instant::now() + Duration::from_secs(3));
        }
        let (begin, slept) = (Instant::now(), sleeps());
        match sys::recv_vec(server.raw(), 4096, libc::MSG_DONTWAIT) {
            Ok(_) | Err(Errno(libc::EAGAIN)) => (),
            Err(e) => return Err(format!("recv: {e}")),
        }
        // A call that only waited for a processor has not slept.
        if sleeps() != slept {
            longest = longest.max(begin.elapsed());
        }
        calls += 1;
        sys::sleep_ms(1);
    }
    let text = events();
    drop(sender);
    all.leave();
    set(1 << 20).map_err(|e| format!("path_ring: {e}"))?;
    if !held(&text) {
        return Err(format!("nothing was held up: {text:?}"));
    }
    match longest > Duration::from_millis(500 * st::guest::slow()) {
        true => Err(format!("a recv() that does not wait slept for {longest:?}")),
        false => Ok(format!("{calls} calls, longest sleep {longest:?}")),
    }
}

/// `TCP_ZEROCOPY_RECEIVE` asked of the server's end, for TCP's bytes, while the client's leaves TCP and comes back
/// with urgent data: no byte overtakes another.
pub fn zerocopy(client: &Fd, server: &Fd) -> Result<(), String> {
    const ZEROCOPY: i32 = 35;
    const SIZE: usize = 64;
    meet(client, server)?;
    let mut buffer = vec![0u8; 64];
    let mut fields = [0u8; SIZE];
    fields[24..32].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
    fields[32..36].copy_from_slice(&64i32.to_ne_bytes());
    let page = SlowPage::new(&fields)?;
    let s = server.raw();
    let reader = spawn(|| {
        // TCP's function reads the length, and then the structure, which is in the slow page.
        let mut len = SIZE as libc::socklen_t;
        // SAFETY: A structure and its length; the buffer is the one that it names.
        let (r, copied) = unsafe {
            libc::alarm(60 * st::guest::slow() as u32);
            let level = libc::IPPROTO_TCP;
            let r = libc::getsockopt(s, level, ZEROCOPY, page.at(0).cast(), &raw mut len);
            (
                r,
                page.at(0).wrapping_add(32).cast::<i32>().read_unaligned(),
            )
        };
        let mut all = buffer[..copied.clamp(0, 64) as usize].to_vec();
        if r != 0 {
            return 100;
        }
        while all.len() < b"Xabc".len() && sys::poll_until(s, libc::POLLIN, 1000) != 0 {
            match sys::recv_vec(s, 64, libc::MSG_DONTWAIT) {
                Ok(b) if !b.is_empty() => all.extend(b),
                _ => break,
            }
        }
        i32::from(all != b"Xabc") + 2 * i32::from(all == b"abcX")
    });
    page.wait_for_sleeper()?;
    sys::send_all(client.raw(), b"X").map_err(e("send"))?;
    sys::send(client.raw(), b"abcU", libc::MSG_OOB).map_err(e("send"))?;
    sys::sleep_ms(50);
    page.let_go();
    match child::reap(reader.0, 0) {
        Some(End::Exit(0)) => Ok(()),
        Some(End::Exit(3)) => Err("the bytes came as \"abcX\"".into()),
        other => Err(format!("the reader: {other:?}")),
    }
}
