// SPDX-License-Identifier: GPL-2.0
//! The statistics of a namespace have each byte of a local path once, where it went: by memory or by TCP; each call
//! that has moved bytes by memory once; and all of that while the connection lives, and after it.

use st::errno::Errno;
use st::fd::Fd;
use st::netlink::{attributes, Generic};
use st::{net, path, sys};

/// Sends and their size.
const CALLS: u64 = 20;
const SIZE: usize = 1_000_000;
/// The reader's piece.
const PIECE: usize = 60_000;

/// Numbers of `SMC_NLA_STATS_T_…`: bytes received and sent, calls that received and sent.
const NUMBERS: [u16; 4] = [16, 17, 18, 19];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    received: u64,
    sent: u64,
    receives: u64,
    sends: u64,
    /// Bytes that TCP has sent and received.
    tcp: [u64; 2],
}

fn failed(error: Errno) -> String {
    format!("statistics: {error}")
}

fn nest(bytes: &[u8], kind: u16) -> Result<Vec<u8>, String> {
    let all = attributes(bytes).map_err(failed)?;
    let found = all.into_iter().find(|a| a.0 == kind);
    Ok(found.ok_or(format!("no attribute {kind}"))?.1)
}

fn tcp(name: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/smc_fallback");
    let text = text.map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    let number = line.and_then(|l| l.trim().parse().ok());
    number.ok_or(format!("no {name}"))
}

fn now() -> Result<Counts, String> {
    let family = Generic::open("SMC_GEN_NETLINK").map_err(failed)?;
    let answers = family.dump(7).map_err(failed)?;
    let mine = nest(&nest(answers.first().ok_or("no answer")?, 7)?, 2)?;
    let mut numbers = [0; 4];
    for (to, number) in numbers.iter_mut().zip(NUMBERS) {
        let bytes = nest(&mine, number)?;
        *to = u64::from_ne_bytes(bytes.try_into().map_err(|_| "not 64 bits")?);
    }
    let [received, sent, receives, sends] = numbers;
    Ok(Counts {
        received,
        sent,
        receives,
        sends,
        tcp: [tcp("tcp_sent_bytes")?, tcp("tcp_received_bytes")?],
    })
}

fn since(before: Counts) -> Result<Counts, String> {
    let now = now()?;
    Ok(Counts {
        received: now.received - before.received,
        sent: now.sent - before.sent,
        receives: now.receives - before.receives,
        sends: now.sends - before.sends,
        tcp: [now.tcp[0] - before.tcp[0], now.tcp[1] - before.tcp[1]],
    })
}

/// Reads `SIZE` bytes, each piece in another manner; returns the calls that took bytes.
fn read(s: &Fd) -> Result<u64, String> {
    let (mut left, mut calls) = (SIZE, 0);
    let mut buffer = vec![0; PIECE];
    while left != 0 {
        let flags = match calls % 3 {
            0 => 0,
            1 => libc::MSG_WAITALL,
            _ => {
                sys::recv(s.raw(), &mut buffer, libc::MSG_PEEK).map_err(|e| format!("{e}"))?;
                libc::MSG_TRUNC
            }
        };
        let most = left.min(PIECE);
        let got = sys::recv(s.raw(), &mut buffer[..most], flags);
        match got.map_err(|e| format!("recv: {e}"))? as usize {
            0 => return Err("EOF".into()),
            got => left -= got,
        }
        calls += 1;
    }
    Ok(calls)
}

/// Moves bytes from `c` to `s`. Returns the calls that have taken some.
fn transfer(c: &Fd, s: &Fd) -> Result<u64, String> {
    let data = vec![7; SIZE];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..CALLS {
                let sent = sys::send(c.raw(), &data, libc::MSG_NOSIGNAL);
                if sent != Ok(SIZE as i64) {
                    return Err(format!("send: {sent:?}"));
                }
            }
            Ok(())
        });
        let mut calls = 0;
        for _ in 0..CALLS {
            calls += read(s)?;
        }
        writer.join().expect("no panic")?;
        Ok(calls)
    })
}

fn expect(what: &str, is: Counts, right: bool) -> Result<(), String> {
    match right {
        true => Ok(()),
        false => Err(format!("{what}: {is:?}")),
    }
}

/// All bytes go by memory.
pub fn by_memory(c: Fd, s: Fd) -> Result<String, String> {
    path::prove_local(&c, &s)?;
    let before = now()?;
    let receives = transfer(&c, &s)?;
    let all = CALLS * SIZE as u64;
    let open = since(before)?;
    let right = Counts {
        received: all,
        sent: all,
        receives,
        sends: CALLS,
        tcp: [0, 0],
    };
    expect("open", open, open == right)?;
    drop((c, s));
    let closed = since(before)?;
    // The two ends that are closed say so by TCP.
    let same = Counts {
        tcp: [0, 0],
        ..closed
    };
    expect("closed", closed, same == right)?;
    Ok(format!("{open:?}"))
}

/// Moves messages while nobody is in a call at the other end: then each goes the way that the writer has chosen. A
/// writer leaves TCP only if the reader is not at the bytes at that moment. Returns the bytes.
fn messages(c: &Fd, s: &Fd) -> Result<u64, String> {
    const MESSAGE: usize = 1000;
    for _ in 0..CALLS {
        sys::send_all(c.raw(), &[7; MESSAGE]).map_err(|e| format!("send: {e}"))?;
        sys::recv_all(s.raw(), MESSAGE).map_err(|e| format!("recv: {e}"))?;
    }
    Ok(CALLS * MESSAGE as u64)
}

/// The connection changes carriers all the time.
pub fn in_turn(c: Fd, s: Fd) -> Result<String, String> {
    path::prove_local(&c, &s)?;
    net::sysctl("net.smc.path_flip", "2")?;
    let before = now()?;
    let moved = messages(&c, &s).and_then(|bytes| Ok((bytes, transfer(&c, &s)?)));
    net::sysctl("net.smc.path_flip", "0")?;
    let (bytes, receives) = moved?;
    let all = CALLS * SIZE as u64 + bytes;
    let open = since(before)?;
    let bytes = [open.sent + open.tcp[0], open.received + open.tcp[1]];
    let by_each = open.sent != 0 && open.tcp[0] != 0;
    expect("open", open, bytes == [all; 2] && by_each)?;
    expect("bytes at both ends", open, open.sent == open.received)?;
    let calls = open.sends <= 2 * CALLS && open.receives <= receives + CALLS;
    expect("calls", open, calls && open.sends != 0)?;
    drop((c, s));
    let closed = since(before)?;
    let same = Counts {
        tcp: open.tcp,
        ..closed
    };
    expect("closed", closed, same == open)?;
    Ok(format!("{open:?}"))
}
