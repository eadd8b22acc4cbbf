// SPDX-License-Identifier: GPL-2.0
//! io_uring: connect, accept, send, receive, poll, shutdown, cancel.

use crate::ctx::{pattern, T};
use io_uring::{opcode, squeue::Entry, types, IoUring};
use st::errno::{show, Errno, R};
use st::fd::Fd;
use st::{addr, sys};

crate::scenarios!(
    ring_connect_accept,
    ring_send_recv,
    ring_send_recv_big,
    ring_poll,
    ring_refused,
    ring_cancel,
    ring_linked_timeout,
    ring_shutdown_close,
    ring_multishot_accept,
    ring_zero_copy_send,
    ring_socket,
    ring_options,
);

/// A ring, or `None` (recorded) where the kernel has none.
fn ring(t: &mut T) -> Option<IoUring> {
    match IoUring::new(16) {
        Ok(r) => Some(r),
        Err(e) => {
            t.rec("io_uring", format!("{:?}", e.raw_os_error()));
            None
        }
    }
}

/// Queues an entry.
fn push(r: &mut IoUring, e: Entry, tag: u64) {
    // SAFETY: everything the entry points to lives until its completion is collected.
    unsafe { r.submission().push(&e.user_data(tag)).expect("queue full") };
    r.submit().expect("submit");
}

fn value(v: i32) -> R<i64> {
    if v < 0 {
        Err(Errno(-v))
    } else {
        Ok(i64::from(v))
    }
}

/// Waits for one completion: tag and result; gives up after 3 s.
fn wait(r: &mut IoUring) -> (u64, R<i64>) {
    for _ in 0..1500 {
        if let Some(c) = r.completion().next() {
            return (c.user_data(), value(c.result()));
        }
        let _ = r.submit();
        sys::sleep_ms(2);
    }
    (0, Err(Errno(libc::ETIME)))
}

fn ring_connect_accept(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (l, a) = t.listener();
    let c = t.socket();
    let b = addr::encode(&a);
    let no = std::ptr::null_mut();
    push(
        &mut r,
        opcode::Accept::new(types::Fd(l.raw()), no, no.cast()).build(),
        1,
    );
    let e = opcode::Connect::new(types::Fd(c.raw()), b.as_ptr().cast(), b.len() as u32);
    push(&mut r, e.build(), 2);
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.ok("accept", &v[0].1);
    t.res("connect", &v[1].1);
    let s = Fd::new(v[0].1.unwrap_or(-1) as i32);
    t.prove("client", &c);
    t.prove("server", &s);
    push(
        &mut r,
        opcode::Send::new(types::Fd(c.raw()), b"ring".as_ptr(), 4).build(),
        3,
    );
    let w = wait(&mut r).1;
    t.res("send", &w);
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
}

fn ring_send_recv(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    let mut b = [0u8; 64];
    push(
        &mut r,
        opcode::Recv::new(types::Fd(s.raw()), b.as_mut_ptr(), 64).build(),
        1,
    );
    sys::sleep_ms(30);
    t.rec("recv waits", r.completion().next().is_none());
    push(
        &mut r,
        opcode::Write::new(types::Fd(c.raw()), b"hello".as_ptr(), 5).build(),
        2,
    );
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.res("recv", &v[0].1);
    t.res("write", &v[1].1);
    t.rec("bytes", String::from_utf8_lossy(&b[..5]));
    drop(c);
    push(
        &mut r,
        opcode::Read::new(types::Fd(s.raw()), b.as_mut_ptr(), 64).build(),
        3,
    );
    let w = wait(&mut r).1;
    t.res("EOF", &w);
}

fn ring_send_recv_big(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    let data = pattern(1 << 20, 6);
    let mut got = vec![0u8; 1 << 20];
    let n = data.len() as u32;
    let e = opcode::Recv::new(types::Fd(s.raw()), got.as_mut_ptr(), n).flags(libc::MSG_WAITALL);
    push(&mut r, e.build(), 1);
    let e = opcode::Send::new(types::Fd(c.raw()), data.as_ptr(), n).flags(libc::MSG_WAITALL);
    push(&mut r, e.build(), 2);
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.res("recv", &v[0].1);
    t.res("send", &v[1].1);
    t.rec("equal", got == data);
}

fn ring_poll(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    let ev = (libc::POLLIN | libc::POLLRDHUP) as u32;
    push(
        &mut r,
        opcode::PollAdd::new(types::Fd(s.raw()), ev).build(),
        1,
    );
    sys::sleep_ms(20);
    t.rec("waits", r.completion().next().is_none());
    sys::send(c.raw(), b"x", 0).unwrap();
    let w = wait(&mut r).1;
    t.rec("data", show(&w.map(|v| sys::events(v as i32))));
    sys::recv_vec(s.raw(), 4, 0).unwrap();
    push(
        &mut r,
        opcode::PollAdd::new(types::Fd(s.raw()), ev).build(),
        2,
    );
    drop(c);
    let w = wait(&mut r).1;
    t.rec("close", show(&w.map(|v| sys::events(v as i32))));
}

fn ring_refused(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let a = t.closed_port();
    let c = t.socket();
    let b = addr::encode(&a);
    let e = opcode::Connect::new(types::Fd(c.raw()), b.as_ptr().cast(), b.len() as u32);
    push(&mut r, e.build(), 1);
    let w = wait(&mut r).1;
    t.res("connect", &w);
    t.so_error("SO_ERROR", c.raw());
}

fn ring_cancel(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let a = t.black_hole();
    let c = t.socket();
    let b = addr::encode(&a);
    let e = opcode::Connect::new(types::Fd(c.raw()), b.as_ptr().cast(), b.len() as u32);
    push(&mut r, e.build(), 1);
    sys::sleep_ms(30);
    t.rec("waits", r.completion().next().is_none());
    push(&mut r, opcode::AsyncCancel::new(1).build(), 2);
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.ok("connect", &v[0].1);
    t.ok("cancel", &v[1].1);
    let (l, _) = t.listener();
    let no = std::ptr::null_mut();
    push(
        &mut r,
        opcode::Accept::new(types::Fd(l.raw()), no, no.cast()).build(),
        3,
    );
    push(&mut r, opcode::AsyncCancel::new(3).build(), 4);
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.ok("accept", &v[0].1);
    t.ok("cancel", &v[1].1);
}

fn ring_linked_timeout(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (_c, s) = t.pair();
    let mut b = [0u8; 8];
    let ts = types::Timespec::new().nsec(100_000_000);
    let e = opcode::Recv::new(types::Fd(s.raw()), b.as_mut_ptr(), 8).build();
    let e = e.flags(io_uring::squeue::Flags::IO_LINK).user_data(1);
    // SAFETY: buffer and timespec live until both completions are collected.
    unsafe { r.submission().push(&e).expect("queue full") };
    push(&mut r, opcode::LinkTimeout::new(&ts).build(), 2);
    let mut v = [wait(&mut r), wait(&mut r)];
    v.sort_by_key(|x| x.0);
    t.ok("recv", &v[0].1);
    t.ok("timeout", &v[1].1);
}

fn ring_shutdown_close(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    push(
        &mut r,
        opcode::Shutdown::new(types::Fd(c.raw()), libc::SHUT_WR).build(),
        1,
    );
    let w = wait(&mut r).1;
    t.res("shutdown", &w);
    t.bytes("EOF", &sys::recv_vec(s.raw(), 4, 0));
    push(
        &mut r,
        opcode::Close::new(types::Fd(c.into_raw())).build(),
        2,
    );
    let w = wait(&mut r).1;
    t.res("close", &w);
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.poll_for("reset", s.raw(), libc::POLLHUP);
}

fn ring_multishot_accept(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (l, a) = t.listener();
    push(
        &mut r,
        opcode::AcceptMulti::new(types::Fd(l.raw())).build(),
        1,
    );
    let mut v = Vec::new();
    for _ in 0..3 {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        let w = wait(&mut r).1;
        t.ok("accepted", &w);
        v.push((c, Fd::new(w.unwrap_or(-1) as i32)));
    }
    for (c, s) in &v {
        t.prove("server", s);
        sys::send(c.raw(), b"m", 0).unwrap();
        t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    }
}

fn ring_zero_copy_send(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    let data = pattern(50_000, 2);
    let e = opcode::SendZc::new(types::Fd(c.raw()), data.as_ptr(), data.len() as u32);
    push(&mut r, e.build(), 1);
    let w = wait(&mut r).1;
    t.res("send", &w);
    let n = w.unwrap_or(0).max(0) as usize;
    let got = sys::recv_all(s.raw(), n);
    t.rec("equal", got.is_ok_and(|g| g == data[..n]));
    let w = wait(&mut r).1;
    t.ok("notification", &w);
}

/// The sockets themselves are the ring's.
fn ring_socket(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (l, a) = t.listener();
    let (domain, protocol) = t.family.triple(t.ip);
    push(
        &mut r,
        opcode::Socket::new(domain, libc::SOCK_STREAM, protocol).build(),
        1,
    );
    let made = wait(&mut r).1;
    t.ok("socket", &made);
    let c = Fd::new(made.unwrap_or(-1) as i32);
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &s);
    t.res("send", &sys::send(c.raw(), b"of the ring", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
}

/// Options are set by the ring.
fn ring_options(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    let on = 1i32;
    for (level, option) in [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (286, 9999),
    ] {
        let e = opcode::SetSockOpt::new(
            types::Fd(c.raw()),
            level as u32,
            option as u32,
            (&raw const on).cast(),
            4,
        );
        push(&mut r, e.build(), 1);
        let w = wait(&mut r).1;
        t.res(&format!("{level}/{option}"), &w);
    }
    let read = sys::getopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY);
    t.res("NODELAY", &read);
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}
