// SPDX-License-Identifier: GPL-2.0
//! One connection from namespace `a` to namespace `b` with bytes both ways, and what came of it.

use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::{addr, guest, net, rng, smcinfo, sys};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time limit of any call, in milliseconds; the longest time of the protocol is a few seconds.
const PATIENCE: u64 = 12_000;

/// Kind of a connection.
#[derive(Clone, Copy)]
pub struct Kind {
    pub family: Family,
    pub ip: Ip,
    /// Bytes each way.
    pub bytes: usize,
    /// `SO_RCVBUF` of both ends; `None`: the default.
    pub buffer: Option<i32>,
    /// True if a new group may agree that WRITEs announce themselves; otherwise a message is a chain
    /// of several requests.
    pub immediate: bool,
}

/// Why an end stopped early.
pub enum Stop {
    /// A call failed.
    Error(&'static str, Errno),
    /// The stream ended where it must not, after this number of bytes.
    Cut(usize),
    /// A wrong byte at this position.
    Wrong(u64),
    /// The connection was never there to accept.
    Nothing,
}

/// One end's story.
pub struct End {
    /// Mode and reason as soon as they were known.
    pub info: Option<smcinfo::Info>,
    /// The end of it.
    pub end: Result<(), Stop>,
}

/// Both ends' story.
pub struct Story {
    pub client: End,
    pub server: End,
    pub took: Duration,
}

fn err(what: &'static str) -> impl Fn(Errno) -> Stop {
    move |e| Stop::Error(what, e)
}

fn socket(kind: &Kind) -> Result<Fd, Stop> {
    let (d, p) = kind.family.triple(kind.ip);
    let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(err("socket"))?;
    if let Some(bytes) = kind.buffer {
        sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, bytes).map_err(err("rcvbuf"))?;
    }
    Ok(s)
}

fn patience(s: &Fd) {
    let ms = (PATIENCE * guest::slow()) as i64;
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let _ = sys::set_timeo(s.raw(), name, ms);
    }
}

fn put(s: &Fd, seed: u64, bytes: usize) -> Result<(), Stop> {
    let mut b = vec![0; bytes];
    rng::fill(seed, 0, &mut b);
    sys::send_all(s.raw(), &b).map_err(err("send"))
}

fn take(s: &Fd, seed: u64, bytes: usize) -> Result<(), Stop> {
    let (mut at, mut b) = (0, vec![0; 30_000]);
    while at < bytes {
        let most = (bytes - at).min(b.len());
        let n = sys::recv(s.raw(), &mut b[..most], 0).map_err(err("recv"))? as usize;
        if n == 0 {
            return Err(Stop::Cut(at));
        }
        rng::check(seed, at as u64, &b[..n]).map_err(Stop::Wrong)?;
        at += n;
    }
    Ok(())
}

fn client(kind: &Kind, to: &SocketAddr, info: &mut Option<smcinfo::Info>) -> Result<(), Stop> {
    let s = socket(kind)?;
    patience(&s);
    sys::connect(s.raw(), to).map_err(err("connect"))?;
    *info = smcinfo::info(s.raw()).ok();
    put(&s, 1, kind.bytes)?;
    take(&s, 2, kind.bytes)?;
    s.close().map_err(err("close"))?;
    Ok(())
}

fn server(
    l: &Fd,
    bytes: usize,
    gone: &AtomicBool,
    info: &mut Option<smcinfo::Info>,
) -> Result<(), Stop> {
    loop {
        // What the client did before it gave up arrives at once.
        let last = gone.load(Relaxed);
        let wait = if last { 200 * guest::slow() } else { 20 };
        if matches!(sys::poll1(l.raw(), libc::POLLIN, wait as i32), Ok(e) if e != 0) {
            break;
        }
        if last {
            return Err(Stop::Nothing);
        }
    }
    let s = sys::accept(l.raw()).map_err(err("accept"))?;
    patience(&s);
    *info = smcinfo::info(s.raw()).ok();
    take(&s, 1, bytes)?;
    put(&s, 2, bytes)?;
    match sys::recv(s.raw(), &mut [0], 0).map_err(err("end"))? {
        0 => Ok(()),
        _ => Err(Stop::Wrong(bytes as u64)),
    }
}

/// Makes one connection and waits for both ends to be done with it.
pub fn run(kind: &Kind, port: u16) -> Story {
    let (tx, rx) = std::sync::mpsc::channel();
    let gone = AtomicBool::new(false);
    let to = SocketAddr::new(guest::addr(true, kind.ip), port);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            guest::enter("b").expect("namespace b");
            net::sysctl("net.smc.neighbour_time", "0").expect("sysctl");
            let mut info = None;
            let listening = socket(kind).and_then(|l| {
                let _ = sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
                sys::bind(l.raw(), &SocketAddr::new(addr::any(kind.ip), port))
                    .map_err(err("bind"))?;
                sys::listen(l.raw(), 4).map_err(err("listen"))?;
                Ok(l)
            });
            let _ = tx.send(());
            let end = listening.and_then(|l| server(&l, kind.bytes, &gone, &mut info));
            End { info, end }
        });
        let (gone, to) = (&gone, &to);
        let connecting = scope.spawn(move || {
            guest::enter("a").expect("namespace a");
            let agree = if kind.immediate { "1" } else { "0" };
            net::sysctl("net.smc.immediate", agree).expect("sysctl");
            // A completion that fails has the other end wait in vain, which both remember as a bad path.
            net::sysctl("net.smc.neighbour_time", "0").expect("sysctl");
            let _ = rx.recv();
            let mut info = None;
            let end = client(kind, to, &mut info);
            gone.store(true, Relaxed);
            End { info, end }
        });
        let client = connecting.join().expect("client");
        let server = serving.join().expect("server");
        Story {
            client,
            server,
            took: begin.elapsed(),
        }
    })
}

/// Errors for a program whose connection broke; not `EAGAIN`, which is our patience.
const CLEAN: [i32; 6] = [
    libc::ECONNABORTED,
    libc::ECONNRESET,
    libc::EPIPE,
    libc::ENOMEM,
    libc::ENOBUFS,
    libc::ETIMEDOUT,
];

impl Story {
    /// Returns whether both ends did what they wanted, over this mode.
    pub fn went_over(&self, mode: u32) -> bool {
        [&self.client, &self.server]
            .iter()
            .all(|e| e.end.is_ok() && e.info.is_some_and(|i| i.mode == mode))
    }

    /// Returns what is not as it must be whatever fails underneath.
    pub fn wrong(&self) -> Option<&'static str> {
        for end in [&self.client, &self.server] {
            match &end.end {
                Err(Stop::Wrong(_)) => return Some("a wrong byte"),
                Err(Stop::Error(_, e)) if !CLEAN.contains(&e.0) => return Some("errno or hang"),
                Ok(()) => match end.info {
                    Some(i) if i.mode == 0 && i.reason == 0 => {}
                    Some(i) if i.mode == smcinfo::MODE_TCP && i.reason != 0 => {}
                    _ => return Some("a mode without its reason"),
                },
                _ => {}
            }
        }
        match (&self.client.end, &self.server.end) {
            (Err(Stop::Cut(_)), _) => Some("the client saw a good end too early"),
            // As with TCP, a client that gives up before it sends ends its stream.
            (Err(Stop::Error("connect", _)), Err(Stop::Cut(0))) => None,
            // What breaks before accept() need not be handed out.
            (Err(_), Err(Stop::Nothing)) => None,
            (_, Err(Stop::Cut(_))) => Some("the server saw a good end too early"),
            (_, Err(Stop::Nothing)) => Some("nothing to accept"),
            (Ok(()), Ok(())) if !self.went_over(0) && !self.went_over(1) => {
                Some("the ends differ in mode")
            }
            _ => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            Ok(()) => write!(f, "ok")?,
            Err(Stop::Error(what, e)) => write!(f, "{what}:{e}")?,
            Err(Stop::Cut(n)) => write!(f, "cut@{n}")?,
            Err(Stop::Wrong(n)) => write!(f, "wrong@{n}")?,
            Err(Stop::Nothing) => write!(f, "nothing")?,
        }
        match self.info {
            Some(i) if i.mode == 0 => write!(f, "/smc"),
            Some(i) => write!(f, "/{}:{:#x}:{:#x}", i.mode, i.reason, i.peer_diagnosis),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.client, self.server)
    }
}
