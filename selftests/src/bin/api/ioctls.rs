// SPDX-License-Identifier: GPL-2.0
//! ioctls, fcntl and SIGIO.

use crate::ctx::T;
use st::sys;
use std::sync::atomic::{AtomicI32, Ordering};

crate::scenarios!(
    ioctl_inq,
    ioctl_outq,
    ioctl_atmark,
    ioctl_fionbio,
    ioctl_states,
    ioctl_others,
    ioctl_timestamp,
    sigio_data,
    sigio_listener,
    sigio_fioasync,
    sigio_connect,
    sigio_connect_alone,
    sigio_room,
    sigio_wait_all,
    fcntl_owner,
);

const SIOCOUTQNSD: u64 = 0x894b;
const SIOCATMARK: u64 = 0x8905;
const SIOCOUTQ: u64 = 0x5411;
const FIOASYNC: u64 = 0x5452;

fn ioctl_inq(t: &mut T) {
    let (c, s) = t.pair();
    t.res("empty", &sys::ioctl_get(s.raw(), libc::FIONREAD));
    sys::send(c.raw(), b"12345", 0).unwrap();
    t.poll_for("data", s.raw(), libc::POLLIN);
    t.res("five", &sys::ioctl_get(s.raw(), libc::FIONREAD));
    sys::recv_vec(s.raw(), 2, 0).unwrap();
    t.res("three", &sys::ioctl_get(s.raw(), libc::FIONREAD));
    drop(c);
    t.poll_for("FIN", s.raw(), libc::POLLRDHUP);
    t.res(
        "FIN does not count",
        &sys::ioctl_get(s.raw(), libc::FIONREAD),
    );
    sys::recv_vec(s.raw(), 8, 0).unwrap();
    t.res("empty at EOF", &sys::ioctl_get(s.raw(), libc::FIONREAD));
}

fn ioctl_outq(t: &mut T) {
    let (c, s) = t.pair();
    t.res("empty", &sys::ioctl_get(c.raw(), SIOCOUTQ));
    t.res("not sent", &sys::ioctl_get(c.raw(), SIOCOUTQNSD));
    sys::setopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_CORK, 1).unwrap();
    sys::send(c.raw(), b"held back", 0).unwrap();
    t.res("held", &sys::ioctl_get(c.raw(), SIOCOUTQ));
    t.res("held, not sent", &sys::ioctl_get(c.raw(), SIOCOUTQNSD));
    sys::setopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_CORK, 0).unwrap();
    t.poll_for("arrives", s.raw(), libc::POLLIN);
    sys::sleep_ms(300); // delayed ACK
    t.res("acknowledged", &sys::ioctl_get(c.raw(), SIOCOUTQ));
}

fn ioctl_atmark(t: &mut T) {
    let (c, s) = t.pair();
    t.res("none", &sys::ioctl_get(s.raw(), SIOCATMARK));
    sys::send(c.raw(), b"ab", 0).unwrap();
    sys::send(c.raw(), b"!", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.res("before", &sys::ioctl_get(s.raw(), SIOCATMARK));
    sys::recv_vec(s.raw(), 8, 0).unwrap();
    t.res("at mark", &sys::ioctl_get(s.raw(), SIOCATMARK));
}

fn ioctl_fionbio(t: &mut T) {
    let (_c, s) = t.pair();
    t.res("on", &sys::ioctl_set(s.raw(), libc::FIONBIO, 1));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    // SAFETY: no pointers.
    let f = unsafe { libc::fcntl(s.raw(), libc::F_GETFL) };
    t.rec("flag", f & libc::O_NONBLOCK != 0);
    t.res("off", &sys::ioctl_set(s.raw(), libc::FIONBIO, 0));
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 50).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}

fn ioctl_states(t: &mut T) {
    let s = t.socket();
    for (n, r) in [
        ("INQ", libc::FIONREAD),
        ("OUTQ", SIOCOUTQ),
        ("OUTQNSD", SIOCOUTQNSD),
        ("ATMARK", SIOCATMARK),
    ] {
        t.res(&format!("fresh {n}"), &sys::ioctl_get(s.raw(), r));
    }
    let (l, _) = t.listener();
    for (n, r) in [
        ("INQ", libc::FIONREAD),
        ("OUTQ", SIOCOUTQ),
        ("OUTQNSD", SIOCOUTQNSD),
        ("ATMARK", SIOCATMARK),
    ] {
        t.res(&format!("listening {n}"), &sys::ioctl_get(l.raw(), r));
    }
    let a = t.black_hole();
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    let _ = sys::connect(c.raw(), &a);
    for (n, r) in [
        ("INQ", libc::FIONREAD),
        ("OUTQ", SIOCOUTQ),
        ("OUTQNSD", SIOCOUTQNSD),
        ("ATMARK", SIOCATMARK),
    ] {
        t.res(&format!("connecting {n}"), &sys::ioctl_get(c.raw(), r));
    }
}

fn ioctl_others(t: &mut T) {
    let (c, _s) = t.pair();
    for (n, r) in [
        ("TCGETS", 0x5401u64),
        ("SIOCGIFCONF null", 0x8912),
        ("unknown 0x8999", 0x8999),
        ("SIOCPROTOPRIVATE", 0x89e0),
        ("FIOQSIZE", 0x5460),
        ("zero", 0),
    ] {
        let mut b = [0u8; 256];
        // SAFETY: the buffer is larger than anything these requests write.
        let r = unsafe { libc::ioctl(c.raw(), r, b.as_mut_ptr()) };
        t.res(n, &st::errno::cvt(i64::from(r)));
    }
    let mut ifr = [0u8; 40];
    ifr[..2].copy_from_slice(b"lo");
    // SAFETY: `struct ifreq` is 40 bytes.
    let r = unsafe { libc::ioctl(c.raw(), libc::SIOCGIFINDEX as _, ifr.as_mut_ptr()) };
    t.res("SIOCGIFINDEX", &st::errno::cvt(i64::from(r)));
    t.rec("index", i32::from_ne_bytes(ifr[16..20].try_into().unwrap()));
    // SAFETY: a bad pointer on purpose.
    let r = unsafe { libc::ioctl(c.raw(), libc::FIONREAD, 8 as *mut i32) };
    t.res("bad pointer", &st::errno::cvt(i64::from(r)));
}

fn ioctl_timestamp(t: &mut T) {
    let (c, s) = t.pair();
    let mut b = [0u8; 16];
    // SAFETY: a timeval is 16 bytes.
    let mut stamp = |fd: i32| {
        let r = unsafe { libc::ioctl(fd, 0x8906, b.as_mut_ptr()) };
        st::errno::cvt(i64::from(r))
    };
    t.res("SIOCGSTAMP first", &stamp(s.raw()));
    sys::send(c.raw(), b"x", 0).unwrap();
    t.poll_for("data", s.raw(), libc::POLLIN);
    sys::recv_vec(s.raw(), 4, 0).unwrap();
    t.res("SIOCGSTAMP", &stamp(s.raw()));
}

static BAND: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_io(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    COUNT.fetch_add(1, Ordering::SeqCst);
    // SAFETY: for F_SETSIG signals `si_band` follows the three ints and padding.
    let band = unsafe { *(info.cast::<i64>().add(2)) };
    BAND.fetch_or(band as i32, Ordering::SeqCst);
}

fn arm(fd: i32) {
    COUNT.store(0, Ordering::SeqCst);
    BAND.store(0, Ordering::SeqCst);
    // SAFETY: plain sigaction and fcntl calls.
    unsafe {
        let mut sa: libc::sigaction = std::mem::zeroed();
        sa.sa_sigaction =
            on_io as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        sa.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        let sig = libc::SIGRTMIN();
        libc::sigaction(sig, &sa, std::ptr::null_mut());
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid());
        libc::fcntl(fd, 10, sig); // F_SETSIG
        let f = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, f | libc::O_ASYNC);
    }
}

fn bands() -> String {
    sys::sleep_ms(60);
    COUNT.store(0, Ordering::SeqCst);
    sys::events(BAND.swap(0, Ordering::SeqCst))
}

fn sigio_data(t: &mut T) {
    let (c, s) = t.pair();
    arm(s.raw());
    t.rec("start", bands());
    sys::send(c.raw(), b"x", 0).unwrap();
    t.rec("data", bands());
    sys::recv_vec(s.raw(), 4, 0).unwrap();
    sys::send(c.raw(), b"!", libc::MSG_OOB).unwrap();
    t.rec("urgent", bands());
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    t.rec("half close", bands());
    drop(c);
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.rec("reset", bands());
}

fn sigio_listener(t: &mut T) {
    let (l, a) = t.listener();
    arm(l.raw());
    let c = t.socket();
    sys::connect(c.raw(), &a).unwrap();
    sys::sleep_ms(60);
    t.rec("signalled", COUNT.load(Ordering::SeqCst) > 0);
    let k = sys::accept(l.raw()).unwrap();
    let _ = bands();
    // O_ASYNC is not inherited.
    sys::send(c.raw(), b"x", 0).unwrap();
    sys::sleep_ms(60);
    t.rec("child is silent", COUNT.load(Ordering::SeqCst));
    drop(k);
}

fn sigio_fioasync(t: &mut T) {
    let (c, s) = t.pair();
    arm(s.raw());
    t.res("off", &sys::ioctl_set(s.raw(), FIOASYNC, 0));
    sys::send(c.raw(), b"x", 0).unwrap();
    t.rec("silent", bands());
    t.res("on", &sys::ioctl_set(s.raw(), FIOASYNC, 1));
    sys::send(c.raw(), b"x", 0).unwrap();
    t.rec("data", bands());
}

fn sigio_connect(t: &mut T) {
    let (_l, a) = t.listener();
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    arm(c.raw());
    let _ = sys::connect(c.raw(), &a);
    t.poll_for("connected", c.raw(), libc::POLLOUT);
    sys::sleep_ms(60);
    t.rec("signalled", COUNT.load(Ordering::SeqCst) > 0);
    t.prove("client", &c);
}

/// Checks that a program that only waits for signals gets one once the connection can be written to.
fn sigio_connect_alone(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    arm(c.raw());
    let _ = sys::connect(c.raw(), &a);
    let (mut seen, mut sent) = (0, false);
    for _ in 0..300 {
        let now = COUNT.load(Ordering::SeqCst);
        if now > seen {
            seen = now;
            sent = sys::send(c.raw(), b"x", libc::MSG_NOSIGNAL).is_ok();
            if sent {
                break;
            }
        }
        sys::sleep_ms(10);
    }
    t.rec("sent after a signal", sent);
    let k = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &k);
}

/// Checks that a program that found no room gets a signal when there is some.
fn sigio_room(t: &mut T) {
    let (c, s) = t.pair();
    sys::nonblock(c.raw(), true);
    arm(c.raw());
    let bytes = vec![1; 65536];
    // What the peer takes without its program makes room, too, for a while.
    let mut quiet = 0;
    for _ in 0..60 {
        let mut sent = false;
        while sys::send(c.raw(), &bytes, libc::MSG_NOSIGNAL).is_ok() {
            sent = true;
        }
        let _ = bands();
        quiet = if sent { 0 } else { quiet + 1 };
        if quiet == 3 {
            break;
        }
    }
    t.rec("full", quiet);
    let before = COUNT.load(Ordering::SeqCst);
    sys::nonblock(s.raw(), true);
    let mut signalled = false;
    for _ in 0..300 {
        while sys::recv_vec(s.raw(), 1 << 20, 0).is_ok_and(|v| !v.is_empty()) {}
        signalled = COUNT.load(Ordering::SeqCst) > before;
        if signalled {
            break;
        }
        sys::sleep_ms(10);
    }
    t.rec("signalled", signalled);
    t.rec("room", sys::send(c.raw(), b"x", libc::MSG_NOSIGNAL).is_ok());
}

/// A program that sleeps for data is not told of it as well, which would end its sleep.
fn sigio_wait_all(t: &mut T) {
    let (c, s) = t.pair();
    arm(s.raw());
    let raw = s.raw();
    let reader =
        std::thread::spawn(move || sys::recv_vec(raw, 3000, libc::MSG_WAITALL).map(|v| v.len()));
    for _ in 0..3 {
        sys::sleep_ms(50);
        t.res("send", &sys::send(c.raw(), &[2; 1000], 0));
    }
    t.res("all", &reader.join().unwrap());
    t.rec("signals", COUNT.load(Ordering::SeqCst));
}

fn fcntl_owner(t: &mut T) {
    let s = t.socket();
    // SAFETY: no pointers but a valid int.
    unsafe {
        t.rec("owner", libc::fcntl(s.raw(), libc::F_GETOWN));
        libc::fcntl(s.raw(), libc::F_SETOWN, libc::getpid());
        t.rec(
            "is me",
            libc::fcntl(s.raw(), libc::F_GETOWN) == libc::getpid(),
        );
        let mut p = 0i32;
        t.rec("SIOCGPGRP", libc::ioctl(s.raw(), 0x8904, &mut p));
        t.rec("is me", p == libc::getpid());
    }
}
