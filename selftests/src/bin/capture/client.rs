// SPDX-License-Identifier: GPL-2.0
//! SYNs of our own clients, answered by the packet-level peer.

use st::fd::Fd;
use st::packet::{self, ACK, SMC_OPTION, SYN};
use st::point::T;
use st::rawpeer::{wire_addr, Peer};
use st::{addr, clc, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    syn_has_option,
    syn_retransmits,
    syn_checksum_in_software,
    syn_checksum_offloaded,
    syn_without_room,
    syn_with_md5,
    syn_after_disconnect,
    syn_nonblocking,
    synack_with_option,
    synack_without_option,
    synack_echo,
    synack_echo_reordered,
    other_packets_clean,
);

/// Port of the packet end.
const PORT: u16 = 7777;

fn to(t: &T) -> SocketAddr {
    let ip = match t.ip {
        st::family::Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    SocketAddr::new(ip, PORT)
}

fn start(t: &T) -> Fd {
    let c = t.socket();
    sys::nonblock(c.raw(), true);
    let r = sys::connect(c.raw(), &to(t));
    assert_eq!(r, Err(st::errno::Errno(libc::EINPROGRESS)));
    c
}

fn wait_syn<'a>(t: &T, wire: &'a st::rawpeer::Wire) -> Peer<'a> {
    Peer::wait_syn(wire, t.ip, PORT, 4000).expect("no SYN came")
}

/// The wire, lent apart from the rest of `t`.
fn wire() -> st::rawpeer::Wire {
    st::rawpeer::Wire::open("vb").expect("packet socket")
}

fn syn_has_option(t: &mut T) {
    let w = wire();
    let _c = start(t);
    let p = wait_syn(t, &w);
    let n = t.wanted();
    t.say(&format!("options {:02x?}", p.syn.opts));
    t.syn("SYN", &p.syn, n);
}

fn syn_nonblocking(t: &mut T) {
    // Many sockets at once, each with its option.
    let w = wire();
    let v: Vec<Fd> = (0..20).map(|_| start(t)).collect();
    let n = t.wanted();
    for _ in &v {
        let p = wait_syn(t, &w);
        t.syn("SYN", &p.syn, n);
    }
}

fn syn_retransmits(t: &mut T) {
    let w = wire();
    let _c = start(t);
    let n = t.wanted();
    let first = wait_syn(t, &w);
    t.syn("SYN", &first.syn, n);
    // The second one goes without: something may let no other pass.
    for (i, n) in [(1, n), (2, 0)] {
        let again = wait_syn(t, &w);
        t.is("same sequence", again.syn.seq, first.syn.seq);
        t.syn(&format!("retransmit {i}"), &again.syn, n);
        let kinds = |s: &packet::Seg| -> Vec<u8> {
            packet::options(&s.opts)
                .unwrap_or_default()
                .iter()
                .map(|o| o.0)
                .filter(|kind| i == 1 || *kind < 253)
                .collect()
        };
        t.is("same options", kinds(&again.syn), kinds(&first.syn));
    }
}

fn syn_checksum_in_software(t: &mut T) {
    net::sh("ethtool -K va tx off").expect("ethtool");
    let w = wire();
    let _c = start(t);
    let p = wait_syn(t, &w);
    let n = t.wanted();
    t.syn("SYN", &p.syn, n);
    t.is("sums", p.syn.sums, packet::Sums::Good);
}

fn syn_checksum_offloaded(t: &mut T) {
    let w = wire();
    let _c = start(t);
    let p = wait_syn(t, &w);
    let n = t.wanted();
    t.syn("SYN", &p.syn, n);
    t.is("sums", p.syn.sums, packet::Sums::Partial);
}

fn md5(a: &SocketAddr) -> Vec<u8> {
    let mut v = addr::encode(a);
    v[2] = 0;
    v[3] = 0;
    v.resize(128, 0);
    v.extend([0, 0]);
    v.extend(6u16.to_ne_bytes());
    v.extend(0i32.to_ne_bytes());
    v.extend(b"secret");
    v.resize(216, 0);
    v
}

fn syn_with_md5(t: &mut T) {
    let w = wire();
    let c = t.socket();
    let r = sys::setopt_raw(c.raw(), libc::IPPROTO_TCP, libc::TCP_MD5SIG, &md5(&to(t)));
    if r.is_err() {
        t.say("skip: kernel without TCP MD5 signatures");
        return;
    }
    sys::nonblock(c.raw(), true);
    let _ = sys::connect(c.raw(), &to(t));
    let p = wait_syn(t, &w);
    let has = packet::options(&p.syn.opts)
        .unwrap_or_default()
        .iter()
        .any(|o| o.0 == 19);
    t.check("MD5 option is there", has);
    t.syn("SYN", &p.syn, 0);
}

fn syn_without_room(t: &mut T) {
    // A fast-open cookie of 16 bytes and the usual options leave fewer than 8 bytes; the SMC
    // option, or the whole fast open, must give way, and the header must stay valid.
    let _ = net::sysctl("net.ipv4.tcp_fastopen", "1");
    let w = wire();
    let c = t.socket();
    let _ = sys::setopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
    sys::nonblock(c.raw(), true);
    let _ = sys::connect(c.raw(), &to(t));
    let _ = sys::send(c.raw(), b"x", 0);
    let mut p = wait_syn(t, &w);
    // The peer gives a cookie; the next connection would use it.
    let cookie = [[34u8, 18].as_slice(), &[0xcc; 16], &[1, 1]].concat();
    p.syn_ack(&cookie);
    drop(c);
    sys::sleep_ms(50);
    let c = t.socket();
    let _ = sys::setopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
    sys::nonblock(c.raw(), true);
    let _ = sys::connect(c.raw(), &to(t));
    let _ = sys::send(c.raw(), b"x", 0);
    let p = wait_syn(t, &w);
    t.say(&format!("options {:02x?}", p.syn.opts));
    let o = packet::options(&p.syn.opts);
    t.check("well formed", o.is_some());
    t.check("fits", p.syn.opts.len() <= 40);
    t.check("sums", p.syn.sums != packet::Sums::Bad);
    let tfo = o
        .unwrap_or_default()
        .iter()
        .any(|o| o.0 == 34 && o.1.len() == 18);
    if tfo {
        t.is(
            "SMC option with a cookie",
            packet::smc_options(&p.syn.opts),
            0,
        );
    }
}

fn syn_after_disconnect(t: &mut T) {
    let w = wire();
    let c = start(t);
    let p = wait_syn(t, &w);
    let n = t.wanted();
    t.syn("first", &p.syn, n);
    sys::connect_unspec(c.raw()).expect("disconnect");
    let _ = sys::connect(c.raw(), &to(t));
    let q = wait_syn(t, &w);
    t.check(
        "another SYN",
        p.syn.seq != q.syn.seq || p.syn.src != q.syn.src,
    );
    t.syn("second", &q.syn, n);
}

/// After the handshake: the program's bytes must reach the peer and back, none else.
fn talk(t: &mut T, c: &Fd, p: &mut Peer) {
    sys::nonblock(c.raw(), false);
    let r = sys::send(c.raw(), b"from the program", 0);
    t.is("send", r.ok(), Some(16));
    let got = p.recv(16, 3000);
    t.is("peer hears", got.as_deref(), Some(&b"from the program"[..]));
    p.send(b"from the peer");
    let got = sys::recv_vec(c.raw(), 64, 0);
    t.is("program hears", got.ok(), Some(b"from the peer".to_vec()));
}

fn synack_with_option(t: &mut T) {
    let w = wire();
    let c = start(t);
    let mut p = wait_syn(t, &w);
    t.check("ACK", p.syn_ack(&SMC_OPTION));
    if t.wanted() == 1 {
        let m = clc::read(&mut p, 3000);
        let h = m.as_deref().and_then(clc::header);
        t.is("CLC type", h.map(|h| h.ty), Some(clc::DECLINE));
        t.is(
            "diagnosis",
            m.as_deref().and_then(clc::diagnosis),
            Some(0x0303_0000),
        );
        let i = smcinfo::info(c.raw());
        t.is(
            "mode and reason",
            i.ok().map(|i| (i.mode, i.reason)),
            Some((1, 0x0303_0000)),
        );
    }
    talk(t, &c, &mut p);
}

fn synack_without_option(t: &mut T) {
    let w = wire();
    let c = start(t);
    let mut p = wait_syn(t, &w);
    t.check("ACK", p.syn_ack(&[]));
    t.check("nothing is sent unasked", p.recv(1, 200).is_none());
    talk(t, &c, &mut p);
    if t.wanted() == 1 {
        let i = smcinfo::info(c.raw());
        t.is(
            "mode and reason",
            i.ok().map(|i| (i.mode, i.reason)),
            Some((1, 0x0301_0000)),
        );
    }
}

/// A server or middlebox that sends the SYN's options back has not understood them.
fn echo(t: &mut T, reverse: bool) {
    let w = wire();
    let c = start(t);
    let mut p = wait_syn(t, &w);
    // MSS comes from `syn_ack`; the rest is echoed as it came.
    let mut o: Vec<Vec<u8>> = packet::options(&p.syn.opts)
        .unwrap_or_default()
        .into_iter()
        .filter(|o| o.0 != 2)
        .map(|o| o.1)
        .collect();
    if reverse {
        o.reverse();
    }
    let mut echo = o.concat();
    while echo.len() % 4 != 0 {
        echo.push(1);
    }
    t.check("ACK", p.syn_ack(&echo));
    t.check("nothing is sent unasked", p.recv(1, 200).is_none());
    talk(t, &c, &mut p);
    if t.wanted() == 1 {
        let i = smcinfo::info(c.raw());
        t.is(
            "mode and reason",
            i.ok().map(|i| (i.mode, i.reason)),
            Some((1, 0x0301_0000)),
        );
    }
}

fn synack_echo(t: &mut T) {
    echo(t, false);
}

fn synack_echo_reordered(t: &mut T) {
    echo(t, true);
}

fn other_packets_clean(t: &mut T) {
    let w = wire();
    let spy = wire();
    let c = start(t);
    let mut p = wait_syn(t, &w);
    t.check("ACK", p.syn_ack(&[]));
    talk(t, &c, &mut p);
    drop(c);
    p.pump(2000, |p| p.fin);
    let me = p.me;
    let mut n = 0;
    while let Some(s) = spy.next(100, |s| s.dst == me) {
        if s.flags & SYN == 0 {
            n += 1;
            let k = packet::options(&s.opts)
                .unwrap_or_default()
                .iter()
                .any(|o| o.0 >= 253);
            t.check(
                &format!("no experimental option in flags {:#x}", s.flags),
                !k,
            );
            t.check("sums", s.sums != packet::Sums::Bad);
        }
        let _ = ACK;
    }
    t.check("there were packets", n >= 2);
}
