// SPDX-License-Identifier: GPL-2.0
//! Gives a scenario sockets of the family under test, and the trace.

use st::addr;
use st::errno::{show, show_ok, R};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::{smcinfo, sys};
use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Bytes go both ways over each new pair before the scenario has it.
pub static WARM: AtomicBool = AtomicBool::new(false);

/// Where a scenario runs.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// In a fresh namespace without an RDMA device.
    Plain,
    /// In a namespace that it shares with others.
    In(&'a Namespace),
    /// In a fresh namespace with a device; `strict`: a connect that falls back fails.
    Own { strict: bool },
}

/// A network namespace that stays.
pub struct Namespace(std::fs::File);

impl Namespace {
    /// The one that the calling thread is in.
    fn here() -> Result<Namespace, String> {
        let file = std::fs::File::open("/proc/thread-self/ns/net").map_err(|e| e.to_string())?;
        Ok(Namespace(file))
    }

    /// One for plain TCP and one for the family: with `rdma` it has a device and a connect that
    /// falls back fails. Each new one costs memory for every RDMA device there is, and on a kernel
    /// with lock debugging as much time as a scenario.
    pub fn pair(rdma: bool) -> Result<(Namespace, Namespace), String> {
        Place::Plain.enter()?;
        let plain = Namespace::here()?;
        let family = match rdma {
            true => Place::Own { strict: true },
            false => Place::Plain,
        };
        family.enter()?;
        Ok((plain, Namespace::here()?))
    }
}

impl Place<'_> {
    /// Moves the calling thread there. Returns the name of the device that was made for it.
    fn enter(self) -> Result<Option<String>, String> {
        use std::os::fd::AsRawFd;
        match self {
            Place::In(namespace) => {
                // SAFETY: No pointers.
                let r = unsafe { libc::setns(namespace.0.as_raw_fd(), libc::CLONE_NEWNET) };
                st::errno::cvt(i64::from(r))
                    .map(|_| None)
                    .map_err(|e| e.to_string())
            }
            Place::Plain => st::net::private()
                .map(|()| None)
                .map_err(|e| format!("(root needed) {e}")),
            Place::Own { strict } => {
                Place::Plain.enter()?;
                let name = st::net::roce_on_loopback()?;
                st::net::sysctl("net.smc.strict", if strict { "1" } else { "0" })?;
                Ok(Some(name))
            }
        }
    }
}

/// A running scenario.
pub struct T<'a> {
    /// Family under test.
    pub family: Family,
    /// Kind of address.
    pub ip: Ip,
    info: bool,
    device: Option<String>,
    out: &'a mut std::fs::File,
}

impl<'a> T<'a> {
    /// Goes to its place.
    pub fn new(
        family: Family,
        ip: Ip,
        info: bool,
        place: Place<'_>,
        out: &'a mut std::fs::File,
    ) -> T<'a> {
        let device = place.enter().expect("the namespace");
        T {
            family,
            ip,
            info,
            device,
            out,
        }
    }

    /// Ends a scenario. A device of its own would go with the namespace, but slower than the next ones
    /// come: on a kernel with lock debugging namespaces wait for it until the kernel complains.
    pub fn leave(self) {
        let delete = |device: &String| st::net::rdma_delete(device, 20 * st::guest::slow()).err();
        let failed = self.device.as_ref().and_then(delete);
        let _ = writeln!(self.out, "end\t{}", failed.as_deref().unwrap_or("reached"));
    }

    /// One line of the trace.
    pub fn rec(&mut self, label: &str, value: impl Display) {
        let _ = writeln!(self.out, "{label}\t{value}");
        let _ = self.out.flush();
    }

    /// A system call's result.
    pub fn res<V: Display>(&mut self, label: &str, r: &R<V>) {
        self.rec(label, show(r));
    }

    /// A system call's result without its value.
    pub fn ok<V>(&mut self, label: &str, r: &R<V>) {
        self.rec(label, show_ok(r));
    }

    /// Bytes received, or the error.
    pub fn bytes(&mut self, label: &str, r: &R<Vec<u8>>) {
        match r {
            Ok(v) if v.is_empty() => self.rec(label, "EOF"),
            Ok(v) if v.len() > 64 => self.rec(label, format!("{} bytes sum {}", v.len(), sum(v))),
            Ok(v) => self.rec(label, String::from_utf8_lossy(v)),
            Err(e) => self.rec(label, e),
        }
    }

    /// `poll`'s view of a socket, after a moment to settle.
    pub fn polled(&mut self, label: &str, fd: i32) {
        sys::sleep_ms(20);
        let e = sys::poll1(fd, sys::POLL_ALL, 0);
        match e {
            Ok(e) => self.rec(label, sys::events(i32::from(e))),
            Err(e) => self.rec(label, e),
        }
    }

    /// Polls until `want` is there, and records everything that is.
    pub fn poll_for(&mut self, label: &str, fd: i32, want: i16) {
        // TCP does not give all that scenarios ask for. What is only late has a second look.
        let e = sys::poll_within(fd, want, sys::patient(3000));
        self.rec(label, sys::events(i32::from(e)));
    }

    /// `SO_ERROR`.
    pub fn so_error(&mut self, label: &str, fd: i32) {
        let r = sys::getopt(fd, libc::SOL_SOCKET, libc::SO_ERROR);
        let s = match r {
            Ok(0) => "0".into(),
            Ok(e) => st::errno::Errno(e).to_string(),
            Err(e) => format!("getsockopt {e}"),
        };
        self.rec(label, s);
    }

    /// Notes a duration in coarse words: `want` ms, within a margin for a loaded machine, or not.
    pub fn took(&mut self, label: &str, since: Instant, want: u64) {
        let ms = since.elapsed().as_millis() as u64;
        let w = if ms + 60 < want {
            "too early"
        } else if ms > want * 3 + 6000 {
            "too late"
        } else {
            "in time"
        };
        self.rec(label, w);
    }

    /// A stream socket of the family under test.
    pub fn socket(&mut self) -> Fd {
        self.socket_with(0)
    }

    /// The same with `SOCK_NONBLOCK` and the like.
    pub fn socket_with(&mut self, flags: i32) -> Fd {
        let (d, p) = self.family.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM | flags, p)
            .unwrap_or_else(|e| panic!("socket({d},{p}): {e}"));
        if self.ip == Ip::Mapped {
            let _ = sys::setopt(s.raw(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
        }
        if self.info {
            smcinfo::info(s.raw()).expect("RSMC_INFO on a fresh socket");
        }
        s
    }

    /// The loopback address with a port.
    pub fn addr(&self, port: u16) -> SocketAddr {
        SocketAddr::new(addr::loopback(self.ip), port)
    }

    /// A bound listener on loopback and its address.
    pub fn listener(&mut self) -> (Fd, SocketAddr) {
        self.listener_backlog(16)
    }

    /// The same with a backlog.
    pub fn listener_backlog(&mut self, n: i32) -> (Fd, SocketAddr) {
        let s = self.socket();
        sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("SO_REUSEADDR");
        sys::bind(s.raw(), &self.addr(0)).expect("bind");
        sys::listen(s.raw(), n).expect("listen");
        let a = sys::sockname(s.raw()).expect("getsockname");
        (s, a)
    }

    /// A loopback address nobody listens on.
    pub fn closed_port(&mut self) -> SocketAddr {
        let (d, _) = Family::Tcp.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM, 0).expect("socket");
        sys::bind(s.raw(), &self.addr(0)).expect("bind");
        sys::sockname(s.raw()).expect("getsockname")
    }

    /// An address that never answers.
    pub fn black_hole(&mut self) -> SocketAddr {
        if !st::net::has("va") {
            st::net::wire().expect("veth pair");
            // Other scenarios run here, too: a closed end whose reader is slow must not be given up by TCP.
            st::net::sysctl("net.ipv4.tcp_orphan_retries", "0").expect("sysctl");
        }
        let ip = match self.ip {
            Ip::V6 => std::net::IpAddr::from(st::net::B6),
            _ => addr::v4(self.ip, st::net::B4),
        };
        SocketAddr::new(ip, 9999)
    }

    /// A connected pair: client, server.
    pub fn pair(&mut self) -> (Fd, Fd) {
        let (l, a) = self.listener();
        self.pair_on(&l, &a)
    }

    /// A connected pair through an existing listener.
    pub fn pair_on(&mut self, l: &Fd, a: &SocketAddr) -> (Fd, Fd) {
        let c = self.socket();
        sys::connect(c.raw(), a).unwrap_or_else(|e| panic!("connect {a}: {e}"));
        let s = sys::accept(l.raw()).expect("accept");
        // A byte that is held back would be long under way.
        let corked = sys::getopt(c.raw(), libc::IPPROTO_TCP, libc::TCP_CORK) != Ok(0);
        if WARM.load(Relaxed) && !corked {
            st::net::warm(c.raw(), s.raw()).expect("warming");
        }
        self.prove("client", &c);
        self.prove("server", &s);
        (c, s)
    }

    /// Notes which path a connected socket took.
    pub fn prove(&mut self, label: &str, s: &Fd) {
        if self.info {
            let w = match smcinfo::info(s.raw()) {
                Ok(i) => format!(
                    "mode={} reason={:#010x} peer={:#010x} label={label}",
                    i.mode, i.reason, i.peer_diagnosis
                ),
                Err(e) => format!("mode=err {e} label={label}"),
            };
            let _ = writeln!(self.out, "@{w}");
        }
    }
}

/// A position-dependent checksum.
pub fn sum(v: &[u8]) -> u32 {
    v.iter().fold(1u32, |a, b| {
        a.rotate_left(5) ^ a.wrapping_mul(31) ^ u32::from(*b)
    })
}

/// `n` bytes that look random but are the same every time.
pub fn pattern(n: usize, seed: u32) -> Vec<u8> {
    let mut x = seed | 1;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 8) as u8
        })
        .collect()
}
