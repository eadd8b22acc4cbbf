// SPDX-License-Identifier: GPL-2.0
//! The server: each connection begins with a byte that says what it is for.

use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::rng;
use st::{addr, child, guest, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

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
/// Answers with [`Report`].
pub const REPORT: u8 = b'?';

/// What the server has seen.
#[derive(Default)]
pub struct Seen {
    live: AtomicU64,
    resets: AtomicU64,
    wrong_mode: AtomicU64,
    accepted: AtomicU64,
}

/// [`Seen`] as it is sent: live connections but this one, resets, connections of a wrong mode, all.
pub type Report = [u64; 4];

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
        seen.accepted.fetch_add(1, Relaxed);
        let wrong = proof.check(f, s.raw()).err();
        seen.live.fetch_add(1, Relaxed);
        let of = seen.clone();
        std::thread::spawn(move || {
            // Who has gone before he said anything was not decided for SMC, and need not be.
            let used = wrong.is_none() || sys::recv(s.raw(), &mut [0], libc::MSG_PEEK).is_ok_and(|n| n > 0);
            if let (Some(e), true) = (&wrong, used) {
                println!("# accepted: {e}");
                of.wrong_mode.fetch_add(1, Relaxed);
            }
            match one(f, ip, &s, &of) {
                Ok(()) => {}
                Err(Errno(libc::ECONNRESET)) => {
                    of.resets.fetch_add(1, Relaxed);
                }
                Err(e) => println!("# server: {e}"),
            }
            drop(s);
            of.live.fetch_sub(1, Relaxed);
        });
    }
}

fn one(f: Family, ip: Ip, s: &Fd, seen: &Seen) -> Result<(), Errno> {
    let mut what = [0];
    if sys::recv(s.raw(), &mut what, 0)? == 0 {
        return Ok(());
    }
    match what[0] {
        ECHO => echo(s),
        GENERATE => generate(s),
        HOLD => {
            // As with TCP, the end comes behind what was sent before it.
            sys::sleep_ms(1000 * guest::slow());
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
            let words: Report = [
                seen.live.load(Relaxed) - 1,
                seen.resets.load(Relaxed),
                seen.wrong_mode.load(Relaxed),
                seen.accepted.load(Relaxed),
            ];
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            sys::send_all(s.raw(), &bytes)
        }
        _ => Err(Errno(libc::EBADMSG)),
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
            _ => Ok(()),
        };
        sys::sleep_ms(60_000);
        0
    });
    drop(l);
    sys::send_all(s.raw(), &port.to_le_bytes())?;
    sys::sleep_ms(500 * guest::slow());
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    child::reap(pid, 0);
    sys::send_all(s.raw(), b"k")
}
