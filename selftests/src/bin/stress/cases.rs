// SPDX-License-Identifier: GPL-2.0
//! Runs the client's cases.

use crate::data;
use crate::edges;
use crate::server::{self, Report};
use crate::Context;
use st::errno::Errno;
use st::fd::Fd;
use st::rng::{self, Rng};
use st::{child, guest, sys};
use std::time::{Duration, Instant};

/// Of a case.
pub type Outcome = Result<(), String>;

/// A case.
pub type Case = fn(&Context) -> Outcome;

/// All cases, in their order.
pub const CASES: &[(&str, Case)] = &[
    ("at_once", at_once),
    ("concurrent", concurrent),
    ("short", short),
    ("bulk", data::bulk),
    ("edge_triggered", data::edge_triggered),
    ("flags", data::flags),
    ("partial", data::partial),
    ("timeouts", data::timeouts),
    ("error_queue", edges::error_queue),
    ("bad_memory", edges::bad_memory),
    ("zero_copy", edges::zero_copy),
    ("peek_offset", edges::peek_offset),
    ("low_water", edges::low_water),
    ("disconnects", edges::disconnects),
    ("half_close_client", half_close_client),
    ("half_close_server", half_close_server),
    ("urgent_at_wrap", urgent_at_wrap),
    ("aborted_by_server", aborted_by_server),
    ("aborted_by_client", aborted_by_client),
    ("linger_with_time", linger_with_time),
    ("many_threads", many_threads),
    ("client_killed", client_killed),
    ("server_killed", server_killed),
    ("nothing_left", nothing_left),
];

/// Says what it was that failed.
pub fn e(what: &str) -> impl Fn(Errno) -> String + '_ {
    move |errno| format!("{what}: {errno}")
}

/// A connection for `what`.
pub fn ask(c: &Context, what: u8) -> Result<Fd, String> {
    let s = c.connect()?;
    sys::send_all(s.raw(), &[what]).map_err(e("send"))?;
    Ok(s)
}

fn words<const N: usize>(s: &Fd) -> Result<[u64; N], String> {
    let b = sys::recv_all(s.raw(), N * 8).map_err(e("answer"))?;
    let mut w = [0; N];
    for (w, b) in w.iter_mut().zip(b.chunks_exact(8)) {
        *w = u64::from_le_bytes(b.try_into().unwrap_or_default());
    }
    Ok(w)
}

fn report(c: &Context) -> Result<Report, String> {
    words(&ask(c, server::REPORT)?)
}

/// Waits until the server has no other connection than the one that asks.
fn alone(c: &Context) -> Result<Report, String> {
    let end = Instant::now() + Duration::from_secs(15 * guest::slow());
    loop {
        let r = report(c)?;
        if r[0] == 0 {
            return Ok(r);
        }
        if Instant::now() > end {
            return Err(format!(
                "{} connections still live at the server: {}",
                r[0],
                String::from_utf8_lossy(&r[4].to_le_bytes())
            ));
        }
        sys::sleep_ms(100);
    }
}

/// Sends a message of `n` bytes and reads it back.
fn round(s: &Fd, n: usize, seed: u64) -> Outcome {
    let mut b = vec![0; n];
    rng::fill(seed, 0, &mut b);
    sys::send_all(s.raw(), &b).map_err(e("send"))?;
    let back = sys::recv_all(s.raw(), n).map_err(e("recv"))?;
    if back.len() < n {
        return Err(format!("{} of {n} bytes came back", back.len()));
    }
    if back != b {
        return Err("other bytes came back".into());
    }
    Ok(())
}

/// Many first connections at the same moment: one first contact, and all of them work.
fn at_once(c: &Context) -> Outcome {
    std::thread::scope(|t| {
        let all: Vec<_> = (0..50)
            .map(|i| {
                t.spawn(move || {
                    c.settle()?;
                    round(&ask(c, server::ECHO)?, 100 + i, i as u64)
                })
            })
            .collect();
        all.into_iter()
            .try_for_each(|t| t.join().unwrap_or(Err("panicked".into())))
    })
}

/// More connections than two groups hold, all with data under way.
fn concurrent(c: &Context) -> Outcome {
    let all: Vec<Fd> = (0..c.concurrent)
        .map(|_| ask(c, server::ECHO))
        .collect::<Result<_, _>>()?;
    for turn in 0..3u64 {
        let message = |i: usize| {
            let mut b = vec![0; 2000 + i * 7];
            rng::fill(turn + i as u64, 0, &mut b);
            b
        };
        for (i, s) in all.iter().enumerate() {
            sys::send_all(s.raw(), &message(i))
                .map_err(|errno| format!("send {turn} to {i}: {errno}"))?;
        }
        for (i, s) in all.iter().enumerate() {
            let m = message(i);
            if sys::recv_all(s.raw(), m.len()).map_err(e("recv"))? != m {
                return Err(format!("connection {i}: other bytes came back"));
            }
        }
    }
    drop(all);
    alone(c).map(drop)
}

fn short(c: &Context) -> Outcome {
    let t0 = Instant::now();
    for i in 0..c.short {
        round(&ask(c, server::ECHO)?, 5, i).map_err(|e| format!("connection {i}: {e}"))?;
    }
    let ms = t0.elapsed().as_millis().max(1) as u64;
    println!(
        "# {} short connections, {} per second",
        c.short,
        c.short * 1000 / ms
    );
    alone(c).map(drop)
}

fn half_close_client(c: &Context) -> Outcome {
    for n in [0usize, 1, 65_536, 300_001] {
        let s = ask(c, server::ECHO)?;
        let b = vec![3; n];
        std::thread::scope(|t| {
            t.spawn(|| {
                sys::send_all(s.raw(), &b).and_then(|()| sys::shutdown(s.raw(), libc::SHUT_WR))
            });
            let back = sys::recv_all(s.raw(), n).map_err(e("recv"))?;
            let more = sys::recv_vec(s.raw(), 1, 0).map_err(e("recv at the end"))?;
            if back != b || !more.is_empty() {
                return Err(format!("{n}: {} came back, then {more:?}", back.len()));
            }
            Ok(())
        })?;
        match sys::send(s.raw(), b"x", libc::MSG_NOSIGNAL) {
            Err(Errno(libc::EPIPE)) => {}
            other => return Err(format!("send after shutdown: {other:?}")),
        }
    }
    Ok(())
}

fn half_close_server(c: &Context) -> Outcome {
    for n in [0u64, 1, 65_536, 300_001] {
        let s = ask(c, server::GENERATE)?;
        sys::send_all(s.raw(), &n.to_le_bytes()).map_err(e("send"))?;
        let got = sys::recv_all(s.raw(), n as usize).map_err(e("recv"))?;
        let mut want = vec![0; n as usize];
        rng::fill(7, 0, &mut want);
        if got != want || !sys::recv_vec(s.raw(), 1, 0).map_err(e("end"))?.is_empty() {
            return Err(format!("{n}: wrong bytes, or no end"));
        }
        // Our direction is still open.
        sys::send_all(s.raw(), &[5; 200_000]).map_err(e("send after the peer's end"))?;
    }
    alone(c).map(drop)
}

fn urgent_at_wrap(c: &Context) -> Outcome {
    let s = ask(c, server::URGENT)?;
    // The option is set.
    sys::recv_all(s.raw(), 1).map_err(e("ready"))?;
    let mut r = Rng::new(5);
    let mut sum = 0u64;
    let mut add = |b: &[u8]| {
        for x in b {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(*x));
        }
    };
    // Rings are powers of two: with these lengths the mark comes to every place in them.
    for _ in 0..400 {
        let b = vec![b'.'; r.range(1, 2500) as usize];
        sys::send_all(s.raw(), &b).map_err(e("send"))?;
        add(&b);
        sys::send(s.raw(), b"!", libc::MSG_OOB).map_err(e("send urgent"))?;
        add(b"!");
    }
    sys::shutdown(s.raw(), libc::SHUT_WR).map_err(e("shutdown"))?;
    let [marks, wrong, got] = words::<3>(&s)?;
    println!("# {marks} of 400 marks seen");
    if wrong != 0 || got != sum || marks == 0 {
        return Err(format!(
            "{marks} marks, {wrong} of them wrong, bytes equal: {}",
            got == sum
        ));
    }
    Ok(())
}

fn aborted_by_server(c: &Context) -> Outcome {
    for _ in 0..20 {
        let s = ask(c, server::ABORT)?;
        match sys::recv_vec(s.raw(), 1, 0) {
            Err(Errno(libc::ECONNRESET)) => {}
            Ok(b) if b.is_empty() && !c.resets => {}
            other => return Err(format!("recv: {other:?}, wanted ECONNRESET")),
        }
    }
    Ok(())
}

fn aborted_by_client(c: &Context) -> Outcome {
    let before = report(c)?[1];
    for i in 0..20 {
        let s = ask(c, server::ECHO)?;
        round(&s, 10, i)?;
        sys::linger(s.raw(), 1, 0).map_err(e("SO_LINGER"))?;
    }
    let after = alone(c)?[1];
    if after - before < 20 && c.resets {
        return Err(format!("the server saw {} resets of 20", after - before));
    }
    Ok(())
}

fn linger_with_time(c: &Context) -> Outcome {
    let s = ask(c, server::ECHO)?;
    sys::linger(s.raw(), 1, 60).map_err(e("SO_LINGER"))?;
    sys::send_all(s.raw(), &[1; 20_000]).map_err(e("send"))?;
    let _ = sys::recv_all(s.raw(), 20_000).map_err(e("recv"))?;
    let t0 = Instant::now();
    drop(s);
    if t0.elapsed() > Duration::from_secs(30) {
        return Err(format!("close() took {:?}", t0.elapsed()));
    }
    alone(c).map(drop)
}

/// Several threads write whole messages to one socket while others read it.
fn many_threads(c: &Context) -> Outcome {
    let s = ask(c, server::ECHO)?;
    let (threads, each, size) = (4usize, 200usize, 1000usize);
    std::thread::scope(|t| {
        for i in 0..threads {
            let s = &s;
            t.spawn(move || {
                for _ in 0..each {
                    let _ = sys::send_all(s.raw(), &vec![i as u8; size]);
                }
            });
        }
        let back = sys::recv_all(s.raw(), threads * each * size).map_err(e("recv"))?;
        for i in 0..threads {
            let n = back.iter().filter(|b| usize::from(**b) == i).count();
            if n != each * size {
                return Err(format!("{n} bytes of thread {i}"));
            }
        }
        Ok(())
    })
}

fn client_killed(c: &Context) -> Outcome {
    for turn in 0..c.kills {
        let whats = [
            server::ECHO,
            server::HOLD,
            server::GENERATE,
            server::HOLD,
            server::HOLD,
            server::ECHO,
            server::ECHO,
        ];
        let pids: Vec<i32> = whats
            .iter()
            .enumerate()
            .map(|(i, what)| {
                child::spawn(|| {
                    let Ok(s) = ask(c, *what) else { return 1 };
                    match i {
                        // Waits for data.
                        0 => drop(sys::recv_vec(s.raw(), 1, 0)),
                        // Waits for room.
                        1 => drop(sys::send_all(s.raw(), &[1; 8 << 20])),
                        // The peer waits for room.
                        2 => {
                            let _ = sys::send_all(s.raw(), &(8u64 << 20).to_le_bytes());
                        }
                        // Half closed, with bytes that the peer does not read.
                        3 => {
                            let _ = sys::send_all(s.raw(), &[1; 30_000]);
                            let _ = sys::shutdown(s.raw(), libc::SHUT_WR);
                            drop(sys::recv_vec(s.raw(), 1, 0));
                        }
                        // Lingering.
                        4 => {
                            sys::nonblock(s.raw(), true);
                            let _ = sys::send(s.raw(), &[1; 8 << 20], 0);
                            sys::nonblock(s.raw(), false);
                            let _ = sys::linger(s.raw(), 1, 60);
                            drop(s);
                        }
                        // Connects over and over.
                        5 => while ask(c, *what).is_ok() {},
                        // Both move data.
                        _ => while round(&s, 30_000, 1).is_ok() {},
                    }
                    sys::sleep_ms(60_000);
                    0
                })
            })
            .collect();
        guest::pause((turn * 37) % 300);
        for pid in pids {
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            child::reap(pid, 0);
        }
    }
    alone(c).map(drop)
}

fn server_killed(c: &Context) -> Outcome {
    for what in [
        server::ECHO,
        server::HOLD,
        server::GENERATE,
        server::HALF,
        server::LINGER,
    ] {
        let control = ask(c, server::VICTIM)?;
        sys::send_all(control.raw(), &[what]).map_err(e("send"))?;
        let port = sys::recv_all(control.raw(), 2).map_err(e("port"))?;
        let s = c.connect_to(u16::from_le_bytes([port[0], port[1]]))?;
        let t0 = Instant::now();
        let end = match what {
            server::ECHO => loop {
                let b = [2; 30_000];
                let back =
                    sys::send_all(s.raw(), &b).and_then(|()| sys::recv_all(s.raw(), b.len()));
                match back {
                    Ok(back) if back == b => {}
                    Ok(back) => break format!("end after {} bytes", back.len()),
                    Err(errno) => break errno.to_string(),
                }
            },
            server::HOLD | server::HALF => loop {
                if what == server::HALF
                    && !matches!(sys::recv_vec(s.raw(), 1, 0), Ok(b) if b.is_empty())
                {
                    break "no end of the half that was closed".into();
                }
                if let Err(errno) = sys::send_all(s.raw(), &[1; 100_000]) {
                    break errno.to_string();
                }
            },
            // Unread data waits for us when the peer dies.
            _ => {
                guest::pause(1500);
                loop {
                    match sys::recv_vec(s.raw(), 60_000, 0) {
                        Ok(b) if b.is_empty() => break "end".into(),
                        Ok(_) => {}
                        Err(errno) => break errno.to_string(),
                    }
                }
            }
        };
        println!("# {}: {end} after {:?}", what as char, t0.elapsed());
        if t0.elapsed() > Duration::from_secs(25 * guest::slow()) {
            return Err("it took too long to notice".into());
        }
        sys::recv_all(control.raw(), 1).map_err(e("killed"))?;
    }
    Ok(())
}

fn nothing_left(c: &Context) -> Outcome {
    let r = alone(c)?;
    println!("# the server accepted {}", r[3]);
    if r[2] != 0 {
        return Err(format!(
            "{} connections had the wrong mode at the server",
            r[2]
        ));
    }
    Ok(())
}
