// SPDX-License-Identifier: GPL-2.0
//! Ways of moving bytes, each checked byte by byte.

use crate::cases::{ask, e, Outcome};
use crate::server::{self, Bulk};
use crate::Context;
use st::errno::Errno;
use st::fd::Fd;
use st::rng::{self, Rng};
use st::{guest, sys};
use std::time::{Duration, Instant};

/// Much in both directions at once, in calls of random sizes, with readers that pause.
pub fn bulk(c: &Context) -> Outcome {
    let s = ask(c, server::BULK)?;
    let bytes = c.bulk << 20;
    sys::send_all(s.raw(), &bytes.to_le_bytes()).map_err(e("send"))?;
    let t0 = Instant::now();
    server::both_ways(
        &s,
        Bulk {
            bytes,
            server: false,
        },
    )?;
    let verdict = sys::recv_all(s.raw(), 1).map_err(e("verdict"))?;
    println!("# {} MiB each way in {:?}", c.bulk, t0.elapsed());
    if verdict != b"k" {
        return Err("the server read wrong bytes".into());
    }
    Ok(())
}

/// Edge-triggered on both sides, several sockets on one epoll descriptor.
pub fn edge_triggered(c: &Context) -> Outcome {
    let all: Vec<Fd> = (0..8)
        .map(|_| ask(c, server::EDGE))
        .collect::<Result<_, _>>()?;
    let total = (c.bulk << 20).min(4 << 20) / 2;
    let ep = server::epoll(&all).map_err(e("epoll"))?;
    let mut at = vec![(0u64, 0u64); all.len()];
    let end = Instant::now() + Duration::from_secs(60 * guest::slow());
    let mut b = vec![0; 40_000];
    let mut r = Rng::new(11);
    while at.iter().any(|a| a.1 < total) {
        if Instant::now() > end {
            return Err(format!("no progress: {at:?} of {total}"));
        }
        for i in server::epoll_wait(&ep, 1000).map_err(e("epoll_wait"))? {
            let (fd, seed) = (all[i].raw(), i as u64 + 100);
            // Everything that can be done now, as there is no second event for it.
            while at[i].1 < total {
                match sys::recv(fd, &mut b, libc::MSG_DONTWAIT) {
                    Ok(0) => return Err(format!("end at {:?}", at[i])),
                    Ok(n) => {
                        rng::check(seed, at[i].1, &b[..n as usize])
                            .map_err(|p| format!("wrong byte at {p}"))?;
                        at[i].1 += n as u64;
                    }
                    Err(Errno(libc::EAGAIN)) => break,
                    Err(errno) => return Err(format!("recv: {errno}")),
                }
            }
            while at[i].0 < total {
                let n = (r.size(40_000) as u64).min(total - at[i].0) as usize;
                rng::fill(seed, at[i].0, &mut b[..n]);
                match sys::send(fd, &b[..n], libc::MSG_DONTWAIT) {
                    Ok(n) => at[i].0 += n as u64,
                    Err(Errno(libc::EAGAIN)) => break,
                    Err(errno) => return Err(format!("send: {errno}")),
                }
            }
        }
    }
    Ok(())
}

/// `MSG_PEEK`, `MSG_WAITALL` and `MSG_TRUNC` over several turns of the ring.
pub fn flags(c: &Context) -> Outcome {
    let s = ask(c, server::GENERATE)?;
    let total = 1_500_000u64;
    sys::send_all(s.raw(), &total.to_le_bytes()).map_err(e("send"))?;
    let mut r = Rng::new(3);
    let mut at = 0u64;
    let mut b = vec![0; 200_000];
    while at < total {
        let n = r.range(1, 20_000).min(total - at) as usize;
        let peeked = sys::recv(s.raw(), &mut b[..n], libc::MSG_PEEK).map_err(e("peek"))? as usize;
        rng::check(7, at, &b[..peeked]).map_err(|p| format!("peek: wrong byte at {p}"))?;
        if peeked == 0 {
            return Err(format!("peek: end at {at}"));
        }
        if r.draw() % 3 == 0 {
            // Bytes are thrown away unseen, no more than there were.
            let n = sys::recv(s.raw(), &mut b[..peeked], libc::MSG_TRUNC).map_err(e("trunc"))?;
            if n as usize != peeked {
                return Err(format!("trunc: {n} of {peeked}"));
            }
            at += n as u64;
            continue;
        }
        let n = r.range(1, 200_000).min(total - at) as usize;
        let got = sys::recv(s.raw(), &mut b[..n], libc::MSG_WAITALL).map_err(e("waitall"))?;
        if got as usize != n {
            return Err(format!("waitall: {got} of {n} at {at}"));
        }
        rng::check(7, at, &b[..n]).map_err(|p| format!("waitall: wrong byte at {p}"))?;
        at += n as u64;
    }
    match sys::recv(s.raw(), &mut b[..10], libc::MSG_WAITALL) {
        Ok(0) => Ok(()),
        other => Err(format!("at the end: {other:?}")),
    }
}

/// A non-blocking sender takes what there is room for, and no byte is lost or doubled.
pub fn partial(c: &Context) -> Outcome {
    let s = ask(c, server::ECHO)?;
    sys::nonblock(s.raw(), true);
    let mut all = vec![0; 6 << 20];
    rng::fill(21, 0, &mut all);
    let (mut sent, mut back, mut short) = (0usize, 0usize, 0u64);
    // Nothing is read at first, until both rings are full.
    loop {
        match sys::send(s.raw(), &all[sent..], 0) {
            Ok(n) => {
                short += u64::from((n as usize) < all.len() - sent);
                sent += n as usize;
            }
            Err(Errno(libc::EAGAIN)) => {
                let r = sys::poll1(s.raw(), libc::POLLOUT, 300 * guest::less() as i32);
                if r == Ok(0) {
                    break;
                }
            }
            Err(errno) => return Err(format!("send: {errno}")),
        }
        if sent == all.len() {
            return Err("6 MiB fit: the peer's window never closed".into());
        }
    }
    println!("# {sent} bytes until it was full, {short} partial sends");
    let end = Instant::now() + Duration::from_secs(60 * guest::slow());
    let mut b = vec![0; 100_000];
    while back < all.len() && Instant::now() < end {
        let want = libc::POLLIN | if sent < all.len() { libc::POLLOUT } else { 0 };
        let now = sys::poll1(s.raw(), want, 1000).map_err(e("poll"))?;
        if now & libc::POLLIN != 0 {
            let n = sys::recv(s.raw(), &mut b, 0).map_err(e("recv"))? as usize;
            if n == 0 || all.get(back..back + n) != Some(&b[..n]) {
                return Err(format!("{n} wrong bytes at {back}"));
            }
            back += n;
        }
        if now & libc::POLLOUT != 0 && sent < all.len() {
            match sys::send(s.raw(), &all[sent..], 0) {
                Ok(n) => sent += n as usize,
                // Another turn of poll() decides; it may have been urgent on its side only.
                Err(Errno(libc::EAGAIN)) => {}
                Err(errno) => return Err(format!("send: {errno}")),
            }
        }
    }
    if short == 0 || back != all.len() {
        return Err(format!("{short} partial sends, {back} bytes came back"));
    }
    Ok(())
}

/// `SO_RCVTIMEO` and `SO_SNDTIMEO`.
pub fn timeouts(c: &Context) -> Outcome {
    let within = |what: &str, t0: Instant, ms: u64| {
        let t = t0.elapsed();
        // Not a hundred times as long, as in other units.
        let most = Duration::from_millis(ms + 8000 * guest::slow());
        // Socket timeouts are in ticks, of which emulated processors run late and catch up at once.
        let early = if guest::less() > 1 { ms / 2 } else { 20 };
        if t + Duration::from_millis(early) < Duration::from_millis(ms) || t > most {
            return Err(format!("{what}: {t:?} instead of {ms} ms"));
        }
        Ok(())
    };
    let s = ask(c, server::ECHO)?;
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 200).map_err(e("SO_RCVTIMEO"))?;
    let t0 = Instant::now();
    match sys::recv_vec(s.raw(), 1, 0) {
        Err(Errno(libc::EAGAIN)) => within("recv", t0, 200)?,
        other => return Err(format!("recv: {other:?}")),
    }
    // What has come before the time was up is not lost.
    sys::send_all(s.raw(), b"abc").map_err(e("send"))?;
    let t0 = Instant::now();
    let mut b = [0; 10];
    match sys::recv(s.raw(), &mut b, libc::MSG_WAITALL) {
        Ok(3) => within("recv with MSG_WAITALL", t0, 200)?,
        other => return Err(format!("recv with MSG_WAITALL: {other:?}")),
    }
    // A peer that reads nothing.
    let s = ask(c, server::STALL)?;
    sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 300).map_err(e("SO_SNDTIMEO"))?;
    let big = vec![0; 16 << 20];
    if c.proof.is_ours() {
        let t0 = Instant::now();
        match sys::send(s.raw(), &big, 0) {
            Ok(n) if n > 0 && (n as usize) < big.len() => within("send", t0, 300)?,
            other => return Err(format!("send: {other:?}")),
        }
    }
    // The C module's blocking send returns early with what there was room for.
    loop {
        let t0 = Instant::now();
        match sys::send(s.raw(), &big, 0) {
            Ok(n) if n > 0 && !c.proof.is_ours() => {}
            Err(Errno(libc::EAGAIN)) => return within("second send", t0, 300),
            other => return Err(format!("second send: {other:?}")),
        }
    }
}
