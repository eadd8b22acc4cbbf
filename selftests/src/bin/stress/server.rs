// SPDX-License-Identifier: GPL-2.0
//! The server: each connection begins with a byte that says what it is for.

use st::errno::{cvt, Errno};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::rng::{self, Rng};
use st::{addr, child, guest, sys};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Sends back what comes, until the end.
pub const ECHO: u8 = b'E';
/// Sends as many bytes of the pattern as the next eight bytes say, ends its direction, and then
/// reads to the end.
pub const GENERATE: u8 = b'G';
/// Reads nothing for a while, then everything.
pub const HOLD: u8 = b'H';
/// Closes at once with a reset.
pub const ABORT: u8 = b'R';
/// Reads to the end with urgent bytes in line, and answers with what it found.
pub const URGENT: u8 = b'U';
/// Has a process of its own take one connection, which is killed in the midst; answers with its
/// port. The next byte says what that process does: [`ECHO`], [`HOLD`] or [`GENERATE`].
pub const VICTIM: u8 = b'X';
/// For [`VICTIM`]: half closed.
pub const HALF: u8 = b'F';
/// For [`VICTIM`]: in close(), with bytes that the peer does not read.
pub const LINGER: u8 = b'L';
/// Sends and checks as many bytes as the next eight bytes say, both at once, then says `k`.
pub const BULK: u8 = b'B';
/// [`ECHO`], non-blocking and edge-triggered.
pub const EDGE: u8 = b'T';
/// [`HOLD`] for longer.
pub const STALL: u8 = b'S';
/// Answers with [`Report`].
pub const REPORT: u8 = b'?';

/// Counts what the server has seen.
#[derive(Default)]
pub struct Seen {
    /// Live connections by their number, with what they are for (0: not told yet).
    live: Mutex<BTreeMap<u64, u8>>,
    resets: AtomicU64,
    wrong_mode: AtomicU64,
    accepted: AtomicU64,
}

/// [`Seen`] as it is sent: live connections but this one, resets, connections of a wrong mode, all;
/// what the eight oldest live ones are for, one byte each.
pub type Report = [u64; 5];

impl Seen {
    fn note(&self, number: u64, what: u8) {
        if let Ok(mut live) = self.live.lock() {
            live.insert(number, what);
        }
    }
}

/// A socket of the family that listens.
pub fn listener(f: Family, ip: Ip, port: u16, backlog: i32) -> Result<Fd, String> {
    let (d, p) = f.triple(ip);
    let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
    let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(s.raw(), &SocketAddr::new(addr::any(ip), port)).map_err(|e| format!("bind: {e}"))?;
    sys::listen(s.raw(), backlog).map_err(|e| format!("listen: {e}"))?;
    Ok(s)
}

/// Serves for ever.
pub fn serve(f: Family, ip: Ip, l: &Fd, proof: &Proof) -> ! {
    let seen = Arc::new(Seen::default());
    loop {
        let Ok(s) = sys::accept(l.raw()) else {
            continue;
        };
        let number = seen.accepted.fetch_add(1, Relaxed) + 1;
        let wrong = proof.check(f, s.raw()).err();
        seen.note(number, 0);
        let of = seen.clone();
        std::thread::spawn(move || {
            // A client that left before it said anything was not decided for SMC, and need not be.
            let used = wrong.is_none()
                || sys::recv(s.raw(), &mut [0], libc::MSG_PEEK).is_ok_and(|n| n > 0);
            if let (Some(e), true) = (&wrong, used) {
                println!("# accepted number {number}: {e}");
                of.wrong_mode.fetch_add(1, Relaxed);
            }
            match one(f, ip, &s, &of, number) {
                Ok(()) => {}
                Err(Errno(libc::ECONNRESET)) => {
                    of.resets.fetch_add(1, Relaxed);
                }
                Err(e) => println!("# server: {e}"),
            }
            drop(s);
            of.live.lock().map(|mut l| l.remove(&number)).ok();
        });
    }
}

fn one(f: Family, ip: Ip, s: &Fd, seen: &Seen, number: u64) -> Result<(), Errno> {
    let mut what = [0];
    if sys::recv(s.raw(), &mut what, 0)? == 0 {
        return Ok(());
    }
    seen.note(number, what[0]);
    match what[0] {
        ECHO => echo(s),
        GENERATE => generate(s),
        HOLD => {
            // As with TCP, the end comes behind what was sent before it.
            guest::pause(1000);
            while !sys::recv_vec(s.raw(), 64 << 10, 0)?.is_empty() {}
            Ok(())
        }
        BULK => {
            let n = sys::recv_all(s.raw(), 8)?;
            let bytes = u64::from_le_bytes(n.try_into().map_err(|_| Errno(libc::EBADMSG))?);
            let r = both_ways(
                s,
                Bulk {
                    bytes,
                    server: true,
                },
            );
            if let Err(e) = &r {
                println!("# server: bulk: {e}");
            }
            sys::send_all(s.raw(), if r.is_ok() { b"k" } else { b"x" })
        }
        EDGE => edge(s),
        STALL => {
            guest::pause(3000);
            while !sys::recv_vec(s.raw(), 64 << 10, 0)?.is_empty() {}
            Ok(())
        }
        ABORT => {
            sys::linger(s.raw(), 1, 0)?;
            Ok(())
        }
        URGENT => urgent(s),
        VICTIM => victim(f, ip, s),
        REPORT => {
            let (mut live, mut what) = (0, [0; 8]);
            if let Ok(all) = seen.live.lock() {
                live = all.len() as u64;
                for (to, (_, is)) in what.iter_mut().zip(all.iter()) {
                    *to = if *is == 0 { b'0' } else { *is };
                }
            }
            let words: Report = [
                live.saturating_sub(1),
                seen.resets.load(Relaxed),
                seen.wrong_mode.load(Relaxed),
                seen.accepted.load(Relaxed),
                u64::from_le_bytes(what),
            ];
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            sys::send_all(s.raw(), &bytes)
        }
        _ => Err(Errno(libc::EBADMSG)),
    }
}

/// Amount each way, and the end that this is.
#[derive(Clone, Copy)]
pub struct Bulk {
    /// Bytes.
    pub bytes: u64,
    /// True if this is the server.
    pub server: bool,
}

/// Sends and receives at once, with calls of random sizes; the reader pauses now and then.
pub fn both_ways(s: &Fd, j: Bulk) -> Result<(), String> {
    let seed = |server: bool| 31 + u64::from(server);
    let (out, back, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (out, back, over) = (&out, &back, &over);
    std::thread::scope(|t| {
        t.spawn(move || watch(s, j, (out, back), over));
        let _over = Over(over);
        let sender = t.spawn(move || {
            let (mut r, mut at) = (Rng::new(j.bytes ^ seed(j.server)), 0);
            let mut b = vec![0; 1 << 20];
            while at < j.bytes {
                let n = (r.size(1 << 20) as u64).min(j.bytes - at) as usize;
                rng::fill(seed(j.server), at, &mut b[..n]);
                sys::send_all(s.raw(), &b[..n]).map_err(|e| format!("send at {at}: {e}"))?;
                at += n as u64;
                out.store(at, Relaxed);
            }
            Ok::<_, String>(())
        });
        let (mut r, mut at) = (Rng::new(j.bytes ^ 77), 0);
        let mut b = vec![0; 1 << 20];
        while at < j.bytes {
            let n = (r.size(1 << 20) as u64).min(j.bytes - at) as usize;
            let n = sys::recv(s.raw(), &mut b[..n], 0).map_err(|e| format!("recv at {at}: {e}"))?;
            if n == 0 {
                return Err(format!("end at {at}"));
            }
            rng::check(seed(!j.server), at, &b[..n as usize])
                .map_err(|p| format!("wrong byte at {p}"))?;
            at += n as u64;
            back.store(at, Relaxed);
            if r.draw() % 512 == 0 {
                sys::sleep_ms(10);
            }
        }
        sender.join().unwrap_or(Err("sender panicked".into()))
    })
}

/// Says that it is over, however that came.
struct Over<'a>(&'a AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(1, Relaxed);
    }
}

/// Reads the RDMA devices' counters: whether packets are repeated, and whose receives are missing.
fn device_counters() -> BTreeMap<String, u64> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    entries("/sys/class/infiniband".into())
        .flat_map(|device| entries(device.path().join("ports/1/hw_counters")))
        .filter_map(|counter| {
            let path = counter.path();
            let value = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
            Some((path.display().to_string(), value))
        })
        .collect()
}

/// Tells how far an exchange is that does not go on, and what the kernel has of it.
fn watch(s: &Fd, j: Bulk, (out, back): (&AtomicU64, &AtomicU64), over: &AtomicU64) {
    const SIOCOUTQNSD: u64 = 0x894b;
    let (mut last, mut since) = ((0, 0), Instant::now());
    while over.load(Relaxed) == 0 {
        sys::sleep_ms(50);
        let now = (out.load(Relaxed), back.load(Relaxed));
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > Duration::from_secs(8 * guest::slow()) {
            let queue = |what| sys::ioctl_get(s.raw(), what).unwrap_or(-1);
            println!(
                "# {} stuck at {now:?} of {}: {} bytes to read, {} not acknowledged, {} not sent",
                if j.server { "server" } else { "client" },
                j.bytes,
                queue(libc::FIONREAD),
                queue(libc::TIOCOUTQ),
                queue(SIOCOUTQNSD),
            );
            let before = device_counters();
            sys::sleep_ms(1000);
            for (name, now) in device_counters() {
                let was = before.get(&name).copied().unwrap_or(0);
                if now != was {
                    println!("# in a second: {name} {was} -> {now}");
                }
            }
            return;
        }
    }
}

/// An epoll descriptor that knows these sockets by their place, edge-triggered.
pub fn epoll(all: &[Fd]) -> Result<Fd, Errno> {
    // SAFETY: no pointers.
    let ep = cvt(i64::from(unsafe {
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    }))?;
    for (i, s) in all.iter().enumerate() {
        let mut ev = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
            u64: i as u64,
        };
        // SAFETY: `ev` is valid.
        let r = unsafe { libc::epoll_ctl(ep as i32, libc::EPOLL_CTL_ADD, s.raw(), &mut ev) };
        cvt(i64::from(r))?;
    }
    Ok(Fd::new(ep as i32))
}

/// The places of the sockets with an event.
pub fn epoll_wait(ep: &Fd, ms: i32) -> Result<Vec<usize>, Errno> {
    let mut ev = [libc::epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: array and length agree.
    let n = unsafe { libc::epoll_wait(ep.raw(), ev.as_mut_ptr(), 16, ms) };
    let n = cvt(i64::from(n))? as usize;
    Ok(ev.iter().take(n).map(|e| e.u64 as usize).collect())
}

fn edge(s: &Fd) -> Result<(), Errno> {
    let ep = epoll(std::slice::from_ref(s))?;
    let mut b = vec![0; 50_000];
    let (mut from, mut to) = (0, 0);
    loop {
        // What is read is written before the next read: a full peer stops us.
        loop {
            if from == to {
                (from, to) = match sys::recv(s.raw(), &mut b, libc::MSG_DONTWAIT) {
                    Ok(0) => return Ok(()),
                    Ok(n) => (0, n as usize),
                    Err(Errno(libc::EAGAIN)) => break,
                    Err(e) => return Err(e),
                };
            }
            match sys::send(s.raw(), &b[from..to], libc::MSG_DONTWAIT) {
                Ok(n) => from += n as usize,
                Err(Errno(libc::EAGAIN)) => break,
                Err(e) => return Err(e),
            }
        }
        epoll_wait(&ep, -1)?;
    }
}

fn echo(s: &Fd) -> Result<(), Errno> {
    let mut b = vec![0; 64 << 10];
    loop {
        let n = sys::recv(s.raw(), &mut b, 0)? as usize;
        if n == 0 {
            return Ok(());
        }
        sys::send_all(s.raw(), &b[..n])?;
    }
}

fn generate(s: &Fd) -> Result<(), Errno> {
    let n = sys::recv_all(s.raw(), 8)?;
    let n = u64::from_le_bytes(n.try_into().map_err(|_| Errno(libc::EBADMSG))?);
    let mut at = 0;
    let mut b = vec![0; 50_000];
    while at < n {
        let len = (n - at).min(b.len() as u64) as usize;
        rng::fill(7, at, &mut b[..len]);
        sys::send_all(s.raw(), &b[..len])?;
        at += len as u64;
    }
    sys::shutdown(s.raw(), libc::SHUT_WR)?;
    while sys::recv(s.raw(), &mut b, 0)? > 0 {}
    Ok(())
}

/// Marks found, marks without the urgent byte behind them, and a sum over the stream.
fn urgent(s: &Fd) -> Result<(), Errno> {
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    sys::send_all(s.raw(), b"k")?;
    let mut b = vec![0; 9000];
    let (mut marks, mut wrong, mut sum) = (0u64, 0u64, 0u64);
    loop {
        let _ = sys::poll1(s.raw(), libc::POLLIN, -1)?;
        let marked = sys::ioctl_get(s.raw(), 0x8905)? != 0; // SIOCATMARK
        let n = sys::recv(s.raw(), &mut b, 0)? as usize;
        if n == 0 {
            break;
        }
        if marked {
            marks += 1;
            wrong += u64::from(b[0] != b'!');
        }
        for x in &b[..n] {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(*x));
        }
    }
    let bytes: Vec<u8> = [marks, wrong, sum]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    sys::send_all(s.raw(), &bytes)
}

fn victim(f: Family, ip: Ip, s: &Fd) -> Result<(), Errno> {
    let what = sys::recv_all(s.raw(), 1)?[0];
    let l = listener(f, ip, 0, 4).map_err(|_| Errno(libc::EIO))?;
    let port = sys::sockname(l.raw())?.port();
    let pid = child::spawn(|| {
        let Ok(c) = sys::accept(l.raw()) else {
            return 1;
        };
        let _ = match what {
            ECHO => echo(&c),
            GENERATE => {
                let _ = sys::send_all(c.raw(), &vec![9; 64 << 20]);
                Ok(())
            }
            HALF => sys::shutdown(c.raw(), libc::SHUT_WR).map(drop),
            LINGER => {
                sys::nonblock(c.raw(), true);
                let _ = sys::send(c.raw(), &vec![9; 64 << 20], 0);
                sys::nonblock(c.raw(), false);
                let r = sys::linger(c.raw(), 1, 60).map(drop);
                drop(c);
                r
            }
            _ => Ok(()),
        };
        sys::sleep_ms(60_000);
        0
    });
    drop(l);
    sys::send_all(s.raw(), &port.to_le_bytes())?;
    guest::pause(500);
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    child::reap(pid, 0);
    sys::send_all(s.raw(), b"k")
}
