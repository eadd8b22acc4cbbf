// SPDX-License-Identifier: GPL-2.0
//! splice, sendfile, tee and vmsplice, both ways.

use crate::ctx::{pattern, T};
use st::errno::{cvt, R};
use st::fd::Fd;
use st::sys;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

crate::scenarios!(
    splice_in,
    splice_out,
    splice_socket_to_socket,
    splice_nonblock,
    splice_low_water,
    splice_mark,
    splice_while_connecting,
    splice_eof,
    splice_big,
    splice_errors,
    sendfile_in,
    sendfile_offset,
    sendfile_big,
    sendfile_out,
    splice_vmsplice_gift,
);

fn pipe() -> (Fd, Fd) {
    let mut p = [0i32; 2];
    // SAFETY: array of two.
    unsafe { libc::pipe2(p.as_mut_ptr(), libc::O_CLOEXEC) };
    (Fd::new(p[0]), Fd::new(p[1]))
}

fn splice(a: i32, b: i32, n: usize, f: u32) -> R<i64> {
    let no = std::ptr::null_mut();
    // SAFETY: no offsets are given.
    cvt(unsafe { libc::splice(a, no, b, no, n, f) } as i64)
}

fn put(p: &Fd, b: &[u8]) {
    // SAFETY: buffer and length agree.
    unsafe { libc::write(p.raw(), b.as_ptr().cast(), b.len()) };
}

fn get(p: &Fd, n: usize) -> R<Vec<u8>> {
    let mut v = vec![0; n];
    // SAFETY: buffer and length agree.
    let r = cvt(unsafe { libc::read(p.raw(), v.as_mut_ptr().cast(), n) } as i64)?;
    v.truncate(r as usize);
    Ok(v)
}

fn file(b: &[u8]) -> std::fs::File {
    // SAFETY: a literal name.
    let fd = unsafe { libc::memfd_create(c"st".as_ptr(), 0) };
    // SAFETY: the descriptor is fresh and owned.
    let mut f = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    f.write_all(b).unwrap();
    f.rewind().unwrap();
    f
}

fn splice_in(t: &mut T) {
    let (c, s) = t.pair();
    let (r, w) = pipe();
    put(&w, b"through a pipe");
    t.res("splice", &splice(r.raw(), c.raw(), 64, 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    put(&w, b"more");
    t.res(
        "SPLICE_F_MORE",
        &splice(r.raw(), c.raw(), 64, libc::SPLICE_F_MORE),
    );
    t.res("last", &sys::send(c.raw(), b"!", 0));
    sys::sleep_ms(20);
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
}

fn splice_out(t: &mut T) {
    let (c, s) = t.pair();
    let (r, w) = pipe();
    sys::send(c.raw(), b"0123456789", 0).unwrap();
    sys::sleep_ms(20);
    t.res("part", &splice(s.raw(), w.raw(), 4, 0));
    t.res("rest", &splice(s.raw(), w.raw(), 64, 0));
    t.bytes("pipe", &get(&r, 64));
    sys::send(c.raw(), b"abc", 0).unwrap();
    sys::sleep_ms(20);
    t.res("after", &splice(s.raw(), w.raw(), 2, libc::SPLICE_F_MOVE));
    t.bytes("recv rest", &sys::recv_vec(s.raw(), 64, 0));
}

fn splice_socket_to_socket(t: &mut T) {
    // A proxy: everything from one connection into another through a pipe.
    let (a, b) = t.pair();
    let (c, d) = t.pair();
    let data = pattern(1 << 20, 3);
    let d2 = data.clone();
    let w =
        std::thread::spawn(move || sys::send_all(a.raw(), &d2).and_then(|()| a.close()).is_ok());
    let p = std::thread::spawn(move || {
        let (r, wr) = pipe();
        let mut total = 0;
        loop {
            let n = splice(b.raw(), wr.raw(), 65536, 0).unwrap_or(-1);
            if n <= 0 {
                return (total, n);
            }
            let mut left = n;
            while left > 0 {
                match splice(r.raw(), c.raw(), left as usize, 0) {
                    Ok(k) if k > 0 => left -= k,
                    _ => return (total, -2),
                }
            }
            total += n;
        }
    });
    let got = sys::recv_all(d.raw(), 2 << 20);
    t.rec("equal", got.is_ok_and(|g| g == data));
    t.rec("writer", w.join().unwrap());
    t.rec("proxy", format!("{:?}", p.join().unwrap()));
}

fn splice_nonblock(t: &mut T) {
    let (c, s) = t.pair();
    let (r, w) = pipe();
    // The flag concerns the pipe; the socket obeys its own time limit.
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 60).unwrap();
    t.res(
        "empty",
        &splice(s.raw(), w.raw(), 64, libc::SPLICE_F_NONBLOCK),
    );
    sys::nonblock(s.raw(), true);
    t.res("empty, O_NONBLOCK", &splice(s.raw(), w.raw(), 64, 0));
    sys::nonblock(s.raw(), false);
    t.res("time limit", &splice(s.raw(), w.raw(), 64, 0));
    sys::send(c.raw(), b"x", 0).unwrap();
    sys::sleep_ms(20);
    t.res(
        "data",
        &splice(s.raw(), w.raw(), 64, libc::SPLICE_F_NONBLOCK),
    );
    t.bytes("pipe", &get(&r, 8));
}

fn splice_low_water(t: &mut T) {
    // What is there is taken, in whatever mode.
    let (c, s) = t.pair();
    let (r, w) = pipe();
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 100).unwrap();
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 2500).unwrap();
    for mode in ["blocking", "not blocking"] {
        sys::nonblock(s.raw(), mode != "blocking");
        sys::send(c.raw(), b"few", 0).unwrap();
        sys::sleep_ms(20);
        let start = Instant::now();
        t.res(mode, &splice(s.raw(), w.raw(), 64, 0));
        t.took(mode, start, 0);
        t.bytes("pipe", &get(&r, 8));
    }
    // A read in between obeys.
    sys::nonblock(s.raw(), false);
    sys::send(c.raw(), b"more", 0).unwrap();
    sys::sleep_ms(20);
    let start = Instant::now();
    t.bytes("recv", &sys::recv_vec(s.raw(), 128, 0));
    t.took("recv", start, 2500);
}

fn splice_mark(t: &mut T) {
    // It neither passes the urgent mark nor waits there.
    let (c, s) = t.pair();
    let (r, w) = pipe();
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 2500).unwrap();
    sys::send(c.raw(), b"abC", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.res("before", &splice(s.raw(), w.raw(), 64, 0));
    t.bytes("pipe", &get(&r, 8));
    let start = Instant::now();
    t.res("at", &splice(s.raw(), w.raw(), 64, 0));
    t.took("at", start, 0);
    sys::nonblock(s.raw(), true);
    t.res("at, O_NONBLOCK", &splice(s.raw(), w.raw(), 64, 0));
    t.poll_for("poll", s.raw(), libc::POLLPRI);
    t.bytes("urgent byte", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.res("at, taken", &splice(s.raw(), w.raw(), 64, 0));
}

fn splice_while_connecting(t: &mut T) {
    // That the socket does not wait is said by its file alone.
    let a = t.black_hole();
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    let (_r, w) = pipe();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.res("splice", &splice(c.raw(), w.raw(), 64, 0));
}

fn splice_eof(t: &mut T) {
    let (c, s) = t.pair();
    let (_r, w) = pipe();
    sys::send(c.raw(), b"end", 0).unwrap();
    drop(c);
    sys::sleep_ms(20);
    t.res("data", &splice(s.raw(), w.raw(), 64, 0));
    t.res("EOF", &splice(s.raw(), w.raw(), 64, 0));
    t.res("send", &sys::send(s.raw(), b"x", 0));
    sys::sleep_ms(20);
    t.res("reset", &splice(s.raw(), w.raw(), 64, 0));
    let (r2, w2) = pipe();
    put(&w2, b"z");
    // SAFETY: ignoring a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    t.res("into it", &splice(r2.raw(), s.raw(), 64, 0));
}

fn splice_big(t: &mut T) {
    let (c, s) = t.pair();
    let data = pattern(2 << 20, 8);
    let d2 = data.clone();
    let (r, w) = pipe();
    let th = std::thread::spawn(move || {
        for ch in d2.chunks(40_000) {
            put(&w, ch);
        }
    });
    let cr = c.raw();
    let th2 = std::thread::spawn(move || {
        while let Ok(n) = splice(r.raw(), cr, 1 << 16, 0) {
            if n == 0 {
                break;
            }
        }
        drop(c);
    });
    let got = sys::recv_all(s.raw(), 3 << 20);
    t.rec("equal", got.is_ok_and(|g| g == data));
    th.join().unwrap();
    th2.join().unwrap();
}

fn splice_errors(t: &mut T) {
    let (r, w) = pipe();
    put(&w, b"x");
    let f = t.socket();
    t.res("into fresh", &splice(r.raw(), f.raw(), 8, 0));
    t.res("from fresh", &splice(f.raw(), w.raw(), 8, 0));
    let (l, _) = t.listener();
    t.res(
        "from listener",
        &splice(l.raw(), w.raw(), 8, libc::SPLICE_F_NONBLOCK),
    );
    let (c, s) = t.pair();
    t.res("socket to socket", &splice(c.raw(), s.raw(), 8, 0));
    // SAFETY: no pointers.
    t.res(
        "tee",
        &cvt(unsafe { libc::tee(s.raw(), w.raw(), 8, 0) } as i64),
    );
    let mut off = 0i64;
    let no = std::ptr::null_mut();
    // SAFETY: a valid offset.
    let e = unsafe { libc::splice(r.raw(), no, c.raw(), &mut off, 8, 0) };
    t.res("with offset", &cvt(e as i64));
}

fn sendfile_in(t: &mut T) {
    let (c, s) = t.pair();
    let f = file(b"file contents");
    // SAFETY: no offset.
    let r = unsafe { libc::sendfile(c.raw(), f.as_raw_fd(), std::ptr::null_mut(), 100) };
    t.res("sendfile", &cvt(r as i64));
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    // SAFETY: no offset.
    let r = unsafe { libc::sendfile(c.raw(), f.as_raw_fd(), std::ptr::null_mut(), 100) };
    t.res("at end", &cvt(r as i64));
}

fn sendfile_offset(t: &mut T) {
    let (c, s) = t.pair();
    let f = file(b"0123456789");
    let mut off = 4i64;
    // SAFETY: a valid offset.
    let r = unsafe { libc::sendfile(c.raw(), f.as_raw_fd(), &mut off, 3) };
    t.res("sendfile", &cvt(r as i64));
    t.rec("offset", off);
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
}

fn sendfile_big(t: &mut T) {
    let (c, s) = t.pair();
    let data = pattern(3 << 20, 4);
    let f = file(&data);
    let th = std::thread::spawn(move || {
        let mut off = 0i64;
        while off < 3 << 20 {
            // SAFETY: a valid offset.
            if unsafe { libc::sendfile(c.raw(), f.as_raw_fd(), &mut off, 300_000) } <= 0 {
                break;
            }
        }
        drop(c);
    });
    let got = sys::recv_all(s.raw(), 4 << 20);
    t.rec("equal", got.is_ok_and(|g| g == data));
    th.join().unwrap();
}

fn sendfile_out(t: &mut T) {
    let (c, s) = t.pair();
    let mut f = file(b"");
    sys::send(c.raw(), b"to a file", 0).unwrap();
    sys::sleep_ms(20);
    // SAFETY: no offset.
    let r = unsafe { libc::sendfile(f.as_raw_fd(), s.raw(), std::ptr::null_mut(), 64) };
    t.res("sendfile from a socket", &cvt(r as i64));
    // Through a pipe into a file.
    let (pr, pw) = pipe();
    t.res(
        "out",
        &splice(s.raw(), pw.raw(), 64, libc::SPLICE_F_NONBLOCK),
    );
    t.res(
        "into file",
        &splice(pr.raw(), f.as_raw_fd(), 64, libc::SPLICE_F_NONBLOCK),
    );
    let mut text = String::new();
    f.rewind().unwrap();
    f.read_to_string(&mut text).unwrap();
    t.rec("file", text);
}

fn splice_vmsplice_gift(t: &mut T) {
    let (c, s) = t.pair();
    let (r, w) = pipe();
    let b = vec![b'g'; 4096];
    let v = libc::iovec {
        iov_base: b.as_ptr() as *mut _,
        iov_len: b.len(),
    };
    // SAFETY: the buffer outlives its use by the pipe.
    t.res(
        "vmsplice",
        &cvt(unsafe { libc::vmsplice(w.raw(), &v, 1, 0) } as i64),
    );
    t.res("splice", &splice(r.raw(), c.raw(), 4096, 0));
    t.bytes("recv", &sys::recv_all(s.raw(), 4096));
}
