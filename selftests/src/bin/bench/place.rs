// SPDX-License-Identifier: GPL-2.0
//! Where the ends of a measured connection are, and how connections come to be.

use st::args::bail;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::{addr, guest, sys};
use std::net::SocketAddr;

/// Which sockets the ends are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A socket of the internet, by this family.
    Net(Family),
    /// AF_UNIX: what no network can beat.
    Unix,
}

impl End {
    /// From a command-line word.
    pub fn parse(word: &str) -> Option<End> {
        match word {
            "unix" => Some(End::Unix),
            _ => Family::parse(word).map(End::Net),
        }
    }
}

/// The ends, as threads in the namespaces `a` (client) and `b`, or on loopback.
pub struct Place {
    pub client: End,
    pub server: End,
    pub ip: Ip,
    pub split: bool,
    pub proof: Proof,
    /// `SO_RCVBUF` of every socket, if not the default.
    pub rcvbuf: Option<i32>,
}

fn unix_pair() -> (Fd, Fd) {
    let mut ends = [0i32; 2];
    // SAFETY: an array of two.
    let r = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    if r != 0 {
        bail("socketpair");
    }
    (Fd::new(ends[0]), Fd::new(ends[1]))
}

impl Place {
    /// The same with ordinary TCP sockets.
    pub fn plain(&self) -> Place {
        Place {
            client: End::Net(Family::Tcp),
            server: End::Net(Family::Tcp),
            proof: self.proof.clone(),
            ..*self
        }
    }

    /// The same with receive buffers of so many bytes.
    pub fn with_rcvbuf(&self, bytes: Option<i32>) -> Place {
        Place {
            rcvbuf: bytes,
            proof: self.proof.clone(),
            ..*self
        }
    }

    /// Returns whether there is a network, with connections to set up.
    pub fn is_net(&self) -> bool {
        self.client != End::Unix
    }

    pub fn socket(&self, end: End) -> Fd {
        let End::Net(family) = end else {
            bail("no network")
        };
        let (d, p) = family.triple(self.ip);
        let f =
            sys::socket(d, libc::SOCK_STREAM, p).unwrap_or_else(|e| bail(&format!("socket: {e}")));
        if let Some(bytes) = self.rcvbuf {
            sys::setopt(f.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, bytes).expect("SO_RCVBUF");
        }
        f
    }

    fn enter(&self, ns: &str) {
        if self.split {
            guest::enter(ns).expect("setns");
        }
    }

    /// A listener at the far end and the address it is reached at.
    pub fn listen(&self) -> (Fd, SocketAddr) {
        self.enter("b");
        let l = self.socket(self.server);
        sys::bind(l.raw(), &SocketAddr::new(addr::any(self.ip), 0)).expect("bind");
        sys::listen(l.raw(), 128).expect("listen");
        let port = sys::sockname(l.raw()).expect("name").port();
        self.enter("a");
        let ip = if self.split {
            guest::addr(true, self.ip)
        } else {
            addr::loopback(self.ip)
        };
        (l, SocketAddr::new(ip, port))
    }

    /// One connection through that listener.
    pub fn connect(&self, l: &Fd, a: &SocketAddr) -> (Fd, Fd) {
        let c = self.socket(self.client);
        sys::connect(c.raw(), a).expect("connect");
        let s = sys::accept(l.raw()).expect("accept");
        (c, s)
    }

    /// Bails unless both ends are what they should be.
    pub fn prove(&self, c: &Fd, s: &Fd) {
        for (f, end, ns) in [(s, self.server, "b"), (c, self.client, "a")] {
            let End::Net(family) = end else { continue };
            self.enter(ns);
            self.proof
                .check(family, f.raw())
                .unwrap_or_else(|e| bail(&e));
        }
    }

    /// A connection of which both ends are proven and send at once.
    pub fn pair(&self) -> (Fd, Fd) {
        if !self.is_net() {
            return unix_pair();
        }
        let (l, a) = self.listen();
        let (c, s) = self.connect(&l, &a);
        self.prove(&c, &s);
        for f in [&c, &s] {
            let _ = sys::setopt(f.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        }
        (c, s)
    }
}
