// SPDX-License-Identifier: GPL-2.0
//! A server that counts what it sees, a client that counts what it is told, and the comparison.

use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::point::T;
use st::{smcinfo, sys};
use std::net::SocketAddr;
use std::sync::{
    atomic::{AtomicU64, Ordering::Relaxed},
    Arc,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A stream socket.
pub fn socket(family: Family, ip: Ip) -> Fd {
    let (domain, protocol) = family.triple(ip);
    let s = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 10_000);
    let _ = sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 10_000);
    s
}

/// What a server has seen of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// That accept() gave.
    pub accepted: u64,
    /// That ended without a byte.
    pub empty: u64,
    /// That were reset.
    pub reset: u64,
    /// That were asked something, and answered.
    pub answered: u64,
    /// Anything else.
    pub other: u64,
}

#[derive(Default)]
struct Counts([AtomicU64; 5]);

impl Counts {
    fn count(&self, which: usize) {
        self.0[which].fetch_add(1, Relaxed);
    }

    fn get(&self) -> Served {
        let [accepted, empty, reset, answered, other] =
            [0, 1, 2, 3, 4].map(|i| self.0[i].load(Relaxed));
        Served {
            accepted,
            empty,
            reset,
            answered,
            other,
        }
    }
}

/// A server with one thread that accepts, and one for each connection.
pub struct Server {
    listener: Arc<Fd>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Server {
    /// Listens at an address.
    pub fn new(family: Family, ip: Ip, at: SocketAddr, backlog: i32) -> Server {
        let l = socket(family, ip);
        sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("SO_REUSEADDR");
        sys::bind(l.raw(), &at).expect("bind");
        sys::listen(l.raw(), backlog).expect("listen");
        // accept() waits as long as it takes.
        let _ = sys::set_timeo(l.raw(), libc::SO_RCVTIMEO, 0);
        let at = sys::sockname(l.raw()).expect("name");
        let (listener, counts) = (Arc::new(l), Arc::new(Counts::default()));
        let (l, n) = (listener.clone(), counts.clone());
        let thread = std::thread::spawn(move || accept(&l, &n));
        Server {
            listener,
            counts,
            thread: Some(thread),
            at,
        }
    }

    /// Ends it once nothing has changed for a while, and returns what it has seen.
    pub fn end(mut self) -> Served {
        let mut last = self.counts.get();
        let mut since = Instant::now();
        let calm = Duration::from_millis(sys::patient(300 * st::guest::less().min(2)));
        while since.elapsed() < calm {
            sys::sleep_ms(20);
            let now = self.counts.get();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        let _ = sys::shutdown(self.listener.raw(), libc::SHUT_RDWR);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.counts.get()
    }
}

fn accept(l: &Fd, counts: &Arc<Counts>) {
    let mut threads = Vec::new();
    loop {
        match sys::accept(l.raw()) {
            Ok(s) => {
                counts.count(0);
                let counts = counts.clone();
                threads.push(std::thread::spawn(move || serve(&s, &counts)));
            }
            Err(Errno(libc::EINVAL)) => break,
            Err(_) => counts.count(4),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Answers four bytes, if they come.
fn serve(s: &Fd, counts: &Counts) {
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 10_000);
    counts.count(match sys::recv_all(s.raw(), 4) {
        Ok(bytes) if bytes.is_empty() => 1,
        Ok(bytes) if bytes.len() == 4 => match sys::send_all(s.raw(), &bytes) {
            Ok(()) => 3,
            Err(_) => 4,
        },
        Err(Errno(libc::ECONNRESET)) => 2,
        _ => 4,
    });
    // The client goes first.
    let _ = sys::recv_vec(s.raw(), 1, 0);
}

/// A client's way to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// close()
    Close,
    /// A reset.
    Reset,
    /// Four bytes, their answer, close().
    Ask,
}

/// What clients were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// How often all went well.
    pub fine: u64,
    /// How often each error came.
    pub errors: std::collections::BTreeMap<String, u64>,
}

/// Makes one connection.
fn one(family: Family, ip: Ip, to: &SocketAddr, way: Way) -> Result<(), Errno> {
    let s = socket(family, ip);
    sys::connect(s.raw(), to)?;
    match way {
        Way::Close => (),
        Way::Reset => drop(sys::linger(s.raw(), 1, 0)?),
        Way::Ask => {
            sys::send_all(s.raw(), b"ping")?;
            if sys::recv_all(s.raw(), 4)? != b"ping" {
                return Err(Errno(libc::EBADMSG));
            }
        }
    }
    Ok(())
}

/// Makes `count` connections, one after the other.
pub fn clients(family: Family, ip: Ip, to: &SocketAddr, way: Way, count: u64) -> Told {
    let mut told = Told::default();
    for _ in 0..count {
        match one(family, ip, to, way) {
            Ok(()) => told.fine += 1,
            Err(e) => *told.errors.entry(e.to_string()).or_default() += 1,
        }
    }
    told
}

/// Numbers of connections, smaller on slow guests.
pub fn many(count: u64) -> u64 {
    (count / st::guest::less()).max(10)
}

/// Sockets of the family that exist now, by /proc/net/protocols.
fn left() -> i64 {
    let all = std::fs::read_to_string("/proc/thread-self/net/protocols").unwrap_or_default();
    let rows = all.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next()?.contains("SMC").then_some(())?;
        words.nth(1)?.parse::<i64>().ok()
    });
    rows.filter(|n| *n > 0).sum()
}

/// By how much longer the second look waits.
const PATIENCE: u64 = 10;

/// Does the same with plain TCP at both ends, with a listener of the family and clients of either kind, and with
/// a plain listener and clients of the family; all must have seen what plain TCP has.
pub fn compare<V: PartialEq + std::fmt::Debug>(
    t: &mut T,
    run: impl Fn(&mut T, Family, Family) -> V,
) {
    let (before, held) = (left(), smcinfo::references());
    let ours = t.family;
    let mut plain = run(t, Family::Tcp, Family::Tcp);
    t.say(&format!("TCP: {plain:?}"));
    for (client, server) in [(Family::Tcp, ours), (ours, ours), (ours, Family::Tcp)] {
        let what = format!("{} to {}", client.name(), server.name());
        let mut seen = run(t, client, server);
        if seen != plain {
            // A slow or loaded machine may have been silent for a while although not all had ended.
            t.say(&format!("{what} at first: {seen:?}"));
            sys::patience(PATIENCE);
            plain = run(t, Family::Tcp, Family::Tcp);
            seen = run(t, client, server);
            sys::patience(1);
        }
        t.check(
            &format!("{what}: {seen:?}, with TCP {plain:?}"),
            seen == plain,
        );
    }
    let end = Instant::now() + Duration::from_secs(15 * st::guest::slow());
    while left() > before && Instant::now() < end {
        sys::sleep_ms(20);
    }
    t.is("sockets that are left", left(), before);
    let settled = smcinfo::settled(held, 15_000 * st::guest::slow());
    t.is("references that are left", settled, Ok(()));
}
