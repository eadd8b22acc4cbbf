// SPDX-License-Identifier: GPL-2.0
//! What a call says of the bytes, or connections, that it leaves behind: `IORING_CQE_F_SOCK_NONEMPTY`, by which
//! io_uring also goes on with a bundle or a multishot, and `TCP_INQ`. And control messages that sendmsg() refuses.

use crate::ctx::{pattern, T};
use crate::data::{iov, msg, recvmsg, sendmsg};
use io_uring::types::BufRingEntry;
use io_uring::{cqueue, opcode, squeue::Entry, types, IoUring};
use st::errno::{Errno, R};
use st::fd::Fd;
use st::sys;
use std::sync::atomic::{AtomicU16, Ordering::Release};

crate::scenarios!(
    left_recv,
    left_recvmsg,
    left_end,
    left_multishot,
    left_bundle,
    left_accept,
    left_inq,
    left_inq_between,
    left_control,
);

/// Provided buffers: their number, a power of two, and the size of each.
const BUFFERS: usize = 16;
const SIZE: usize = 512;

fn ring(t: &mut T) -> Option<IoUring> {
    match IoUring::new(16) {
        Ok(r) => Some(r),
        Err(e) => {
            t.rec("io_uring", format!("{:?}", e.raw_os_error()));
            None
        }
    }
}

/// Has the ring do something.
fn begin(r: &mut IoUring, e: Entry) {
    // SAFETY: everything the entry points to lives until the ring does not.
    unsafe { r.submission().push(&e).expect("queue full") };
    r.submit().expect("submit");
}

/// The next completion: its result, and whether it says that something is left, and that more completions come.
fn next(r: &mut IoUring) -> (R<i32>, bool, bool) {
    for _ in 0..1500 {
        if let Some(c) = r.completion().next() {
            let result = match c.result() {
                v @ 0.. => Ok(v),
                v => Err(Errno(-v)),
            };
            let flags = c.flags();
            return (result, cqueue::sock_nonempty(flags), cqueue::more(flags));
        }
        let _ = r.submit();
        sys::sleep_ms(2);
    }
    (Err(Errno(libc::ETIME)), false, false)
}

fn note(t: &mut T, label: &str, (result, left, more): (R<i32>, bool, bool)) {
    let result = st::errno::show(&result);
    let word = |on: bool, word: &'static str| if on { word } else { "" };
    let said = format!("{result}{}{}", word(left, " nonempty"), word(more, " more"));
    t.rec(label, said);
}

/// Waits until `bytes` bytes are there: by RDMA they come, and on loopback they are there.
fn there(fd: i32, bytes: i32) {
    for _ in 0..300 {
        if sys::ioctl_get(fd, libc::FIONREAD) == Ok(bytes) {
            return;
        }
        sys::sleep_ms(5);
    }
}

/// Sends `pieces` pieces of 500 bytes, which may take different carriers, and waits for them.
fn send_pieces(c: &Fd, s: &Fd, pieces: usize) {
    for _ in 0..pieces {
        sys::send_all(c.raw(), &pattern(500, 5)).unwrap();
    }
    there(s.raw(), 500 * pieces as i32);
}

fn left_recv(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    for round in 0..4 {
        send_pieces(&c, &s, 2);
        let mut b = [0u8; 900];
        for len in [400, 500, 100] {
            let e = opcode::Recv::new(types::Fd(s.raw()), b.as_mut_ptr(), len);
            begin(&mut r, e.build());
            note(t, &format!("{round}: recv {len}"), next(&mut r));
        }
    }
}

fn left_recvmsg(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    send_pieces(&c, &s, 3);
    let mut b = [0u8; 800];
    for flags in [libc::MSG_PEEK, 0, 0] {
        let mut v = [iov(&mut b)];
        let mut m = msg(&mut v);
        let e = opcode::RecvMsg::new(types::Fd(s.raw()), &raw mut m).flags(flags as u32);
        begin(&mut r, e.build());
        note(t, &format!("recvmsg {flags:#x}"), next(&mut r));
    }
}

fn left_end(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (c, s) = t.pair();
    send_pieces(&c, &s, 1);
    drop(c);
    t.poll_for("end", s.raw(), libc::POLLRDHUP);
    let mut b = [0u8; 400];
    for what in ["some", "rest", "end", "end again"] {
        let e = opcode::Recv::new(types::Fd(s.raw()), b.as_mut_ptr(), 400);
        begin(&mut r, e.build());
        note(t, what, next(&mut r));
    }
}

/// A ring of provided buffers, which the kernel has for as long as `r` lives.
fn provide(r: &IoUring) -> Result<(), String> {
    const ENTRIES: usize = BUFFERS * std::mem::size_of::<BufRingEntry>();
    let layout = std::alloc::Layout::from_size_align(ENTRIES, 4096).expect("a layout");
    // SAFETY: the size is not 0; zeros are valid entries. Neither is freed: the process ends soon.
    unsafe {
        let entries: *mut BufRingEntry = std::alloc::alloc_zeroed(layout).cast();
        for id in 0..BUFFERS {
            let buffer = Box::leak(vec![0u8; SIZE].into_boxed_slice());
            let entry = &mut *entries.add(id);
            entry.set_addr(buffer.as_mut_ptr() as u64);
            entry.set_len(SIZE as u32);
            entry.set_bid(id as u16);
        }
        let s = r.submitter();
        s.register_buf_ring_with_flags(entries as u64, BUFFERS as u16, 7, 0)
            .map_err(|e| format!("{:?}", e.raw_os_error()))?;
        let tail: &AtomicU16 = &*BufRingEntry::tail(entries).cast();
        tail.store(BUFFERS as u16, Release);
    }
    Ok(())
}

/// Collects completions until there are `bytes` bytes, or one ends it.
fn collect(t: &mut T, r: &mut IoUring, bytes: i32) {
    let mut got = 0;
    while got < bytes {
        let one = next(r);
        note(t, &format!("at {got}"), one);
        match one {
            (Ok(n @ 1..), _, true) => got += n,
            _ => break,
        }
    }
}

fn left_multishot(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    if let Err(e) = provide(&r) {
        return t.rec("buffers", e);
    }
    let (c, s) = t.pair();
    send_pieces(&c, &s, 4);
    begin(
        &mut r,
        opcode::RecvMulti::new(types::Fd(s.raw()), 7).build(),
    );
    collect(t, &mut r, 2000);
    drop(c);
    note(t, "end", next(&mut r));
}

fn left_bundle(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    if let Err(e) = provide(&r) {
        return t.rec("buffers", e);
    }
    let (c, s) = t.pair();
    send_pieces(&c, &s, 4);
    let e = opcode::RecvBundle::new(types::Fd(s.raw()), 7);
    begin(&mut r, e.build());
    note(t, "bundle", next(&mut r));
    t.bytes("rest", &sys::recv_vec(s.raw(), 4000, libc::MSG_DONTWAIT));
    send_pieces(&c, &s, 4);
    let e = opcode::RecvMultiBundle::new(types::Fd(s.raw()), 7);
    begin(&mut r, e.build());
    collect(t, &mut r, 2000);
    drop(c);
    note(t, "end", next(&mut r));
}

fn left_accept(t: &mut T) {
    let Some(mut r) = ring(t) else { return };
    let (l, a) = t.listener();
    let connect = |t: &mut T| {
        let all = [0; 3].map(|_| t.socket());
        for c in &all {
            sys::connect(c.raw(), &a).unwrap();
        }
        // The listener's end of the last one may not be decided yet.
        sys::sleep_ms(20);
        all
    };
    let _three = connect(t);
    let no = std::ptr::null_mut();
    let mut kept = Vec::new();
    for _ in 0..3 {
        let e = opcode::Accept::new(types::Fd(l.raw()), no, no.cast());
        begin(&mut r, e.build());
        let (fd, left, more) = next(&mut r);
        note(t, "accept", (fd.map(|_| 0), left, more));
        let s = Fd::new(fd.unwrap_or(-1));
        t.prove("server", &s);
        kept.push(s);
    }
    let _others = connect(t);
    let e = opcode::AcceptMulti::new(types::Fd(l.raw()));
    begin(&mut r, e.build());
    for _ in 0..3 {
        let (fd, left, more) = next(&mut r);
        note(t, "multishot", (fd.map(|_| 0), left, more));
        kept.push(Fd::new(fd.unwrap_or(-1)));
    }
}

/// `recvmsg` of at most `len` bytes, and what `TCP_INQ` says.
fn inq(t: &mut T, label: &str, fd: i32, len: usize, flags: i32) {
    let mut b = vec![0u8; len];
    let mut v = [iov(&mut b)];
    let mut m = msg(&mut v);
    let mut ctl = [0u64; 8];
    m.msg_control = ctl.as_mut_ptr().cast();
    m.msg_controllen = 64;
    let got = recvmsg(fd, &mut m, flags);
    // SAFETY: the header was filled by the kernel.
    let left = unsafe {
        let h = libc::CMSG_FIRSTHDR(&m);
        (!h.is_null()).then(|| ((*h).cmsg_type, *(libc::CMSG_DATA(h) as *const i32)))
    };
    t.rec(label, format!("{} {left:?}", st::errno::show(&got)));
}

/// Asked for while bytes are there that came by whatever carrier.
fn left_inq(t: &mut T) {
    let (c, s) = t.pair();
    send_pieces(&c, &s, 2);
    t.res("TCP_INQ", &sys::setopt(s.raw(), libc::IPPROTO_TCP, 36, 1));
    inq(t, "some", s.raw(), 100, 0);
    inq(t, "peek", s.raw(), 100, libc::MSG_PEEK);
    inq(t, "most", s.raw(), 800, libc::MSG_DONTWAIT);
    inq(t, "all", s.raw(), 800, 0);
    sys::send(c.raw(), b"12345", 0).unwrap();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    t.poll_for("end", s.raw(), libc::POLLRDHUP);
    inq(t, "before the end", s.raw(), 3, 0);
    inq(t, "last", s.raw(), 800, 0);
    inq(t, "end", s.raw(), 800, 0);
}

/// Some of the bytes lie where others than TCP may have put them, and some where it has.
fn left_inq_between(t: &mut T) {
    let (c, s) = t.pair();
    let set = |on| sys::setopt(s.raw(), libc::IPPROTO_TCP, 36, on);
    for round in 0..3 {
        send_pieces(&c, &s, 1);
        t.res("on", &set(1));
        send_pieces(&c, &s, 1);
        t.res("off", &set(0));
        sys::send_all(c.raw(), &pattern(300, 1)).unwrap();
        t.res("on", &set(1));
        there(s.raw(), 1300);
        for len in [200, 300, 400, 300, 100] {
            inq(t, &format!("{round}: {len}"), s.raw(), len, 0);
        }
    }
}

/// sendmsg() with a control message of `data` bytes.
fn control(t: &mut T, label: &str, c: &Fd, s: &Fd, (level, kind): (i32, i32), data: &[u8]) {
    let mut b = *b"abc";
    let mut v = [iov(&mut b)];
    let mut m = msg(&mut v);
    let mut ctl = [0u64; 8];
    m.msg_control = ctl.as_mut_ptr().cast();
    // SAFETY: there is room for it.
    unsafe {
        m.msg_controllen = libc::CMSG_SPACE(data.len() as u32) as usize;
        let h = libc::CMSG_FIRSTHDR(&m);
        (*h).cmsg_level = level;
        (*h).cmsg_type = kind;
        (*h).cmsg_len = libc::CMSG_LEN(data.len() as u32) as usize;
        std::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(h), data.len());
    }
    let sent = sendmsg(c.raw(), &m, 0);
    t.res(label, &sent);
    if sent.is_ok() {
        t.bytes("comes", &sys::recv_vec(s.raw(), 8, 0));
    }
}

fn left_control(t: &mut T) {
    let (c, s) = t.pair();
    let socket = libc::SOL_SOCKET;
    for (label, what, data) in [
        ("unknown", (socket, 9999), &[0u8; 4][..]),
        ("mark", (socket, libc::SO_MARK), &[0; 4]),
        ("short mark", (socket, libc::SO_MARK), &[0; 2]),
        ("short stamping", (socket, libc::SO_TIMESTAMPING), &[0; 2]),
        ("other level", (libc::IPPROTO_UDP, 103), &[0; 2]),
        ("rights", (socket, libc::SCM_RIGHTS), &[0; 4]),
        ("again", (socket, 9999), &[0; 4]),
    ] {
        control(t, label, &c, &s, what, data);
        t.res("plain", &sys::send(c.raw(), b"plain", 0));
        t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    }
}
