// SPDX-License-Identifier: GPL-2.0
//! Every `MSG_` flag TCP takes, and some it does not.

use crate::ctx::{pattern, T};
use crate::data::{iov, msg, recvmsg, sendmsg};
use st::errno::cvt;
use st::sys;
use std::time::{Duration, Instant};

crate::scenarios!(
    flags_peek,
    flags_peek_end,
    flags_waitall,
    flags_dontwait,
    flags_trunc,
    flags_more,
    flags_eor_confirm,
    flags_errqueue,
    flags_unknown_flags,
    flags_fastopen,
    flags_msgs_out,
    flags_peek_off
);

fn flags_peek(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"peekable", 0).unwrap();
    t.bytes("peek 4", &sys::recv_vec(s.raw(), 4, libc::MSG_PEEK));
    t.bytes("peek all", &sys::recv_vec(s.raw(), 64, libc::MSG_PEEK));
    t.bytes("recv 4", &sys::recv_vec(s.raw(), 4, 0));
    t.bytes("peek rest", &sys::recv_vec(s.raw(), 64, libc::MSG_PEEK));
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    t.bytes(
        "peek empty",
        &sys::recv_vec(s.raw(), 64, libc::MSG_PEEK | libc::MSG_DONTWAIT),
    );
    drop(c);
    sys::sleep_ms(20);
    t.bytes("peek EOF", &sys::recv_vec(s.raw(), 64, libc::MSG_PEEK));
}

/// A peek at all that there will ever be does not wait for more.
fn flags_peek_end(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"short", 0).unwrap();
    t.bytes("in part", &sys::recv_vec(s.raw(), 3, libc::MSG_PEEK));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    let all = libc::MSG_PEEK | libc::MSG_WAITALL;
    t.bytes("waits for all", &sys::recv_vec(s.raw(), 10, all));
    let level = libc::SOL_SOCKET;
    let low = sys::setopt(s.raw(), level, libc::SO_RCVLOWAT, 8);
    t.res("SO_RCVLOWAT", &low);
    t.bytes("low", &sys::recv_vec(s.raw(), 10, libc::MSG_PEEK));
    let offset = sys::setopt(s.raw(), level, libc::SO_PEEK_OFF, 5);
    t.res("SO_PEEK_OFF", &offset);
    t.bytes("behind", &sys::recv_vec(s.raw(), 10, libc::MSG_PEEK));
    t.bytes("it is still there", &sys::recv_vec(s.raw(), 10, 0));

    for (label, how) in [("peer closes", None), ("shut", Some(libc::SHUT_RD))] {
        let (c, s) = t.pair();
        sys::send(c.raw(), b"short", 0).unwrap();
        let fd = s.raw();
        let waits = std::thread::spawn(move || sys::recv_vec(fd, 10, all));
        sys::sleep_ms(50);
        match how {
            Some(how) => drop(sys::shutdown(fd, how)),
            None => drop(c),
        }
        let got = waits.join().expect("no panic");
        t.bytes(label, &got);
    }
}

fn flags_waitall(t: &mut T) {
    let (c, s) = t.pair();
    let cr = c.raw();
    let th = std::thread::spawn(move || {
        for i in 0..5u8 {
            sys::sleep_ms(20);
            sys::send(cr, &[b'a' + i; 3], 0).unwrap();
        }
    });
    t.bytes("waits", &sys::recv_vec(s.raw(), 12, libc::MSG_WAITALL));
    th.join().unwrap();
    t.poll_for("the rest", s.raw(), libc::POLLIN);
    t.bytes(
        "not when non-blocking",
        &sys::recv_vec(s.raw(), 12, libc::MSG_WAITALL | libc::MSG_DONTWAIT),
    );
    sys::send(c.raw(), b"tail", 0).unwrap();
    drop(c);
    t.bytes(
        "short at EOF",
        &sys::recv_vec(s.raw(), 12, libc::MSG_WAITALL),
    );
}

fn flags_dontwait(t: &mut T) {
    let (c, s) = t.pair();
    t.bytes("empty", &sys::recv_vec(s.raw(), 4, libc::MSG_DONTWAIT));
    t.res("send", &sys::send(c.raw(), b"x", libc::MSG_DONTWAIT));
    t.poll_for("arrives", s.raw(), libc::POLLIN);
    t.bytes("there", &sys::recv_vec(s.raw(), 4, libc::MSG_DONTWAIT));
    let b = vec![1u8; 1 << 20];
    let mut n = 0;
    let e = loop {
        match sys::send(c.raw(), &b, libc::MSG_DONTWAIT) {
            Ok(k) => n += k,
            Err(e) => break e,
        }
    };
    t.rec("full", e);
    t.rec("took some", n > 0);
}

fn flags_trunc(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"0123456789", 0).unwrap();
    sys::sleep_ms(20);
    let mut b = [b'-'; 4];
    t.res(
        "MSG_TRUNC discards",
        &sys::recv(s.raw(), &mut b, libc::MSG_TRUNC),
    );
    t.rec("buffer", String::from_utf8_lossy(&b));
    t.bytes("next", &sys::recv_vec(s.raw(), 64, 0));
    sys::send(c.raw(), b"0123456789", 0).unwrap();
    sys::sleep_ms(20);
    // SAFETY: with MSG_TRUNC TCP writes nothing to the buffer.
    let r = unsafe { libc::recv(s.raw(), std::ptr::null_mut(), 8, libc::MSG_TRUNC) };
    t.res("null buffer", &cvt(r as i64));
    t.bytes("next", &sys::recv_vec(s.raw(), 64, 0));
    sys::send(c.raw(), b"0123", 0).unwrap();
    sys::sleep_ms(20);
    t.res(
        "peek and trunc",
        &sys::recv(s.raw(), &mut b, libc::MSG_TRUNC | libc::MSG_PEEK),
    );
}

/// The bytes are held for 200 ms: where the machine stands still for so long, it is tried again.
fn flags_more(t: &mut T) {
    let held = |t: &mut T| {
        let (c, s) = t.pair();
        let begun = Instant::now();
        let sent: Vec<_> = (0..5)
            .map(|i| sys::send(c.raw(), &[b'0' + i], libc::MSG_MORE))
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        let seen = sys::poll1(s.raw(), libc::POLLIN, 0);
        (c, s, sent, seen, begun.elapsed())
    };
    let mut last = held(t);
    for _ in 0..9 {
        if last.4 < Duration::from_millis(120) {
            break;
        }
        last = held(t);
    }
    let (c, s, sent, seen, _) = last;
    for sent in &sent {
        t.res("more", sent);
    }
    t.res("held back", &seen);
    t.res("last", &sys::send(c.raw(), b"!", 0));
    t.poll_for("sent", s.raw(), libc::POLLIN);
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    t.res("more again", &sys::send(c.raw(), b"late", libc::MSG_MORE));
    t.poll_for("sent by timer", s.raw(), libc::POLLIN);
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
}

fn flags_eor_confirm(t: &mut T) {
    let (c, s) = t.pair();
    for (n, f) in [
        ("EOR", libc::MSG_EOR),
        ("CONFIRM", libc::MSG_CONFIRM),
        ("DONTROUTE", libc::MSG_DONTROUTE),
        ("PROXY", 0x10),
        ("BATCH", 0x40000),
        ("ZEROCOPY without the option", 0x400_0000),
    ] {
        t.res(n, &sys::send(c.raw(), b"x", f));
    }
    sys::sleep_ms(20);
    t.bytes("all came", &sys::recv_vec(s.raw(), 64, 0));
}

fn flags_errqueue(t: &mut T) {
    let (c, s) = t.pair();
    t.bytes(
        "empty queue",
        &sys::recv_vec(c.raw(), 64, libc::MSG_ERRQUEUE),
    );
    let r = sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
    t.res("SO_ZEROCOPY", &r);
    let b = pattern(20_000, 3);
    t.res("send", &sys::send(c.raw(), &b, 0x400_0000));
    let got = sys::recv_all(s.raw(), b.len());
    t.rec("equal", got.is_ok_and(|g| g == b));
    t.poll_for("notification", c.raw(), libc::POLLERR);
    let (mut ctl, mut one) = ([0u8; 128], [0u8; 1]);
    let mut v = [iov(&mut one)];
    let mut m = msg(&mut v);
    m.msg_control = ctl.as_mut_ptr().cast();
    m.msg_controllen = 128;
    t.res("recvmsg", &recvmsg(c.raw(), &mut m, libc::MSG_ERRQUEUE));
    t.rec("flags", format!("{:#x}", m.msg_flags));
    t.rec("control length", m.msg_controllen);
}

fn flags_unknown_flags(t: &mut T) {
    let (c, s) = t.pair();
    for bit in [0x80u32, 0x1000, 0x8_0000, 0x80_0000, 0x100_0000] {
        t.res(
            &format!("send {bit:#x}"),
            &sys::send(c.raw(), b"x", bit as i32),
        );
    }
    sys::sleep_ms(20);
    for bit in [
        0x80u32,
        0x10,
        0x8_0000,
        0x1000_0000,
        0x4000_0000,
        0x8000_0000,
    ] {
        let r = sys::recv_vec(s.raw(), 1, bit as i32 | libc::MSG_DONTWAIT);
        t.bytes(&format!("recv {bit:#x}"), &r);
    }
}

fn flags_fastopen(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    let n = st::addr::encode(&a);
    // SAFETY: buffers and lengths agree.
    let r = unsafe {
        let (p, len) = (n.as_ptr().cast(), n.len() as u32);
        libc::sendto(
            c.raw(),
            b"quick".as_ptr().cast(),
            5,
            libc::MSG_FASTOPEN,
            p,
            len,
        )
    };
    t.res("sendto", &cvt(r as i64));
    let s = sys::accept(l.raw()).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    t.prove("client", &c);
    t.prove("server", &s);
    t.res("send", &sys::send(c.raw(), b"on", 0));
    t.bytes("recv on", &sys::recv_vec(s.raw(), 64, 0));
    t.res(
        "already connected",
        &sys::send(c.raw(), b"x", libc::MSG_FASTOPEN),
    );
}

fn flags_msgs_out(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"0123456789", 0).unwrap();
    sys::sleep_ms(20);
    let mut b = [0u8; 4];
    let mut v = [iov(&mut b)];
    let mut m = msg(&mut v);
    let (mut ctl, mut name) = ([0u8; 64], [0u8; 28]);
    m.msg_control = ctl.as_mut_ptr().cast();
    m.msg_controllen = 64;
    m.msg_name = name.as_mut_ptr().cast();
    m.msg_namelen = 28;
    t.res("recvmsg", &recvmsg(s.raw(), &mut m, libc::MSG_CMSG_CLOEXEC));
    let out = format!(
        "flags {:#x} control {} name {}",
        m.msg_flags, m.msg_controllen, m.msg_namelen
    );
    t.rec("header", out);
    m.msg_controllen = 64;
    t.res(
        "sendmsg with empty control",
        &sendmsg(c.raw(), &msg(&mut v), 0),
    );
    t.res("TCP_INQ", &sys::setopt(s.raw(), libc::IPPROTO_TCP, 36, 1));
    // On loopback they are there; by RDMA they come.
    for _ in 0..200 {
        if sys::ioctl_get(s.raw(), libc::FIONREAD) == Ok(10) {
            break;
        }
        sys::sleep_ms(10);
    }
    t.res("recvmsg", &recvmsg(s.raw(), &mut m, 0));
    // SAFETY: the header was filled by the kernel.
    let inq = |m: &libc::msghdr| unsafe {
        let h = libc::CMSG_FIRSTHDR(m);
        (!h.is_null()).then(|| *(libc::CMSG_DATA(h) as *const i32))
    };
    t.rec("inq", format!("{:?}", inq(&m)));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::recv_all(s.raw(), 64).unwrap();
    m.msg_controllen = 64;
    t.res("recvmsg", &recvmsg(s.raw(), &mut m, 0));
    t.rec("inq at the end", format!("{:?}", inq(&m)));
}

fn flags_peek_off(t: &mut T) {
    let (c, s) = t.pair();
    t.res(
        "SO_PEEK_OFF",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, 2),
    );
    sys::send(c.raw(), b"abcdefgh", 0).unwrap();
    t.bytes("peek", &sys::recv_vec(s.raw(), 2, libc::MSG_PEEK));
    t.bytes("peek on", &sys::recv_vec(s.raw(), 2, libc::MSG_PEEK));
    t.bytes("recv", &sys::recv_vec(s.raw(), 3, 0));
    t.res(
        "offset now",
        &sys::getopt(s.raw(), libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    );
}
