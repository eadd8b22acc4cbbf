// SPDX-License-Identifier: GPL-2.0
//! Receive rings that move: between the namespaces `a` and `b`, over a model card (`kmod/card`), a ring grows whose peer
//! waits for room again and again, and goes back to its first size when nothing comes. Whatever they do, each byte is
//! read once, and what recv() finds is what the program is told to be there.
//!
//! `cardrings [POINT...]`

use st::args::Args;
use st::card::{begin_anew, trouble, wanted, Outcome, Pair};
use st::fd::Fd;
use st::guest::{self, within};
use st::ktap::Ktap;
use st::netlink::word;
use st::{diag, family, net, sys};

type Point = (&'static str, fn() -> Outcome);

/// The points, by name.
const POINTS: [Point; 7] = [
    ("grows", grows),
    ("both_ways", both_ways),
    ("again", again),
    ("full", full),
    ("limit", limit),
    ("of_the_program", of_the_program),
    ("closes", closes),
];

/// Size of a ring at first.
const FIRST: u32 = 64 << 10;
/// Bytes that one read takes: less than is there while the peer waits.
const PART: usize = 24 << 10;
/// Time that requests of a card take which are held back, in nanoseconds: longer than a ring stays large into which nothing
/// comes.
const HELD_BACK: u32 = 3_000_000_000;

/// The byte at a position of a stream.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 21) as u8
}

/// A stream from one socket to another one, of which both ends are here.
struct Flow<'a> {
    from: &'a Fd,
    to: &'a Fd,
    sent: usize,
    read: usize,
}

impl<'a> Flow<'a> {
    fn new(from: &'a Fd, to: &'a Fd) -> Self {
        sys::nonblock(from.raw(), true);
        sys::nonblock(to.raw(), true);
        let (sent, read) = (0, 0);
        Flow {
            from,
            to,
            sent,
            read,
        }
    }

    /// Sends until there is no room.
    fn fill(&mut self) -> Outcome {
        while self.send(PART)? > 0 {}
        Ok(())
    }

    /// Sends as many of the next `count` bytes as there is room for. Returns how many.
    fn send(&mut self, count: usize) -> Result<usize, String> {
        let bytes: Vec<u8> = (0..count).map(|at| pattern(self.sent + at)).collect();
        match sys::send(self.from.raw(), &bytes, 0) {
            Ok(taken) => {
                self.sent += taken as usize;
                Ok(taken as usize)
            }
            Err(error) if error.0 == libc::EAGAIN => Ok(0),
            Err(error) => Err(format!("send: {error}")),
        }
    }

    /// Peeks at all that is there, then reads some of it. Returns how much was there.
    fn take(&mut self, most: usize) -> Result<usize, String> {
        let there = sys::ioctl_get(self.to.raw(), libc::FIONREAD).map_err(|e| e.to_string())?;
        let there = there as usize;
        if there == 0 {
            return Ok(0);
        }
        let right = |got: &[u8]| {
            let at = got.iter().enumerate();
            at.filter(|(at, byte)| pattern(self.read + at) != **byte)
                .count()
        };
        for (flags, count) in [(libc::MSG_PEEK, there), (0, there.min(most))] {
            let got = sys::recv_vec(self.to.raw(), count, flags).map_err(|e| e.to_string())?;
            wanted(
                "as many as there are",
                got.len() == count,
                (got.len(), count),
            )?;
            wanted("bytes", right(&got) == 0, (self.read, right(&got)))?;
        }
        self.read += there.min(most);
        Ok(there)
    }

    /// Has `count` bytes read while the sender has more than there is room for.
    fn press(&mut self, count: usize) -> Outcome {
        let until = self.read + count;
        while self.read < until {
            self.fill()?;
            if self.take(PART)? == 0 {
                sys::poll_until(self.to.raw(), libc::POLLIN, 10_000);
            }
        }
        Ok(())
    }

    /// Reads the rest.
    fn drain(&mut self) -> Outcome {
        while self.read < self.sent {
            if self.take(usize::MAX)? == 0 {
                let events = sys::poll_until(self.to.raw(), libc::POLLIN, 10_000);
                wanted(
                    "the rest",
                    events & libc::POLLIN != 0,
                    (self.read, self.sent),
                )?;
            }
        }
        Ok(())
    }
}

/// The rings of an end, and that of its peer, as `sock_diag` tells.
#[derive(Clone, Copy, Debug, Default)]
struct Rings {
    send: u32,
    receive: u32,
    peer: u32,
    /// Bytes of the peer's ring that are not known to be free.
    used: u32,
}

/// The position of a cursor in the peer's ring, as far as 32 bits tell.
fn position(told: &[u8], at: usize) -> Result<u32, String> {
    let [peer, wrap, count] = [12, at, at + 4].map(|at| word(told, at));
    let [peer, wrap, count] = [peer, wrap, count].map(|word| word.map_err(|e| e.to_string()));
    Ok(peer?.wrapping_mul(wrap? >> 16).wrapping_add(count?))
}

fn rings(ns: &'static str, fd: &Fd) -> Result<Rings, String> {
    let inode = diag::inode(fd.raw()).map_err(|e| e.to_string())?;
    let all = within(ns, || diag::all(0x1f, libc::NLM_F_DUMP)).map_err(|e| e.to_string())?;
    let found = all.into_iter().find(|socket| socket.0 == inode);
    let attributes = found.ok_or("not listed")?.1.attributes;
    let told = attributes.iter().find(|told| told.0 == 1);
    let told = &told.ok_or("no connection")?.1;
    let size = |at| word(told, at).map_err(|e| e.to_string());
    Ok(Rings {
        send: size(4)?,
        receive: size(8)?,
        peer: size(12)?,
        used: position(told, 32)?.wrapping_sub(position(told, 24)?),
    })
}

/// Waits until the ring of a connection's server, and what its client knows of it, have `size`.
fn has(pair: &Pair, size: u32) -> Outcome {
    let mut told = (Rings::default(), Rings::default());
    let so = soon(|| {
        if let (Ok(server), Ok(client)) = (rings("b", &pair.server), rings("a", &pair.client)) {
            told = (server, client);
        }
        told.0.receive == size && told.1.peer == size
    });
    wanted("sizes", so, told)
}

/// Waits for something that happens before long. Whether it has.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    (0..sys::patient(200)).any(|_| {
        let so = what();
        if !so {
            sys::sleep_ms(50);
        }
        so
    })
}

/// The largest size, as both ends have it.
fn most(bytes: u32) {
    for ns in ["a", "b"] {
        within(ns, move || {
            net::sysctl("net.smc.rmem_max", &bytes.to_string())
        })
        .expect("sysctl");
    }
}

/// A ring grows by steps while bytes are in it, and goes back when nothing comes.
fn grows() -> Outcome {
    begin_anew();
    let pair = Pair::new()?;
    has(&pair, FIRST)?;
    let mut flow = Flow::new(&pair.client, &pair.server);
    flow.press(8 << 20)?;
    has(&pair, 1 << 20)?;
    let client = rings("a", &pair.client)?;
    wanted("the other", client.receive == FIRST, client)?;
    wanted("the send ring", client.send > FIRST, client)?;
    flow.drain()?;
    has(&pair, FIRST)?;
    let given_back = || rings("a", &pair.client).is_ok_and(|client| client.send == FIRST);
    wanted("given back", soon(given_back), ())?;
    let mut flow = Flow::new(&pair.server, &pair.client);
    flow.press(100 << 10)?;
    flow.drain()
}

/// Rings of both ends move while bytes go both ways.
fn both_ways() -> Outcome {
    begin_anew();
    let pair = Pair::new()?;
    let mut there = Flow::new(&pair.client, &pair.server);
    let mut back = Flow::new(&pair.server, &pair.client);
    for _ in 0..40 {
        there.press(150 << 10)?;
        back.press(100 << 10)?;
    }
    has(&pair, 1 << 20)?;
    let other = rings("a", &pair.client)?;
    wanted("the other", other.receive > FIRST, other)?;
    there.drain()?;
    back.drain()
}

/// Rings grow and shrink several times.
fn again() -> Outcome {
    begin_anew();
    most(256 << 10);
    let done = Pair::new().and_then(|pair| {
        let mut flow = Flow::new(&pair.client, &pair.server);
        for _ in 0..4 {
            flow.press(1 << 20)?;
            has(&pair, 256 << 10)?;
            flow.drain()?;
            has(&pair, FIRST)?;
        }
        Ok(())
    });
    most(1 << 20);
    done
}

/// A sender turns to the first ring when it has written as many bytes as that has, all of which have been read by then. They
/// were too few for the receiver to tell of them while its ring was larger, and the sender has no room before it hears of
/// them. What the receiver says takes long here, so that it offers the first ring before these bytes come, and the sender
/// hears of the offer when they have been read.
fn full() -> Outcome {
    begin_anew();
    let pair = Pair::new()?;
    let mut flow = Flow::new(&pair.client, &pair.server);
    let mut seen = vec![];
    // On a busy machine a moment may be missed.
    for _ in 0..5 {
        flow.press(2 << 20)?;
        flow.drain()?;
        trouble("card_b", "latency", HELD_BACK);
        let done = turn_when_full(&pair, &mut flow);
        trouble("card_b", "latency", 0);
        let (before, after) = done?;
        // A byte that finds no room goes when there is some.
        wanted("sent", flow.send(1)? == 1, after)?;
        flow.drain()?;
        if before.receive > FIRST && after.used == FIRST {
            return Ok(());
        }
        seen.push((before, after));
    }
    wanted("a sender without room in the first ring", false, seen)
}

/// What the receiver has when it has read the bytes, and the sender when it has turned to the first ring.
fn turn_when_full(pair: &Pair, flow: &mut Flow<'_>) -> Result<(Rings, Rings), String> {
    // The first ring is offered within a second.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    wanted("room", flow.send(FIRST as usize)? == FIRST as usize, ())?;
    flow.drain()?;
    let before = rings("b", &pair.server)?;
    let mut after = Rings::default();
    let turned = soon(|| {
        after = rings("a", &pair.client).unwrap_or(after);
        after.peer == FIRST
    });
    wanted("turned", turned, (before, after))?;
    Ok((before, after))
}

/// None grows beyond `net.smc.rmem_max`.
fn limit() -> Outcome {
    begin_anew();
    let done = [(0, FIRST), (128 << 10, 128 << 10)]
        .into_iter()
        .try_for_each(|(limit, size)| {
            most(limit);
            let pair = Pair::new()?;
            let mut flow = Flow::new(&pair.client, &pair.server);
            flow.press(4 << 20)?;
            has(&pair, size)?;
            flow.drain()
        });
    most(1 << 20);
    done
}

/// As with TCP a size that the program has asked for stays.
fn of_the_program() -> Outcome {
    begin_anew();
    let to = guest::sockaddr(true, family::Ip::V4, 0);
    let pair = Pair::connect(to, |fd, is_server| {
        if is_server {
            let size = 32 << 10;
            sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, size).expect("SO_RCVBUF");
        }
    })?;
    let before = rings("b", &pair.server)?.receive;
    let mut flow = Flow::new(&pair.client, &pair.server);
    flow.press(2 << 20)?;
    has(&pair, before)?;
    flow.drain()
}

/// Connections that end while their rings move leave nothing behind: the next ones find as much room.
fn closes() -> Outcome {
    begin_anew();
    for round in 0..12 {
        let pair = Pair::new()?;
        let mut flow = Flow::new(&pair.client, &pair.server);
        flow.press(round * (150 << 10))?;
        if round % 2 == 0 {
            flow.drain()?;
        }
    }
    let pair = Pair::new()?;
    pair.is_smc()?;
    has(&pair, FIRST)
}

fn main() {
    let args = Args::get();
    let picked = |name: &str| args.words.is_empty() || args.words.iter().any(|word| word == name);
    let points: Vec<_> = POINTS.iter().filter(|point| picked(point.0)).collect();
    let mut ktap = Ktap::plan(points.len());
    for (name, run) in points {
        ktap.outcome(name, run());
    }
    std::process::exit(ktap.finish());
}
