// SPDX-License-Identifier: GPL-2.0
//! What packets meet on their way, and bytes in memory do not; and what ends sockets.

use crate::{blocked, cold, listener, moves, talks, warm};
use st::errno::Errno;
use st::fd::Fd;
use st::point::T;
use st::rawpeer::Wire;
use st::{net, sys};

/// Brings every connection back to TCP with its next byte, and keeps it there.
fn off() {
    net::sysctl("net.smc.path_local", "0").expect("path_local");
}

/// Has something stand in the way of packets, and take it away. Bytes in memory pass it by; those that TCP
/// carries, and handshakes, do not.
fn passes(t: &mut T, block: &str, open: &str) {
    let (c, s) = warm(t);
    for line in block.lines() {
        if let Err(e) = net::sh(line) {
            t.say(&format!("skip: {e}"));
            return;
        }
    }
    for (from, to) in [(&c, &s), (&s, &c)] {
        t.is("passed by", moves(from, to), Ok(false));
    }
    let new = t.socket();
    let _l = {
        let (l, at) = listener(t);
        sys::nonblock(new.raw(), true);
        t.is(
            "SYN",
            sys::connect(new.raw(), &at),
            Err(Errno(libc::EINPROGRESS)),
        );
        l
    };
    let seen = sys::poll_until(new.raw(), libc::POLLOUT, 300);
    t.check("no handshake", seen & libc::POLLOUT == 0);
    drop(new);
    off();
    t.check("TCP's byte is kept back", blocked(&c, &s));
    net::sh(open).expect("opened");
    // TCP sends it again.
    t.is("arrives", sys::recv_all(s.raw(), 4), Ok(b"lost".to_vec()));
    talks(t, &c, &s);
}

/// A rule that drops what comes by the loopback device.
pub fn nft(t: &mut T) {
    passes(
        t,
        "nft add table inet t\n\
         nft add chain inet t in { type filter hook input priority 0 ; }\n\
         nft add rule inet t in meta l4proto tcp drop",
        "nft flush table inet t",
    );
}

/// A queueing discipline that loses everything.
pub fn tc(t: &mut T) {
    passes(
        t,
        "tc qdisc add dev lo root netem loss 100%",
        "tc qdisc del dev lo root",
    );
}

/// A firewall by which only known connections go on, and the end of its knowledge.
pub fn conntrack(t: &mut T) {
    let rules = "nft add table inet t\n\
         nft add chain inet t in { type filter hook input priority 0 ; }\n\
         nft add rule inet t in ct state established accept\n\
         nft add rule inet t in tcp flags & (syn|ack) == syn accept\n\
         nft add rule inet t in meta l4proto tcp drop";
    for line in rules.lines() {
        if let Err(e) = net::sh(line) {
            t.say(&format!("skip: {e}"));
            return;
        }
    }
    let _ = net::sysctl("net.netfilter.nf_conntrack_tcp_loose", "0");
    let (c, s) = warm(t);
    net::sh("conntrack -D -p tcp").expect("conntrack -D");
    for (from, to) in [(&c, &s), (&s, &c)] {
        t.is("passed by", moves(from, to), Ok(false));
    }
    off();
    t.check("TCP's byte is dropped", blocked(&c, &s));
}

/// The loopback device goes down.
pub fn interface(t: &mut T) {
    let (c, s) = warm(t);
    net::link("lo", false).expect("down");
    for (from, to) in [(&c, &s), (&s, &c)] {
        t.is("passed by", moves(from, to), Ok(false));
    }
    off();
    t.check("TCP's byte is kept back", blocked(&c, &s));
    net::link("lo", true).expect("up");
    t.is("arrives", sys::recv_all(s.raw(), 4), Ok(b"lost".to_vec()));
}

/// What both ends see after `ss --kill` of the client: its send, then what is read at either end.
fn killed(c: &Fd, s: &Fd) -> String {
    let port = sys::sockname(c.raw()).expect("name").port();
    // Unread at the peer: it comes first.
    sys::send_all(c.raw(), b"last").expect("send");
    sys::sleep_ms(50);
    net::sh(&format!("ss --kill -t sport = {port}")).expect("ss --kill");
    let text = |fd: &Fd| sys::recv_vec(fd.raw(), 16, 0);
    format!(
        "{:?} {:?} {:?}; {:?} {:?} {:?}",
        text(c),
        text(c),
        sys::send(c.raw(), b"x", 0),
        text(s),
        text(s),
        sys::send(s.raw(), b"x", 0)
    )
}

/// `SOCK_DESTROY`.
pub fn destroy(t: &mut T) {
    let (c, s) = warm(t);
    let seen = killed(&c, &s);
    let (d, p) = st::family::Family::Tcp.triple(t.ip);
    let plain = || sys::socket(d, libc::SOCK_STREAM, p).expect("socket");
    let l = plain();
    let any = std::net::SocketAddr::new(st::addr::loopback(t.ip), 0);
    sys::bind(l.raw(), &any).expect("bind");
    sys::listen(l.raw(), 8).expect("listen");
    let c = plain();
    let at = sys::sockname(l.raw()).expect("name");
    sys::connect(c.raw(), &at).expect("connect");
    let s = sys::accept(l.raw()).expect("accept");
    t.is("as TCP", seen, killed(&c, &s));
    // And one that nothing was carried by.
    let (c, s) = cold(t);
    let port = sys::sockname(c.raw()).expect("name").port();
    net::sh(&format!("ss --kill -t sport = {port}")).expect("ss --kill");
    let reset = Err(Errno(libc::ECONNRESET));
    t.is("cold", sys::recv_vec(s.raw(), 4, 0), reset);
}

/// A packet socket sees the end of the connection, and no bytes in memory.
pub fn capture(t: &mut T) {
    let (c, s) = cold(t);
    let wire = Wire::open("lo").expect("packet socket");
    let port = sys::sockname(c.raw()).expect("name").port();
    sys::send_all(c.raw(), b"by TCP").expect("send");
    t.is("first", sys::recv_all(s.raw(), 6), Ok(b"by TCP".to_vec()));
    let first = wire.next(2000, |seg| seg.src.port() == port && seg.data == b"by TCP");
    t.check("TCP's bytes are seen", first.is_some());
    net::warm(c.raw(), s.raw()).expect("warm");
    sys::send_all(c.raw(), b"by memory").expect("send");
    let got = sys::recv_all(s.raw(), 9);
    t.is("second", got, Ok(b"by memory".to_vec()));
    drop(c);
    let bytes = std::cell::RefCell::new(Vec::<u8>::new());
    let end = wire.next(2000, |seg| {
        bytes.borrow_mut().extend(&seg.data);
        seg.src.port() == port && seg.flags & st::packet::FIN != 0
    });
    t.check("the end is seen", end.is_some());
    let seen = bytes.borrow().windows(9).any(|part| part == b"by memory");
    t.check("bytes in memory are not", !seen);
}
