// SPDX-License-Identifier: GPL-2.0
//! Thin wrappers of system calls. Each takes raw descriptor numbers so that tests can pass bad ones.

use crate::addr;
use crate::errno::{cvt, Errno, R};
use crate::fd::Fd;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `socket`.
pub fn socket(domain: i32, ty: i32, proto: i32) -> R<Fd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(domain, ty | libc::SOCK_CLOEXEC, proto) };
    cvt(i64::from(fd)).map(|f| Fd::new(f as i32))
}

/// `bind` with raw address bytes.
pub fn bind_raw(fd: i32, a: &[u8], len: usize) -> R<i64> {
    // SAFETY: the kernel reads at most `len` bytes; callers pass a buffer that large or want EFAULT.
    cvt(i64::from(unsafe {
        libc::bind(fd, a.as_ptr().cast(), len as u32)
    }))
}

/// `bind`.
pub fn bind(fd: i32, a: &SocketAddr) -> R<i64> {
    let b = addr::encode(a);
    bind_raw(fd, &b, b.len())
}

/// `connect` with raw address bytes.
pub fn connect_raw(fd: i32, a: &[u8], len: usize) -> R<i64> {
    // SAFETY: as in `bind_raw`.
    cvt(i64::from(unsafe {
        libc::connect(fd, a.as_ptr().cast(), len as u32)
    }))
}

/// `connect`.
pub fn connect(fd: i32, a: &SocketAddr) -> R<i64> {
    let b = addr::encode(a);
    connect_raw(fd, &b, b.len())
}

/// `connect` with `AF_UNSPEC`: disconnect.
pub fn connect_unspec(fd: i32) -> R<i64> {
    connect_raw(fd, &[0u8; 16], 16)
}

/// `listen`.
pub fn listen(fd: i32, backlog: i32) -> R<i64> {
    // SAFETY: no pointers.
    cvt(i64::from(unsafe { libc::listen(fd, backlog) }))
}

/// `accept4` without the address.
pub fn accept4(fd: i32, flags: i32) -> R<Fd> {
    let null = std::ptr::null_mut();
    // SAFETY: null pointers are allowed here.
    let r = unsafe { libc::accept4(fd, null, null.cast(), flags) };
    cvt(i64::from(r)).map(|f| Fd::new(f as i32))
}

/// `accept` without the address, close-on-exec.
pub fn accept(fd: i32) -> R<Fd> {
    accept4(fd, libc::SOCK_CLOEXEC)
}

/// `accept4` with an address buffer of `cap` bytes: descriptor, address bytes, returned length.
pub fn accept_addr(fd: i32, flags: i32, cap: usize) -> R<(Fd, Vec<u8>, usize)> {
    let mut buf = vec![0u8; 128];
    let mut len = cap as u32;
    // SAFETY: `buf` is larger than any `cap` used.
    let r = unsafe { libc::accept4(fd, buf.as_mut_ptr().cast(), &mut len, flags) };
    let f = Fd::new(cvt(i64::from(r))? as i32);
    buf.truncate(cap.min(len as usize));
    Ok((f, buf, len as usize))
}

type GetName = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut u32) -> i32;

fn getname(f: GetName, fd: i32) -> R<(Vec<u8>, usize)> {
    let mut buf = vec![0u8; 128];
    let mut len = 128u32;
    // SAFETY: buffer and length agree.
    cvt(i64::from(unsafe {
        f(fd, buf.as_mut_ptr().cast(), &mut len)
    }))?;
    buf.truncate(len as usize);
    Ok((buf, len as usize))
}

/// `getsockname`.
pub fn sockname(fd: i32) -> R<SocketAddr> {
    let (b, _) = getname(libc::getsockname, fd)?;
    addr::decode(&b).ok_or(Errno(libc::EAFNOSUPPORT))
}

/// `getpeername`.
pub fn peername(fd: i32) -> R<SocketAddr> {
    let (b, _) = getname(libc::getpeername, fd)?;
    addr::decode(&b).ok_or(Errno(libc::EAFNOSUPPORT))
}

/// `send`.
pub fn send(fd: i32, b: &[u8], flags: i32) -> R<i64> {
    // SAFETY: buffer and length agree.
    cvt(unsafe { libc::send(fd, b.as_ptr().cast(), b.len(), flags | libc::MSG_NOSIGNAL) } as i64)
}

/// `recv`.
pub fn recv(fd: i32, b: &mut [u8], flags: i32) -> R<i64> {
    // SAFETY: buffer and length agree.
    cvt(unsafe { libc::recv(fd, b.as_mut_ptr().cast(), b.len(), flags) } as i64)
}

/// `recv` of at most `n` bytes into a fresh vector.
pub fn recv_vec(fd: i32, n: usize, flags: i32) -> R<Vec<u8>> {
    let mut v = vec![0u8; n];
    let got = recv(fd, &mut v, flags)?;
    v.truncate((got as usize).min(n));
    Ok(v)
}

/// Sends all of `b`.
pub fn send_all(fd: i32, mut b: &[u8]) -> R<()> {
    while !b.is_empty() {
        match send(fd, b, 0) {
            Ok(n) => b = &b[n as usize..],
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Receives exactly `n` bytes or less at the end of the stream.
pub fn recv_all(fd: i32, n: usize) -> R<Vec<u8>> {
    let mut v = Vec::with_capacity(n);
    while v.len() < n {
        match recv_vec(fd, n - v.len(), 0) {
            Ok(b) if b.is_empty() => break,
            Ok(b) => v.extend(b),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(v)
}

/// `shutdown`.
pub fn shutdown(fd: i32, how: i32) -> R<i64> {
    // SAFETY: no pointers.
    cvt(i64::from(unsafe { libc::shutdown(fd, how) }))
}

/// `setsockopt` with raw bytes.
pub fn setopt_raw(fd: i32, level: i32, name: i32, v: &[u8]) -> R<i64> {
    // SAFETY: buffer and length agree.
    cvt(i64::from(unsafe {
        libc::setsockopt(fd, level, name, v.as_ptr().cast(), v.len() as u32)
    }))
}

/// `setsockopt` with an int.
pub fn setopt(fd: i32, level: i32, name: i32, v: i32) -> R<i64> {
    setopt_raw(fd, level, name, &v.to_ne_bytes())
}

/// `getsockopt` with a buffer of `cap` bytes.
pub fn getopt_raw(fd: i32, level: i32, name: i32, cap: usize) -> R<Vec<u8>> {
    let mut v = vec![0u8; cap];
    let mut len = cap as u32;
    // SAFETY: buffer and length agree.
    cvt(i64::from(unsafe {
        libc::getsockopt(fd, level, name, v.as_mut_ptr().cast(), &mut len)
    }))?;
    v.truncate(len as usize);
    Ok(v)
}

/// `getsockopt` of an int (shorter answers are zero-extended).
pub fn getopt(fd: i32, level: i32, name: i32) -> R<i32> {
    let v = getopt_raw(fd, level, name, 4)?;
    let mut b = [0u8; 4];
    b[..v.len()].copy_from_slice(&v);
    Ok(i32::from_ne_bytes(b))
}

/// Sets a `timeval` option such as `SO_RCVTIMEO`.
pub fn set_timeo(fd: i32, name: i32, ms: i64) -> R<i64> {
    let mut v = Vec::new();
    v.extend((ms / 1000).to_ne_bytes());
    v.extend(((ms % 1000) * 1000).to_ne_bytes());
    setopt_raw(fd, libc::SOL_SOCKET, name, &v)
}

/// Sets `SO_LINGER`.
pub fn linger(fd: i32, on: i32, secs: i32) -> R<i64> {
    let mut v = on.to_ne_bytes().to_vec();
    v.extend(secs.to_ne_bytes());
    setopt_raw(fd, libc::SOL_SOCKET, libc::SO_LINGER, &v)
}

/// Switches `O_NONBLOCK`.
pub fn nonblock(fd: i32, on: bool) {
    // SAFETY: no pointers.
    unsafe {
        let f = libc::fcntl(fd, libc::F_GETFL);
        let f = if on {
            f | libc::O_NONBLOCK
        } else {
            f & !libc::O_NONBLOCK
        };
        libc::fcntl(fd, libc::F_SETFL, f);
    }
}

/// `poll` of one descriptor: the returned events.
pub fn poll1(fd: i32, events: i16, ms: i32) -> R<i16> {
    let mut p = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry.
    cvt(i64::from(unsafe { libc::poll(&mut p, 1, ms) })).map(|_| p.revents)
}

/// Everything `poll` can report.
pub const POLL_ALL: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLWRNORM
    | libc::POLLRDBAND
    | libc::POLLRDHUP;

/// Lets the process have `n` files open.
pub fn more_files(n: u64) -> R<()> {
    let limit = libc::rlimit {
        rlim_cur: n,
        rlim_max: n,
    };
    // SAFETY: the structure is ours.
    cvt(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }.into())?;
    Ok(())
}

/// Poll or epoll events in words.
pub fn events(e: i32) -> String {
    const N: [(i32, &str); 10] = [
        (1, "IN"),
        (2, "PRI"),
        (4, "OUT"),
        (8, "ERR"),
        (0x10, "HUP"),
        (0x20, "NVAL"),
        (0x40, "RDNORM"),
        (0x80, "RDBAND"),
        (0x100, "WRNORM"),
        (0x2000, "RDHUP"),
    ];
    let v: Vec<&str> = N.iter().filter(|n| e & n.0 != 0).map(|n| n.1).collect();
    if v.is_empty() {
        "-".into()
    } else {
        v.join("|")
    }
}

/// Polls until all of `want` is there or `ms` are over; the last events seen.
pub fn poll_until(fd: i32, want: i16, ms: u64) -> i16 {
    poll_within(fd, want, crate::guest::limit(ms))
}

/// The same for events that may not come at all, so that the whole time is waited.
pub fn poll_within(fd: i32, want: i16, ms: u64) -> i16 {
    let end = Instant::now() + Duration::from_millis(ms);
    loop {
        let e = poll1(fd, POLL_ALL, 0).unwrap_or(0);
        if e & want == want || Instant::now() > end {
            return e;
        }
        sleep_ms(2);
    }
}

/// By how much longer [`sleep_ms`] sleeps than it was asked to.
static PATIENCE: AtomicU64 = AtomicU64::new(1);

/// Makes [`sleep_ms`] sleep `times` times longer, in this process and its children: for a second look
/// at what may only have been late.
pub fn patience(times: u64) {
    PATIENCE.store(times, Ordering::Relaxed);
}

/// `ms`, or as many times longer as [`patience`] says.
pub fn patient(ms: u64) -> u64 {
    ms * PATIENCE.load(Ordering::Relaxed)
}

/// Sleeps, in pieces: on a busy machine a guest may stand still for all of a short sleep, and what
/// its kernel should have done meanwhile is done between two of them.
pub fn sleep_ms(ms: u64) {
    let ms = patient(ms);
    let pieces = ms.clamp(1, 8);
    for _ in 0..pieces {
        std::thread::sleep(Duration::from_micros(ms * 1000 / pieces));
    }
}

/// `ioctl` that writes an int.
pub fn ioctl_get(fd: i32, req: u64) -> R<i32> {
    let mut v = -1i32;
    // SAFETY: only requests that write one int are used.
    cvt(i64::from(unsafe { libc::ioctl(fd, req, &mut v) })).map(|_| v)
}

/// `ioctl` that reads an int.
pub fn ioctl_set(fd: i32, req: u64, v: i32) -> R<i64> {
    // SAFETY: only requests that read one int are used.
    cvt(i64::from(unsafe { libc::ioctl(fd, req, &v) }))
}
