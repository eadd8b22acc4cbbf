// SPDX-License-Identifier: GPL-2.0
//! Promoted connections whose host gets another device: a virtual machine that migrates, which finds a device of another
//! name on its network device, and a device that is moved to another network namespace and back. They go on by TCP
//! meanwhile, and are promoted again over the device that has come.

use super::seen::Counted;
use super::*;
use st::card::{self, Devices};
use st::errno::Errno;
use std::sync::atomic::AtomicBool;

const NOSMCDEV: u32 = 0x0303_0000;

/// The end whose device goes.
#[derive(Clone, Copy, Debug)]
struct Side {
    ns: &'static str,
    netdev: &'static str,
    card: &'static str,
    /// Name of the device that comes in its place.
    next: &'static str,
    /// Place of its role in what [`Counted`] tells.
    at: usize,
}

const SIDES: [Side; 2] = [
    Side {
        ns: "a",
        netdev: "va",
        card: "card_a",
        next: "next_a",
        at: 0,
    },
    Side {
        ns: "b",
        netdev: "vb",
        card: "card_b",
        next: "next_b",
        at: 1,
    },
];

/// Bytes that a device has moved; `None` if there is no such device.
fn moved_by(card: &str) -> Option<u64> {
    let stats = std::fs::read_to_string("/sys/module/card/parameters/stats").expect("stats");
    let begin = format!("{card} ");
    let there = stats.lines().any(|line| line.starts_with(&begin));
    there.then(|| card::counted(card, "bytes"))
}

/// Exchanges messages both ways, without an end, while `act` is done.
fn meanwhile<R>(pair: &Pair, at: &mut u64, act: impl FnOnce() -> R) -> Result<(R, u64), String> {
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let talker = threads.spawn(|| {
            let mut rounds = 0;
            while !over.load(Relaxed) {
                exchange(&pair.client, &pair.server, at, 700)?;
                exchange(&pair.server, &pair.client, at, 9000)?;
                rounds += 1;
            }
            Ok::<_, String>(rounds)
        });
        let done = act();
        over.store(true, Relaxed);
        let rounds = talker.join().expect("the talker")?;
        Ok((done, rounds))
    })
}

/// Writes bytes at both ends that nobody has read when `act` is done, and reads them after that.
fn unread<R>(pair: &Pair, at: &mut u64, act: impl FnOnce() -> R) -> Result<R, String> {
    const LEN: usize = 20_000;
    let mut bytes = vec![0; LEN];
    fill(7, *at, &mut bytes);
    *at += LEN as u64;
    for end in [&pair.client, &pair.server] {
        sys::send_all(end.raw(), &bytes).map_err(|e| format!("send: {e}"))?;
    }
    let done = act();
    for end in [&pair.client, &pair.server] {
        let got = sys::recv_all(end.raw(), LEN).map_err(|e| format!("unread: {e}"))?;
        wanted("bytes that were not read", got == bytes, got.len())?;
    }
    Ok(done)
}

/// What is done to an end's device while the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Idle,
    Unread,
    Messages,
}

/// Does something while the connection does what `during` says.
fn amid<R>(
    pair: &Pair,
    at: &mut u64,
    during: During,
    act: impl FnOnce() -> R,
) -> Result<R, String> {
    match during {
        During::Idle => Ok(act()),
        During::Unread => unread(pair, at, act),
        During::Messages => {
            let (done, rounds) = meanwhile(pair, at, || {
                guest::pause(20);
                let done = act();
                guest::pause(20);
                done
            })?;
            wanted("messages", rounds > 0, rounds)?;
            Ok(done)
        }
    }
}

/// A connection that has been promoted, and is promoted again as soon as that can be.
fn begin_promoted() -> Result<(Begun, u64), String> {
    after(8);
    // A link that breaks is not to be remembered of the peer.
    set(&["a", "b"], "neighbour_time", 0);
    let pair = begin()?;
    let mut at = 0;
    until_moved(&pair, &mut at)?;
    Ok((pair, at))
}

/// The connection goes back to TCP at both ends, once.
fn has_returned(counted: &Counted) -> Outcome {
    let mut returned = [0; 2];
    for _ in 0..guest::limit(8000) {
        returned = counted.grown("promotion_returned ROLE lost");
        if returned == [1, 1] {
            return Ok(());
        }
        sys::sleep_ms(1);
    }
    Err(format!("returns: {returned:?}"))
}

/// Without a device at this end the connection is TCP's, and all that comes of its being worth a promotion is that.
fn by_tcp(pair: &Pair, at: &mut u64, side: Side, counted: &Counted) -> Outcome {
    has_returned(counted)?;
    // An end says so a moment after it has counted that.
    let mut waits = guest::limit(8000);
    while (mode(&pair.client), mode(&pair.server)) != (PATH, PATH) && waits > 0 {
        sys::sleep_ms(1);
        waits -= 1;
    }
    let name = format!("promotion_reason ROLE {NOSMCDEV:#010x}");
    for _ in 0..4000 {
        exchange(&pair.client, &pair.server, at, 64)?;
        exchange(&pair.server, &pair.client, at, 900)?;
        let modes = (mode(&pair.client), mode(&pair.server));
        wanted("by TCP", modes == (PATH, PATH), modes)?;
        if counted.grown(&name)[side.at] > 0 {
            let done = counted.grown("promotion_done ROLE");
            return wanted("not promoted meanwhile", done == [1, 1], done);
        }
    }
    Err(format!("no attempt: {:?}", counted.all_grown()))
}

/// The connection is promoted once more, and this device moves its bytes.
fn again_over(pair: &Pair, at: &mut u64, card: &str, counted: &Counted) -> Outcome {
    const LEN: usize = 50_000;
    // After attempts in vain the next one is up to 32,768 segments away: without a device here, or while the server ends
    // the link group that has gone.
    let mut done = until_moved(pair, at);
    for _ in 0..4 {
        done = done.or_else(|_| until_moved(pair, at));
    }
    done.map_err(|e| {
        let steps = [
            super::seen::step("a", &pair.client),
            super::seen::step("b", &pair.server),
        ];
        format!("{e}: steps {steps:?}: {:?}", counted.all_grown())
    })?;
    let before = moved_by(card);
    wanted("the device is there", before.is_some(), card)?;
    exchange(&pair.client, &pair.server, at, LEN)?;
    exchange(&pair.server, &pair.client, at, LEN)?;
    let grown = moved_by(card).zip(before).map(|(now, before)| now - before);
    // A device counts what it sends.
    wanted("by the device", grown >= Some(LEN as u64), (card, grown))?;
    wanted("SMC-R still", moved(pair), pair.info())?;
    for (name, due) in [("done ROLE", 2), ("returned ROLE lost", 1)] {
        let seen = counted.grown(&format!("promotion_{name}"));
        wanted(name, seen == [due; 2], (seen, counted.all_grown()))?;
    }
    Ok(())
}

/// The device of an end goes, and soon one of another name comes.
pub(super) fn migrated() -> Outcome {
    let before = smcinfo::references();
    for side in SIDES {
        for during in [During::Idle, During::Unread, During::Messages] {
            // How long there is none: none at all, and so long that the connection is TCP's before.
            for slow in [false, true] {
                migrates(side, during, slow)
                    .map_err(|e| format!("{}, {during:?}, slow {slow}: {e}", side.ns))?;
            }
        }
    }
    // By the devices that there were before.
    let (pair, mut at) = begin_promoted()?;
    exchange(&pair.client, &pair.server, &mut at, 9000)?;
    exchange(&pair.server, &pair.client, &mut at, 9000)?;
    drop(pair);
    smcinfo::settled(before, 20_000)
}

fn migrates(side: Side, during: During, slow: bool) -> Outcome {
    let counted = Counted::now();
    let (pair, mut at) = begin_promoted()?;
    let devices = Devices::of(side.ns);
    let told = |what: &str, done: R<()>| done.map_err(|e| format!("{what}: {e}"));
    let goes = || told("delete", devices.delete(side.card));
    let comes = || told("add", devices.add(side.next, side.netdev));
    let at_once = || goes().and_then(|()| comes());
    let done = (|| {
        if slow {
            amid(&pair, &mut at, during, goes)??;
            by_tcp(&pair, &mut at, side, &counted)?;
            comes()?;
        } else {
            amid(&pair, &mut at, during, at_once)??;
            has_returned(&counted)?;
        }
        wanted("it is gone", moved_by(side.card).is_none(), side.card)?;
        again_over(&pair, &mut at, side.next, &counted)?;
        let Pair { client, server } = pair.pair;
        drop(client);
        ends(&server)
    })();
    as_before()?;
    done
}

/// Both ends have their first devices again, and no link group: a group of the other end whose connections have gone back
/// to TCP is there until its device finds that nobody answers, and the next promotion would find that out.
fn as_before() -> Outcome {
    for side in SIDES {
        let devices = Devices::of(side.ns);
        for card in [side.card, side.next] {
            match devices.delete(card) {
                Ok(()) | Err(Errno(libc::ENODEV)) => (),
                Err(error) => return Err(format!("delete {card}: {error}")),
            }
        }
        let added = devices.add(side.card, side.netdev);
        added.map_err(|e| format!("add {}: {e}", side.card))?;
    }
    Ok(())
}

/// Moves a device from a network namespace to another one.
fn give(card: &'static str, from: &'static str, to: &'static str) -> R<()> {
    within(from, move || Devices::here().give(card, to))
}

fn move_device(card: &'static str, from: &'static str, to: &'static str) -> Outcome {
    give(card, from, to).map_err(|e| format!("{card} from {from} to {to}: {e}"))
}

/// The device of an end is moved to another network namespace, `away`, and back. For namespaces that have devices of their
/// own alone (`rdma system set netns exclusive`).
pub(super) fn namespace() -> Outcome {
    let before = smcinfo::references();
    for side in SIDES {
        for during in [During::Idle, During::Unread, During::Messages] {
            moves(side, during).map_err(|e| format!("{}, {during:?}: {e}", side.ns))?;
        }
    }
    smcinfo::settled(before, 20_000)
}

fn moves(side: Side, during: During) -> Outcome {
    let counted = Counted::now();
    let (pair, mut at) = begin_promoted()?;
    let goes = || move_device(side.card, side.ns, "away");
    amid(&pair, &mut at, during, goes)??;
    let done = by_tcp(&pair, &mut at, side, &counted);
    let here = give(side.card, side.ns, "away");
    move_device(side.card, "away", side.ns)?;
    done?;
    wanted("it was away", here == Err(Errno(libc::ENODEV)), here)?;
    again_over(&pair, &mut at, side.card, &counted)?;
    let Pair { client, server } = pair.pair;
    drop(client);
    ends(&server)
}
