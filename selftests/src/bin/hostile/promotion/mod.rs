// SPDX-License-Identifier: GPL-2.0
//! Connections that begin as TCP and may be promoted (`net.smc.path` 2), with a hostile host at one end or beside
//! them: whatever it says, the connection goes on with every byte right or ends with an error, and nothing joins what
//! does not belong together. `joins.rs` has side connections to the module's listener, `dials.rs` those that the module
//! makes, `marks.rs` what is said in the rings, `returns.rs` what is said of the way back.
//!
//! These points run one after the other, and only when they are named: they watch the module's references.

mod dials;
mod joins;
mod marks;
mod proxy;
mod returns;

use crate::honest::Honest;
use crate::host::{Conn, Host, Role, LISTENER};
use st::fd::Fd;
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::rcpeer::{Arrived, Rc};
use st::rng::fill;
use st::{guest, path, smcinfo, sys};
use std::net::SocketAddr;

/// The points of all files.
pub const LISTS: [&[st::point::Point]; 5] = [
    joins::LIST,
    dials::LIST,
    marks::LIST,
    proxy::LIST,
    returns::LIST,
];

/// Segments of data after which a client's connection is worth promoting; a server's after half as many.
const AFTER: u64 = 8;
/// `mode` of a connection that began as TCP, and of SMC-R.
const PATH: u32 = 3;
const SMC: u32 = 0;
/// What the other host has said is no correct one's.
const PATHBREACH: u32 = 0x0306_0104;

/// Flags of the identity option.
const ANSWER: u8 = 1;
const STRICT: u8 = 2;
const JOINS: u8 = 4;
const FIRST: u8 = 8;

/// The identity option of another host, with these flags.
fn identity(flags: u8) -> Vec<u8> {
    [
        &[253, 12, b'r', b's', 0x10 | flags][..],
        &[0x77, 1, 2, 3, 4, 5, 6],
    ]
    .concat()
}

/// The flags of the identity option among these, if there is one.
fn flags(options: &[u8]) -> Option<u8> {
    let all = st::packet::options(options)?;
    let own = all
        .iter()
        .find(|o| o.1.starts_with(&[253, 12, b'r', b's']))?;
    Some(own.1[4] & 0x0f)
}

/// The message of a side connection.
fn join(client: u32, server: u32) -> [u8; 24] {
    let mut m = [0; 24];
    m[..9].copy_from_slice(b"RSMCJOIN\x01");
    m[12..16].copy_from_slice(&client.to_be_bytes());
    m[16..20].copy_from_slice(&server.to_be_bytes());
    m
}

/// Marks.
const READY: [u8; 8] = *b"RSP\x01\0\0\0\0";
const GO: [u8; 8] = *b"RSP\x02\0\0\0\0";

fn cut(position: u32) -> [u8; 8] {
    let [a, b, c, d] = position.to_be_bytes();
    [b'R', b'S', b'P', 3, a, b, c, d]
}

/// Runs a point with a host in this role, beside an honest connection over SMC-R, where connections begin as TCP.
/// Afterwards nothing is left of what it did.
fn with(t: &mut T, role: Role, act: fn(&mut T, &mut Host)) {
    let honest = match Honest::start(t) {
        Ok(honest) => honest,
        Err(error) => return t.check(&error, false),
    };
    if let Err(error) = path::first(AFTER) {
        return t.check(&error, false);
    }
    let before = smcinfo::references();
    let mut host = Host::new(t, role);
    act(t, &mut host);
    drop(host);
    let settled = smcinfo::settled(before, 20_000 * guest::slow());
    t.is("references", settled, Ok(()));
    honest.finish(t);
}

/// Points from functions, with the host in a role.
#[macro_export]
macro_rules! promotion_points {
    ($prefix:literal, $role:ident, $($f:ident),* $(,)?) => {
        /// The points of this file.
        pub const LIST: &[st::point::Point] = &[$(
            st::point::Point {
                name: concat!("promotion.", $prefix, ".", stringify!($f)),
                run: |t| super::with(t, $crate::host::Role::$role, $f),
            },
        )*];
    };
}

/// A connection of the module's program with the host, which began as TCP.
struct Real {
    tcp: Peer<'static>,
    fd: Fd,
    /// Bytes that have gone to the program, and come from it.
    to: u64,
    from: u64,
    /// Initial sequence numbers.
    client: u32,
    server: u32,
}

impl Real {
    /// Begins it.
    fn begin(t: &mut T, h: &mut Host) -> Option<Self> {
        let (tcp, fd) = match h.role {
            Role::Client => {
                let wire: &'static Wire = Box::leak(Box::new(Wire::open("vb").ok()?));
                let port = h.port();
                let from = SocketAddr::new(wire_addr(true, h.ip), port);
                let to = SocketAddr::new(wire_addr(false, h.ip), LISTENER);
                let options = [&SMC_OPTION[..], &identity(FIRST)].concat();
                // Each connection has a number of its own.
                let number = u32::from(port) << 16;
                let tcp = Peer::connect_numbered(wire, from, to, number, &options)?;
                (tcp, None)
            }
            Role::Server => h.tcp_with(t, &identity(ANSWER)),
        };
        let here = tcp.snd.wrapping_sub(1);
        let there = tcp.rcv.wrapping_sub(1);
        let (fd, client, server) = match h.role {
            Role::Client => {
                t.is("answer", flags(&tcp.syn.opts), Some(ANSWER));
                (h.accept(&tcp), here, there)
            }
            Role::Server => {
                t.is("SYN", flags(&tcp.syn.opts), Some(FIRST));
                (fd, there, here)
            }
        };
        let Some(fd) = fd else {
            t.check("no socket", false);
            return None;
        };
        let up = sys::poll_until(fd.raw(), libc::POLLOUT, 3000 * guest::slow());
        t.check("writable", up & libc::POLLOUT != 0);
        let mode = smcinfo::info(fd.raw()).map(|info| info.mode);
        t.is("begins as TCP", mode.ok(), Some(PATH));
        Some(Self {
            tcp,
            fd,
            to: 0,
            from: 0,
            client,
            server,
        })
    }

    /// Has the host send bytes by TCP.
    fn tell(&mut self, len: usize) {
        let mut bytes = vec![0; len];
        fill(1, self.to, &mut bytes);
        self.tcp.send(&bytes);
        self.to += len as u64;
    }

    /// The bytes of the host that the program has not read; they may not have been sent.
    fn due(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fill(1, at, &mut bytes);
        bytes
    }

    /// Reads so many bytes at the program.
    fn read(&self, len: usize) -> Result<Vec<u8>, String> {
        let mut all = vec![];
        while all.len() < len {
            sys::poll_until(self.fd.raw(), libc::POLLIN, 5000 * guest::slow());
            match sys::recv_vec(self.fd.raw(), len - all.len(), libc::MSG_DONTWAIT) {
                Ok(part) if part.is_empty() => return Err(format!("the end after {}", all.len())),
                Ok(part) => all.extend(part),
                Err(error) => return Err(format!("{error} after {}", all.len())),
            }
        }
        Ok(all)
    }

    /// Messages both ways by TCP, checked to the byte.
    fn talk(&mut self, t: &mut T, what: &str, rounds: usize) {
        for _ in 0..rounds {
            let at = self.to;
            self.tell(64);
            let (got, due) = (self.read(64), self.due(at, 64));
            t.is(&format!("{what}: to the program"), got, Ok(due));
            let mut bytes = vec![0; 100];
            fill(2, self.from, &mut bytes);
            let sent = sys::send(self.fd.raw(), &bytes, libc::MSG_NOSIGNAL);
            t.is(&format!("{what}: send"), sent.ok(), Some(100));
            self.from += 100;
            let got = self.tcp.recv(100, 3000 * guest::slow());
            t.is(&format!("{what}: from the program"), got, Some(bytes));
        }
    }

    /// The connection goes on by TCP, and has been joined by nothing.
    fn goes_on(&mut self, t: &mut T, what: &str) {
        self.talk(t, what, 3);
        let mode = smcinfo::info(self.fd.raw()).map(|info| info.mode);
        t.is(&format!("{what}: mode"), mode.ok(), Some(PATH));
    }

    /// The reason for which it is TCP's.
    fn reason(&self) -> Option<u32> {
        smcinfo::info(self.fd.raw()).ok().map(|info| info.reason)
    }

    fn join(&self) -> [u8; 24] {
        join(self.client, self.server)
    }

    /// Ends it without a trace.
    fn end(mut self) {
        self.tcp.send_rst();
    }

    /// Makes the SMC-R connection for it over a side connection whose first message has been said, or heard.
    fn shake(&mut self, t: &mut T, h: &mut Host, mut side: Peer<'static>) -> Option<Conn<'static>> {
        let me = h.end();
        let they = h.agree(t, &mut side, &me)?;
        Some(Conn {
            // The program's socket is the connection's that it is about.
            fd: Fd::new(-1),
            tcp: side,
            me,
            they,
            seq: 0,
            prod: 0,
            cons: 0,
        })
    }

    /// Promotes it as it should be, and proves that its bytes go by the rings then.
    fn promote(&mut self, t: &mut T, h: &mut Host, side: Peer<'static>) {
        let Some(mut c) = self.shake(t, h, side) else {
            return t.check("not promoted", false);
        };
        match h.role {
            Role::Client => {
                t.is("ready", hears(&c, &h.rc, 8), Some(READY.to_vec()));
                says(&mut c, &h.rc, &GO);
                let theirs = hears(&c, &h.rc, 8);
                t.is("cut", theirs, Some(cut(self.tcp.rcv).to_vec()));
                says(&mut c, &h.rc, &cut(self.tcp.snd));
            }
            Role::Server => {
                says(&mut c, &h.rc, &READY);
                t.is("go", hears(&c, &h.rc, 8), Some(GO.to_vec()));
                says(&mut c, &h.rc, &cut(self.tcp.snd));
                let theirs = hears(&c, &h.rc, 8);
                t.is("cut", theirs, Some(cut(self.tcp.rcv).to_vec()));
            }
        }
        self.by_rings(t, h, &mut c);
    }

    /// Both ends have turned: what they say goes by the rings.
    fn by_rings(&mut self, t: &mut T, h: &Host, c: &mut Conn<'static>) {
        for round in 0..3 {
            let bytes = self.due(self.to, 50);
            says(c, &h.rc, &bytes);
            self.to += 50;
            t.is(&format!("{round}: by the ring"), self.read(50), Ok(bytes));
            let mut bytes = vec![0; 70];
            fill(2, self.from, &mut bytes);
            let sent = sys::send(self.fd.raw(), &bytes, libc::MSG_NOSIGNAL);
            t.is("send", sent.ok(), Some(70));
            self.from += 70;
            t.is(
                &format!("{round}: by ours"),
                hears(c, &h.rc, 70),
                Some(bytes),
            );
            c.cons += 70;
            let m = c.cdc();
            h.rc.send(&m);
        }
        let mode = smcinfo::info(self.fd.raw()).map(|info| info.mode);
        t.is("promoted", mode.ok(), Some(SMC));
    }
}

/// Writes into the module's ring.
fn says(c: &mut Conn<'_>, rc: &Rc, bytes: &[u8]) {
    c.write(rc, bytes);
}

/// The next bytes that the module writes into the host's ring, so many or more; `None` if they do not come.
fn hears(c: &Conn<'_>, rc: &Rc, len: usize) -> Option<Vec<u8>> {
    let (mut bytes, end) = (vec![], guest::until(3000));
    let at = c.me.start()..c.me.start() + c.me.bytes();
    loop {
        match rc.next_until(end)? {
            Arrived::Written(w) if at.contains(&w.addr) => {
                bytes.extend(w.data);
                if bytes.len() >= len {
                    return Some(bytes);
                }
            }
            _ => (),
        }
    }
}
