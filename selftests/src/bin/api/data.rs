// SPDX-License-Identifier: GPL-2.0
//! Sending and receiving: calls, vectors, blocking, time limits.

use crate::ctx::{pattern, T};
use crate::poll::Ep;
use st::errno::{cvt, R};
use st::fd::Fd;
use st::sys;
use std::time::Instant;

crate::scenarios!(
    data_read_write,
    data_vectors,
    data_zero_length,
    data_bad_pointers,
    data_name_ignored,
    data_rcvlowat,
    data_rcvlowat_lowered,
    data_rcvlowat_edges,
    data_rcvtimeo,
    data_sndtimeo,
    data_interrupted,
    data_mmsg,
    data_not_connected,
);

/// A header around pieces.
pub fn msg(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: an all-zero header is valid.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = iov.as_mut_ptr();
    m.msg_iovlen = iov.len();
    m
}

/// A piece.
pub fn iov(b: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: b.as_mut_ptr().cast(),
        iov_len: b.len(),
    }
}

/// `sendmsg` without SIGPIPE.
pub fn sendmsg(fd: i32, m: &libc::msghdr, f: i32) -> R<i64> {
    // SAFETY: the header and its pieces are alive.
    cvt(unsafe { libc::sendmsg(fd, m, f | libc::MSG_NOSIGNAL) } as i64)
}

/// `recvmsg`.
pub fn recvmsg(fd: i32, m: &mut libc::msghdr, f: i32) -> R<i64> {
    // SAFETY: the header and its pieces are alive.
    cvt(unsafe { libc::recvmsg(fd, m, f) } as i64)
}

fn write(s: &Fd, b: &[u8]) -> R<i64> {
    // SAFETY: buffer and length agree.
    cvt(unsafe { libc::write(s.raw(), b.as_ptr().cast(), b.len()) } as i64)
}

fn read(s: &Fd, n: usize) -> R<Vec<u8>> {
    let mut v = vec![0; n];
    // SAFETY: buffer and length agree.
    let r = cvt(unsafe { libc::read(s.raw(), v.as_mut_ptr().cast(), n) } as i64)?;
    v.truncate(r as usize);
    Ok(v)
}

fn data_read_write(t: &mut T) {
    let (c, s) = t.pair();
    t.res("write", &write(&c, b"by write"));
    t.bytes("read", &read(&s, 64));
    t.res("send", &sys::send(s.raw(), b"by send", 0));
    t.bytes("read back", &read(&c, 3));
    t.bytes("rest", &read(&c, 64));
    // SAFETY: no pointers but the buffer.
    let r = unsafe { libc::pwrite(c.raw(), b"x".as_ptr().cast(), 1, 0) };
    t.res("pwrite", &cvt(r as i64));
    // SAFETY: no pointers.
    t.res(
        "lseek",
        &cvt(unsafe { libc::lseek(c.raw(), 0, libc::SEEK_CUR) }),
    );
    // SAFETY: no pointers.
    t.res("fsync", &cvt(i64::from(unsafe { libc::fsync(c.raw()) })));
    // SAFETY: no pointers.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            c.raw(),
            0,
        )
    };
    t.rec(
        "mmap",
        if p == libc::MAP_FAILED {
            st::errno::Errno::last().to_string()
        } else {
            "ok".into()
        },
    );
}

fn data_vectors(t: &mut T) {
    let (c, s) = t.pair();
    let (mut a, mut b, mut e) = (b"one ".to_vec(), b"two ".to_vec(), Vec::new());
    let mut v = [iov(&mut a), iov(&mut e), iov(&mut b)];
    // SAFETY: the pieces are alive.
    t.res(
        "writev",
        &cvt(unsafe { libc::writev(c.raw(), v.as_ptr(), 3) } as i64),
    );
    t.res("sendmsg", &sendmsg(c.raw(), &msg(&mut v), 0));
    let (mut x, mut y) = ([0u8; 6], [0u8; 64]);
    let w = [iov(&mut x), iov(&mut y)];
    sys::sleep_ms(20);
    // SAFETY: the pieces are alive.
    t.res(
        "readv",
        &cvt(unsafe { libc::readv(s.raw(), w.as_ptr(), 2) } as i64),
    );
    t.rec("first", String::from_utf8_lossy(&x));
    t.rec("second", String::from_utf8_lossy(&y[..10]));
    let mut big: Vec<u8> = pattern(200_000, 9);
    let mut pieces: Vec<libc::iovec> = big.chunks_mut(200).map(iov).collect();
    let mut many = msg(&mut pieces);
    many.msg_iovlen = 1000;
    // Read meanwhile: how much fits in between is not the question here.
    let sr = s.raw();
    let th = std::thread::spawn(move || sys::recv_all(sr, 200_000));
    t.res("1000 pieces", &sendmsg(c.raw(), &many, 0));
    let got = th.join().unwrap();
    t.rec("equal", got.is_ok_and(|g| g == big));
    many.msg_iovlen = 1025;
    t.res("1025 pieces", &sendmsg(c.raw(), &many, 0));
}

fn data_zero_length(t: &mut T) {
    let (c, s) = t.pair();
    t.res("send 0", &sys::send(c.raw(), b"", 0));
    t.res("sendmsg 0", &sendmsg(c.raw(), &msg(&mut []), 0));
    t.bytes("recv 0", &sys::recv_vec(s.raw(), 0, libc::MSG_DONTWAIT));
    t.polled("nothing came", s.raw());
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, libc::MSG_DONTWAIT));
    sys::send(c.raw(), b"x", 0).unwrap();
    sys::sleep_ms(20);
    t.bytes("recv 0 with data", &sys::recv_vec(s.raw(), 0, 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}

fn data_bad_pointers(t: &mut T) {
    let (c, s) = t.pair();
    let bad = 8 as *mut libc::c_void;
    // SAFETY: bad pointers on purpose; the kernel answers EFAULT.
    unsafe {
        t.res("send", &cvt(libc::send(c.raw(), bad, 10, 0) as i64));
        sys::send(s.raw(), b"data", 0).unwrap();
        sys::sleep_ms(20);
        t.res("recv", &cvt(libc::recv(c.raw(), bad, 10, 0) as i64));
    }
    t.bytes("data is still there", &sys::recv_vec(c.raw(), 10, 0));
    let mut b = b"good".to_vec();
    let mut v = [
        iov(&mut b),
        libc::iovec {
            iov_base: bad,
            iov_len: 10,
        },
    ];
    t.res("half bad sendmsg", &sendmsg(c.raw(), &msg(&mut v), 0));
    sys::sleep_ms(20);
    t.bytes("what came", &sys::recv_vec(s.raw(), 64, libc::MSG_DONTWAIT));
    // What was copied before the fault is sent, but for a part of 32 KiB at most.
    let mut large = pattern(60_000, 3);
    let mut w = [iov(&mut large), v[1]];
    let sent = sendmsg(c.raw(), &msg(&mut w), libc::MSG_DONTWAIT);
    t.rec("large half bad sendmsg", matches!(sent, Ok(1..=60_000)));
    sys::sleep_ms(20);
    let mut came = Vec::new();
    while let Ok(b) = sys::recv_vec(s.raw(), 1 << 16, libc::MSG_DONTWAIT) {
        came.extend(b);
    }
    t.rec(
        "all of it came",
        sent == Ok(came.len() as i64) && large.starts_with(&came),
    );
    sys::send(s.raw(), b"12345678", 0).unwrap();
    sys::sleep_ms(20);
    t.res("half bad recvmsg", &recvmsg(c.raw(), &mut msg(&mut v), 0));
    t.bytes("rest", &sys::recv_vec(c.raw(), 64, libc::MSG_DONTWAIT));
}

fn data_name_ignored(t: &mut T) {
    let (c, s) = t.pair();
    let a = st::addr::encode(&t.addr(9));
    // SAFETY: buffers and lengths agree.
    let r = unsafe {
        libc::sendto(
            c.raw(),
            b"x".as_ptr().cast(),
            1,
            0,
            a.as_ptr().cast(),
            a.len() as u32,
        )
    };
    t.res("sendto", &cvt(r as i64));
    let (mut b, mut n, mut len) = ([0u8; 8], [0xaau8; 28], 28u32);
    // SAFETY: buffers and lengths agree.
    let r = unsafe {
        libc::recvfrom(
            s.raw(),
            b.as_mut_ptr().cast(),
            8,
            0,
            n.as_mut_ptr().cast(),
            &mut len,
        )
    };
    t.res("recvfrom", &cvt(r as i64));
    t.rec("name length", len);
    t.rec("name untouched", n == [0xaa; 28]);
}

fn data_rcvlowat(t: &mut T) {
    let (c, s) = t.pair();
    t.res(
        "set",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 10),
    );
    sys::send(c.raw(), b"12345", 0).unwrap();
    t.polled("below", s.raw());
    sys::send(c.raw(), b"67890", 0).unwrap();
    t.poll_for("reached", s.raw(), libc::POLLIN);
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    // It sleeps before the first byte comes: of a reader that has taken some, TCP waits for ten others.
    let sr = s.raw();
    let reader = crate::blocked::go(move || sys::recv_vec(sr, 64, 0));
    for _ in 0..4 {
        sys::send(c.raw(), b"abc", 0).unwrap();
        sys::sleep_ms(30);
    }
    t.bytes("recv waits for it", &reader.join().unwrap());
    sys::send(c.raw(), b"z", 0).unwrap();
    drop(c);
    sys::sleep_ms(20);
    t.polled("end of stream", s.raw());
    t.bytes("last", &sys::recv_vec(s.raw(), 64, 0));
}

/// Checks that a reader that waits for more than there is, is woken when less is enough.
fn data_rcvlowat_lowered(t: &mut T) {
    let (c, s) = t.pair();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    t.res("set", &sys::setopt(s.raw(), level, name, 1000));
    sys::send(c.raw(), &[1; 100], 0).unwrap();
    sys::sleep_ms(20);
    let raw = s.raw();
    // Longer than the test may take.
    let th = std::thread::spawn(move || sys::poll1(raw, libc::POLLIN, -1));
    sys::sleep_ms(100);
    t.res("lower", &sys::setopt(s.raw(), level, name, 1));
    let woken = th.join().unwrap();
    t.res("woken", &woken.map(|events| events & libc::POLLIN));
}

/// Checks that less than `SO_RCVLOWAT` is no event for a poller that is told of edges: it would be told of room to write
/// once more.
fn data_rcvlowat_edges(t: &mut T) {
    let (c, s) = t.pair();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    let ep = Ep::new();
    ep.add(s.raw(), libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, 1);
    t.rec("open", ep.wait(0));
    t.res("set", &sys::setopt(s.raw(), level, name, 100));
    for _ in 0..5 {
        sys::send(c.raw(), &[1; 10], 0).unwrap();
        sys::sleep_ms(20);
        t.rec("below", ep.wait(0));
    }
    sys::send(c.raw(), &[1; 50], 0).unwrap();
    t.rec("reached", ep.wait(1000));
    t.bytes("recv", &sys::recv_vec(s.raw(), 256, 0));
    // A sleeper that wants less is not a poller.
    let cr = c.raw();
    let th = std::thread::spawn(move || {
        sys::sleep_ms(50);
        sys::send(cr, b"abcde", 0).unwrap();
        sys::sleep_ms(50);
        sys::send(cr, &[2; 100], 0).unwrap();
    });
    t.bytes(
        "recv of five",
        &sys::recv_vec(s.raw(), 5, libc::MSG_WAITALL),
    );
    th.join().unwrap();
}

fn data_rcvtimeo(t: &mut T) {
    let (c, s) = t.pair();
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 150).unwrap();
    let t0 = Instant::now();
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.took("time", t0, 150);
    sys::send(c.raw(), b"abc", 0).unwrap();
    let t0 = Instant::now();
    t.bytes(
        "waitall gets part",
        &sys::recv_vec(s.raw(), 8, libc::MSG_WAITALL),
    );
    t.took("time", t0, 150);
}

fn data_sndtimeo(t: &mut T) {
    let (c, _s) = t.pair();
    sys::set_timeo(c.raw(), libc::SO_SNDTIMEO, 150).unwrap();
    let b = vec![1u8; 32 << 20];
    let t0 = Instant::now();
    let r = sys::send(c.raw(), &b, 0);
    t.rec("part", r.is_ok_and(|n| n > 0 && n < b.len() as i64));
    t.rec("waited", t0.elapsed().as_millis() >= 140);
    t.rec("in the end", until_error(c.raw(), &b));
}

fn until_error(fd: i32, b: &[u8]) -> String {
    for _ in 0..100 {
        if let Err(e) = sys::send(fd, b, 0) {
            return e.to_string();
        }
    }
    "no error".into()
}

fn data_interrupted(t: &mut T) {
    let (c, s) = t.pair();
    let t0 = Instant::now();
    t.bytes(
        "recv",
        &crate::connect::interrupted(100, || sys::recv_vec(s.raw(), 8, 0)),
    );
    t.took("time", t0, 100);
    crate::connect::alarm_once(60);
    let cr = c.raw();
    let th = std::thread::spawn(move || {
        sys::sleep_ms(150);
        sys::send(cr, b"after", 0)
    });
    t.bytes("restarted", &sys::recv_vec(s.raw(), 8, 0));
    t.res("sent", &th.join().unwrap());
    let b = vec![1u8; 32 << 20];
    let r = crate::connect::interrupted(100, || sys::send(c.raw(), &b, 0));
    t.rec(
        "send returns part",
        r.is_ok_and(|n| n > 0 && n < b.len() as i64),
    );
}

fn data_mmsg(t: &mut T) {
    let (c, s) = t.pair();
    let (mut a, mut b) = (b"first".to_vec(), b"second".to_vec());
    let (mut va, mut vb) = ([iov(&mut a)], [iov(&mut b)]);
    let mut m = [
        libc::mmsghdr {
            msg_hdr: msg(&mut va),
            msg_len: 0,
        },
        libc::mmsghdr {
            msg_hdr: msg(&mut vb),
            msg_len: 0,
        },
    ];
    // SAFETY: two headers, alive.
    t.res(
        "sendmmsg",
        &cvt(i64::from(unsafe {
            libc::sendmmsg(c.raw(), m.as_mut_ptr(), 2, 0)
        })),
    );
    t.rec("lengths", format!("{} {}", m[0].msg_len, m[1].msg_len));
    sys::sleep_ms(20);
    let no = std::ptr::null_mut();
    // SAFETY: two headers, alive.
    let r = unsafe { libc::recvmmsg(s.raw(), m.as_mut_ptr(), 2, 0, no) };
    t.res("recvmmsg", &cvt(i64::from(r)));
    t.rec("lengths", format!("{} {}", m[0].msg_len, m[1].msg_len));
    t.rec(
        "bytes",
        format!(
            "{} {}",
            String::from_utf8_lossy(&a),
            String::from_utf8_lossy(&b)
        ),
    );
}

fn data_not_connected(t: &mut T) {
    let s = t.socket();
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    t.bytes("peek", &sys::recv_vec(s.raw(), 4, libc::MSG_PEEK));
    t.bytes("errqueue", &sys::recv_vec(s.raw(), 4, libc::MSG_ERRQUEUE));
    t.bytes("oob", &sys::recv_vec(s.raw(), 4, libc::MSG_OOB));
    t.bytes("read", &read(&s, 4));
}
