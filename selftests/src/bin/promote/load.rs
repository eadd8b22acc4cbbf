// SPDX-License-Identifier: GPL-2.0
//! Connections of many kinds for [`chaos`](super::chaos): what their programs do, what became of each, and how long it
//! stood still.

use super::{
    check, connect, fill, listener, seen, smcinfo, sys, AtomicU64, Fd, Instant, Pair, Relaxed, Rng,
    SocketAddr, SMC,
};
use st::errno::Errno;
use st::guest;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::Mutex;

const PATHRETURNED: u32 = 0x0306_010f;

/// What a program has met.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection was lost.
    Lost(Errno),
    /// The stream has ended before its end: at one end after the error was told to another call.
    Ended(String),
    /// Bytes are wrong, or a call has waited far too long, or something else cannot be.
    Wrong(String),
}

impl Fault {
    fn of(what: &str, at: u64, error: Errno) -> Self {
        match error.0 {
            libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE => Self::Lost(error),
            libc::EAGAIN => Self::Wrong(format!("{what} at {at} hangs")),
            _ => Self::Wrong(format!("{what} at {at}: {error}")),
        }
    }
}

type Done = Result<(), Fault>;

/// What all connections of a run have come to.
#[derive(Default)]
pub(super) struct Tally {
    /// Connections that are SMC-R at both ends, as far as was seen.
    pub(super) hot: AtomicUsize,
    /// Connections.
    pub(super) all: AtomicU64,
    /// Bytes that were read, and were right.
    pub(super) bytes: AtomicU64,
    /// Times that a connection was seen to have become SMC-R, and to have gone back to TCP.
    pub(super) promoted: AtomicU64,
    pub(super) returned: AtomicU64,
    /// Connections that were promoted at least once.
    pub(super) ever: AtomicU64,
    /// Lost since an end had closed.
    pub(super) closed: AtomicU64,
    /// Lost before both ends had turned, or knew it.
    pub(super) turning: AtomicU64,
    /// What cannot be.
    pub(super) wrong: Mutex<Vec<String>>,
    /// No connection is to be promoted.
    pub(super) keeps_carrier: bool,
    /// The longest time that the readers of each promoted connection waited, or of all if none is to be promoted, in
    /// microseconds.
    pub(super) waits: Mutex<Vec<u64>>,
}

impl Tally {
    /// The time within which so many of 1,000 connections have gone on, in milliseconds.
    pub(super) fn wait(&self, of_thousand: usize) -> f64 {
        let mut all = self.waits.lock().expect("waits").clone();
        all.sort_unstable();
        let at = (all.len() * of_thousand / 1000).min(all.len().saturating_sub(1));
        all.get(at).map_or(0.0, |micros| *micros as f64 / 1000.0)
    }

    pub(super) fn told(&self, what: String) {
        println!("# {what}");
        self.wrong.lock().expect("wrong").push(what);
    }
}

/// What the programs of a connection do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests and answers.
    Asks,
    /// Much, both ways at once.
    Bulk,
    /// Requests before the answers to earlier ones have come.
    Ahead,
    /// The same, with an edge-triggered loop at the server.
    Edges,
    /// poll(), MSG_PEEK, MSG_WAITALL and others.
    Oddly,
    /// One direction ends before the other.
    Half,
    /// An end closes.
    Closes,
}

const KINDS: [Kind; 7] = [
    Kind::Asks,
    Kind::Bulk,
    Kind::Ahead,
    Kind::Edges,
    Kind::Oddly,
    Kind::Half,
    Kind::Closes,
];

/// A connection, and what is seen of it meanwhile.
struct Life<'a> {
    tally: &'a Tally,
    pair: Pair,
    /// The longest wait of a reader, in microseconds.
    wait: AtomicU64,
    is_hot: AtomicBool,
    returned: AtomicU64,
    promoted: AtomicU64,
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if self.is_hot.load(Relaxed) {
            self.tally.hot.fetch_sub(1, Relaxed);
        }
    }
}

impl Life<'_> {
    /// Looks what carries it.
    fn look(&self) {
        let ends = [&self.pair.client, &self.pair.server].map(|fd| smcinfo::info(fd.raw()));
        let hot = ends
            .iter()
            .all(|end| end.is_ok_and(|info| info.mode == SMC));
        // Others may find the same.
        let was = self.is_hot.swap(hot, Relaxed);
        match (was, hot) {
            (false, true) => {
                self.promoted.fetch_add(1, Relaxed);
                self.tally.hot.fetch_add(1, Relaxed);
            }
            (true, false) => {
                self.tally.hot.fetch_sub(1, Relaxed);
                let info = smcinfo::info(self.pair.client.raw());
                let returned = info.is_ok_and(|info| info.reason == PATHRETURNED);
                self.returned.fetch_add(returned.into(), Relaxed);
            }
            _ => (),
        }
    }

    fn waited(&self, since: &mut Instant) {
        let now = Instant::now();
        let micros = now.duration_since(*since).as_micros() as u64;
        self.wait.fetch_max(micros, Relaxed);
        *since = now;
    }

    /// Writes the bytes of a stream from `at` on, in pieces of up to `most` bytes.
    fn write(&self, fd: &Fd, seed: u64, range: (u64, u64), most: u64, rng: &mut Rng) -> Done {
        let (mut at, end) = range;
        while at < end {
            let len = rng.size(most).min((end - at) as usize);
            let mut bytes = vec![0; len];
            fill(seed, at, &mut bytes);
            sys::send_all(fd.raw(), &bytes).map_err(|e| Fault::of("send", at, e))?;
            at += len as u64;
        }
        Ok(())
    }

    /// Reads them.
    fn read(&self, fd: &Fd, seed: u64, range: (u64, u64), most: u64, rng: &mut Rng) -> Done {
        let (mut at, end) = range;
        let mut since = Instant::now();
        let mut calls = 0;
        while at < end {
            let len = rng.size(most).min((end - at) as usize);
            let got = recv(fd.raw(), len, 0).map_err(|e| Fault::of("recv", at, e))?;
            self.waited(&mut since);
            at = self.right(seed, at, &got)?;
            calls += 1;
            if calls % 8 == 0 {
                self.look();
            }
        }
        Ok(())
    }

    /// Takes note of bytes that were read at a position. Returns the next one.
    fn right(&self, seed: u64, at: u64, got: &[u8]) -> Result<u64, Fault> {
        if got.is_empty() {
            return Err(Fault::Ended(format!("an end at {at}")));
        }
        check(seed, at, got)
            .map_err(|wrong| Fault::Wrong(format!("byte {wrong} is wrong, read from {at} on")))?;
        self.tally.bytes.fetch_add(got.len() as u64, Relaxed);
        Ok(at + got.len() as u64)
    }

    /// Reads the end.
    fn ends(&self, fd: &Fd, at: u64) -> Done {
        match recv(fd.raw(), 100, 0) {
            Ok(rest) if rest.is_empty() => Ok(()),
            Ok(rest) => Err(Fault::Wrong(format!("{} bytes behind {at}", rest.len()))),
            Err(error) => Err(Fault::of("the end", at, error)),
        }
    }

    fn asks(&self, rng: &mut Rng) -> Done {
        let Pair { client, server } = &self.pair;
        let mut at = [0; 2];
        for _ in 0..rng.range(60, 500) {
            for (way, (from, to)) in [(client, server), (server, client)].into_iter().enumerate() {
                let len = if rng.range(0, 3) == 0 {
                    rng.size(9000)
                } else {
                    64
                };
                let range = (at[way], at[way] + len as u64);
                self.write(from, way as u64, range, 1 << 20, rng)?;
                self.read(to, way as u64, range, 1 << 20, rng)?;
                at[way] = range.1;
            }
            self.look();
        }
        Ok(())
    }

    fn bulk(&self, rng: &mut Rng, oddly: bool) -> Done {
        let Pair { client, server } = &self.pair;
        let flows = [(client, server), (server, client)].map(|(from, to)| {
            let total = rng.range(50_000, 1_500_000);
            let most = if rng.range(0, 1) == 0 {
                100 << 10
            } else {
                3000
            };
            (from, to, total, most, rng.draw())
        });
        std::thread::scope(|threads| {
            let mut all = vec![];
            for (way, (from, to, total, most, seed)) in flows.into_iter().enumerate() {
                let (way, range) = (way as u64, (0, total));
                all.push(
                    threads.spawn(move || self.write(from, way, range, most, &mut Rng::new(seed))),
                );
                all.push(threads.spawn(move || match oddly {
                    true => self.read_oddly(to, way, total, &mut Rng::new(seed + 1)),
                    false => self.read(to, way, range, most, &mut Rng::new(seed + 1)),
                }));
            }
            joined(all)
        })
    }

    fn read_oddly(&self, fd: &Fd, seed: u64, total: u64, rng: &mut Rng) -> Done {
        let mut at = 0;
        let mut since = Instant::now();
        let wait = guest::limit(60_000) as i32;
        while at < total {
            let fails = |what: &'static str| move |e| Fault::of(what, at, e);
            let len = rng.size(20_000).min((total - at) as usize);
            let get = |flags, what| recv(fd.raw(), len, flags).map_err(fails(what));
            let got = match rng.range(0, 5) {
                0 => get(libc::MSG_WAITALL, "waitall")?,
                1 => {
                    let seen = get(libc::MSG_PEEK, "peek")?;
                    if !seen.is_empty() {
                        check(seed, at, &seen)
                            .map_err(|at| Fault::Wrong(format!("peeked byte {at} is wrong")))?;
                    }
                    get(0, "after a peek")?
                }
                2 => {
                    let events = sys::poll1(fd.raw(), libc::POLLIN, wait).map_err(fails("poll"))?;
                    if events == 0 {
                        return Err(Fault::Wrong(format!("poll at {at} hangs")));
                    }
                    match recv(fd.raw(), len, libc::MSG_DONTWAIT) {
                        Err(Errno(libc::EAGAIN)) => {
                            return Err(Fault::Wrong(format!("{events:x} at {at}, and nothing")))
                        }
                        got => got.map_err(fails("dontwait"))?,
                    }
                }
                3 => {
                    let there = sys::ioctl_get(fd.raw(), libc::FIONREAD).map_err(fails("ioctl"))?;
                    let there = (there as usize).min((total - at) as usize);
                    if there == 0 {
                        continue;
                    }
                    let got = recv(fd.raw(), there, libc::MSG_DONTWAIT);
                    let got = got.map_err(fails("what is there"))?;
                    if got.len() != there && !got.is_empty() {
                        let text = format!("{} of {there} at {at}", got.len());
                        return Err(Fault::Wrong(text));
                    }
                    got
                }
                _ => get(0, "recv")?,
            };
            self.waited(&mut since);
            at = self.right(seed, at, &got)?;
            self.look();
        }
        Ok(())
    }

    fn ahead(&self, rng: &mut Rng, edges: bool) -> Done {
        let Pair { client, server } = &self.pair;
        let total = rng.range(10_000, 600_000);
        let most = if rng.range(0, 1) == 0 { 300 } else { 20_000 };
        let seed = rng.draw();
        std::thread::scope(|threads| {
            let all = vec![
                threads.spawn(move || self.write(client, 3, (0, total), most, &mut Rng::new(seed))),
                threads.spawn(move || match edges {
                    true => self.echo(server, total),
                    false => self.answer(server, total, &mut Rng::new(seed + 1)),
                }),
                threads
                    .spawn(move || self.read(client, 3, (0, total), most, &mut Rng::new(seed + 2))),
            ];
            joined(all)
        })
    }

    fn answer(&self, fd: &Fd, total: u64, rng: &mut Rng) -> Done {
        let mut at = 0;
        while at < total {
            let len = rng.size(3000);
            let got = recv(fd.raw(), len, 0).map_err(|e| Fault::of("recv", at, e))?;
            at = self.right(3, at, &got)?;
            sys::send_all(fd.raw(), &got).map_err(|e| Fault::of("answer", at, e))?;
        }
        Ok(())
    }

    /// Sends back what comes, by an edge-triggered epoll.
    fn echo(&self, fd: &Fd, total: u64) -> Done {
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
        let (mut at, mut back) = (0, vec![]);
        let (mut readable, mut writable) = (false, false);
        while at < total || !back.is_empty() {
            let busy = readable && at < total || writable && !back.is_empty();
            let wait = if busy { 0 } else { guest::limit(60_000) as i32 };
            // SAFETY: `event` is one.
            let count = unsafe { libc::epoll_wait(epoll.raw(), &mut event, 1, wait) };
            let events = if count == 1 { event.events as i32 } else { 0 };
            if count == 0 && !busy {
                let (left, info) = (back.len(), smcinfo::info(fd.raw()));
                return Err(Fault::Wrong(format!(
                    "no edge at {at}, {left} to write: {info:x?}"
                )));
            }
            if events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0 {
                let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
                return Err(match error {
                    0 => Fault::Ended(format!("events {events:x} at {at}")),
                    error => Fault::of("events", at, Errno(error)),
                });
            }
            readable |= events & libc::EPOLLIN != 0;
            writable |= events & libc::EPOLLOUT != 0;
            if readable && at < total && back.len() < 1 << 20 {
                match recv(fd.raw(), 3000, 0) {
                    Ok(got) => {
                        at = self.right(3, at, &got)?;
                        back.extend(got);
                    }
                    Err(Errno(libc::EAGAIN)) => readable = false,
                    Err(error) => return Err(Fault::of("recv", at, error)),
                }
            }
            if writable && !back.is_empty() {
                match sys::send(fd.raw(), &back, libc::MSG_NOSIGNAL) {
                    Ok(taken) => drop(back.drain(..taken as usize)),
                    Err(Errno(libc::EAGAIN)) => writable = false,
                    Err(error) => return Err(Fault::of("send", at, error)),
                }
            }
        }
        sys::nonblock(fd.raw(), false);
        Ok(())
    }

    fn half(&self, rng: &mut Rng) -> Done {
        self.asks_few(rng)?;
        let Pair { client, server } = &self.pair;
        let (first, second) = match rng.range(0, 1) {
            0 => (client, server),
            _ => (server, client),
        };
        let (last, total, seed) = (rng.range(1, 60_000), rng.range(1, 400_000), rng.draw());
        let shut = |fd: &Fd| {
            sys::shutdown(fd.raw(), libc::SHUT_WR)
                .map(drop)
                .map_err(|e| Fault::of("shutdown", 0, e))
        };
        std::thread::scope(|threads| {
            let all = vec![
                threads.spawn(move || {
                    self.write(first, 5, (0, last), 5000, &mut Rng::new(seed))?;
                    shut(first)
                }),
                threads.spawn(move || {
                    self.read(second, 5, (0, last), 9000, &mut Rng::new(seed + 1))?;
                    self.ends(second, last)
                }),
                threads.spawn(move || {
                    self.write(second, 9, (0, total), 5000, &mut Rng::new(seed + 2))
                }),
                threads
                    .spawn(move || self.read(first, 9, (0, total), 9000, &mut Rng::new(seed + 3))),
            ];
            joined(all)
        })?;
        self.look();
        shut(second)?;
        // Both have ended now: the peer of a lost link may have closed, as far as it knows.
        match self.ends(first, total) {
            Err(Fault::Lost(error)) => {
                println!("# the end of both: {error}, {:?}", self.steps());
                self.tally.closed.fetch_add(1, Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// Has the connection be promoted, more or less often.
    fn asks_few(&self, rng: &mut Rng) -> Done {
        let Pair { client, server } = &self.pair;
        let mut at = 0;
        for _ in 0..rng.range(0, 60) {
            for (from, to) in [(client, server), (server, client)] {
                self.write(from, 7, (at, at + 64), 64, rng)?;
                self.read(to, 7, (at, at + 64), 64, rng)?;
            }
            at += 64;
        }
        Ok(())
    }

    /// An end writes its last bytes and closes. The other one gets them all and the end, or a part of them and an error.
    fn closes(&self, rng: &mut Rng) -> Done {
        self.asks_few(rng)?;
        self.look();
        let Pair { client, server } = &self.pair;
        let (closes, stays) = match rng.range(0, 1) {
            0 => (client, server),
            _ => (server, client),
        };
        let (last, seed, delay) = (rng.range(1, 80_000), rng.draw(), rng.range(0, 30));
        let (wrote, got) = std::thread::scope(|threads| {
            let writer = threads.spawn(move || {
                self.write(closes, 5, (0, last), 5000, &mut Rng::new(seed))?;
                // As often at once.
                sys::sleep_ms(delay.saturating_sub(15));
                close(closes);
                Ok(())
            });
            let mut at = 0;
            let got = loop {
                match recv(stays.raw(), 5000, 0) {
                    Ok(got) if got.is_empty() => break Ok(at),
                    Ok(got) => match self.right(5, at, &got) {
                        Ok(next) => at = next,
                        Err(fault) => break Err(fault),
                    },
                    Err(error) => break Err(Fault::of("recv", at, error)),
                }
            };
            (writer.join().expect("the writer"), got)
        });
        match (wrote, got) {
            (_, Err(fault @ Fault::Wrong(_)))
            | (Err(fault), _)
            | (Ok(()), Err(fault @ Fault::Ended(_))) => Err(fault),
            (Ok(()), Ok(at)) if at == last => Ok(()),
            (Ok(()), Ok(at)) => Err(Fault::Wrong(format!("the end after {at} of {last} bytes"))),
            (Ok(()), Err(Fault::Lost(error))) => {
                let at = match closes.raw() == client.raw() {
                    true => seen::step("b", server),
                    false => seen::step("a", client),
                };
                println!("# the other end has closed: {error}, {at:?}");
                self.tally.closed.fetch_add(1, Relaxed);
                Ok(())
            }
        }
    }

    fn play(&self, kind: Kind, rng: &mut Rng) -> Done {
        match kind {
            Kind::Asks => self.asks(rng),
            Kind::Bulk => self.bulk(rng, false),
            Kind::Ahead => self.ahead(rng, false),
            Kind::Edges => self.ahead(rng, true),
            Kind::Oddly => self.bulk(rng, true),
            Kind::Half => self.half(rng),
            Kind::Closes => self.closes(rng),
        }
    }

    /// How far both ends were on the way.
    fn steps(&self) -> Result<[u8; 2], String> {
        Ok([
            seen::step("a", &self.pair.client)?,
            seen::step("b", &self.pair.server)?,
        ])
    }

    /// What carries the ends that are not closed.
    fn info(&self) -> [Result<smcinfo::Info, Errno>; 2] {
        [&self.pair.client, &self.pair.server].map(|fd| smcinfo::info(fd.raw()))
    }

    /// Judges what has come of it.
    fn judge(&self, kind: Kind, number: u64, done: Done) {
        let error = match done {
            Ok(()) => return,
            Err(Fault::Wrong(what) | Fault::Ended(what)) => {
                let info = self.info();
                let steps = self.steps();
                let there = [&self.pair.client, &self.pair.server]
                    .map(|fd| sys::ioctl_get(fd.raw(), libc::FIONREAD));
                let text = format!(
                    "connection {number} {kind:?}: {what}: {steps:?} {info:x?}; unread {there:?}"
                );
                return self.tally.told(text);
            }
            Err(Fault::Lost(error)) => error,
        };
        let steps = self.steps();
        // What ends a connection leaves its step as it was. An end that has said its cut may not have heard the peer's.
        let turning = |step: u8| (3..=5).contains(&step);
        match steps {
            Ok(steps) if steps.into_iter().any(turning) => {
                println!("# connection {number} {kind:?}: {error} while turning, {steps:?}");
                self.tally.turning.fetch_add(1, Relaxed);
            }
            steps => {
                let info = self.info();
                let ports = [&self.pair.client, &self.pair.server]
                    .map(|fd| sys::sockname(fd.raw()).map(|a| a.port()));
                let text =
                    format!("connection {number} {kind:?}: {error}: {steps:?} {info:x?} {ports:?}");
                self.tally.told(text);
            }
        }
    }
}

/// Closes what a descriptor stands for, and has it stand for nothing.
fn close(fd: &Fd) {
    let nothing = std::fs::File::open("/dev/null").expect("/dev/null");
    // SAFETY: no pointers.
    unsafe { libc::dup2(nothing.as_raw_fd(), fd.raw()) };
}

/// Receives; a signal is none of the test's.
fn recv(fd: i32, len: usize, flags: i32) -> Result<Vec<u8>, Errno> {
    loop {
        match sys::recv_vec(fd, len, flags) {
            Err(Errno(libc::EINTR)) => (),
            got => return got,
        }
    }
}

/// What several threads have met: what is wrong first, then what is lost.
fn joined(all: Vec<std::thread::ScopedJoinHandle<'_, Done>>) -> Done {
    let all = all.into_iter().map(|one| one.join().expect("a thread"));
    let mut faults: Vec<_> = all.filter_map(Result::err).collect();
    let rank = |fault: &Fault| match fault {
        Fault::Wrong(_) => 0,
        Fault::Lost(_) => 1,
        Fault::Ended(_) => 2,
    };
    faults.sort_by_key(rank);
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Makes connections one after the other as long as `goes_on` says.
pub(super) fn slot(tally: &Tally, seed: u64, goes_on: &(dyn Fn() -> bool + Sync)) {
    let mut rng = Rng::new(seed);
    let (listener, to) = listener();
    while goes_on() {
        let number = tally.all.fetch_add(1, Relaxed);
        if let Err(error) = one(tally, &listener, to, number, &mut rng) {
            tally.told(format!("connection {number}: {error}"));
        }
    }
}

fn one(
    tally: &Tally,
    listener: &Fd,
    to: SocketAddr,
    number: u64,
    rng: &mut Rng,
) -> Result<(), String> {
    let kind = KINDS[rng.draw() as usize % KINDS.len()];
    let life = Life {
        tally,
        pair: connect(listener, to)?,
        wait: AtomicU64::new(0),
        is_hot: AtomicBool::new(false),
        returned: AtomicU64::new(0),
        promoted: AtomicU64::new(0),
    };
    let done = life.play(kind, rng);
    life.look();
    life.judge(kind, number, done);
    let waited = life.wait.load(Relaxed);
    let promoted = life.promoted.load(Relaxed);
    tally.promoted.fetch_add(promoted, Relaxed);
    tally.ever.fetch_add(u64::from(promoted != 0), Relaxed);
    tally
        .returned
        .fetch_add(life.returned.load(Relaxed), Relaxed);
    if promoted != 0 || tally.keeps_carrier {
        tally.waits.lock().expect("waits").push(waited);
    }
    Ok(())
}
