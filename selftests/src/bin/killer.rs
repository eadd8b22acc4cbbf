// SPDX-License-Identifier: GPL-2.0
//! kill -9 of a program in every step of a handshake, against a packet-level peer that stalls
//! there, and of both ends of real connections at any time; and namespaces that end with sockets
//! in every state. Afterwards the module has no reference left.
//!
//! `killer [--family inet,smc] [--ip ..] [PREFIX..]`

use st::family::Ip;
use st::fd::Fd;
use st::packet::{ACK, PSH, SMC_OPTION};
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::rng::Rng;
use st::{addr, child, clc, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    kill_client_after_syn,
    kill_client_in_handshake,
    kill_client_in_recv,
    kill_client_in_send,
    kill_server_before_ack,
    kill_server_at_each_clc_byte,
    kill_server_in_recv,
    kill_both_at_random,
    namespace_ends_with_sockets,
    namespace_ends_busy,
);

const PORT: u16 = 6500;

fn at(t: &T, peer: bool) -> SocketAddr {
    let ip = match t.ip {
        Ip::Mapped => addr::v4(t.ip, if peer { net::B4 } else { net::A4 }),
        ip => wire_addr(peer, ip),
    };
    SocketAddr::new(ip, PORT)
}

fn wire() -> Wire {
    Wire::open("vb").expect("packet socket")
}

/// SIGKILL, and the child must be gone within half a minute.
fn kill(t: &mut T, what: &str, pid: i32) {
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    for _ in 0..6000 {
        if let Some(e) = child::reap(pid, libc::WNOHANG) {
            t.is(what, e, child::End::Signal(libc::SIGKILL));
            return;
        }
        sys::sleep_ms(5);
    }
    t.check(&format!("{what}: it cannot be killed"), false);
}

/// A child that connects to the packet end and then does `then`.
fn client(t: &T, then: fn(&Fd)) -> i32 {
    let to = at(t, true);
    child::spawn(|| {
        let c = t.socket();
        let _ = sys::set_timeo(c.raw(), libc::SO_RCVTIMEO, 0);
        if sys::connect(c.raw(), &to).is_ok() {
            then(&c);
        }
        sys::sleep_ms(60_000);
        0
    })
}

/// A child that listens on the kernel's end, accepts for ever and does `then` with each.
fn server(t: &T, then: fn(&Fd)) -> i32 {
    let l = t.socket();
    let _ = sys::set_timeo(l.raw(), libc::SO_RCVTIMEO, 0);
    let _ = sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(l.raw(), &at(t, false)).expect("bind");
    sys::listen(l.raw(), 64).expect("listen");
    // The child's copy is the only one when this function returns.
    child::spawn(|| {
        let mut v = Vec::new();
        loop {
            match sys::accept(l.raw()) {
                Ok(s) => {
                    then(&s);
                    v.push(s);
                }
                Err(e) => return e.0, // no TCP listener does that; the errno shows in the report
            }
        }
    })
}

/// Divides a number of rounds that are all alike: fewer on slow guests.
fn rounds(whole: u64) -> u64 {
    (whole / st::guest::less()).max(4)
}

fn end(t: &mut T, before: Option<i64>) {
    if let Err(e) = smcinfo::settled(before, 10_000) {
        t.check(&e, false);
    }
}

fn kill_client_after_syn(t: &mut T) {
    let (w, refs) = (wire(), smcinfo::references());
    let pid = client(t, |_| ());
    let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
    kill(t, "killed", pid);
    // The answer comes too late.
    p.syn_ack(&SMC_OPTION);
    end(t, refs);
}

fn kill_client_in_handshake(t: &mut T) {
    let (w, refs) = (wire(), smcinfo::references());
    for ms in [0, 1, 5, 30] {
        let pid = client(t, |_| ());
        let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
        p.syn_ack(&SMC_OPTION);
        sys::sleep_ms(ms);
        kill(t, "killed", pid);
        t.check("the peer is told", p.pump(3000, |p| p.fin || p.rst));
        p.send_rst();
    }
    end(t, refs);
}

fn kill_client_in_recv(t: &mut T) {
    let (w, refs) = (wire(), smcinfo::references());
    for o in [&SMC_OPTION[..], &[]] {
        let pid = client(t, |c| drop(sys::recv_vec(c.raw(), 8, 0)));
        let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
        p.syn_ack(o);
        p.pump(100, |_| false);
        kill(t, "killed", pid);
        t.check("the peer is told", p.pump(3000, |p| p.fin || p.rst));
        p.send_fin();
    }
    end(t, refs);
}

fn kill_client_in_send(t: &mut T) {
    let (w, refs) = (wire(), smcinfo::references());
    let pid = client(t, |c| {
        let _ = sys::send_all(c.raw(), &vec![1; 8 << 20]);
    });
    let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
    p.syn_ack(&SMC_OPTION);
    sys::sleep_ms(100); // nothing is acknowledged
    kill(t, "killed", pid);
    p.send_rst();
    end(t, refs);
}

fn kill_server_before_ack(t: &mut T) {
    let (w, refs) = (wire(), smcinfo::references());
    let pid = server(t, |_| ());
    let p = Peer::connect(&w, t.ip, 2000, PORT, &SMC_OPTION).expect("no SYN-ACK");
    drop(p);
    kill(t, "killed", pid);
    end(t, refs);
}

fn kill_server_at_each_clc_byte(t: &mut T) {
    let (w, refs, m) = (wire(), smcinfo::references(), clc::proposal_v1());
    // At each of them where that is cheap.
    let step = if st::guest::less() == 1 { 1 } else { 4 };
    for i in (0..=m.len()).step_by(step) {
        let pid = server(t, |_| ());
        let from = 2000 + i as u16;
        let mut p = Peer::connect(&w, t.ip, from, PORT, &SMC_OPTION).expect("no SYN-ACK");
        p.put(ACK | PSH, &m[..i]);
        p.pump(10, |_| false);
        kill(t, "killed", pid);
        t.check("the peer is told", p.pump(3000, |p| p.fin || p.rst));
        p.send_rst();
    }
    end(t, refs);
}

fn kill_server_in_recv(t: &mut T) {
    let (w, refs, m) = (wire(), smcinfo::references(), clc::decline(0x0303_0000, 1));
    let pid = server(t, |s| drop(sys::recv_all(s.raw(), 1000)));
    let mut p = Peer::connect(&w, t.ip, 2000, PORT, &SMC_OPTION).expect("no SYN-ACK");
    p.send(&[&m[..], b"some data"].concat());
    p.pump(50, |_| false);
    kill(t, "killed", pid);
    t.check("the peer is told", p.pump(3000, |p| p.fin || p.rst));
    end(t, refs);
}

/// A child that connects to `a` again and again.
fn hammer(t: &T, a: SocketAddr) -> i32 {
    child::spawn(|| loop {
        let c = t.socket();
        if sys::connect(c.raw(), &a).is_ok() {
            let _ = sys::send(c.raw(), b"hi", 0);
            let _ = sys::recv_vec(c.raw(), 2, 0);
        }
    })
}

fn kill_both_at_random(t: &mut T) {
    let refs = smcinfo::references();
    let mut r = Rng::new(11);
    for _ in 0..rounds(25) {
        let s = server(t, |s| {
            let _ = sys::recv_vec(s.raw(), 2, 0);
            let _ = sys::send(s.raw(), b"yo", 0);
            let _ = sys::shutdown(s.raw(), libc::SHUT_RDWR);
        });
        let (c, d) = (hammer(t, at(t, false)), hammer(t, at(t, false)));
        std::thread::sleep(std::time::Duration::from_micros(r.range(500, 40_000)));
        let mut v = [c, s, d];
        let n = r.draw() as usize;
        v.rotate_left(n % 3);
        for p in v {
            kill(t, "killed", p);
            std::thread::sleep(std::time::Duration::from_micros(r.range(0, 3000)));
        }
    }
    end(t, refs);
}

/// In a namespace of its own: sockets in every state there is.
fn every_state(t: &T) -> Vec<Fd> {
    net::private().expect("namespace");
    net::wire().expect("wire");
    let lo = SocketAddr::new(addr::loopback(t.ip), 0);
    let mut v = vec![t.socket()];
    let b = t.socket();
    sys::bind(b.raw(), &lo).expect("bind");
    v.push(b);
    let l = t.socket();
    sys::bind(l.raw(), &lo).expect("bind");
    sys::listen(l.raw(), 16).expect("listen");
    let a = sys::sockname(l.raw()).expect("name");
    for i in 0..6 {
        let c = t.socket();
        sys::connect(c.raw(), &a).expect("connect");
        if i < 3 {
            let s = sys::accept(l.raw()).expect("accept");
            let _ = sys::send(c.raw(), b"unread", 0);
            let _ = sys::shutdown([c.raw(), s.raw()][i % 2], libc::SHUT_WR);
            v.push(s);
        }
        v.push(c);
    }
    for _ in 0..3 {
        // On its way to nowhere.
        let c = t.socket();
        sys::nonblock(c.raw(), true);
        let _ = sys::connect(c.raw(), &at(t, true));
        v.push(c);
    }
    let r = t.socket();
    let _ = sys::connect(r.raw(), &SocketAddr::new(addr::loopback(t.ip), 1));
    v.push(r);
    v.push(l);
    v
}

fn namespace_ends_with_sockets(t: &mut T) {
    let refs = smcinfo::references();
    for i in 0..rounds(20) {
        let pid = child::spawn(|| {
            let v = every_state(t);
            if i % 2 == 0 {
                return 0; // the namespace's last process ends by itself
            }
            sys::sleep_ms(60_000);
            v.len() as i32
        });
        sys::sleep_ms(150);
        if i % 2 == 0 {
            t.is("child", child::reap(pid, 0), Some(child::End::Exit(0)));
        } else {
            kill(t, "killed", pid);
        }
    }
    end(t, refs);
}

fn namespace_ends_busy(t: &mut T) {
    // Data flows when it ends: devices vanish below the connections.
    let refs = smcinfo::references();
    for _ in 0..rounds(10) {
        let pid = child::spawn(|| {
            net::private().expect("namespace");
            let l = t.socket();
            sys::bind(l.raw(), &SocketAddr::new(addr::loopback(t.ip), 0)).expect("bind");
            sys::listen(l.raw(), 16).expect("listen");
            let a = sys::sockname(l.raw()).expect("name");
            for _ in 0..3 {
                let c = t.socket();
                sys::connect(c.raw(), &a).expect("connect");
                let s = sys::accept(l.raw()).expect("accept");
                std::thread::spawn(move || while sys::send(c.raw(), &[1; 30_000], 0).is_ok() {});
                std::thread::spawn(move || while sys::recv_vec(s.raw(), 9000, 0).is_ok() {});
            }
            sys::sleep_ms(60_000);
            0
        });
        sys::sleep_ms(120);
        kill(t, "killed", pid);
    }
    end(t, refs);
}

fn main() {
    // One at a time: references to the module are counted.
    st::point::main(&[LIST], 1);
}
