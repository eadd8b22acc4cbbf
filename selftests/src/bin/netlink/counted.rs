// SPDX-License-Identifier: GPL-2.0
//! Checks what `SMC_NETLINK_GET_STATS` counts, against traffic that is known to the byte.

use crate::ends::{self, dump, failed, same, soon, waiting, Tree};
use st::fd::Fd;
use st::sys;

/// Numbers of `SMC_NLA_STATS_T_…`.
pub const TX_SIZES: u16 = 3;
const RX_SIZES: u16 = 4;
const CLIENTS: u16 = 8;
const SERVERS: u16 = 10;
const SPLICES: u16 = 12;
const NODELAYS: u16 = 14;
const RX_BYTES: u16 = 16;
pub const TX_BYTES: u16 = 17;
pub const RX_CALLS: u16 = 18;
pub const TX_CALLS: u16 = 19;
const RX_USAGE: u16 = 20;
const TX_USAGE: u16 = 21;
/// Counters that only grow, except that of sendpage, which is no call any more.
const PLAIN: [u16; 12] = [7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19];
const CLASSES: u16 = 9;
/// Size of a buffer by default.
pub const RING: u64 = 65536;

/// Counters of SMC-R of an end, by their numbers; a class of sizes is `100 * histogram + class`.
struct Counters(Vec<(u16, u64)>);

fn technology(end: usize) -> Result<Tree, String> {
    let all = dump(end, 7)?;
    let it = &all.first().ok_or("nothing")?.1;
    same(
        "failed handshakes",
        [3, 4].map(|n| it.number(n)),
        [Ok(0), Ok(0)],
    )?;
    it.nest(2)
}

fn now(end: usize) -> Result<Counters, String> {
    let it = technology(end)?;
    let mut all = vec![];
    for number in PLAIN {
        all.push((number, it.number(number)?));
    }
    for histogram in [TX_SIZES, RX_SIZES] {
        let nest = it.nest(histogram)?;
        for class in 1..=CLASSES {
            all.push((100 * histogram + class, nest.number(class)?));
        }
    }
    Ok(Counters(all))
}

/// The counter of messages of this length: 1 to 8 KiB, 2 to 16 KiB and so on, 9 above 1 MiB.
pub fn class(histogram: u16, len: usize) -> u16 {
    let mut class = 1;
    while class < CLASSES && len > 4096 << class {
        class += 1;
    }
    100 * histogram + class
}

/// Does something, and compares by how much each counter of both ends has grown: those that are not
/// named must not have changed.
pub fn grows(what: impl FnOnce() -> Result<[Vec<(u16, u64)>; 2], String>) -> Result<(), String> {
    let before = [now(0)?, now(1)?];
    let wanted = what()?;
    for (end, (before, wanted)) in before.iter().zip(&wanted).enumerate() {
        let after = now(end)?;
        let mut wrong = vec![];
        for ((number, then), (_, now)) in before.0.iter().zip(&after.0) {
            let by = |w: &&(u16, u64)| w.0 == *number;
            let by: u64 = wanted.iter().filter(by).map(|w| w.1).sum();
            if now.wrapping_sub(*then) != by {
                wrong.push(format!("{number} by {}, not {by}", now.wrapping_sub(*then)));
            }
        }
        if !wrong.is_empty() {
            return Err(format!("of {}: {}", ends::SPACES[end], wrong.join("; ")));
        }
    }
    Ok(())
}

/// Returns the counts of one send in one call, or of one such receive.
fn call(bytes: u16, calls: u16, histogram: u16, len: usize) -> Vec<(u16, u64)> {
    vec![(bytes, len as u64), (calls, 1), (class(histogram, len), 1)]
}

/// Returns the counts of a send of `len` bytes in one call.
pub fn sent(len: usize) -> Vec<(u16, u64)> {
    call(TX_BYTES, TX_CALLS, TX_SIZES, len)
}

/// Returns the counts of a receive of `len` bytes in one call.
pub fn received(len: usize) -> Vec<(u16, u64)> {
    call(RX_BYTES, RX_CALLS, RX_SIZES, len)
}

/// Sends `len` bytes in one call and waits until they are there.
pub fn carry(from: &Fd, to: &Fd, len: usize) -> Result<(), String> {
    same(
        "sent",
        sys::send(from.raw(), &vec![5; len], 0),
        Ok(len as i64),
    )?;
    waiting(to, len)
}

/// Each end counts its own connections by its role, and the buffers while they are open.
pub fn connections(listener: &Fd) -> Result<(), String> {
    let usage = |end: usize| -> Result<[u64; 2], String> {
        let it = technology(end)?;
        Ok([it.number(RX_USAGE)?, it.number(TX_USAGE)?])
    };
    // The connections of the point before may still be going.
    let before = [[0; 2]; 2];
    soon(|| same("memory before", [usage(0)?, usage(1)?], before))?;
    grows(|| {
        let mut pairs = vec![];
        for _ in 0..3 {
            pairs.push(ends::pair(listener)?);
        }
        for pair in &pairs {
            for (from, to) in [(0, 1), (1, 0)] {
                carry(&pair[from], &pair[to], 10)?;
                same("got", sys::recv_vec(pair[to].raw(), 10, 0), Ok(vec![5; 10]))?;
            }
        }
        for (end, [rx, tx]) in before.iter().enumerate() {
            same("memory", usage(end)?, [rx + 3 * RING, tx + 3 * RING])?;
        }
        let both = [(RX_BYTES, 30), (TX_BYTES, 30), (RX_CALLS, 3), (TX_CALLS, 3)];
        let classes = [(class(TX_SIZES, 10), 3), (class(RX_SIZES, 10), 3)];
        let both = [&both[..], &classes[..]].concat();
        let of = |role| [&both[..], &[(role, 3)]].concat();
        Ok([of(CLIENTS), of(SERVERS)])
    })?;
    soon(|| same("memory", [usage(0)?, usage(1)?], before))
}

/// Sends of every class, each at both sides of its border, each received by one call whose buffer
/// is just as long.
pub fn sizes(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    let lengths = [1, 8192, 8193, 16384, 16385, 32768, 32769, 65536];
    for len in lengths {
        for (from, to) in [(0, 1), (1, 0)] {
            let count = || {
                carry(&pair[from], &pair[to], len)?;
                let got = sys::recv_vec(pair[to].raw(), len, 0).map_err(failed)?;
                same("got", got.len(), len)?;
                let mut wanted = [sent(len), received(len)];
                wanted.rotate_left(from);
                Ok(wanted)
            };
            grows(count).map_err(|e| format!("{len} bytes: {e}"))?;
        }
    }
    Ok(())
}

/// Sends that are larger than all buffers: their class is by what was asked for, even if the call
/// takes less (the C module's do). How often they are received is nobody's business.
pub fn large(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    for len in [65537, 200_000, 300_000, 600_000, 1 << 20, (1 << 20) + 1] {
        let before = [now(0)?, now(1)?];
        let mut wanted = vec![];
        let (taken, got) = std::thread::scope(|s| {
            let reader = s.spawn(|| sys::recv_all(pair[1].raw(), len));
            let bytes = vec![5; len];
            let mut taken = 0;
            while taken < len {
                let n = match sys::send(pair[0].raw(), &bytes[taken..], 0) {
                    Ok(n) => n as u64,
                    Err(_) => break,
                };
                wanted.extend([
                    (TX_BYTES, n),
                    (TX_CALLS, 1),
                    (class(TX_SIZES, len - taken), 1),
                ]);
                taken += n as usize;
            }
            (taken, reader.join().map_or(0, |r| r.map_or(0, |b| b.len())))
        });
        same("sent and got", (taken, got), (len, len))?;
        let grown = |end: usize, number: u16| -> Result<u64, String> {
            let of = |c: &Counters| c.0.iter().find(|n| n.0 == number).map_or(0, |n| n.1);
            Ok(of(&now(end)?) - of(&before[end]))
        };
        for class in 1..=CLASSES {
            wanted.push((100 * TX_SIZES + class, 0));
        }
        for (number, _) in &wanted {
            let by: u64 = wanted.iter().filter(|w| w.0 == *number).map(|w| w.1).sum();
            same(&format!("{len} sent: {number}"), grown(0, *number)?, by)?;
        }
        same("received", grown(1, RX_BYTES)?, len as u64)?;
        let mut calls = 0;
        for class in 1..=CLASSES {
            calls += grown(1, 100 * RX_SIZES + class)?;
        }
        same("all calls got something", calls, grown(1, RX_CALLS)?)?;
    }
    Ok(())
}

/// Each time that TCP_NODELAY is set, not cleared.
pub fn nodelay(listener: &Fd) -> Result<(), String> {
    option(listener, libc::TCP_NODELAY, (NODELAYS, 1), (NODELAYS, 0))
}

/// Sets and clears an option, twice, which makes counters grow so.
pub fn option(listener: &Fd, name: i32, on: (u16, u64), off: (u16, u64)) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    for _ in 0..2 {
        for (value, wanted) in [(1, on), (0, off)] {
            let count = || {
                let done = sys::setopt(pair[0].raw(), libc::IPPROTO_TCP, name, value);
                done.map_err(failed)?;
                Ok([vec![wanted], vec![]])
            };
            grows(count).map_err(|e| format!("set to {value}: {e}"))?;
        }
    }
    Ok(())
}

/// Bytes that are spliced into a pipe: the splice is counted once; whether as a receive, too, is up
/// to the module (the C module leaves them out of all sums).
pub fn splice(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    let mut ends = [0; 2];
    // SAFETY: an array of two.
    same("pipe", unsafe { libc::pipe(ends.as_mut_ptr()) }, 0)?;
    let [out, into] = ends.map(Fd::new);
    let before = now(1)?;
    carry(&pair[0], &pair[1], 3000)?;
    let null = std::ptr::null_mut();
    // SAFETY: null pointers are allowed here.
    let moved = unsafe { libc::splice(pair[1].raw(), null, into.raw(), null, 3000, 0) };
    same("moved", moved, 3000)?;
    let mut bytes = [0u8; 3000];
    // SAFETY: buffer and length agree.
    let read = unsafe { libc::read(out.raw(), bytes.as_mut_ptr().cast(), bytes.len()) };
    same("read", (read, bytes), (3000, [5; 3000]))?;
    let of = |c: &Counters| c.0.iter().find(|n| n.0 == SPLICES).map_or(0, |n| n.1);
    same("splices", of(&now(1)?) - of(&before), 1)
}
