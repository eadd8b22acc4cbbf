// SPDX-License-Identifier: GPL-2.0
//! Promoted connections that lose their link, device or port: they go on by TCP, and each byte comes once and in its
//! order.

use super::*;
use st::card::{self, begin_anew, trouble};
use st::errno::Errno;
use std::sync::atomic::AtomicBool;

const PATHRETURNED: u32 = 0x0306_010f;

/// Ways to lose the link.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The client's device goes.
    ClientDevice,
    /// The server's.
    ServerDevice,
    /// The server's device says that it is broken.
    Fatal,
}

const LOSSES: [Loss; 3] = [Loss::ClientDevice, Loss::ServerDevice, Loss::Fatal];

impl Loss {
    fn any(rng: &mut Rng) -> Self {
        LOSSES[rng.draw() as usize % LOSSES.len()]
    }

    fn happen(self) {
        match self {
            Self::ClientDevice => guest::run("a", "rdma", "link delete card_a"),
            Self::ServerDevice => guest::run("b", "rdma", "link delete card_b"),
            Self::Fatal => trouble("card_b", "fatal", 1),
        }
    }

    /// Both cards are there again.
    fn mend(self) {
        match self {
            Self::ClientDevice => {
                guest::run("a", "rdma", "link add card_a type card netdev va");
            }
            Self::ServerDevice => {
                guest::run("b", "rdma", "link add card_b type card netdev vb");
            }
            Self::Fatal => begin_anew(),
        }
    }
}

/// Makes a connection that has been promoted.
pub(super) fn promoted() -> Result<(Begun, u64), String> {
    after(8);
    // A link that breaks soon is not to be remembered of the peer.
    set(&["a", "b"], "neighbour_time", 0);
    let pair = begin()?;
    let mut at = 0;
    until_moved(&pair, &mut at)?;
    // Not again.
    after(1 << 20);
    Ok((pair, at))
}

/// Waits until both ends are TCP's again, for these reasons at the client and the server. An end has a reason a moment
/// after it is TCP's.
pub(super) fn until_back(pair: &Pair, reasons: [u32; 2]) -> Outcome {
    for _ in 0..guest::limit(8000) {
        let (client, server) = pair.info();
        let modes = [client.mode, server.mode];
        if modes == [PATH; 2] && [client.reason, server.reason] == reasons {
            return Ok(());
        }
        sys::sleep_ms(1);
    }
    Err(format!("not TCP's again: {:x?}", pair.info()))
}

fn returned(pair: &Pair) -> Outcome {
    until_back(pair, [PATHRETURNED; 2])
}

/// While nothing is said.
pub(super) fn idle() -> Outcome {
    for loss in LOSSES {
        let (pair, mut at) = promoted()?;
        loss.happen();
        let done = returned(&pair).and_then(|()| {
            for _ in 0..100 {
                exchange(&pair.client, &pair.server, &mut at, 64)?;
                exchange(&pair.server, &pair.client, &mut at, 9000)?;
            }
            let Pair { client, server } = pair.pair;
            drop(client);
            ends(&server)
        });
        loss.mend();
        done.map_err(|e| format!("{loss:?}: {e}"))?;
    }
    Ok(())
}

/// Bytes that the receiver has not read when it happens: more than a ring has room for, so that the sender waits.
pub(super) fn unread() -> Outcome {
    for (loss, total) in LOSSES.into_iter().zip([5000, 300_000, 2_000_000]) {
        let (pair, _) = promoted()?;
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let senders = [
                threads.spawn(move || pour(client, 11, total)),
                threads.spawn(move || pour(server, 12, total)),
            ];
            guest::pause(50);
            loss.happen();
            let readers = [
                threads.spawn(move || read_oddly(server, 11, total, false)),
                threads.spawn(move || read_oddly(client, 12, total, false)),
            ];
            let all = senders.into_iter().chain(readers);
            all.map(|thread| thread.join().expect("a thread"))
                .collect::<Vec<_>>()
        });
        loss.mend();
        done.into_iter()
            .collect::<Outcome>()
            .and_then(|()| returned(&pair))
            .map_err(|e| format!("{loss:?}: {e}"))?;
    }
    Ok(())
}

/// A program that has read little looks at all that has come: by TCP, by the ring, and by TCP again.
pub(super) fn peeked() -> Outcome {
    after(8);
    set(&["a", "b"], "neighbour_time", 0);
    let pair = begin()?;
    // The server has found that it pays, which it does in a call. Its program reads nothing from here on.
    let mut first = 0;
    for _ in 0..6 {
        exchange(&pair.client, &pair.server, &mut first, 64)?;
    }
    let mut total = first;
    let mut send = |len: usize| {
        let mut bytes = vec![0; len];
        fill(7, total, &mut bytes);
        total += len as u64;
        sys::send_all(pair.client.raw(), &bytes).map_err(|e| format!("send: {e}"))
    };
    // All of the client's stream goes by the ring, of which the server has not read so far.
    for round in 0.. {
        send(64)?;
        if mode(&pair.client) == SMC {
            break;
        }
        wanted("the client moves", round < 2000, pair.info())?;
        sys::sleep_ms(1);
    }
    send(1000)?;
    after(1 << 20);
    let loss = Loss::ClientDevice;
    loss.happen();
    send(1000)?;
    let mut seen = vec![];
    for _ in 0..guest::limit(8000) {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        seen = sys::recv_vec(pair.server.raw(), total as usize + 100, flags).unwrap_or_default();
        if seen.len() as u64 == total - first {
            break;
        }
        sys::sleep_ms(1);
    }
    loss.mend();
    let total = total - first;
    wanted(
        "all is seen",
        seen.len() as u64 == total,
        (seen.len(), total),
    )?;
    check(7, first, &seen).map_err(|at| format!("peeked byte {at} is wrong"))?;
    let there = sys::ioctl_get(pair.server.raw(), libc::FIONREAD).map_err(|e| e.to_string())?;
    wanted("FIONREAD", there as u64 == total, (there, total))?;
    let waits = libc::MSG_PEEK | libc::MSG_WAITALL;
    let again = sys::recv_vec(pair.server.raw(), total as usize, waits);
    wanted(
        "a peek that waits",
        again.as_ref() == Ok(&seen),
        again.map(|all| all.len()),
    )?;
    let read = sys::recv_all(pair.server.raw(), total as usize);
    wanted("all is read", read.as_ref() == Ok(&seen), total)?;
    returned(&pair)
}

/// Both ends write pieces of all sizes and read them in many ways, and in the midst of that it happens.
pub(super) fn calls() -> Outcome {
    let mut rng = rng();
    for round in 0..16 {
        let (pair, _) = promoted()?;
        let loss = Loss::any(&mut rng);
        let total = 2 << 20;
        let delay = rng.range(0, 40);
        let low_water = round % 4 == 0;
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let all = [
                threads.spawn(move || pour(client, 1, total)),
                threads.spawn(move || pour(server, 2, total)),
                threads.spawn(move || read_oddly(server, 1, total, low_water)),
                threads.spawn(move || read_oddly(client, 2, total, low_water)),
            ];
            guest::pause(delay);
            loss.happen();
            all.map(|thread| thread.join().expect("a thread"))
        });
        loss.mend();
        done.into_iter()
            .collect::<Outcome>()
            .map_err(|e| format!("{loss:?} after {delay} ms: {e}"))?;
        returned(&pair)?;
    }
    Ok(())
}

/// An edge-triggered loop keeps its descriptor, and misses no edge.
pub(super) fn edges() -> Outcome {
    let mut rng = rng();
    for loss in LOSSES.into_iter().cycle().take(9) {
        let (pair, _) = promoted()?;
        let total = 2 << 20;
        let delay = rng.range(0, 30);
        let done = std::thread::scope(|threads| {
            let (client, server) = (&pair.client, &pair.server);
            let all = [
                threads.spawn(move || echo(server, total)),
                threads.spawn(move || pour(client, 3, total as u64)),
                threads.spawn(move || drain(client, 3, total as u64)),
            ];
            guest::pause(delay);
            loss.happen();
            all.map(|thread| thread.join().expect("a thread"))
        });
        loss.mend();
        done.into_iter()
            .collect::<Outcome>()
            .map_err(|e| format!("{loss:?} after {delay} ms: {e}"))?;
    }
    Ok(())
}

/// One direction has ended before it happens, or ends while it happens; the other one goes on.
pub(super) fn half_closed() -> Outcome {
    let mut rng = rng();
    for round in 0..24 {
        let (pair, _) = promoted()?;
        let loss = Loss::any(&mut rng);
        let (first, second) = match round % 2 == 0 {
            true => (&pair.client, &pair.server),
            false => (&pair.server, &pair.client),
        };
        let last = rng.size(50_000) as u64;
        let total = rng.size(200_000) as u64;
        let shuts_late = round % 3 == 0;
        let shut =
            || sys::shutdown(first.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"));
        let done = pour(first, 5, last).and_then(|()| {
            if !shuts_late {
                shut()?;
            }
            loss.happen();
            if shuts_late {
                shut()?;
            }
            let refused = sys::send(first.raw(), b"x", libc::MSG_NOSIGNAL);
            let pipe = matches!(&refused, Err(error) if error.0 == libc::EPIPE);
            wanted("EPIPE", pipe, refused)?;
            drain(second, 5, last)?;
            ends(second)?;
            std::thread::scope(|threads| {
                let sender = threads.spawn(|| pour(second, 9, total));
                let got = drain(first, 9, total);
                sender.join().expect("the sender").and(got)
            })?;
            sys::shutdown(second.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown 2: {e}"))?;
            ends(first)
        });
        loss.mend();
        done.map_err(|e| format!("{loss:?} round {round}: {e}: {:x?}", pair.info()))?;
    }
    Ok(())
}

/// An end closes about when it happens. The other one gets all bytes and the end, or a part and an error, and does not
/// wait for ever.
pub(super) fn closed() -> Outcome {
    let before = smcinfo::references();
    let mut rng = rng();
    let mut whole = 0;
    for round in 0..24 {
        let (pair, _) = promoted()?;
        let loss = Loss::any(&mut rng);
        let (closes, stays) = match round % 2 == 0 {
            true => (pair.pair.client, pair.pair.server),
            false => (pair.pair.server, pair.pair.client),
        };
        let last = rng.size(40_000) as u64;
        let delay = rng.range(0, 20);
        let late = round % 3 == 0;
        let got = std::thread::scope(|threads| {
            let closer = threads.spawn(move || {
                let _ = pour(&closes, 5, last);
                if late {
                    guest::pause(delay);
                }
                drop(closes);
            });
            if !late {
                guest::pause(delay);
            }
            loss.happen();
            closer.join().expect("the closer");
            let mut at = 0;
            loop {
                match sys::recv_vec(stays.raw(), 5000, 0) {
                    Ok(got) if got.is_empty() => break Ok(at),
                    Ok(got) => {
                        check(5, at, &got).map_err(|wrong| format!("byte {wrong} is wrong"))?;
                        at += got.len() as u64;
                    }
                    Err(error) => {
                        let lost = card::lost::<()>("an error", Err(error));
                        break lost.map(|()| u64::MAX);
                    }
                }
            }
        });
        loss.mend();
        match got.map_err(|e| format!("{loss:?} round {round}: {e}"))? {
            u64::MAX => (),
            got => {
                wanted("all before the end", got == last, (loss, round, got, last))?;
                whole += 1;
            }
        }
    }
    wanted("some in good order", whole > 0, whole)?;
    smcinfo::settled(before, 20_000)
}

/// An end whose device is slow closes when that breaks, or just before. The other end gets all bytes and the end. It gets
/// an error, never the end alone, if not everything had been read at the end that has closed: that is a reset, as of TCP.
pub(super) fn cut() -> Outcome {
    let mut cut = 0;
    for round in 0..24 {
        // In every second round in which the device breaks first.
        let unread = round % 8 < 2;
        let (pair, at) = promoted()?;
        let (closes, stays, card) = match round % 2 == 0 {
            true => (pair.pair.client, pair.pair.server, "card_a"),
            false => (pair.pair.server, pair.pair.client, "card_b"),
        };
        let mut bytes = [0; 700];
        fill(7, at, &mut bytes);
        if unread {
            sys::send_all(stays.raw(), b"unread").map_err(|e| format!("send: {e}"))?;
            guest::pause(5);
        }
        trouble(card, "latency", 2_000_000_000);
        let sent = sys::send_all(closes.raw(), &bytes);
        if round % 4 < 2 {
            trouble(card, "fatal", 1);
            drop(closes);
        } else {
            drop(closes);
            trouble(card, "fatal", 1);
        }
        guest::pause(20);
        let mut got = vec![];
        let end = loop {
            match sys::recv_vec(stays.raw(), 5000, 0) {
                Ok(some) if some.is_empty() => break Ok(got.len()),
                Ok(some) => got.extend(some),
                error => break error.map(|_| 0),
            }
        };
        trouble(card, "latency", 0);
        begin_anew();
        sent.map_err(|e| format!("send: {e}"))?;
        wanted("bytes", bytes.starts_with(&got), (round, got.len()))?;
        match end {
            Ok(len) => wanted("all before the end", len == bytes.len(), (round, len))?,
            error => {
                let text = format!("an error in round {round}");
                card::lost(&text, error)?;
                wanted("a reset", unread, round)?;
                cut += 1;
            }
        }
    }
    wanted("cut", cut != 0, cut)
}

/// The link is lost just after a close of which the peer knows everything: it sees the end, and no reset later.
pub(super) fn after_close() -> Outcome {
    for round in 0..2 {
        let (pair, at) = promoted()?;
        let (closes, stays, loss) = match round {
            0 => (pair.pair.client, pair.pair.server, Loss::ServerDevice),
            _ => (pair.pair.server, pair.pair.client, Loss::ClientDevice),
        };
        let mut bytes = [0; 700];
        fill(7, at, &mut bytes);
        sys::send_all(closes.raw(), &bytes).map_err(|e| format!("send: {e}"))?;
        drop(closes);
        let got = sys::recv_vec(stays.raw(), 5000, libc::MSG_WAITALL);
        guest::pause(30);
        loss.happen();
        loss.mend();
        let got = got.map_err(|e| format!("recv: {e}"))?;
        wanted("bytes", got == bytes, got.len())?;
        let end = sys::recv_vec(stays.raw(), 1, 0);
        wanted("the end", end == Ok(vec![]), end)?;
        // Longer than an end keeps TCP that has closed.
        let seen = sys::poll_within(stays.raw(), libc::POLLERR, 7000);
        wanted("no error", seen & libc::POLLERR == 0, (round, seen))?;
    }
    Ok(())
}

/// Many at once, each with messages under way.
pub(super) fn many() -> Outcome {
    let before = smcinfo::references();
    {
        after(8);
        set(&["a", "b"], "neighbour_time", 0);
        let (listener, to) = listener();
        let mut pairs = vec![];
        for _ in 0..40 {
            let pair = connect(&listener, to)?;
            let mut at = 0;
            until_moved(&pair, &mut at)?;
            pairs.push((pair, at));
        }
        after(1 << 20);
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let over = &over;
            let all: Vec<_> = pairs
                .iter_mut()
                .map(|(pair, at)| {
                    threads.spawn(move || {
                        let mut after = 0;
                        while after < 20 {
                            exchange(&pair.client, &pair.server, at, 700)?;
                            exchange(&pair.server, &pair.client, at, 64)?;
                            after += u32::from(over.load(Relaxed));
                        }
                        returned(pair)
                    })
                })
                .collect();
            guest::pause(30);
            Loss::ServerDevice.happen();
            over.store(true, Relaxed);
            let done: Vec<_> = all
                .into_iter()
                .map(|thread| thread.join().expect("a thread"))
                .collect();
            Loss::ServerDevice.mend();
            done.into_iter().collect::<Outcome>()
        })?;
    }
    smcinfo::settled(before, 20_000)
}

/// Writes what there is room for at once. Returns how much that is.
fn send_some(fd: &Fd, at: u64) -> Result<usize, Errno> {
    let mut bytes = vec![0; 9000];
    fill(7, at, &mut bytes);
    let sent = sys::send(fd.raw(), &bytes, libc::MSG_DONTWAIT)?;
    Ok(sent as usize)
}

/// The server's card has acknowledged bytes of which its software never hears.
pub(super) fn forgotten() -> Outcome {
    for size in [100, 3000, 20_000] {
        let (pair, mut at) = promoted()?;
        trouble("card_b", "forgets", 1);
        let mut bytes = vec![0; size];
        fill(7, at, &mut bytes);
        let sent = sys::send_all(pair.client.raw(), &bytes);
        at += size as u64;
        // As much as there is room for: none of it may be in the place of what was forgotten.
        while let Ok(more) = send_some(&pair.client, at) {
            let end = bytes.len();
            bytes.resize(end + more, 0);
            fill(7, at, &mut bytes[end..]);
            at += more as u64;
            guest::pause(1);
        }
        guest::pause(20);
        Loss::ServerDevice.happen();
        Loss::ServerDevice.mend();
        sent.map_err(|e| format!("send: {e}"))?;
        let got =
            sys::recv_all(pair.server.raw(), bytes.len()).map_err(|e| format!("recv: {e}"))?;
        wanted("bytes", got == bytes, got.len())?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
        returned(&pair)?;
    }
    Ok(())
}

/// The client's link is lost before it hears that the server has read its marks, and the server has heard of nothing:
/// the client waits for what the server says on TCP.
pub(super) fn unsure() -> Outcome {
    after(8);
    set(&["a", "b"], "neighbour_time", 0);
    // The link, before anything is late.
    {
        let pair = begin()?;
        until_moved(&pair, &mut 0)?;
    }
    for round in 0..4 {
        let pair = begin()?;
        let mut at = 0;
        trouble("card_b", "latency", 600_000_000);
        let done = (|| {
            for _ in 0..6 {
                exchange(&pair.client, &pair.server, &mut at, 64)?;
                exchange(&pair.server, &pair.client, &mut at, 64)?;
            }
            let mut waits = guest::limit(20_000);
            while !moved(&pair) && waits > 0 {
                sys::sleep_ms(1);
                waits -= 1;
            }
            wanted("moved", moved(&pair), pair.info())?;
            after(1 << 20);
            if round % 2 == 0 {
                // By the ring.
                let mut bytes = [0; 700];
                fill(7, at, &mut bytes);
                sys::send_all(pair.client.raw(), &bytes).map_err(|e| format!("send: {e}"))?;
            }
            trouble("card_a", "fatal", 1);
            // The server's device has not found yet that nobody answers.
            guest::pause(50);
            let steps = [
                super::seen::step("a", &pair.client)?,
                super::seen::step("b", &pair.server)?,
            ];
            wanted("the client waits", steps == [7, 6], steps)
        })();
        trouble("card_b", "latency", 0);
        begin_anew();
        done.and_then(|()| {
            if round % 2 == 0 {
                let got = sys::recv_all(pair.server.raw(), 700);
                let got = got.map_err(|e| format!("recv: {e}"))?;
                check(7, at, &got).map_err(|wrong| format!("byte {wrong} is wrong"))?;
                at += 700;
            }
            for _ in 0..20 {
                exchange(&pair.server, &pair.client, &mut at, 9000)?;
                exchange(&pair.client, &pair.server, &mut at, 64)?;
            }
            returned(&pair)
        })
        .map_err(|e: String| format!("round {round}: {e}: {:x?}", pair.info()))?;
        after(8);
    }
    Ok(())
}

/// The link is lost while the two ends turn, at each of the steps at which one does not know whether the other has: they say
/// so over the side connection.
pub(super) fn turning() -> Outcome {
    const STEPS: [(&str, [u8; 2]); 3] = [
        (
            "the client has agreed, and the server not heard that",
            [3, 2],
        ),
        (
            "the server has turned, and the client not heard that",
            [3, 5],
        ),
        ("both have turned, and the server not heard that", [6, 5]),
    ];
    let all = STEPS.iter();
    let cases = all.flat_map(|step| ["card_a", "card_b"].map(|card| (step, card)));
    after(8);
    set(&["a", "b"], "neighbour_time", 0);
    for ((what, wants), card) in cases {
        // The link, before anything is late.
        {
            let pair = begin()?;
            until_moved(&pair, &mut 0)?;
        }
        let pair = begin()?;
        let mut at = 0;
        for card in ["card_a", "card_b"] {
            trouble(card, "latency", 400_000_000);
        }
        let steps = || {
            Ok::<_, String>([
                super::seen::step("a", &pair.client)?,
                super::seen::step("b", &pair.server)?,
            ])
        };
        let done = (|| {
            for _ in 0..6 {
                exchange(&pair.client, &pair.server, &mut at, 64)?;
                exchange(&pair.server, &pair.client, &mut at, 64)?;
            }
            let mut waits = guest::limit(20_000);
            while steps()? != *wants && waits > 0 {
                sys::sleep_ms(1);
                waits -= 1;
            }
            wanted(what, waits > 0, steps()?)?;
            after(1 << 20);
            trouble(card, "fatal", 1);
            // By the carrier that each end has come to.
            for (from, to) in [(&pair.client, &pair.server), (&pair.server, &pair.client)] {
                exchange(from, to, &mut at, 700)?;
            }
            wanted("no SMC-R", !moved(&pair), pair.info())
        })();
        for card in ["card_a", "card_b"] {
            trouble(card, "latency", 0);
        }
        begin_anew();
        done.and_then(|()| {
            for _ in 0..20 {
                exchange(&pair.server, &pair.client, &mut at, 9000)?;
                exchange(&pair.client, &pair.server, &mut at, 64)?;
            }
            Ok(())
        })
        .map_err(|e: String| format!("{card}, {what}: {e}: {:x?}", pair.info()))?;
        after(8);
    }
    Ok(())
}

/// Nothing gets through by RDMA: the connection does not wait until its card has repeated a request as often as it does.
pub(super) fn silent() -> Outcome {
    // A card's, before it says that nobody answers.
    const REPEATS: u64 = 7;
    let mut repeats = vec![];
    for _ in 0..6 {
        let (pair, mut at) = promoted()?;
        let before = card::counted("card_a", "repeats");
        trouble("card_a", "black_hole", 1);
        let done = exchange(&pair.client, &pair.server, &mut at, 700)
            .and_then(|()| exchange(&pair.server, &pair.client, &mut at, 9000))
            .and_then(|()| returned(&pair));
        repeats.push(card::counted("card_a", "repeats") - before);
        trouble("card_a", "black_hole", 0);
        begin_anew();
        done?;
    }
    // A machine that is late judges no link.
    let early = repeats.iter().any(|repeats| *repeats < REPEATS);
    wanted("sooner than the card", early, repeats)
}

/// Promoted again and again, and lost each time; then TCP for good.
pub(super) fn again() -> Outcome {
    const MOST: usize = 6;
    let (pair, mut at) = promoted()?;
    after(2);
    for round in 0..MOST {
        let loss = LOSSES[round % LOSSES.len()];
        loss.happen();
        let gone = returned(&pair);
        loss.mend();
        gone.map_err(|e| format!("{loss:?} round {round}: {e}"))?;
        exchange(&pair.server, &pair.client, &mut at, 9000)?;
        if round + 1 < MOST {
            until_moved(&pair, &mut at).map_err(|e| format!("round {round}: {e}"))?;
        }
    }
    for _ in 0..500 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    wanted("TCP", mode(&pair.client) == PATH, pair.info())?;
    // Others are promoted as ever.
    let (pair, mut at) = promoted()?;
    exchange(&pair.client, &pair.server, &mut at, 9000)?;
    exchange(&pair.server, &pair.client, &mut at, 9000)
}
