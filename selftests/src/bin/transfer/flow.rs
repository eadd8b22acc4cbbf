// SPDX-License-Identifier: GPL-2.0
//! The ways bytes are sent and received.

use crate::Job;
use st::errno::{Errno, R};
use st::fd::Fd;
use st::rng::{self, Rng};
use st::sys;
use std::thread;

/// A way to move the bytes.
pub struct Case {
    /// Name in the results.
    pub name: &'static str,
    /// Largest buffer given to one send or receive.
    max: u64,
    /// Only every n-th part of the wanted amount is moved, where calls are small.
    pub divide: u64,
    /// The reader pauses now and then, so that windows close.
    slow: bool,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// `send` and `recv`, blocking.
    Plain,
    /// `writev` and `readv` with up to five pieces.
    Vec,
    /// Non-blocking with `poll`.
    Poll,
    /// `MSG_MORE` at random, `MSG_WAITALL`, `MSG_PEEK` before each receive.
    Flags,
}

const fn case(name: &'static str, max: u64, divide: u64, slow: bool, how: How) -> Case {
    Case {
        name,
        max,
        divide,
        slow,
        how,
    }
}

/// All cases.
pub const CASES: &[Case] = &[
    case("random_sizes", 256 << 10, 1, false, How::Plain),
    case("small", 100, 16, false, How::Plain),
    case("huge", 4 << 20, 1, false, How::Plain),
    case("slow_reader", 64 << 10, 8, true, How::Plain),
    case("vectors", 64 << 10, 1, false, How::Vec),
    case("nonblocking", 128 << 10, 1, false, How::Poll),
    case("slow_nonblocking", 128 << 10, 8, true, How::Poll),
    case("flags", 32 << 10, 4, false, How::Flags),
];

fn iov(b: &[u8], r: &mut Rng) -> Vec<libc::iovec> {
    let n = r.range(1, 5);
    let (mut v, mut at) = (Vec::new(), 0);
    for i in 0..n {
        let left = b.len() - at;
        let len = if i + 1 == n {
            left
        } else {
            r.range(0, left as u64) as usize
        };
        v.push(libc::iovec {
            iov_base: b[at..].as_ptr() as *mut _,
            iov_len: len,
        });
        at += len;
    }
    v
}

fn wait(fd: i32, ev: i16) -> R<()> {
    match sys::poll1(fd, ev, 60_000)? {
        0 => Err(Errno(libc::ETIMEDOUT)),
        _ => Ok(()),
    }
}

fn send(fd: i32, b: &[u8], how: How, r: &mut Rng) -> R<i64> {
    match how {
        How::Plain => sys::send(fd, b, 0),
        How::Flags => sys::send(fd, b, if r.draw() % 3 == 0 { libc::MSG_MORE } else { 0 }),
        How::Vec => {
            let v = iov(b, r);
            // SAFETY: the pieces lie inside `b`.
            st::errno::cvt(unsafe { libc::writev(fd, v.as_ptr(), v.len() as i32) } as i64)
        }
        How::Poll => loop {
            match sys::send(fd, b, libc::MSG_DONTWAIT) {
                Err(Errno(libc::EAGAIN)) => wait(fd, libc::POLLOUT)?,
                x => return x,
            }
        },
    }
}

fn recv(fd: i32, b: &mut [u8], how: How, r: &mut Rng, left: u64) -> R<i64> {
    match how {
        How::Plain => sys::recv(fd, b, 0),
        How::Flags => {
            let n = (b.len() as u64).min(left) as usize;
            let mut p = vec![0u8; n.clamp(1, 512)];
            let peeked = sys::recv(fd, &mut p, libc::MSG_PEEK)?;
            let got = sys::recv(fd, &mut b[..n.max(1)], libc::MSG_WAITALL)?;
            let m = peeked.min(got) as usize;
            if p[..m] != b[..m] || peeked > got {
                return Err(Errno(libc::EBADMSG));
            }
            Ok(got)
        }
        How::Vec => {
            let v = iov(b, r);
            // SAFETY: the pieces lie inside `b`, which is borrowed mutably.
            st::errno::cvt(unsafe { libc::readv(fd, v.as_ptr(), v.len() as i32) } as i64)
        }
        How::Poll => loop {
            match sys::recv(fd, b, libc::MSG_DONTWAIT) {
                Err(Errno(libc::EAGAIN)) => wait(fd, libc::POLLIN)?,
                x => return x,
            }
        },
    }
}

fn seed(j: &Job, from_server: bool) -> u64 {
    j.seed.wrapping_mul(1_000_003) ^ if from_server { 0x5e } else { 0xc1 }
}

fn sender(fd: i32, j: &Job, server: bool) -> Result<(), String> {
    let mut r = Rng::new(seed(j, server) ^ 1);
    let mut pos = 0;
    let mut buf = vec![0u8; j.case.max as usize];
    while pos < j.bytes {
        let n = (r.size(j.case.max) as u64).min(j.bytes - pos) as usize;
        rng::fill(seed(j, server), pos, &mut buf[..n]);
        let sent =
            send(fd, &buf[..n], j.case.how, &mut r).map_err(|e| format!("send at {pos}: {e}"))?;
        if sent <= 0 || sent as usize > n {
            return Err(format!("send of {n} bytes at {pos} returned {sent}"));
        }
        pos += sent as u64;
    }
    sys::shutdown(fd, libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
    Ok(())
}

fn receiver(fd: i32, j: &Job, server: bool) -> Result<(), String> {
    let mut r = Rng::new(seed(j, server) ^ 2);
    let mut pos = 0;
    let mut buf = vec![0u8; j.case.max as usize];
    let every = (j.bytes / 16).max(1);
    loop {
        let n = r.size(j.case.max);
        let left = j.bytes.saturating_sub(pos);
        let got = recv(fd, &mut buf[..n], j.case.how, &mut r, left)
            .map_err(|e| format!("recv at {pos}: {e}"))?;
        if got == 0 {
            break;
        }
        rng::check(seed(j, !server), pos, &buf[..got as usize])
            .map_err(|p| format!("wrong byte at {p}"))?;
        if j.case.slow && pos / every != (pos + got as u64) / every {
            sys::sleep_ms(25);
        }
        pos += got as u64;
    }
    if pos != j.bytes {
        return Err(format!("end of stream at {pos}, wanted {}", j.bytes));
    }
    Ok(())
}

/// Sends and receives at once until both directions have ended.
pub fn both_ways(s: &Fd, j: &Job, server: bool) -> Result<(), String> {
    let fd = s.raw();
    if j.case.slow {
        // A small window, so that it really closes.
        sys::setopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 16 << 10)
            .map_err(|e| format!("SO_RCVBUF: {e}"))?;
    }
    let jj = j.clone();
    let t = thread::spawn(move || sender(fd, &jj, server));
    let r = receiver(fd, j, server);
    if r.is_err() {
        let _ = sys::shutdown(fd, libc::SHUT_RDWR);
    }
    let s = t.join().unwrap_or(Err("sender panicked".into()));
    match (s, r) {
        (Ok(()), Ok(())) => Ok(()),
        (s, r) => Err(format!("sender {s:?} receiver {r:?}")),
    }
}
