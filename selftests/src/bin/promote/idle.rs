// SPDX-License-Identifier: GPL-2.0
//! Promoted connections that go back to TCP while their link works: as they are idle, as memory is short, by
//! `rsmc demote`. Programs see nothing of it, whatever they do at that moment.

use super::loss::{promoted, until_back};
use super::*;
use st::card::{self, trouble};

const PATHLEFT: u32 = 0x0306_0110;
const PATHWORSE: u32 = 0x0306_0111;
const ROLES: [(&str, &str); 2] = [("a", "client"), ("b", "server")];

fn left(pair: &Pair) -> Outcome {
    until_back(pair, [PATHLEFT; 2])
}

/// How often connections of a namespace have gone back for this cause.
fn returns(ns: &'static str, cause: &str) -> u64 {
    let role = ROLES.iter().find(|(of, _)| *of == ns).expect("a role").1;
    let name = format!("promotion_returned {role} {cause}");
    let counters = within(ns, smcinfo::counters).expect("counters");
    counters.get(&name).copied().unwrap_or(0)
}

/// The sums of both ends, by cause.
fn all_returns(cause: &str) -> u64 {
    returns("a", cause) + returns("b", cause)
}

/// A connection that has been promoted, and is not promoted again; `seconds` as `path_idle`.
fn begun(seconds: u32) -> Result<(Begun, u64), String> {
    set(&["a", "b"], "path_idle", seconds);
    promoted()
}

/// Asks once; again if no connection may go back at that moment, as one that has just been promoted.
fn demote(ns: &'static str) -> String {
    let mut said = card::rsmc(ns, "demote --all");
    for _ in 0..100 {
        if said.is_empty() {
            break;
        }
        guest::pause(10);
        said = card::rsmc(ns, "demote --all");
    }
    said
}

/// Connections and bytes of receive rings, by `rsmc link`.
fn rings(ns: &'static str) -> Vec<u64> {
    let said = card::rsmc(ns, "link --json");
    let value = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        (name == "\"connections\"").then(|| value.trim_end_matches(',').parse().ok())?
    };
    said.lines().filter_map(value).collect()
}

/// Goes back and is promoted again, more often than a link may be lost. The group has no connection meanwhile.
pub(super) fn returns_again() -> Outcome {
    let before = smcinfo::references();
    let (pair, mut at) = begun(1)?;
    let idle = all_returns("idle");
    after(8);
    for round in 0..9 {
        if round >= 2 {
            set(&["a", "b"], "path_idle", 0);
            let said = demote(["a", "b"][round % 2]);
            wanted("demote", said.is_empty(), said)?;
        }
        left(&pair).map_err(|e| format!("round {round}: {e}"))?;
        for ns in ["a", "b"] {
            // An end goes on by TCP a moment before it gives its place back.
            let mut there = rings(ns);
            for _ in 0..100 {
                if there.iter().all(|n| *n == 0) {
                    break;
                }
                guest::pause(10);
                there = rings(ns);
            }
            wanted("no places taken", there.iter().all(|n| *n == 0), there)?;
        }
        exchange(&pair.server, &pair.client, &mut at, 9000)?;
        until_moved(&pair, &mut at).map_err(|e| format!("round {round}: {e}"))?;
    }
    after(1 << 20);
    let idle = all_returns("idle") - idle;
    wanted("by idleness", (2..=4).contains(&idle), idle)?;
    demote("a");
    left(&pair)?;
    let command = (returns("a", "command"), returns("b", "peer"));
    wanted("counted", command.0 > 0 && command.1 > 0, command)?;
    drop(pair);
    smcinfo::settled(before, 20_000)
}

/// The answers are late: the connection is TCP's, and stays that; and so does another one.
fn while_late(pair: &Pair, at: &mut u64) -> Outcome {
    let mut rounds = 0;
    while mode(&pair.client) != PATH || mode(&pair.server) != PATH {
        exchange(&pair.client, &pair.server, at, 10)?;
        rounds += 1;
        wanted("it is left", rounds < 3000, pair.info())?;
        guest::pause(20);
    }
    until_back(pair, [PATHWORSE, PATHLEFT])?;
    let (other, mut other_at) = (begin()?, 0u64);
    for _ in 0..100 {
        exchange(&pair.client, &pair.server, at, 3000)?;
        exchange(&other.client, &other.server, &mut other_at, 3000)?;
    }
    for pair in [pair, &other] {
        let client = pair.info().0;
        let stays = client.mode == PATH && client.reason == PATHWORSE;
        wanted("TCP's", stays, pair.info())?;
    }
    Ok(())
}

/// A link whose answers are later than TCP's is left, and none is promoted until they are in time again. Programs go on
/// meanwhile.
pub(super) fn worse() -> Outcome {
    let counted = || (returns("a", "worse"), returns("b", "peer"));
    let before = counted();
    let (pair, mut at) = begun(0)?;
    // Some tests of a good link.
    for _ in 0..100 {
        guest::pause(100);
        exchange(&pair.client, &pair.server, &mut at, 10)?;
    }
    wanted("promoted still", moved(&pair), pair.info())?;
    // From the next return on.
    after(8);
    trouble("card_b", "latency", 40_000_000);
    let done = while_late(&pair, &mut at);
    trouble("card_b", "latency", 0);
    done?;
    let mut rounds = 0;
    while !moved(&pair) {
        exchange(&pair.client, &pair.server, &mut at, 10)?;
        rounds += 1;
        wanted("it is promoted again", rounds < 6000, pair.info())?;
        guest::pause(20);
    }
    let now = counted();
    wanted(
        "counted",
        now == (before.0 + 1, before.1 + 1),
        (before, now),
    )
}

/// A connection that moves something now and then stays, and 0 means never.
pub(super) fn stays() -> Outcome {
    for seconds in [2 + guest::slow() as u32, 0] {
        let (pair, mut at) = begun(seconds)?;
        for _ in 0..seconds.max(3) * 2 + 2 {
            sys::sleep_ms(500);
            if seconds != 0 {
                exchange(&pair.client, &pair.server, &mut at, 10)?;
            }
        }
        wanted("promoted still", moved(&pair), pair.info())?;
    }
    Ok(())
}

/// One program does not read what has come by the ring; it gets it afterwards, and what follows by TCP.
pub(super) fn unread() -> Outcome {
    let (pair, _) = begun(1)?;
    let (some, total) = (5000, 400_000);
    pour(&pair.client, 11, some)?;
    left(&pair)?;
    std::thread::scope(|threads| {
        let (client, server) = (&pair.client, &pair.server);
        let all = [
            threads.spawn(move || pour(server, 12, total)),
            threads.spawn(move || drain(client, 12, total)),
        ];
        let done = all.map(|thread| thread.join().expect("a thread"));
        done.into_iter().collect::<Outcome>()
    })?;
    drain(&pair.server, 11, some)?;
    let mut at = 0;
    exchange(&pair.client, &pair.server, &mut at, 9000)
}

/// Both programs write and read, and in the midst of that one end goes back, or both ask for that at once.
pub(super) fn calls() -> Outcome {
    let mut rng = rng();
    for round in 0..30 {
        let (pair, mut at) = begun(0)?;
        let total = rng.size(1 << 20) as u64;
        let delay = rng.range(0, 10);
        let low_water = round % 4 == 0;
        let asks: &[&'static str] = [&["a"][..], &["b"], &["a", "b"]][round % 3];
        let one_way = round % 5 == 0;
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let askers = asks.iter().map(|ns| {
                threads.spawn(move || {
                    guest::pause(delay);
                    let said = demote(ns);
                    // The other end may have been first.
                    let fine = said.is_empty() || said.contains("no such connection");
                    wanted("demote", fine, said)
                })
            });
            let mut all: Vec<_> = askers.collect();
            all.push(threads.spawn(move || pour(client, 1, total)));
            all.push(threads.spawn(move || read_oddly(server, 1, total, low_water)));
            if !one_way {
                all.push(threads.spawn(move || pour(server, 2, total)));
                all.push(threads.spawn(move || read_oddly(client, 2, total, low_water)));
            }
            let done = all
                .into_iter()
                .map(|thread| thread.join().expect("a thread"));
            done.collect::<Vec<_>>()
        });
        done.into_iter()
            .collect::<Outcome>()
            .and_then(|()| left(&pair))
            .and_then(|()| exchange(&pair.client, &pair.server, &mut at, 3000))
            .map_err(|e| format!("round {round}, {asks:?} after {delay} ms: {e}"))?;
    }
    Ok(())
}

/// A message each way at about the time of which an idle end makes use.
pub(super) fn race() -> Outcome {
    let mut rng = rng();
    let (pair, mut at) = begun(0)?;
    after(4);
    for round in 0..100 {
        until_moved(&pair, &mut at).map_err(|e| format!("round {round}: {e}"))?;
        let (asks, first) = (["a", "b"][rng.draw() as usize % 2], rng.draw() % 2 == 0);
        let (delay, size) = (rng.range(0, 8), rng.size(30_000));
        std::thread::scope(|threads| {
            let asker = threads.spawn(move || demote(asks));
            guest::pause(delay);
            let (from, to) = match first {
                true => (&pair.client, &pair.server),
                false => (&pair.server, &pair.client),
            };
            let done = exchange(from, to, &mut at, size);
            let said = asker.join().expect("the asker");
            done.and(wanted("demote", said.is_empty(), said))
        })
        .map_err(|e| format!("round {round}: {e}"))?;
    }
    Ok(())
}

/// An edge-triggered loop keeps its descriptor, and misses no edge.
pub(super) fn edges() -> Outcome {
    let mut rng = rng();
    for round in 0..12 {
        let (pair, _) = begun(0)?;
        let total = 1 << 20;
        let delay = rng.range(0, 20);
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let all = [
                threads.spawn(move || echo(server, total)),
                threads.spawn(move || pour(client, 3, total as u64)),
                threads.spawn(move || drain(client, 3, total as u64)),
            ];
            guest::pause(delay);
            demote(["a", "b"][round % 2]);
            all.map(|thread| thread.join().expect("a thread"))
        });
        done.into_iter()
            .collect::<Outcome>()
            .map_err(|e| format!("after {delay} ms: {e}"))?;
    }
    Ok(())
}

/// An end says its last and closes, or ends its direction, about when it happens. The other one gets all of it and the
/// end: nothing is wrong with the link.
pub(super) fn closed() -> Outcome {
    let before = smcinfo::references();
    let mut rng = rng();
    for round in 0..60 {
        let (pair, _) = begun(0)?;
        let (closes, stays) = match round % 2 == 0 {
            true => (pair.pair.client, pair.pair.server),
            false => (pair.pair.server, pair.pair.client),
        };
        let asks = ["a", "b"][round / 2 % 2];
        let last = rng.size(60_000) as u64;
        let delay = rng.range(0, 8);
        let half = round % 5 == 0;
        let got = std::thread::scope(|threads| {
            // Not until it says that there are none: one that has closed may stay.
            let asker = threads.spawn(move || {
                for _ in 0..3 {
                    card::rsmc(asks, "demote --all");
                }
            });
            let closer = threads.spawn(move || {
                guest::pause(delay);
                let done = pour(&closes, 5, last);
                if half {
                    sys::shutdown(closes.raw(), libc::SHUT_WR).map_err(|e| format!("{e}"))?;
                    drain(&closes, 6, 5000)?;
                    ends(&closes)?;
                }
                done
            });
            let got = drain(&stays, 5, last).and_then(|()| ends(&stays));
            if half {
                pour(&stays, 6, 5000)?;
                drop(stays);
            }
            asker.join().expect("the asker");
            got.and(closer.join().expect("the closer"))
        });
        got.map_err(|e| format!("round {round}, {asks} asks, {delay} ms: {e}"))?;
    }
    smcinfo::settled(before, 20_000)
}

/// One of which a direction has ended stays where it is.
pub(super) fn half_closed() -> Outcome {
    let (pair, _) = begun(1)?;
    sys::shutdown(pair.client.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
    ends(&pair.server)?;
    guest::pause(3000);
    for ns in ["a", "b"] {
        let said = demote(ns);
        wanted("none", said.contains("no such connection"), said)?;
    }
    pour(&pair.server, 3, 70_000)?;
    sys::shutdown(pair.server.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
    drain(&pair.client, 3, 70_000)?;
    ends(&pair.client)
}

/// The link is lost while the ends agree to leave it.
pub(super) fn lost() -> Outcome {
    let mut rng = rng();
    for round in 0..12 {
        let (pair, _) = begun(0)?;
        let total = 1 << 20;
        let (early, late) = (rng.range(0, 10), rng.range(0, 10));
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let all = [
                threads.spawn(move || pour(client, 1, total)),
                threads.spawn(move || pour(server, 2, total)),
                threads.spawn(move || read_oddly(server, 1, total, false)),
                threads.spawn(move || read_oddly(client, 2, total, false)),
            ];
            let asker = threads.spawn(move || {
                guest::pause(early);
                demote(["a", "b"][round % 2])
            });
            guest::pause(late);
            guest::run("b", "rdma", "link delete card_b");
            asker.join().expect("the asker");
            all.map(|thread| thread.join().expect("a thread"))
        });
        guest::run("b", "rdma", "link add card_b type card netdev vb");
        done.into_iter()
            .collect::<Outcome>()
            .map_err(|e| format!("round {round}, {early} and {late} ms: {e}"))?;
    }
    Ok(())
}

/// Memory is short: those that are idle go, others stay.
pub(super) fn pressure() -> Outcome {
    let (idle, mut at) = begun(0)?;
    let busy = begun(0)?.0;
    // Unread bytes are not idle.
    pour(&busy.client, 3, 3000)?;
    pour(&busy.server, 4, 3000)?;
    exchange(&idle.client, &idle.server, &mut at, 100)?;
    let before = all_returns("pressure");
    let mut gone = false;
    for _ in 0..guest::limit(20) {
        guest::pause(700);
        std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|e| format!("{e}"))?;
        guest::pause(50);
        gone = mode(&idle.client) == PATH && mode(&idle.server) == PATH;
        if gone {
            break;
        }
    }
    wanted("the idle one has gone", gone, idle.info())?;
    left(&idle)?;
    wanted("the other one stays", moved(&busy), busy.info())?;
    let counted = all_returns("pressure") - before;
    wanted("counted", counted > 0, counted)?;
    drain(&busy.server, 3, 3000)?;
    drain(&busy.client, 4, 3000)?;
    exchange(&idle.server, &idle.client, &mut at, 9000)
}

/// TCP_INFO counts each byte of the program once, though TCP has carried some again and the records.
pub(super) fn counted() -> Outcome {
    let (pair, _) = begun(0)?;
    let bytes = |fd: &Fd| -> Result<(u64, u64), String> {
        let info = sys::getopt_raw(fd.raw(), libc::IPPROTO_TCP, libc::TCP_INFO, 232);
        let info = info.map_err(|e| format!("TCP_INFO: {e}"))?;
        let word = |at: usize| {
            let word = info.get(at..at + 8)?;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        };
        // tcpi_bytes_sent, tcpi_bytes_received.
        Ok((word(200).ok_or("short")?, word(128).ok_or("short")?))
    };
    let (out, _) = bytes(&pair.client)?;
    let (_, got) = bytes(&pair.server)?;
    let total = 600_000;
    std::thread::scope(|threads| {
        let client = &pair.client;
        let sender = threads.spawn(move || pour(client, 1, total));
        guest::pause(5);
        demote("a");
        let got = drain(&pair.server, 1, total);
        sender.join().expect("the sender").and(got)
    })?;
    left(&pair)?;
    let (after_out, after_got) = (bytes(&pair.client)?.0 - out, bytes(&pair.server)?.1 - got);
    let both = (after_out, after_got);
    // TCP may have sent some again.
    wanted("sent", (total..total + total / 10).contains(&both.0), both)?;
    wanted("received", both.1 == total, both)
}

/// Bytes of the kernel's slabs that are in use.
fn slabs() -> u64 {
    let text = std::fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    let used = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let objects: u64 = words.next()?.parse().ok()?;
        let size: u64 = words.nth(1)?.parse().ok()?;
        Some(objects * size)
    };
    text.lines().filter_map(used).sum()
}

/// What an end of a connection that was promoted and has gone back keeps, beside what it had before that.
pub(super) fn memory() -> Outcome {
    const COUNT: usize = 60;
    const MOST: u64 = 1024;
    set(&["a", "b"], "path_idle", 0);
    set(&["a", "b"], "neighbour_time", 0);
    after(60);
    let (listener, to) = listener();
    let mut pairs = vec![];
    for _ in 0..COUNT {
        let pair = connect(&listener, to)?;
        let mut at = 0;
        for _ in 0..10 {
            exchange(&pair.client, &pair.server, &mut at, 64)?;
            exchange(&pair.server, &pair.client, &mut at, 64)?;
        }
        pairs.push((pair, at));
    }
    guest::pause(1000);
    let cold = slabs();
    for (pair, at) in &mut pairs {
        until_moved(pair, at)?;
    }
    after(1 << 20);
    guest::pause(1000);
    let hot = slabs();
    for (pair, _) in &pairs {
        demote("a");
        left(pair)?;
    }
    guest::pause(3000);
    let back = slabs();
    let ends = 2 * COUNT as u64;
    let each = back.saturating_sub(cold) / ends;
    println!(
        "# an end: {} more while promoted, {each} more afterwards",
        hot.saturating_sub(cold) / ends
    );
    if cold == 0 || guest::keeps_freed() {
        // This kernel does not tell, or keeps what was freed.
        return Ok(());
    }
    wanted("bytes of an end", each <= MOST, each)
}
