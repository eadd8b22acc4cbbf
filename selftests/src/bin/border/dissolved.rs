// SPDX-License-Identifier: GPL-2.0
//! Calls that sleep on a local path while another thread dissolves the connection and makes a new one with
//! the same socket: they end, and take or give no byte of the new one.

use st::errno::{Errno, R};
use st::fd::Fd;
use st::sys;
use std::time::{Duration, Instant};

/// Has the calling thread run before all others of its processor.
fn first(on: bool) -> Result<(), String> {
    let (policy, priority) = if on {
        (libc::SCHED_FIFO, 1)
    } else {
        (libc::SCHED_OTHER, 0)
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: The structure lives during the call.
    match unsafe { libc::sched_setscheduler(0, policy, &param) } {
        0 => Ok(()),
        _ => Err("sched_setscheduler".into()),
    }
}

/// Fills the ring, so that another send sleeps.
fn fill(c: &Fd) {
    while sys::send(c.raw(), &[1; 4096], libc::MSG_DONTWAIT).is_ok() {}
}

/// Empties it again.
fn empty(s: &Fd) {
    while sys::recv_vec(s.raw(), 1 << 16, libc::MSG_DONTWAIT).is_ok_and(|b| !b.is_empty()) {}
}

/// A send and a recv that sleep on `c`, whose peer is `s`, while it is connected anew.
pub fn run(writes: bool, c: &Fd, s: &Fd, other: &Fd) -> Result<(), String> {
    let e = |what: &'static str| move |e: Errno| format!("{what}: {e}");
    let to = sys::sockname(other.raw()).map_err(e("getsockname"))?;
    if writes {
        fill(c);
    }
    let raw = c.raw();
    // And the sleeper with it: on another processor it would run between the old connection's end and the new one.
    here()?;
    let call = std::thread::spawn(move || -> R<i64> {
        if writes {
            return sys::send(raw, &[2; 1000], libc::MSG_NOSIGNAL);
        }
        sys::recv(raw, &mut [0; 1000], 0)
    });
    sys::sleep_ms(200);
    if call.is_finished() {
        return Err("the call does not sleep".into());
    }
    // The sleeper is woken, but does not run before the new connection stands.
    first(true)?;
    let gone = sys::connect_unspec(raw).map_err(e("dissolve"));
    sys::nonblock(raw, true);
    let again = sys::connect(raw, &to);
    sys::nonblock(raw, false);
    let stands = sys::peername(raw).is_ok();
    empty(s);
    first(false)?;
    gone?;
    if !stands {
        return Err(format!("not connected: {again:?}"));
    }
    let new = sys::accept(other.raw()).map_err(e("accept"))?;
    sys::send_all(new.raw(), b"new").map_err(e("send"))?;
    let end = Instant::now() + Duration::from_secs(20 * st::guest::slow());
    while !call.is_finished() {
        if Instant::now() > end {
            return Err("the call goes on".into());
        }
        sys::sleep_ms(10);
    }
    match call.join() {
        Ok(Err(Errno(libc::EPIPE))) => (),
        said => return Err(format!("the call: {said:?}")),
    }
    let got = sys::recv_all(raw, 3);
    if got != Ok(b"new".to_vec()) {
        return Err(format!("the new connection gives {got:?}"));
    }
    sys::send_all(raw, b"back").map_err(e("send"))?;
    match sys::recv_all(new.raw(), 4) {
        Ok(got) if got == b"back" => Ok(()),
        got => Err(format!("the new connection takes {got:?}")),
    }
}

/// Has the calling thread run on the first processor alone.
fn here() -> Result<(), String> {
    // SAFETY: An all-zero set is a set; it lives during the call.
    let ret = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    match ret {
        0 => Ok(()),
        _ => Err("sched_setaffinity".into()),
    }
}

/// A send on `c` whose reader takes the byte and closes its end `s` before the send has looked whether somebody is
/// there; see [`late`]. As with TCP that is the end of the stream, and no reset.
pub fn closed(c: &Fd, s: Fd) -> Result<(), String> {
    let e = |what: &'static str| move |e: Errno| format!("{what}: {e}");
    let reader = std::thread::spawn(move || {
        here()?;
        first(true)?;
        let got = sys::recv_vec(s.raw(), 1, 0);
        s.close().map_err(e("close"))?;
        got.map_err(e("recv"))
    });
    sys::sleep_ms(200);
    here()?;
    let sent = sys::send(c.raw(), b"x", libc::MSG_NOSIGNAL);
    let got = reader.join().map_err(|_| "panic")??;
    let next = sys::recv_vec(c.raw(), 1, 0);
    let error = sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    let events = sys::poll1(c.raw(), sys::POLL_ALL, 0).map_err(e("poll"))?;
    let whole = events & (libc::POLLERR | libc::POLLHUP) == 0 && error == Ok(0);
    match sent == Ok(1) && got == b"x" && next == Ok(vec![]) && whole {
        true => Ok(()),
        false => Err(format!(
            "sent {sent:?}, got {got:?}, then received {next:?}, error {error:?}, {}",
            sys::events(events.into())
        )),
    }
}

/// A send on `c` whose reader closes its end `s`, and connects `c` anew, before the send has looked whether somebody is
/// there: the reader runs as soon as it is woken, on kernels that are preempted. The new connection stands.
pub fn late(c: &Fd, s: Fd, other: &Fd) -> Result<(), String> {
    let e = |what: &'static str| move |e: Errno| format!("{what}: {e}");
    let to = sys::sockname(other.raw()).map_err(e("getsockname"))?;
    let raw = c.raw();
    let reader = std::thread::spawn(move || {
        here()?;
        first(true)?;
        let got = sys::recv_vec(s.raw(), 1, 0);
        s.close().map_err(e("close"))?;
        sys::connect_unspec(raw).map_err(e("dissolve"))?;
        sys::connect(raw, &to).map_err(e("connect"))?;
        got.map_err(e("recv"))
    });
    sys::sleep_ms(200);
    here()?;
    let sent = sys::send(raw, b"x", libc::MSG_NOSIGNAL);
    let got = reader.join().map_err(|_| "panic")??;
    if sent != Ok(1) || got != b"x" {
        return Err(format!("sent {sent:?}, got {got:?}"));
    }
    let new = sys::accept(other.raw()).map_err(e("accept"))?;
    sys::send_all(new.raw(), b"new").map_err(e("send"))?;
    match sys::recv_all(raw, 3) {
        Ok(got) if got == b"new" => Ok(()),
        got => Err(format!("the new connection gives {got:?}")),
    }
}
