// SPDX-License-Identifier: GPL-2.0
//! An SMC-R host made of packets, facing the module: it keeps to the protocol until a point tells
//! it not to.

use st::errno::Errno;
use st::fd::Fd;
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::rcpeer::{Arrived, Rc, Written};
use st::{clc, net, smcinfo, sys};
use std::net::{IpAddr, SocketAddr};

/// Role of the host made of packets; the module has the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// Port of the module's listener.
pub const LISTENER: u16 = 6600;
/// Port of the listener that is made of packets.
pub const FAKE: u16 = 7700;
/// Address and key of the memory that this host claims to have; it is nowhere.
const MEMORY: u64 = 0x0007_7000_0000_0000;
const RKEY: u32 = 0x0077_0042;

/// A virtual buffer's size code: 64 KiB.
const SIZE: u8 = 2;

/// The GID of an address.
pub fn gid(a: IpAddr) -> [u8; 16] {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The module's listener.
pub fn listener(t: &T) -> Fd {
    let s = t.socket();
    let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(s.raw(), &SocketAddr::new(wire_addr(false, t.ip), LISTENER)).expect("bind");
    sys::listen(s.raw(), 64).expect("listen");
    s
}

/// The host.
pub struct Host {
    pub role: Role,
    pub ip: st::family::Ip,
    pub rc: Rc,
    pub listener: Option<Fd>,
    /// Our end as we announce it; the token and the buffer differ for each connection.
    pub me: clc::End,
    pub max_links: u8,
    /// Change to each CLC message of [`Host::open`] before it is sent.
    pub dress: fn(Vec<u8>) -> Vec<u8>,
    ports: u16,
    conns: u32,
}

/// A connection: the module's socket and our end.
pub struct Conn<'a> {
    pub fd: Fd,
    pub tcp: Peer<'a>,
    pub me: clc::End,
    pub they: clc::End,
    pub seq: u16,
    /// Positions up to which we have written into their buffer, and consumed our own.
    pub prod: u64,
    pub cons: u64,
}

/// Outcome of a connection at the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An error that says so.
    Error(Errno),
    /// End of the stream.
    Eof,
    /// Nothing yet.
    Lives,
}

impl Host {
    /// A host with a queue pair that knows nobody yet.
    pub fn new(t: &T, role: Role) -> Host {
        // It spoils one handshake after the other, and each is to be tried.
        net::sysctl("net.smc.neighbour_time", "0").expect("sysctl");
        let pid = std::process::id();
        let me = clc::End {
            peer_id: [0x77, 1, 2, 0x77, 0, 0, 0, 2],
            gid: gid(wire_addr(true, t.ip)),
            mac: net::MAC_B,
            qpn: 0x5000 + (pid & 0xfff),
            rkey: RKEY,
            idx: 1,
            token: 0x7700_0000,
            size: SIZE,
            mtu: 3,
            addr: MEMORY,
            psn: 0x00ff_fff0, // wraps soon
        };
        let listener = (role == Role::Client).then(|| listener(t));
        Host {
            role,
            ip: t.ip,
            rc: Rc::new(t.ip, me.qpn, me.psn),
            listener,
            me,
            max_links: 1,
            dress: |m| m,
            ports: 20000,
            conns: 0,
        }
    }

    /// Another queue pair, for another group.
    pub fn fresh(&mut self) {
        self.me.qpn += 0x1000;
        self.me.psn = 0x1234;
        // A host that comes back would be taken into its old group if that still lived.
        self.me.peer_id[1] += 1;
        self.rc = Rc::new(self.ip, self.me.qpn, self.me.psn);
    }

    /// Another queue pair of the same host; the old one goes on.
    pub fn another(&mut self) -> Rc {
        self.me.qpn += 0x1000;
        let next = Rc::new(self.ip, self.me.qpn, self.me.psn);
        std::mem::replace(&mut self.rc, next)
    }

    /// Our end of the next connection.
    pub fn end(&mut self) -> clc::End {
        self.conns += 1;
        clc::End {
            token: self.me.token + self.conns,
            idx: (self.conns % 200) as u8 + 1,
            ..self.me
        }
    }

    /// The TCP connection and the module's socket, if it has one already.
    pub fn tcp(&mut self, t: &T) -> (Peer<'static>, Option<Fd>) {
        self.tcp_with(t, &SMC_OPTION)
    }

    /// The same with these options in the host's SYN or SYN-ACK.
    pub fn tcp_with(&mut self, t: &T, options: &[u8]) -> (Peer<'static>, Option<Fd>) {
        // Connections outlive the borrow of the host; what they leak ends with the point's process.
        let wire: &'static Wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
        self.ports += 1;
        match self.role {
            Role::Client => {
                // Handshakes that were broken off count against the listener's backlog until their
                // time is over, a few seconds; then it answers again.
                for _ in 0..4 {
                    let p = Peer::connect(wire, self.ip, self.ports, LISTENER, options);
                    if let Some(p) = p {
                        return (p, None);
                    }
                    self.ports += 1;
                }
                panic!("no SYN-ACK");
            }
            Role::Server => {
                let fd = t.socket();
                sys::nonblock(fd.raw(), true);
                let a = SocketAddr::new(wire_addr(true, self.ip), FAKE);
                let r = sys::connect(fd.raw(), &a);
                assert_eq!(r, Err(Errno(libc::EINPROGRESS)));
                let mut p = Peer::wait_syn(wire, self.ip, FAKE, 4000).expect("no SYN");
                assert!(p.syn_ack(options), "no ACK");
                (p, Some(fd))
            }
        }
    }

    /// Accepts the module's end of this connection; others that lie in the queue are closed.
    pub fn accept(&self, tcp: &Peer<'_>) -> Option<Fd> {
        let l = self.listener.as_ref()?;
        sys::nonblock(l.raw(), true);
        loop {
            if sys::poll_until(l.raw(), libc::POLLIN, 9000 * st::guest::slow()) == 0 {
                return None;
            }
            let fd = sys::accept(l.raw()).ok()?;
            if sys::peername(fd.raw()).is_ok_and(|a| a.port() == tcp.me.port()) {
                sys::nonblock(fd.raw(), true);
                return Some(fd);
            }
        }
    }

    /// The next port of the host.
    pub fn port(&mut self) -> u16 {
        self.ports += 1;
        self.ports
    }

    /// Shakes hands over `tcp` for a connection whose end here is `me`, and returns the other one; the first makes the
    /// group, the others join it.
    pub fn agree(&mut self, t: &mut T, tcp: &mut Peer<'_>, me: &clc::End) -> Option<clc::End> {
        let first = self.max_links;
        let joins = self.rc.connected();
        let limits = (!joins).then_some((255, first));
        let dress = self.dress;
        let they;
        match self.role {
            Role::Client => {
                tcp.send(&dress(clc::proposal_v2(me, first)));
                let m = clc::read(tcp, 4000).unwrap_or_default();
                if clc::header(&m).map(|h| h.ty) != Some(clc::ACCEPT) {
                    t.check(&format!("no accept: {m:02x?}"), false);
                    return None;
                }
                they = clc::End::parse(&m)?;
                t.is("first contact", m[7] & 8 != 0, !joins);
                if !joins {
                    self.rc.connect(they.qpn, they.psn);
                }
                tcp.send(&dress(clc::agreement_v2(clc::CONFIRM, me, limits)));
                if !joins {
                    let ask = self.llc(1, 3000);
                    let Some(mut m) = ask else {
                        t.check("no CONFIRM_LINK", false);
                        return None;
                    };
                    m[3] |= 0x80;
                    m[4..10].copy_from_slice(&me.mac);
                    m[10..26].copy_from_slice(&me.gid);
                    m[26..29].copy_from_slice(&me.qpn.to_be_bytes()[1..]);
                    self.rc.send(&m);
                }
            }
            Role::Server => {
                let m = clc::read(tcp, 4000).unwrap_or_default();
                if clc::header(&m).map(|h| h.ty) != Some(clc::PROPOSAL) {
                    t.check(&format!("no proposal: {m:02x?}"), false);
                    return None;
                }
                tcp.send(&dress(clc::agreement_v2(clc::ACCEPT, me, limits)));
                let m = clc::read(tcp, 4000).unwrap_or_default();
                if clc::header(&m).map(|h| h.ty) != Some(clc::CONFIRM) {
                    let (rst, fin) = (tcp.rst, tcp.fin);
                    t.check(
                        &format!("no confirm: {m:02x?}, rst {rst}, fin {fin}"),
                        false,
                    );
                    return None;
                }
                they = clc::End::parse(&m)?;
                if !joins {
                    self.rc.connect(they.qpn, they.psn);
                    self.rc.send(&confirm_link(me, 0x03));
                    let answer = self.llc(0x81, 3000);
                    t.check("CONFIRM_LINK answered", answer.is_some());
                }
            }
        }
        Some(they)
    }

    /// Opens a connection; the first one makes the group, the others join it.
    pub fn open(&mut self, t: &mut T) -> Option<Conn<'static>> {
        let me = self.end();
        let (mut tcp, mut fd) = self.tcp(t);
        let they = self.agree(t, &mut tcp, &me)?;
        if self.role == Role::Client {
            fd = self.accept(&tcp);
        }
        let Some(fd) = fd else {
            let said = clc::read_within(&mut tcp, 100);
            let (n, rst, fin) = (self.conns, tcp.rst, tcp.fin);
            t.check(
                &format!("no socket for connection {n}: rst {rst}, fin {fin}, {said:02x?}"),
                false,
            );
            return None;
        };
        let up = sys::poll_until(fd.raw(), libc::POLLOUT, 3000 * st::guest::slow());
        t.check("writable", up & libc::POLLOUT != 0);
        let i = smcinfo::info(fd.raw()).map(|i| i.mode);
        t.is("mode", i.ok(), Some(0));
        Some(Conn {
            fd,
            tcp,
            me,
            they,
            seq: 0,
            prod: 0,
            cons: 0,
        })
    }

    /// See [`next_llc`].
    pub fn llc(&self, ty: u8, ms: u64) -> Option<[u8; 44]> {
        next_llc(&self.rc, ty, ms)
    }
}

/// The next LLC message of this type (with 0x80: its response) that arrives; others are dropped.
pub fn next_llc(rc: &Rc, ty: u8, ms: u64) -> Option<[u8; 44]> {
    let end = st::guest::until(ms);
    loop {
        match rc.next_until(end)? {
            Arrived::Message(m) if m.len() >= 44 => {
                if m[0] != 0xfe && m[0] & 15 == ty & 15 && m[3] & 0x80 == ty & 0x80 {
                    return m[..44].try_into().ok();
                }
            }
            _ => (),
        }
    }
}

/// A CONFIRM_LINK request with these flags.
pub fn confirm_link(me: &clc::End, flags: u8) -> [u8; 44] {
    let mut m = llc(0x21, flags);
    m[4..10].copy_from_slice(&me.mac);
    m[10..26].copy_from_slice(&me.gid);
    m[26..29].copy_from_slice(&me.qpn.to_be_bytes()[1..]);
    m[29] = 1;
    m[30..34].copy_from_slice(&[7, 7, 7, 7]);
    m[34] = 2;
    m
}

/// An empty LLC message with this type byte.
pub fn llc(ty: u8, flags: u8) -> [u8; 44] {
    let mut m = [0; 44];
    m[0] = ty;
    m[1] = 44;
    m[3] = flags;
    m
}

/// A CONFIRM_RKEY request for one key of nothing, another one for each number.
pub fn new_key(i: u32) -> [u8; 44] {
    let mut m = llc(0x26, 0);
    m[5..9].copy_from_slice(&(0x1000 + i).to_be_bytes());
    m[9..17].copy_from_slice(&(u64::from(i) << 20).to_be_bytes());
    m
}

/// A cursor of the wire.
fn cursor(pos: u64, size: u64) -> [u8; 8] {
    let mut c = [0; 8];
    c[2..4].copy_from_slice(&((pos / size) as u16).to_be_bytes());
    c[4..].copy_from_slice(&((pos % size) as u32).to_be_bytes());
    c
}

impl Conn<'_> {
    /// The CDC message that is due, with the next sequence number.
    pub fn cdc(&mut self) -> [u8; 44] {
        self.seq = self.seq.wrapping_add(1);
        let mut m = [0; 44];
        m[..2].copy_from_slice(&[0xfe, 44]);
        m[2..4].copy_from_slice(&self.seq.to_be_bytes());
        m[4..8].copy_from_slice(&self.they.token.to_be_bytes());
        m[8..16].copy_from_slice(&cursor(self.prod, self.they.bytes()));
        m[16..24].copy_from_slice(&cursor(self.cons, self.me.bytes()));
        m
    }

    /// Says that our program has closed.
    pub fn close(&mut self, rc: &Rc) {
        let mut m = self.cdc();
        m[25] = 0x40;
        rc.send(&m);
    }

    /// Writes into their buffer and says so.
    pub fn write(&mut self, rc: &Rc, data: &[u8]) {
        let size = self.they.bytes();
        let mut rest = data;
        while !rest.is_empty() {
            let at = self.prod % size;
            let n = rest.len().min((size - at) as usize);
            rc.write(self.they.start() + at, self.they.rkey, &rest[..n]);
            self.prod += n as u64;
            rest = &rest[n..];
        }
        let m = self.cdc();
        rc.send(&m);
    }

    /// Returns what the module has done with the socket, within `ms`.
    pub fn ended(&self, ms: u64) -> End {
        let r = sys::poll1(self.fd.raw(), libc::POLLRDHUP, ms as i32);
        if r == Ok(0) {
            return End::Lives;
        }
        loop {
            match sys::recv_vec(self.fd.raw(), 4096, libc::MSG_DONTWAIT) {
                Ok(v) if v.is_empty() => return End::Eof,
                Ok(_) => (),
                Err(e) if e.0 == libc::EAGAIN => return End::Lives,
                Err(e) => return End::Error(e),
            }
        }
    }

    /// Checks that the module gave the connection up, with an error, in time.
    pub fn dead(&self, t: &mut T, what: &str) {
        self.dead_within(t, what, 4000);
    }

    /// As [`Conn::dead`], in that many milliseconds. What had come before may be read first.
    pub fn dead_within(&self, t: &mut T, what: &str, ms: u64) {
        let late = st::guest::until(ms);
        let mut end = End::Lives;
        while end == End::Lives && std::time::Instant::now() < late {
            end = self.ended(100);
        }
        self.was_error(t, what, end);
    }

    /// Checks that the connection has ended with an error that says so.
    pub fn was_error(&self, t: &mut T, what: &str, end: End) {
        let good = [libc::ECONNRESET, libc::ECONNABORTED].map(|e| End::Error(Errno(e)));
        t.check(
            &format!("{what}: {end:?}, not an error"),
            good.contains(&end),
        );
    }

    /// Checks that the connection either works or ended in time: it must not hang.
    pub fn settled(&self, t: &mut T, what: &str) {
        let fd = self.fd.raw();
        if self.ended(0) == End::Lives {
            let r = sys::send(fd, b"x", libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
            let codes = [libc::ECONNRESET, libc::ECONNABORTED, libc::EPIPE];
            let good = match r {
                Ok(1) => true,
                Ok(_) => false,
                Err(e) => codes.contains(&e.0),
            };
            t.check(&format!("{what}: send {r:?}"), good);
        }
    }

    /// Checks that bytes still go both ways, to the byte.
    pub fn lives(&mut self, t: &mut T, rc: &Rc, what: &str) {
        self.write(rc, b"from outside");
        sys::poll_until(self.fd.raw(), libc::POLLIN, 3000 * st::guest::slow());
        let got = sys::recv_vec(self.fd.raw(), 64, libc::MSG_DONTWAIT);
        t.is(
            &format!("{what}: program hears"),
            got.ok().as_deref(),
            Some(&b"from outside"[..]),
        );
        rc.drain();
        let sent = sys::send(self.fd.raw(), b"to outside", libc::MSG_NOSIGNAL);
        t.is(&format!("{what}: program sends"), sent.ok(), Some(10));
        let at = self.me.start() + self.cons % self.me.bytes();
        let heard = loop {
            match rc.next(3000) {
                Some(Arrived::Written(w)) if w.addr == at => break Some(w),
                Some(_) => (),
                None => break None,
            }
        };
        let want = Written {
            addr: at,
            rkey: self.me.rkey,
            data: b"to outside".to_vec(),
            immediate: heard.as_ref().and_then(|w| w.immediate),
        };
        t.is(&format!("{what}: outside hears"), heard, Some(want));
        self.cons += 10;
        let m = self.cdc();
        rc.send(&m);
    }

    /// The immediate that announces a number of bytes on the connection with this token.
    pub fn immediate(token: u32, bytes: u32) -> u32 {
        (token << 16) | (bytes - 1)
    }

    /// Writes a little into their buffer, which announces itself.
    pub fn write_immediate(&mut self, rc: &Rc, data: &[u8]) {
        let at = self.they.start() + self.prod % self.they.bytes();
        let imm = Self::immediate(self.they.token, data.len() as u32);
        rc.write_immediate(at, self.they.rkey, data, imm);
        self.prod += data.len() as u64;
        self.seq = self.seq.wrapping_add(1);
    }
}
