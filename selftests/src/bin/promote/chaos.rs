// SPDX-License-Identifier: GPL-2.0
//! Links, devices, ports, drivers and side connections that go at random under many promoted connections: these go on by
//! TCP, are promoted again, and each byte comes once and in its order.

use super::load::{slot, Tally};
use super::seen::Counted;
use super::*;
use st::card::{trouble, Devices};
use st::netlink::{word, Netlink};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Losses of [`lost`].
pub(super) static LOSSES: AtomicU64 = AtomicU64::new(300);
/// Connections at a time.
pub(super) static SLOTS: AtomicU64 = AtomicU64::new(32);
/// Connections of [`lots`].
pub(super) static COUNT: AtomicU64 = AtomicU64::new(600);

/// What goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    /// The client's device, or the server's.
    ClientDevice,
    ServerDevice,
    /// The server's device says that it is broken.
    Fatal,
    /// A device breaks its queue pairs, and has acknowledged bytes of which its software never hears.
    Forgets,
    /// The driver of both.
    Driver,
    /// Packets, for a while that may be longer than devices repeat.
    Silence,
    /// The server's network device is down for a moment.
    Port,
    /// Side connections that there are just now.
    Sides,
}

const BLOWS: [Blow; 8] = [
    Blow::ClientDevice,
    Blow::ServerDevice,
    Blow::Fatal,
    Blow::Forgets,
    Blow::Driver,
    Blow::Silence,
    Blow::Port,
    Blow::Sides,
];

impl Blow {
    /// Draws one, without side connections unless these go, too.
    fn any(rng: &mut Rng, sides: bool) -> Self {
        match rng.range(0, if sides { 99 } else { 88 }) {
            0..25 => Self::ClientDevice,
            25..50 => Self::ServerDevice,
            50..62 => Self::Fatal,
            62..82 => Self::Forgets,
            82..86 => Self::Driver,
            86 => Self::Silence,
            87 | 88 => Self::Port,
            _ => Self::Sides,
        }
    }
}

/// The hand that does it.
struct Hand {
    a: Devices,
    b: Devices,
    diag: [Netlink; 2],
    rng: Rng,
}

fn command(program: &str, words: &str) -> Result<(), String> {
    let done = Command::new(program).args(words.split(' ')).output();
    let done = done.map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {words}: {said}")),
    }
}

impl Hand {
    fn new() -> Self {
        let diag = |ns| within(ns, || Netlink::open(libc::NETLINK_SOCK_DIAG)).expect("sock_diag");
        Self {
            a: Devices::of("a"),
            b: Devices::of("b"),
            diag: [diag("a"), diag("b")],
            rng: rng(),
        }
    }

    fn delete(&self, client: bool) -> Result<(), String> {
        let done = match client {
            true => self.a.delete("card_a"),
            false => self.b.delete("card_b"),
        };
        done.map_err(|e| format!("a device cannot be deleted: {e}"))
    }

    fn add(&self, client: bool) -> Result<(), String> {
        let done = match client {
            true => self.a.add("card_a", "va"),
            false => self.b.add("card_b", "vb"),
        };
        done.map_err(|e| format!("a device cannot be added: {e}"))
    }

    /// Does it, and puts it right again. Returns how many side connections have gone.
    fn strike(&mut self, blow: Blow) -> Result<usize, String> {
        // Most often at once.
        let gap = self.rng.range(0, 30).saturating_sub(24);
        let client = self.rng.range(0, 1) == 0;
        let card = if client { "card_a" } else { "card_b" };
        match blow {
            Blow::ClientDevice | Blow::ServerDevice => {
                let client = blow == Blow::ClientDevice;
                self.delete(client)?;
                guest::pause(gap);
                self.add(client)?;
            }
            Blow::Fatal => {
                trouble("card_b", "fatal", 1);
                guest::pause(gap);
                for client in [true, false] {
                    self.delete(client)?;
                }
                for client in [true, false] {
                    self.add(client)?;
                }
            }
            Blow::Forgets => {
                trouble(card, "forgets", 1);
                guest::pause(gap);
                trouble(card, "forgets", 0);
            }
            Blow::Driver => {
                command("rmmod", "card")?;
                guest::pause(gap);
                command("insmod", "/rsmc/kmod/card.ko")?;
                self.add(true)?;
                self.add(false)?;
            }
            Blow::Silence => {
                let time = self.rng.range(20, 1500);
                trouble(card, "black_hole", 1);
                guest::pause(time);
                trouble(card, "black_hole", 0);
            }
            Blow::Port => {
                let time = self.rng.range(0, 50);
                guest::run("b", "ip", "link set vb down");
                guest::pause(time);
                guest::run("b", "ip", "link set vb up");
            }
            Blow::Sides => {
                let which = usize::from(client);
                return sides(&self.diag[which]);
            }
        }
        Ok(0)
    }
}

/// The inodes of this process's sockets.
fn own() -> BTreeSet<u64> {
    let all = std::fs::read_dir("/proc/self/fd").expect("descriptors");
    let inode = |path| std::fs::metadata(path).ok().map(|file| file.ino());
    all.flatten()
        .filter_map(|file| inode(file.path()))
        .collect()
}

/// Ends the connections of the kernel's own to a host's listeners, of which this process has no descriptor.
fn sides(diag: &Netlink) -> Result<usize, String> {
    const BY_FAMILY: u16 = 20;
    const DESTROY: u16 = 21;
    const ESTABLISHED: u8 = 1;
    let before = own();
    let mut request = vec![libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend((1u32 << ESTABLISHED).to_ne_bytes());
    request.resize(56, 0);
    let all = diag.ask(BY_FAMILY, true, &request);
    let all = all.map_err(|e| format!("sock_diag: {e}"))?;
    let after = own();
    let mut gone = 0;
    for one in all {
        let inode = word(&one, 68)
            .map_err(|e| format!("sock_diag: {e}"))?
            .into();
        // 0 is of one that has not been accepted, or was closed.
        if inode != 0 && !before.contains(&inode) && !after.contains(&inode) {
            let mut request = vec![
                libc::AF_INET as u8,
                libc::IPPROTO_TCP as u8,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            request.extend(&one[4..52]);
            // It may have gone by itself.
            let done = diag.ask(DESTROY, false, &request).is_ok();
            let [from, to] = [4, 6].map(|at| u16::from_be_bytes([one[at], one[at + 1]]));
            println!("# side connection {from} to {to} ended: {done}");
            gone += usize::from(done);
        }
    }
    Ok(gone)
}

/// Says what has come of the connections. Returns what is wrong.
fn told(what: &str, tally: &Tally, counted: &Counted) -> Outcome {
    let of = |count: &AtomicU64| count.load(Relaxed);
    let done = counted.grown("promotion_done ROLE");
    let failed = counted.grown("promotion_failed ROLE");
    println!(
        "# {what}: {} connections, {} promoted at least once, {} MB; promotions seen {}, counted {done:?}, failed \
         {failed:?}; returns seen {}",
        of(&tally.all),
        of(&tally.ever),
        of(&tally.bytes) >> 20,
        of(&tally.promoted),
        of(&tally.returned),
    );
    let wrong = tally.wrong.lock().expect("wrong");
    if !wrong.is_empty() {
        for (name, grown) in counted.all_grown() {
            if name.contains("reason") {
                println!("# {name}: {grown:?}");
            }
        }
    }
    println!(
        "# {what}: lost {} since an end had closed, {} while turning, {} otherwise",
        of(&tally.closed),
        of(&tally.turning),
        wrong.len()
    );
    println!(
        "# {what}: longest wait of a connection: p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms",
        tally.wait(500),
        tally.wait(990),
        tally.wait(999),
        tally.wait(1000),
    );
    wanted("all others go on", wrong.is_empty(), &*wrong)
}

/// Runs connections, so many at a time, while `act` does.
fn under_load<R>(tally: &Tally, slots: u64, act: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    let goes_on = || !over.load(Relaxed);
    std::thread::scope(|threads| {
        for _ in 0..slots {
            let seed = SEED.fetch_add(1, Relaxed);
            threads.spawn(move || slot(tally, seed, &goes_on));
        }
        let done = act();
        over.store(true, Relaxed);
        done
    })
}

fn prepare() {
    after(8);
    // A link that breaks soon is not to be remembered of the peer.
    set(&["a", "b"], "neighbour_time", 0);
}

/// Waits until some connections are SMC-R, as long as that comes.
fn some_hot(hot: &AtomicUsize) {
    for _ in 0..400 {
        if hot.load(Relaxed) > 0 {
            return;
        }
        sys::sleep_ms(1);
    }
}

/// Links, devices, ports and drivers go at random: no connection is lost.
pub(super) fn lost() -> Outcome {
    strikes(false)
}

/// So do side connections, by which the two ends agree while they turn: where the link is lost in the same turn nobody can
/// say any more where the stream is.
pub(super) fn sides_lost() -> Outcome {
    strikes(true)
}

fn strikes(sides: bool) -> Outcome {
    let before = smcinfo::references();
    prepare();
    let slots = (SLOTS.load(Relaxed) / guest::less()).max(8);
    let losses = (LOSSES.load(Relaxed) / guest::less()).max(20);
    {
        // What a connection waits while nothing is lost.
        let (tally, counted) = (Tally::default(), Counted::now());
        under_load(&tally, slots, || {
            while tally.all.load(Relaxed) < 3 * slots {
                sys::sleep_ms(10);
            }
        });
        told("calm", &tally, &counted)?;
    }
    let (tally, counted) = (Tally::default(), Counted::now());
    let mut hand = Hand::new();
    let (mut hit, mut ended, mut each) = (0, 0, [0u64; BLOWS.len()]);
    let struck = under_load(&tally, slots, || {
        for number in 0..losses {
            some_hot(&tally.hot);
            let pause = match hand.rng.range(0, 9) {
                0..5 => hand.rng.range(0, 10),
                5..9 => hand.rng.range(10, 60),
                _ => hand.rng.range(60, 300),
            };
            guest::pause(pause);
            let blow = Blow::any(&mut hand.rng, sides);
            let hot = tally.hot.load(Relaxed);
            hit += u64::from(hot > 0 && blow != Blow::Sides && blow != Blow::Port);
            each[blow as usize] += 1;
            ended += hand.strike(blow).map_err(|e| format!("{blow:?}: {e}"))?;
            if number % 500 == 499 {
                println!(
                    "# {} losses, {} connections",
                    number + 1,
                    tally.all.load(Relaxed)
                );
            }
            if tally.wrong.lock().expect("wrong").len() > 20 {
                break;
            }
        }
        Ok::<_, String>(())
    });
    let kinds: Vec<_> = BLOWS.iter().zip(each).collect();
    println!("# losses {losses}, {hit} under promoted connections: {kinds:?}; side connections ended: {ended}");
    let done = told("chaos", &tally, &counted);
    struck?;
    done?;
    let gone = [&tally.turning, &tally.closed].map(|count| count.load(Relaxed));
    wanted(
        "lost with their side connections",
        gone.iter().sum::<u64>() <= ended as u64,
        (gone, ended),
    )?;
    wanted(
        "promoted and returned",
        tally.returned.load(Relaxed) > 0,
        &kinds,
    )?;
    // Others are promoted as ever.
    let pair = begin()?;
    let mut at = 0;
    until_moved(&pair, &mut at)?;
    drop(pair);
    smcinfo::settled(before, 20_000)
}

/// Connections are promoted, one after the other, between two messages. Tells the longest round of each, and that of
/// connections which keep TCP; and how long a stream that only one end writes takes to be promoted.
pub(super) fn stalls() -> Outcome {
    let before = smcinfo::references();
    let count = COUNT.load(Relaxed) / guest::less();
    for (what, segments) in [("TCP alone", 0), ("stalls", 8)] {
        prepare();
        after(segments);
        let (listener, to) = listener();
        let counted = Counted::now();
        let tally = Tally::default();
        for _ in 0..count {
            let longest = longest_round(&connect(&listener, to)?, segments != 0)?;
            tally.waits.lock().expect("waits").push(longest);
        }
        let done = counted.grown("promotion_done ROLE");
        let wanted_done = if segments == 0 { 0 } else { count };
        wanted("promoted", done == [wanted_done; 2], done)?;
        told(what, &tally, &counted)?;
    }
    set(&["a", "b"], "path_promote", 32);
    let tally = Tally::default();
    for _ in 0..count.min(200) {
        let pair = begin()?;
        tally.waits.lock().expect("waits").push(until_hot(&pair)?);
    }
    println!(
        "# a stream is promoted after: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        tally.wait(500),
        tally.wait(990),
        tally.wait(1000)
    );
    smcinfo::settled(before, 20_000)
}

/// Pours bytes to the server until both ends are SMC-R. Returns the microseconds from the first byte on.
fn until_hot(pair: &Pair) -> Result<u64, String> {
    let begun = Instant::now();
    let (bytes, mut at) = ([0; 16 << 10], 0);
    while !moved(pair) {
        sys::send_all(pair.client.raw(), &bytes).map_err(|e| format!("send at {at}: {e}"))?;
        let got = sys::recv_all(pair.server.raw(), bytes.len());
        wanted("bytes", got.is_ok_and(|got| got == bytes), at)?;
        at += bytes.len();
        if begun.elapsed() > Duration::from_secs(20 * guest::slow()) {
            return Err(format!("not moved: {:x?}", pair.info()));
        }
    }
    Ok(begun.elapsed().as_micros() as u64)
}

/// Exchanges messages before, while and after a connection is promoted, if it is. Returns the longest round in
/// microseconds.
fn longest_round(pair: &Pair, promotes: bool) -> Result<u64, String> {
    let (mut at, mut longest, mut rest) = (0, 0, 60);
    for _ in 0..20_000 {
        let begun = Instant::now();
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
        longest = longest.max(begun.elapsed().as_micros() as u64);
        if !promotes || moved(pair) {
            rest -= 1;
        }
        if rest == 0 {
            return Ok(longest);
        }
    }
    Err(format!("not moved: {:x?}", pair.info()))
}

/// Many connections are promoted, each in the midst of what its programs do.
pub(super) fn lots() -> Outcome {
    let before = smcinfo::references();
    prepare();
    let slots = SLOTS.load(Relaxed) / guest::less();
    let count = COUNT.load(Relaxed) / guest::less();
    // What so many connections wait for each other, and for a processor, while none is promoted, and while all are SMC-R
    // from their beginning.
    for (what, name, value) in [("TCP alone", "path_promote", 0), ("SMC-R alone", "path", 0)] {
        set(&["a", "b"], name, value);
        let tally = Tally {
            keeps_carrier: true,
            ..Tally::default()
        };
        let counted = Counted::now();
        under_load(&tally, slots, || {
            while tally.all.load(Relaxed) < slots + count / 4 {
                sys::sleep_ms(10);
            }
        });
        told(what, &tally, &counted)?;
    }
    set(&["a", "b"], "path", 2);
    prepare();
    let (tally, counted) = (Tally::default(), Counted::now());
    under_load(&tally, slots, || {
        while tally.ever.load(Relaxed) < count && tally.wrong.lock().expect("wrong").len() < 20 {
            sys::sleep_ms(10);
        }
    });
    told("lots", &tally, &counted)?;
    let all = [&tally.closed, &tally.turning];
    let reset: u64 = all.iter().map(|count| count.load(Relaxed)).sum();
    wanted("none lost", reset == 0, reset)?;
    let done = counted.grown("promotion_done ROLE");
    wanted("promoted", done.iter().all(|done| *done >= count), done)?;
    smcinfo::settled(before, 20_000)
}
