// SPDX-License-Identifier: GPL-2.0
//! Connections whose other end goes away: how each of them ends, and that no byte was wrong until
//! then. Who takes what away, and how long the end may take, is the script's matter.
//!
//! `survivor serve|hold [--family inet] [--ip v4] [--to ADDR] [--port 7600] [--mode 0]
//! [--kinds send,receive,both,idle] [--each 3] [--limit SECONDS] [--ready FILE] [--eof ok] [--pace MS]`
//!
//! `hold` makes the connections; each carries data by the time FILE appears. `serve` is the other
//! end of as many. Both end when all their connections have ended, with 0 if that was by an error
//! each time (`--eof ok`: or by the peer's end), and not by the program's own time limit. `--pace` is the pause
//! between a sender's calls: on a slow kernel without one nothing but the traffic gets a turn.

use st::args::{self, Args};
use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::{addr, guest, rng, sys};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Sender};
use std::time::Instant;

/// Directions of the client, by name; the server has the opposite one.
const KINDS: [(&str, u8); 4] = [
    ("send", b's'),
    ("receive", b'r'),
    ("both", b'b'),
    ("idle", b'i'),
];

/// The longest call.
const CHUNK: usize = 48 << 10;

/// Events on a connection.
enum News {
    /// It carries data.
    Begun,
    /// It has ended: its kind, and how.
    Ended(&'static str, String),
}

struct Setup {
    family: Family,
    ip: Ip,
    port: u16,
    proof: Proof,
    limit: i64,
    pace: u64,
}

impl Setup {
    fn socket(&self) -> Result<Fd, String> {
        let (domain, protocol) = self.family.triple(self.ip);
        sys::socket(domain, libc::SOCK_STREAM, protocol).map_err(|e| format!("socket: {e}"))
    }

    /// A call that takes longer has noticed nothing.
    fn bound(&self, s: &Fd) {
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let _ = sys::set_timeo(s.raw(), name, self.limit * 1000);
        }
    }
}

/// Names the end of a connection, by the call that moves no more data.
fn word(what: &str, errno: Errno) -> String {
    match errno {
        Errno(libc::EAGAIN) => format!("TIME: {what}"),
        errno => errno.to_string(),
    }
}

fn send(s: &Fd, seed: u64, pace: u64) -> String {
    let (mut at, mut b) = (0, vec![0; CHUNK]);
    loop {
        rng::fill(seed, at, &mut b);
        if let Err(errno) = sys::send_all(s.raw(), &b) {
            return word("send", errno);
        }
        at += b.len() as u64;
        if pace > 0 {
            sys::sleep_ms(pace);
        }
    }
}

fn receive(s: &Fd, seed: u64, begun: &dyn Fn()) -> String {
    let (mut at, mut b) = (0, vec![0; CHUNK]);
    loop {
        match sys::recv(s.raw(), &mut b, 0) {
            Ok(0) => return "end".into(),
            Err(errno) => return word("recv", errno),
            Ok(n) => {
                let n = n as usize;
                if let Err(at) = rng::check(seed, at, &b[..n]) {
                    return format!("WRONG byte at {at}");
                }
                if at == 0 {
                    begun();
                }
                at += n as u64;
            }
        }
    }
}

/// Moves data until the end. The seed is 1 towards the server and 2 towards the client.
fn play(s: &Fd, kind: u8, server: bool, pace: u64, begun: &dyn Fn()) -> String {
    let (mine, yours) = if server { (2, 1) } else { (1, 2) };
    match (kind, server) {
        (b's', false) | (b'r', true) => {
            begun();
            send(s, mine, pace)
        }
        (b's', true) | (b'r', false) => receive(s, yours, begun),
        (b'b', _) => std::thread::scope(|t| {
            let sender = t.spawn(|| send(s, mine, pace));
            let received = receive(s, yours, begun);
            if received.starts_with("WRONG") {
                let _ = sys::shutdown(s.raw(), libc::SHUT_RDWR);
            }
            let sent = sender.join().unwrap_or("panicked".into());
            if received.starts_with("WRONG") || received.starts_with("TIME") || sent == "EPIPE" {
                received
            } else {
                sent
            }
        }),
        // One byte each way, and silence.
        _ => {
            let first = if server {
                sys::send_all(s.raw(), b"i")
            } else {
                sys::recv_all(s.raw(), 1).map(drop)
            };
            if let Err(errno) = first {
                return word("first byte", errno);
            }
            begun();
            match sys::recv(s.raw(), &mut [0], 0) {
                Ok(0) => "end".into(),
                Ok(_) => "WRONG byte from nowhere".into(),
                Err(errno) => word("recv", errno),
            }
        }
    }
}

/// One connection of a known kind, to its end.
fn attend(c: &Setup, s: &Fd, kind: (&'static str, u8), server: bool, news: &Sender<News>) {
    let end = play(s, kind.1, server, c.pace, &|| drop(news.send(News::Begun)));
    let _ = news.send(News::Ended(kind.0, end));
}

fn hold(c: &Setup, to: SocketAddr, kind: (&'static str, u8), news: &Sender<News>) {
    let connection = || -> Result<Fd, String> {
        let s = c.socket()?;
        c.bound(&s);
        sys::connect(s.raw(), &to).map_err(|e| format!("connect: {e}"))?;
        c.proof.check(c.family, s.raw())?;
        sys::send_all(s.raw(), &[kind.1]).map_err(|e| format!("kind: {e}"))?;
        Ok(s)
    };
    match connection() {
        Ok(s) => attend(c, &s, kind, false, news),
        Err(why) => drop(news.send(News::Ended(kind.0, format!("WRONG start: {why}")))),
    }
}

fn serve(c: &Setup, s: &Fd, news: &Sender<News>) {
    c.bound(s);
    let first = || -> Result<u8, String> {
        let what = sys::recv_all(s.raw(), 1).map_err(|e| format!("kind: {e}"))?;
        c.proof.check(c.family, s.raw())?;
        what.first().copied().ok_or("nothing came".into())
    };
    match first().map(|byte| KINDS.iter().find(|kind| kind.1 == byte)) {
        Ok(Some(kind)) => attend(c, s, *kind, true, news),
        Ok(None) => drop(news.send(News::Ended("?", "WRONG kind".into()))),
        Err(why) => drop(news.send(News::Ended("?", format!("WRONG start: {why}")))),
    }
}

fn main() -> ExitCode {
    let a = Args::get();
    let ip = a.opt("ip").and_then(Ip::parse).unwrap_or(Ip::V4);
    let c = Setup {
        family: a
            .opt("family")
            .and_then(Family::parse)
            .unwrap_or(Family::Inet),
        ip,
        port: a.num("port", 7600) as u16,
        proof: Proof::from_args(&a),
        limit: (a.num("limit", 60) * guest::slow()) as i64,
        pace: a.num("pace", 0),
    };
    let kinds: Vec<(&'static str, u8)> = a
        .opt("kinds")
        .unwrap_or("send,receive,both,idle")
        .split(',')
        .map(|name| {
            *KINDS
                .iter()
                .find(|kind| kind.0 == name)
                .unwrap_or_else(|| args::bail("--kinds send,receive,both,idle"))
        })
        .collect();
    let each = a.num("each", 3) as usize;
    let total = kinds.len() * each;
    let server = a.words.first().is_some_and(|word| word == "serve");
    let to = match a.opt("to") {
        Some(ip) => SocketAddr::new(ip.parse().expect("--to ADDR"), c.port),
        None => guest::sockaddr(true, c.ip, c.port),
    };
    let (news, heard) = channel();
    let start = Instant::now();
    std::thread::scope(|t| {
        if server {
            let l = c.socket().expect("socket");
            let _ = sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
            sys::bind(l.raw(), &SocketAddr::new(addr::any(c.ip), c.port)).expect("bind");
            sys::listen(l.raw(), 64).expect("listen");
            println!("# listening");
            for _ in 0..total {
                let s = sys::accept(l.raw()).expect("accept");
                let (c, news) = (&c, news.clone());
                t.spawn(move || serve(c, &s, &news));
            }
        } else {
            for kind in kinds
                .iter()
                .flat_map(|kind| std::iter::repeat_n(*kind, each))
            {
                let (c, news) = (&c, news.clone());
                t.spawn(move || hold(c, to, kind, &news));
            }
        }
        judge(&a, total, start, heard.iter())
    })
}

/// Follows the connections to the end of the last one.
fn judge(a: &Args, total: usize, start: Instant, news: impl Iterator<Item = News>) -> ExitCode {
    let (mut begun, mut ended, mut ready) = (0, 0, 0.0);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let mut good = true;
    for piece in news {
        match piece {
            News::Begun => begun += 1,
            News::Ended(kind, how) => {
                ended += 1;
                let bad = ["TIME", "WRONG", "first byte"]
                    .iter()
                    .any(|w| how.starts_with(w));
                good &= !bad && (how != "end" || a.opt("eof").is_some()) && begun == total;
                let at = start.elapsed().as_secs_f64() - ready;
                let count = ends.entry(format!("{kind}: {how}")).or_default();
                *count += 1;
                println!("# {kind} ended after {at:.1} s: {how}");
            }
        }
        if begun == total && ready == 0.0 {
            ready = start.elapsed().as_secs_f64();
            println!("# all {total} carry data");
            if let Some(file) = a.opt("ready") {
                std::fs::write(file, "ready\n").expect("--ready FILE");
            }
        }
        if ended == total {
            break;
        }
    }
    println!("# {ends:?}");
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
