// SPDX-License-Identifier: GPL-2.0
//! Connections between the namespaces `a` and `b` that begin as TCP and move to SMC-R in the midst of their streams
//! (`net.smc.path` 2), over a model card (`kmod/card`) or soft-RoCE. Whatever the programs do meanwhile, each
//! byte comes once and in its order, and an end comes after the last of them.
//!
//! `promote [--seed NUMBER] [--losses NUMBER] [--count NUMBER] [--slots NUMBER] [--mb NUMBER] [POINT...]`: `lost` and
//! `idle` stand for all points that begin so, which need model cards; so do `chaos`, with so many losses, `lots` and
//! `stalls`, with so many connections, `volume`, with so many mebibytes, and those of `default`, which set nothing
//! before. Those of `software` do not either, and need soft-RoCE.

mod chaos;
mod default;
mod idle;
mod load;
mod loss;
mod migration;
mod rewritten;
mod seen;
mod snat;
mod volume;

use st::args::Args;
use st::card::{wanted, Outcome, Pair};
use st::errno::R;
use st::fd::Fd;
use st::guest::{self, within};
use st::ktap::Ktap;
use st::rng::{check, fill, Rng};
use st::{family, net, smcinfo, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

type Point = (&'static str, fn() -> Outcome);

/// The points, by name.
const POINTS: [Point; 69] = [
    ("pingpong", pingpong),
    ("bulk.to_server", bulk_to_server),
    ("bulk.to_client", bulk_to_client),
    ("bulk.both", bulk_both),
    ("epoll", epoll),
    ("calls", calls),
    ("threads", threads),
    ("many", many),
    ("close.server", close_server),
    ("close.client", close_client),
    ("half_close", half_close),
    ("reset", reset),
    ("late_listener", late_listener),
    ("plain_server", plain_server),
    ("off", off),
    ("churn", churn),
    ("held", held),
    ("lost.idle", loss::idle),
    ("lost.unread", loss::unread),
    ("lost.peeked", loss::peeked),
    ("lost.calls", loss::calls),
    ("lost.edges", loss::edges),
    ("lost.half_closed", loss::half_closed),
    ("lost.closed", loss::closed),
    ("lost.cut", loss::cut),
    ("lost.after", loss::after_close),
    ("lost.many", loss::many),
    ("lost.forgotten", loss::forgotten),
    ("lost.unsure", loss::unsure),
    ("lost.turning", loss::turning),
    ("lost.silent", loss::silent),
    ("lost.again", loss::again),
    ("lost.migrated", migration::migrated),
    ("exclusive.namespace", migration::namespace),
    ("snat.promoted", snat::promoted),
    ("snat.unrouted", snat::unrouted),
    ("snat.forged", snat::forged),
    ("idle.again", idle::returns_again),
    ("idle.stays", idle::stays),
    ("idle.unread", idle::unread),
    ("idle.calls", idle::calls),
    ("idle.race", idle::race),
    ("idle.edges", idle::edges),
    ("idle.closed", idle::closed),
    ("idle.half_closed", idle::half_closed),
    ("idle.lost", idle::lost),
    ("idle.pressure", idle::pressure),
    ("idle.counted", idle::counted),
    ("idle.memory", idle::memory),
    ("idle.worse", idle::worse),
    ("polled", seen::polled),
    ("seen.steps", seen::steps),
    ("seen.unreached", seen::unreached),
    ("seen.refused", seen::refused),
    ("seen.declined", seen::declined),
    ("seen.breach", seen::breach),
    ("chaos.kept", chaos::lost),
    ("chaos.sides", chaos::sides_lost),
    ("rewritten.longer", rewritten::longer),
    ("rewritten.shorter", rewritten::shorter),
    ("lots", chaos::lots),
    ("stalls", chaos::stalls),
    ("volume", volume::volume),
    ("default.values", default::values),
    ("default.promotes", default::promotes),
    ("default.other_hosts", default::other_hosts),
    ("default.programs", default::programs),
    ("software.stays", default::soft),
    ("software.none", default::none),
];

/// Modes of `RSMC_INFO`.
const SMC: u32 = 0;
const PATH: u32 = 3;

static SEED: AtomicU64 = AtomicU64::new(0);

fn rng() -> Rng {
    let seed = SEED.fetch_add(1, Relaxed);
    Rng::new(seed)
}

/// Writes a setting of one namespace or both.
fn set(namespaces: &'static [&'static str], name: &'static str, value: u32) {
    for ns in namespaces {
        within(ns, move || {
            net::sysctl(&format!("net.smc.{name}"), &value.to_string())
        })
        .expect("sysctl");
    }
}

/// Has connections move after so many segments of data.
fn after(segments: u32) {
    set(&["a", "b"], "path_promote", segments);
}

fn mode(fd: &Fd) -> u32 {
    smcinfo::info(fd.raw()).expect("info").mode
}

/// A connection whose server goes on listening: kernels speak over another one to its address and port.
struct Begun {
    pair: Pair,
    _listener: Fd,
}

impl std::ops::Deref for Begun {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

fn begin() -> Result<Begun, String> {
    let (listener, to) = listener();
    let pair = connect(&listener, to)?;
    let modes = (mode(&pair.client), mode(&pair.server));
    wanted("begins as TCP", modes == (PATH, PATH), modes)?;
    Ok(Begun {
        pair,
        _listener: listener,
    })
}

fn moved(pair: &Pair) -> bool {
    (mode(&pair.client), mode(&pair.server)) == (SMC, SMC)
}

/// Sends bytes of a stream from a position on, and has the other end read them.
fn exchange(from: &Fd, to: &Fd, at: &mut u64, len: usize) -> Outcome {
    let mut bytes = vec![0; len];
    fill(7, *at, &mut bytes);
    sys::send_all(from.raw(), &bytes).map_err(|e| format!("send at {at}: {e}"))?;
    let got = sys::recv_all(to.raw(), len).map_err(|e| format!("recv at {at}: {e}"))?;
    wanted("bytes", got == bytes, (*at, got.len()))?;
    *at += len as u64;
    Ok(())
}

/// Exchanges messages until both ends have moved.
fn until_moved(pair: &Pair, at: &mut u64) -> Outcome {
    for _ in 0..20_000 {
        exchange(&pair.client, &pair.server, at, 64)?;
        exchange(&pair.server, &pair.client, at, 64)?;
        if moved(pair) {
            return Ok(());
        }
    }
    Err(format!("not moved: {:x?}", pair.info()))
}

/// The end of a stream, seen from an end that has read all.
fn ends(fd: &Fd) -> Outcome {
    match sys::recv_vec(fd.raw(), 100, 0) {
        Ok(rest) => wanted("the end", rest.is_empty(), rest.len()),
        Err(error) => Err(format!("the end: {error}")),
    }
}

fn pingpong() -> Outcome {
    after(32);
    let pair = begin()?;
    let mut at = 0;
    until_moved(&pair, &mut at)?;
    for _ in 0..1000 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 100)?;
    }
    let Pair { client, server } = pair.pair;
    drop(client);
    ends(&server)
}

/// A server that has said that more is to follow, and says nothing more, does not keep the client's end back.
fn held() -> Outcome {
    after(8);
    let pair = begin()?;
    let mut at = 0;
    for _ in 0..12 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        let mut bytes = [0; 64];
        fill(7, at, &mut bytes);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_MORE;
        let sent = sys::send(pair.server.raw(), &bytes, flags);
        let sent = sent.map_err(|e| format!("send: {e}"))?;
        wanted("sent", sent == 64, sent)?;
        let got = sys::recv_all(pair.client.raw(), 64).map_err(|e| format!("recv: {e}"))?;
        wanted("bytes", got == bytes, at)?;
        at += 64;
        let step = seen::step("b", &pair.server)?;
        if step > 1 {
            break;
        }
    }
    let mut waits = guest::limit(8000);
    while !moved(&pair) && waits > 0 {
        sys::sleep_ms(1);
        waits -= 1;
    }
    wanted("moved", moved(&pair), pair.info())?;
    sys::shutdown(pair.client.raw(), libc::SHUT_RDWR).map_err(|e| format!("shutdown: {e}"))?;
    ends(&pair.server)
}

/// Sends `total` bytes of a stream in pieces of random size, and then, if `shuts`, the end.
fn pour(fd: &Fd, seed: u64, total: u64) -> Outcome {
    let mut rng = rng();
    let mut at = 0;
    while at < total {
        let len = rng.size(100 << 10).min((total - at) as usize);
        let mut bytes = vec![0; len];
        fill(seed, at, &mut bytes);
        let sent = sys::send_all(fd.raw(), &bytes);
        if let Err(error) = sent {
            // The reader, who waits for the rest, says so later.
            println!("# send at {at}: {error}");
            return Err(format!("send at {at}: {error}"));
        }
        at += len as u64;
    }
    Ok(())
}

fn drain(fd: &Fd, seed: u64, total: u64) -> Outcome {
    let mut rng = rng();
    let mut at = 0;
    while at < total {
        let len = rng.size(100 << 10).min((total - at) as usize);
        let got = sys::recv_vec(fd.raw(), len, 0).map_err(|e| format!("recv at {at}: {e}"))?;
        wanted("an end", !got.is_empty(), at)?;
        check(seed, at, &got).map_err(|wrong| format!("byte {wrong} is wrong"))?;
        at += got.len() as u64;
    }
    Ok(())
}

/// Streams, each from an end to the other one at once.
fn streams(pair: &Pair, flows: &[(bool, u64)]) -> Outcome {
    std::thread::scope(|threads| {
        let mut all = vec![];
        for &(to_server, total) in flows {
            let (from, to) = match to_server {
                true => (&pair.client, &pair.server),
                false => (&pair.server, &pair.client),
            };
            let seed = u64::from(to_server);
            all.push(threads.spawn(move || pour(from, seed, total)));
            all.push(threads.spawn(move || drain(to, seed, total)));
        }
        all.into_iter()
            .try_for_each(|thread| thread.join().expect("a thread"))
    })
}

fn bulk(flows: &[(bool, u64)]) -> Outcome {
    after(64);
    let pair = begin()?;
    streams(&pair, flows)?;
    wanted("moved", moved(&pair), pair.info())?;
    let Pair { client, server } = pair.pair;
    drop(server);
    ends(&client)
}

fn bulk_to_server() -> Outcome {
    bulk(&[(true, 16 << 20)])
}

fn bulk_to_client() -> Outcome {
    bulk(&[(false, 16 << 20)])
}

fn bulk_both() -> Outcome {
    bulk(&[(true, 8 << 20), (false, 8 << 20)])
}

/// An edge-triggered loop at the server, which sends back what it gets, with one descriptor from beginning to end.
fn echo(fd: &Fd, total: usize) -> Outcome {
    // SAFETY: no pointers.
    let epoll = Fd::new(unsafe { libc::epoll_create1(0) });
    let edges = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
    let mut event = libc::epoll_event {
        events: edges as u32,
        u64: 1,
    };
    // SAFETY: `event` is one.
    unsafe { libc::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, fd.raw(), &mut event) };
    sys::nonblock(fd.raw(), true);
    let (mut read, mut back) = (0, vec![]);
    let (mut readable, mut writable) = (false, false);
    while read < total || !back.is_empty() {
        let wait = match readable && read < total || writable && !back.is_empty() {
            true => 0,
            false => guest::limit(10_000) as i32,
        };
        // SAFETY: `event` is one.
        let count = unsafe { libc::epoll_wait(epoll.raw(), &mut event, 1, wait) };
        let events = if count == 1 { event.events as i32 } else { 0 };
        wanted("an event", count != 0 || wait == 0, (read, back.len()))?;
        let bad = events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR);
        wanted("no end", bad == 0, (read, events))?;
        readable |= events & libc::EPOLLIN != 0;
        writable |= events & libc::EPOLLOUT != 0;
        if readable && read < total && back.len() < 1 << 20 {
            match sys::recv_vec(fd.raw(), 3000, 0) {
                Ok(got) => {
                    wanted("bytes", !got.is_empty(), read)?;
                    read += got.len();
                    back.extend(got);
                }
                Err(error) if error.0 == libc::EAGAIN => readable = false,
                Err(error) => return Err(format!("recv: {error}")),
            }
        }
        if writable && !back.is_empty() {
            match sys::send(fd.raw(), &back, libc::MSG_NOSIGNAL) {
                Ok(taken) => drop(back.drain(..taken as usize)),
                Err(error) if error.0 == libc::EAGAIN => writable = false,
                Err(error) => return Err(format!("send: {error}")),
            }
        }
    }
    Ok(())
}

fn epoll() -> Outcome {
    after(40);
    let pair = begin()?;
    let total = 4 << 20;
    std::thread::scope(|threads| {
        let server = threads.spawn(|| echo(&pair.server, total));
        let client = threads.spawn(|| drain(&pair.client, 3, total as u64));
        let mut rng = rng();
        let mut at = 0;
        // Small messages first, so that the switch is among them.
        while at < total {
            let len = match at {
                0..10_000 => rng.range(1, 100) as usize,
                _ => rng.size(40_000),
            };
            let mut bytes = vec![0; len.min(total - at)];
            fill(3, at as u64, &mut bytes);
            sys::send_all(pair.client.raw(), &bytes).map_err(|e| format!("send: {e}"))?;
            at += bytes.len();
        }
        server.join().expect("the server")?;
        client.join().expect("the client")
    })?;
    wanted("moved", moved(&pair), pair.info())
}

/// A reader that reads in many ways, also with `SO_RCVLOWAT` if `low_water`, which keeps a connection on TCP as long.
fn read_oddly(fd: &Fd, seed: u64, total: u64, low_water: bool) -> Outcome {
    let mut rng = rng();
    let mut at = 0;
    let mut moved = (at, Instant::now());
    while at < total {
        if moved.0 != at {
            moved = (at, Instant::now());
        }
        // Some of the ways do not wait.
        let waited = moved.1.elapsed() > Duration::from_secs(10 * guest::slow());
        wanted("more bytes", !waited, (at, total, smcinfo::info(fd.raw())))?;
        let most = (total - at) as usize;
        let len = rng.size(20_000).min(most);
        let fails = |what: &'static str, at| move |e| format!("{what} at {at}: {e}");
        let got = match rng.range(0, 6) {
            5 if !low_water => continue,
            0 => sys::recv_vec(fd.raw(), len, libc::MSG_WAITALL).map_err(fails("waitall", at))?,
            1 => {
                let seen =
                    sys::recv_vec(fd.raw(), len, libc::MSG_PEEK).map_err(fails("peek", at))?;
                check(seed, at, &seen).map_err(|wrong| format!("peeked byte {wrong} is wrong"))?;
                let got = sys::recv_vec(fd.raw(), seen.len(), libc::MSG_WAITALL)
                    .map_err(fails("after a peek", at))?;
                wanted("as peeked", got == seen, (at, got.len(), seen.len()))?;
                got
            }
            2 => {
                let wait = libc::MSG_PEEK | libc::MSG_WAITALL;
                let len = len.min(2000);
                let seen = sys::recv_vec(fd.raw(), len, wait).map_err(fails("peek all", at))?;
                wanted("all peeked", seen.len() == len, (at, seen.len(), len))?;
                check(seed, at, &seen).map_err(|wrong| format!("peeked byte {wrong} is wrong"))?;
                continue;
            }
            3 => match sys::recv_vec(fd.raw(), len, libc::MSG_DONTWAIT) {
                Ok(got) => got,
                Err(error) if error.0 == libc::EAGAIN => {
                    sys::poll1(fd.raw(), libc::POLLIN, 10).map_err(fails("poll", at))?;
                    continue;
                }
                Err(error) => return Err(fails("dontwait", at)(error)),
            },
            4 => {
                let there = sys::ioctl_get(fd.raw(), libc::FIONREAD).map_err(fails("ioctl", at))?;
                let there = (there as usize).min(most);
                if there == 0 {
                    continue;
                }
                let got = sys::recv_vec(fd.raw(), there, libc::MSG_DONTWAIT)
                    .map_err(fails("what is there", at))?;
                wanted(
                    "what was said to be there",
                    got.len() == there,
                    (at, got.len(), there),
                )?;
                got
            }
            5 => {
                let low = rng.range(1, 1000).min(total - at) as i32;
                let _ = sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, low);
                let events = sys::poll1(fd.raw(), libc::POLLIN, guest::limit(10_000) as i32);
                let got = sys::recv_vec(fd.raw(), len.max(low as usize), libc::MSG_DONTWAIT);
                let _ = sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1);
                let got = got.map_err(|e| format!("low water {low} at {at}: {e}, {events:?}"))?;
                wanted("low water", got.len() >= low as usize, (at, got.len(), low))?;
                got
            }
            _ => sys::recv_vec(fd.raw(), len, 0).map_err(fails("recv", at))?,
        };
        wanted("an end", !got.is_empty(), at)?;
        check(seed, at, &got)
            .map_err(|wrong| format!("byte {wrong} is wrong, read from {at} on"))?;
        at += got.len() as u64;
    }
    Ok(())
}

/// Both ends write pieces of all sizes and read them in many ways, while they move.
fn calls() -> Outcome {
    for round in 0..20 {
        after(8 + 7 * round);
        let pair = begin()?;
        let total = 1 << 20;
        let low_water = round % 4 == 0;
        std::thread::scope(|threads| {
            let all = [
                threads.spawn(|| pour(&pair.client, 1, total)),
                threads.spawn(|| pour(&pair.server, 2, total)),
                threads.spawn(|| read_oddly(&pair.server, 1, total, low_water)),
                threads.spawn(|| read_oddly(&pair.client, 2, total, low_water)),
            ];
            all.into_iter()
                .try_for_each(|thread| thread.join().expect("a thread"))
        })?;
        if !low_water {
            let mut at = 0;
            until_moved(&pair, &mut at)?;
        }
    }
    Ok(())
}

/// Two threads write records at one end, never more than there is room for: each record comes whole.
fn threads() -> Outcome {
    const RECORD: usize = 512;
    const EACH: u32 = 4000;
    const UNREAD: u64 = 8192;
    after(100);
    let pair = begin()?;
    let (begun, read) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = |of: u8| -> R<()> {
        for number in 0..EACH {
            let own = begun.fetch_add(RECORD as u64, Relaxed);
            while own > read.load(Relaxed) + UNREAD {
                std::thread::yield_now();
            }
            let mut record = [of; RECORD];
            record[1..5].copy_from_slice(&number.to_le_bytes());
            let taken = sys::send(pair.client.raw(), &record, libc::MSG_NOSIGNAL)?;
            assert_eq!(taken as usize, RECORD);
        }
        Ok(())
    };
    let take_all = || -> Outcome {
        let mut next = [0; 3];
        for _ in 0..2 * EACH {
            let record = sys::recv_vec(pair.server.raw(), RECORD, libc::MSG_WAITALL);
            let record = record.map_err(|e| format!("recv: {e}"))?;
            wanted("a record", record.len() == RECORD, record.len())?;
            let of = record[0];
            let whole = record[5..].iter().all(|byte| *byte == of);
            wanted("whole", whole && (1..3).contains(&of), of)?;
            let number = u32::from_le_bytes(record[1..5].try_into().expect("four"));
            wanted("order", next[usize::from(of)] == number, (of, number))?;
            next[usize::from(of)] += 1;
            read.fetch_add(RECORD as u64, Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let writers = [threads.spawn(|| write(1)), threads.spawn(|| write(2))];
        let got = take_all();
        // Whatever it was, the writers are to end.
        read.store(u64::MAX / 2, Relaxed);
        for writer in writers {
            let done = writer.join().expect("a writer");
            done.map_err(|e| format!("send: {e}"))?;
        }
        got
    })?;
    wanted("moved", moved(&pair), pair.info())
}

/// A listener in `b`, and its address.
fn listener() -> (Fd, SocketAddr) {
    let fd = within("b", || {
        let fd = st::card::socket();
        let to = guest::sockaddr(true, family::Ip::V4, 0);
        sys::bind(fd.raw(), &to).expect("bind");
        sys::listen(fd.raw(), 128).expect("listen");
        fd
    });
    let to = sys::sockname(fd.raw()).expect("name");
    (fd, to)
}

fn connect(listener: &Fd, to: SocketAddr) -> Result<Pair, String> {
    let client = within("a", move || {
        let fd = st::card::socket();
        sys::connect(fd.raw(), &to).map(|_| fd)
    })
    .map_err(|e| format!("connect: {e}"))?;
    let server = sys::accept(listener.raw()).map_err(|e| format!("accept: {e}"))?;
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let _ = sys::set_timeo(server.raw(), name, 60_000 * guest::slow() as i64);
    }
    Ok(Pair { client, server })
}

/// Many connections move at once, and accept() gives none but the programs'.
fn many() -> Outcome {
    after(32);
    let (listener, to) = listener();
    let mut pairs = vec![];
    for _ in 0..60 {
        pairs.push(connect(&listener, to)?);
    }
    sys::nonblock(listener.raw(), true);
    let nobody = |what: &str| {
        let events = sys::poll1(listener.raw(), libc::POLLIN, 0).map_err(|e| e.to_string())?;
        wanted(what, events == 0, events)?;
        let more = sys::accept(listener.raw());
        let none = matches!(&more, Err(error) if error.0 == libc::EAGAIN);
        wanted(what, none, more.map(|fd| fd.raw()))
    };
    let mut at = vec![0; pairs.len()];
    let mut left = pairs.len();
    for round in 0..20_000 {
        if left == 0 {
            break;
        }
        for (pair, at) in pairs.iter().zip(&mut at) {
            exchange(&pair.client, &pair.server, at, 64)?;
            exchange(&pair.server, &pair.client, at, 64)?;
        }
        nobody("nobody else comes")?;
        left = pairs.iter().filter(|pair| !moved(pair)).count();
        if round % 100 == 99 {
            sys::sleep_ms(10);
        }
    }
    wanted("moved", left == 0, left)?;
    nobody("nobody has come")
}

/// Messages both ways, and in the midst of them an end sends `last` bytes and closes: the other end gets them all, and
/// then the end.
fn closes(by_server: bool) -> Outcome {
    let (listener, to) = listener();
    let mut rng = rng();
    let mut told = [0; 2];
    for _ in 0..150 {
        after(8);
        let pair = connect(&listener, to)?;
        let mut at = 0;
        for _ in 0..rng.range(0, 30) {
            exchange(&pair.client, &pair.server, &mut at, 64)?;
            exchange(&pair.server, &pair.client, &mut at, 64)?;
        }
        let last = rng.size(60_000) as u64;
        let (closes, stays) = match by_server {
            true => (pair.server, pair.client),
            false => (pair.client, pair.server),
        };
        std::thread::scope(|threads| {
            let closer = threads.spawn(move || {
                let done = pour(&closes, 5, last);
                drop(closes);
                done
            });
            let got = drain(&stays, 5, last).and_then(|()| ends(&stays));
            closer.join().expect("the closer").and(got)
        })?;
        told[usize::from(mode(&stays) == SMC)] += 1;
    }
    // Otherwise the ends have not come at all moments.
    wanted("both kinds", told.iter().all(|count| *count > 0), told)
}

fn close_server() -> Outcome {
    closes(true)
}

fn close_client() -> Outcome {
    closes(false)
}

/// An end ends its direction in the midst of the switch; the other direction goes on.
fn half_close() -> Outcome {
    let (listener, to) = listener();
    let mut rng = rng();
    for round in 0..100 {
        after(8);
        let pair = connect(&listener, to)?;
        let mut at = 0;
        for _ in 0..rng.range(0, 20) {
            exchange(&pair.client, &pair.server, &mut at, 64)?;
            exchange(&pair.server, &pair.client, &mut at, 64)?;
        }
        let (first, second) = match round % 2 == 0 {
            true => (&pair.client, &pair.server),
            false => (&pair.server, &pair.client),
        };
        sys::send_all(first.raw(), b"last").map_err(|e| format!("send: {e}"))?;
        sys::shutdown(first.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
        let refused = sys::send(first.raw(), b"x", libc::MSG_NOSIGNAL);
        let pipe = matches!(&refused, Err(error) if error.0 == libc::EPIPE);
        wanted("EPIPE", pipe, refused)?;
        let got = sys::recv_all(second.raw(), 4).map_err(|e| format!("last: {e}"))?;
        wanted("the last", got == b"last", got)?;
        ends(second)?;
        let total = rng.size(200_000) as u64;
        std::thread::scope(|threads| {
            let sender = threads.spawn(|| pour(second, 9, total));
            let got = drain(first, 9, total);
            sender.join().expect("the sender").and(got)
        })?;
        sys::shutdown(second.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown 2: {e}"))?;
        ends(first)?;
    }
    Ok(())
}

/// An end resets the connection in the midst of the switch: the other one hears of it, and nothing hangs.
fn reset() -> Outcome {
    let (listener, to) = listener();
    let mut rng = rng();
    for round in 0..100 {
        after(8);
        let pair = connect(&listener, to)?;
        let mut at = 0;
        for _ in 0..rng.range(4, 20) {
            exchange(&pair.client, &pair.server, &mut at, 64)?;
            exchange(&pair.server, &pair.client, &mut at, 64)?;
        }
        let (resets, other) = match round % 2 == 0 {
            true => (pair.client, pair.server),
            false => (pair.server, pair.client),
        };
        let _ = sys::linger(resets.raw(), 1, 0);
        drop(resets);
        let end = sys::recv_vec(other.raw(), 100, 0);
        let told = matches!(&end, Err(error) if error.0 == libc::ECONNRESET);
        wanted("ECONNRESET", told, end)?;
    }
    Ok(())
}

/// Exchanges many messages on a connection that is to stay TCP's.
fn stays(pair: &Pair, reason: u32) -> Outcome {
    let mut at = 0;
    for _ in 0..400 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 3000)?;
    }
    let (client, server) = pair.info();
    let good = client.mode == PATH && server.mode == PATH;
    wanted("TCP", good, (client, server))?;
    wanted("reason", client.reason == reason, client)
}

const PATHREMOTE: u32 = 0x0306_0103;
const PATHUNREACHED: u32 = 0x0306_010d;

/// Nobody listens any more at the server's port.
fn late_listener() -> Outcome {
    after(16);
    let (listener, to) = listener();
    let pair = connect(&listener, to)?;
    drop(listener);
    stays(&pair, PATHUNREACHED)
}

/// The server wants CLC messages before data.
fn plain_server() -> Outcome {
    after(16);
    set(&["b"], "path", 1);
    let done = Pair::new().and_then(|pair| pair.is_smc());
    set(&["b"], "path", 2);
    done
}

/// It is switched off.
fn off() -> Outcome {
    after(0);
    stays(&begin()?.pair, PATHREMOTE)
}

/// Short connections, of which many end while they move, leave nothing.
fn churn() -> Outcome {
    let before = smcinfo::references();
    {
        let (listener, to) = listener();
        let mut rng = rng();
        for _ in 0..300 {
            after(2);
            let pair = connect(&listener, to)?;
            let mut at = 0;
            for _ in 0..rng.range(1, 6) {
                exchange(&pair.client, &pair.server, &mut at, 64)?;
                exchange(&pair.server, &pair.client, &mut at, 64)?;
            }
        }
    }
    smcinfo::settled(before, 20_000)
}

/// Has no thread hear of SIGCHLD.
fn block_child_signals() {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

fn main() {
    let args = Args::get();
    let seed = args.num("seed", u64::from(std::process::id()));
    SEED.store(seed << 20, Relaxed);
    // What needs one kind of device, or nothing set, is asked for by name.
    let apart = |name: &str| {
        [
            "lost.",
            "idle.",
            "exclusive.",
            "snat.",
            "rewritten.",
            "chaos",
            "lots",
            "stalls",
            "volume",
            "default.",
            "software.",
        ]
        .iter()
        .any(|a| name.starts_with(a))
    };
    let picked = |name: &str| match &args.words[..] {
        [] => !apart(name),
        words => words.iter().any(|word| {
            let rest = name.strip_prefix(word.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }),
    };
    // That of a program which has ended would interrupt calls of sockets with a timeout.
    block_child_signals();
    for (name, value) in [
        ("losses", &chaos::LOSSES),
        ("count", &chaos::COUNT),
        ("slots", &chaos::SLOTS),
        ("mb", &volume::MB),
    ] {
        value.store(args.num(name, value.load(Relaxed)), Relaxed);
    }
    let points: Vec<_> = POINTS.iter().filter(|point| picked(point.0)).collect();
    if !points
        .iter()
        .any(|point| point.0.starts_with("default.") || point.0.starts_with("software."))
    {
        set(&["a", "b"], "path", 2);
        set(&["a", "b"], "path_software", 1);
    }
    let mut ktap = Ktap::plan(points.len());
    ktap.diag(&format!("seed {seed}"));
    for (name, run) in points {
        ktap.outcome(name, run());
    }
    std::process::exit(ktap.finish());
}
