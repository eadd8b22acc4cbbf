// SPDX-License-Identifier: GPL-2.0
//! Where the ends of a measured connection are, and how connections come to be.

use crate::redirect;
use st::args::{bail, Args};
use st::bpf::Sockhash;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::{addr, guest, net, path, sys};
use std::net::SocketAddr;
use std::rc::Rc;

/// Which sockets the ends are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A socket of the internet, by this family.
    Net(Family),
    /// AF_UNIX: what no network can beat.
    Unix,
    /// Two pipes.
    Pipe,
    /// Two rings in shared memory.
    Shared,
    /// TCP whose bytes a BPF program redirects.
    Sockmap,
}

impl End {
    /// From a command-line word.
    pub fn parse(word: &str) -> Option<End> {
        match word {
            "unix" => Some(End::Unix),
            "pipe" => Some(End::Pipe),
            "shared" => Some(End::Shared),
            "sockmap" => Some(End::Sockmap),
            _ => Family::parse(word).map(End::Net),
        }
    }
}

/// The ends, as threads or processes in the namespaces `a` (client) and `b`, or on loopback.
#[derive(Clone)]
pub struct Place {
    pub client: End,
    pub server: End,
    pub ip: Ip,
    pub split: bool,
    pub proof: Proof,
    /// `SO_RCVBUF` of every socket, if not the default.
    pub rcvbuf: Option<i32>,
    /// The far end is a process of its own.
    pub apart: bool,
    /// The local path is to be taken, and has to be.
    pub local: Option<u64>,
    /// Connections begin as TCP, and move to SMC-R after this many segments of data; 0 for never.
    pub first: Option<u64>,
    /// Connections begin as TCP, and stay so over a device that is software, as by default.
    pub kept: bool,
    /// Every connection is put into this.
    pub map: Option<Rc<Sockhash>>,
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
    /// From the command line. Without namespaces of the lab's it makes one of its own, and enters it.
    pub fn from_args(a: &Args) -> Place {
        let word = |i: usize| {
            let parse = |w: &String| {
                End::parse(w).unwrap_or_else(|| {
                    bail("an end is tcp, inet, smc, unix, pipe, shared or sockmap")
                })
            };
            a.words.get(i).map(parse)
        };
        let client = word(0).unwrap_or_else(|| bail("bench CLIENT [SERVER]"));
        let server = word(1).unwrap_or(client);
        let of_net = |end| matches!(end, End::Net(_));
        if client != server && !(of_net(client) && of_net(server)) {
            bail("only sockets of the internet have different ends");
        }
        let ip = a.opt("ip").map_or(Ip::V4, |i| {
            Ip::parse(i).unwrap_or_else(|| bail("--ip v4|v6|mapped"))
        });
        let map = (client == End::Sockmap)
            .then(|| redirect::hash().unwrap_or_else(|e| bail(&format!("sockmap: {e}"))));
        let place = Place {
            client,
            server,
            ip,
            split: guest::has_netns() && a.opt("loopback").is_none(),
            proof: Proof::from_args(a),
            rcvbuf: None,
            apart: a.opt("processes").is_some(),
            local: a.opt("local").map(|_| a.num("local", 1)),
            first: a.opt("first").map(|_| a.num("first", 32)),
            kept: a.opt("kept").is_some(),
            map: map.map(Rc::new),
        };
        if !place.split {
            net::private().expect("private network namespace (root needed)");
        }
        place
    }

    /// Turns the local path on or off in all namespaces of the ends; false if it is wanted and the
    /// module has none.
    pub fn choose_path(&self) -> bool {
        let names: &[&str] = if self.split { &["b", "a"] } else { &[""] };
        names.iter().all(|ns| {
            self.enter(ns);
            let done = match self.local {
                Some(reach) => path::local(reach),
                None => match self.first {
                    Some(segments) => path::first(segments).map(|()| true),
                    None if self.kept => path::kept().map(|()| true),
                    None => path::off().map(|()| true),
                },
            };
            done.unwrap_or_else(|e| bail(&e))
        })
    }

    /// The same with ordinary TCP sockets.
    pub fn plain(&self) -> Place {
        Place {
            client: End::Net(Family::Tcp),
            server: End::Net(Family::Tcp),
            local: None,
            first: None,
            kept: false,
            map: None,
            ..self.clone()
        }
    }

    /// The same with receive buffers of the given size, in bytes.
    pub fn with_rcvbuf(&self, bytes: Option<i32>) -> Place {
        Place {
            rcvbuf: bytes,
            ..self.clone()
        }
    }

    /// Returns whether there is a network, with connections to set up.
    pub fn is_net(&self) -> bool {
        matches!(self.client, End::Net(_) | End::Sockmap)
    }

    pub fn socket(&self, end: End) -> Fd {
        let family = match end {
            End::Net(family) => family,
            End::Sockmap => Family::Tcp,
            _ => bail("no network"),
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
        if let Some(map) = &self.map {
            for f in [&c, &s] {
                redirect::put(map, f).expect("into the sockmap");
            }
        }
        (c, s)
    }

    /// Bails unless both ends are what they should be.
    pub fn prove(&self, c: &Fd, s: &Fd) {
        if self.local.is_some() {
            return path::prove_local(c, s).unwrap_or_else(|e| bail(&e));
        }
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
