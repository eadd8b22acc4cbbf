// SPDX-License-Identifier: GPL-2.0
//! What is to be seen of connections that are promoted, before, during and after: by `sock_diag`, by the counters of both
//! namespaces, and by the tools.

use super::{after, begin, connect, exchange, listener, mode, moved, until_moved, Begun, SMC};
use st::card::{rsmc, wanted, Outcome, Pair};
use st::errno::Errno;
use st::fd::Fd;
use st::guest::{self, within};
use st::intrude::{self, lines};
use st::rng::fill;
use st::{diag, netlink, smcinfo, sys};
use std::collections::BTreeMap;
use std::path::Path;

/// Our own extension of `sock_diag`, and the bit that asks for it.
const BEGAN: u16 = 9;
const OWN: u8 = 1 << 7;

/// Steps.
const TCP: u8 = 0;
const DUE: u8 = 4;
const TURNED: u8 = 5;
const PROMOTED: u8 = 6;

const NOSMCDEV: u32 = 0x0303_0000;
const PATHATTACHED: u32 = 0x0306_0101;
const PATHREMOTE: u32 = 0x0306_0103;
pub(super) const PATHBREACH: u32 = 0x0306_0104;
const PATHREFUSED: u32 = 0x0306_010c;
const PATHUNREACHED: u32 = 0x0306_010d;

/// What `sock_diag` tells of a connection that began as TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    mode: u8,
    step: u8,
    server: bool,
    remote: bool,
    attempts: u32,
    failures: u32,
    reason: u32,
    sent: u64,
    received: u64,
}

fn seen(ns: &'static str, fd: &Fd) -> Result<Seen, String> {
    let inode = diag::inode(fd.raw()).map_err(|e| format!("fstat: {e}"))?;
    let all = within(ns, || diag::all(OWN, libc::NLM_F_DUMP));
    let all = all.map_err(|e| format!("sock_diag: {e}"))?;
    let (_, socket) = all
        .into_iter()
        .find(|socket| socket.0 == inode)
        .ok_or("not listed")?;
    let told = socket.attributes.iter().find(|a| a.0 == BEGAN);
    let told = &told.ok_or("nothing about its beginning")?.1;
    let word = |at| netlink::word(told, at).map_err(|e| format!("a short attribute: {e}"));
    let long = |at| Ok::<_, String>(u64::from(word(at)?) | (u64::from(word(at + 4)?) << 32));
    Ok(Seen {
        mode: socket.fixed[2],
        step: told[0],
        server: told[1] != 0,
        remote: told[2] != 0,
        attempts: word(4)?,
        failures: word(8)?,
        reason: word(12)?,
        sent: long(16)?,
        received: long(24)?,
    })
}

/// How far an end is on its way.
pub(super) fn step(ns: &'static str, fd: &Fd) -> Result<u8, String> {
    seen(ns, fd).map(|seen| seen.step)
}

fn both(pair: &Pair) -> Result<(Seen, Seen), String> {
    Ok((seen("a", &pair.client)?, seen("b", &pair.server)?))
}

/// The counters of the client's namespace and of the server's.
#[derive(Debug)]
pub(super) struct Counted([BTreeMap<String, u64>; 2]);

impl Counted {
    pub(super) fn now() -> Self {
        let of = |ns| within(ns, smcinfo::counters).expect("counters");
        Self([of("a"), of("b")])
    }

    /// By how much a counter of the client's end and that of the server's have grown since; `name` has `ROLE` in it.
    pub(super) fn grown(&self, name: &str) -> [u64; 2] {
        let now = Self::now();
        [(0, "client"), (1, "server")].map(|(at, role)| {
            let name = name.replace("ROLE", role);
            let of = |all: &Self| all.0[at].get(&name).copied().unwrap_or(0);
            of(&now) - of(self)
        })
    }

    /// All counters that have grown since, with both namespaces' growth.
    pub(super) fn all_grown(&self) -> Vec<(String, [u64; 2])> {
        let now = Self::now();
        let names: std::collections::BTreeSet<_> = now.0.iter().flat_map(|of| of.keys()).collect();
        let of = |all: &Self, at: usize, name: &str| all.0[at].get(name).copied().unwrap_or(0);
        let grown = names.into_iter().map(|name| {
            let both = [0, 1].map(|at| of(&now, at, name).saturating_sub(of(self, at, name)));
            (name.clone(), both)
        });
        grown.filter(|one| one.1 != [0, 0]).collect()
    }

    /// The number of promotions and the sum of their classes by time have grown by as much.
    fn times_fit(&self) -> Outcome {
        let times = |all: &Self, at: usize| -> u64 {
            let times = all.0[at]
                .iter()
                .filter(|x| x.0.starts_with("promotion_time "));
            times.map(|x| x.1).sum()
        };
        let now = Self::now();
        for (at, role) in [(0, "client"), (1, "server")] {
            let of = |name: &str| {
                let name = format!("promotion_{name} {role}");
                now.0[at].get(&name).copied().unwrap_or(0)
            };
            let grown = times(&now, at) - times(self, at);
            wanted(
                "classes of times",
                times(&now, at) == of("done"),
                (role, grown),
            )?;
            let (sum, longest) = (of("ns"), of("longest_ns"));
            wanted(
                "times",
                longest <= sum && longest * of("done") >= sum,
                (sum, longest),
            )?;
        }
        Ok(())
    }

    pub(super) fn is(&self, what: &str, name: &str, want: [u64; 2]) -> Outcome {
        let grown = self.grown(name);
        wanted(what, grown == want, (name, grown))
    }
}

/// Waits until something is seen.
fn until(
    pair: &Pair,
    what: &str,
    good: impl Fn(&Seen, &Seen) -> bool,
) -> Result<(Seen, Seen), String> {
    let end = guest::until(10_000);
    loop {
        let (client, server) = both(pair)?;
        if good(&client, &server) {
            return Ok((client, server));
        }
        let late = std::time::Instant::now() > end;
        wanted(what, !late, (client, server))?;
        sys::sleep_ms(5);
    }
}

/// A connection to a server whose TCP has room for so many bytes.
fn begin_narrow(room: i32) -> Result<(Pair, Fd), String> {
    let (listener, to) = listener();
    sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, room)
        .map_err(|e| format!("SO_RCVBUF: {e}"))?;
    Ok((connect(&listener, to)?, listener))
}

/// What the server writes by its ring wakes a poller of the client, whose own end cannot leave TCP yet.
pub fn polled() -> Outcome {
    after(16);
    let (pair, _listener) = begin_narrow(2048)?;
    let mut at = 0;
    let held = sys::send(pair.client.raw(), &[9; 8192], libc::MSG_MORE);
    wanted("held", held == Ok(8192), held)?;
    for _ in 0..40 {
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    until(&pair, "half of it", |client, server| {
        client.step == DUE && server.step == TURNED
    })?;
    std::thread::scope(|threads| {
        let client = &pair.client;
        let poller = threads.spawn(move || sys::poll1(client.raw(), libc::POLLIN, 20_000));
        guest::pause(100);
        let sent = sys::send_all(pair.server.raw(), b"by the ring");
        sent.map_err(|e| format!("send: {e}"))?;
        let events = poller.join().expect("the poller");
        wanted("woken", events == Ok(libc::POLLIN), events)?;
        let step = step("a", client)?;
        wanted("still half", step == DUE, step)
    })
}

/// A promotion that stops in the midst: the client's end has given TCP bytes after which more is to follow, and turns with
/// the next ones. TCP cannot send them before, as the server's has no room.
pub fn steps() -> Outcome {
    const HELD: usize = 8192;
    after(16);
    let counted = Counted::now();
    let (pair, _listener) = begin_narrow(2048)?;
    let mut at = 0;
    for _ in 0..6 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    // Before.
    let fresh = Seen {
        mode: 3,
        step: TCP,
        server: false,
        remote: true,
        attempts: 0,
        failures: 0,
        reason: PATHREMOTE,
        sent: 0,
        received: 0,
    };
    let waits = Seen {
        server: true,
        ..fresh
    };
    let found = both(&pair)?;
    wanted("before", found == (fresh, waits), found)?;
    counted.is("begun before", "promotion_begun ROLE", [0, 0])?;
    counted.is("began as TCP", "tcp_first_ROLE", [1, 1])?;
    // During.
    let mut bytes = vec![0; HELD];
    fill(9, 0, &mut bytes);
    let held = sys::send(pair.client.raw(), &bytes, libc::MSG_MORE);
    wanted("held", held == Ok(HELD as i64), held)?;
    for _ in 0..20 {
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    let (client, server) = until(&pair, "during", |client, server| {
        client.step == DUE && server.step == TURNED
    })?;
    let going = |seen: &Seen| (seen.mode, seen.attempts, seen.failures) == (3, 1, 0);
    wanted(
        "one attempt",
        going(&client) && going(&server),
        (client, server),
    )?;
    counted.is("begun during", "promotion_begun ROLE", [1, 1])?;
    counted.is("done during", "promotion_done ROLE", [0, 1])?;
    let said = rsmc("a", "ss --json");
    let shown = said.contains(r#""step": "due""#) && said.contains(r#""promoting": true"#);
    wanted("rsmc ss, during", shown, said)?;
    let said = rsmc("a", "ss");
    wanted("promoting", said.contains(" promoting "), said)?;
    // What the server writes goes by its ring.
    let by_ring = server.sent;
    exchange(&pair.server, &pair.client, &mut at, 100)?;
    let (client, server) = both(&pair)?;
    wanted("by the ring", server.sent == by_ring + 100, server)?;
    wanted("at the client", client.received == server.sent, client)?;
    wanted("not yet", client.sent == 0, client)?;
    // After.
    let got = sys::send(pair.client.raw(), b" back", 0);
    wanted("more", got == Ok(5), got)?;
    bytes.extend_from_slice(b" back");
    let got = sys::recv_all(pair.server.raw(), bytes.len());
    wanted("all", got.as_ref() == Ok(&bytes), got.map(|got| got.len()))?;
    until_moved(&pair, &mut at)?;
    let before = both(&pair)?;
    wanted("the first by the ring", before.0.sent >= 5, before)?;
    exchange(&pair.client, &pair.server, &mut at, 1000)?;
    exchange(&pair.server, &pair.client, &mut at, 10)?;
    let (client, server) = both(&pair)?;
    wanted("sent", client.sent == before.0.sent + 1000, client)?;
    wanted(
        "received",
        client.received == before.0.received + 10,
        client,
    )?;
    let mirrored = (server.received, server.sent) == (client.sent, client.received);
    wanted("at the server", mirrored, (client, server))?;
    let done =
        |seen: &Seen| (seen.mode, seen.step, seen.attempts, seen.failures) == (0, PROMOTED, 1, 0);
    wanted("after", done(&client) && done(&server), (client, server))?;
    for (name, want) in [
        ("begun", [1, 1]),
        ("done", [1, 1]),
        ("failed", [0, 0]),
        ("refused", [0, 0]),
    ] {
        counted.is("after", &format!("promotion_{name} ROLE"), want)?;
    }
    counted.times_fit()?;
    let said = rsmc("b", "ss -e");
    let shown = said.contains("SMC-R") && said.contains("now smc: 1 attempts, by the ring");
    wanted("rsmc ss -e, after", shown, said)?;
    let said = rsmc("a", "why 10.77.0.2");
    wanted("rsmc why", said.contains("1 on SMC-R now; "), said)?;
    let said = rsmc("a", "stats --prometheus");
    let line = format!(
        "smc_promotions_total{{role=\"client\",result=\"done\"}} {}\n",
        Counted::now().0[0]["promotion_done client"]
    );
    wanted("metrics", said.contains(&line), (line, said))?;
    let said = rsmc("a", "top --interval 0.1");
    wanted("rsmc top", said.contains("\npromotions: "), said)
}

/// Exchanges messages until the client has given up `attempts` times.
fn until_failed(pair: &Pair, at: &mut u64, attempts: u32) -> Result<(Seen, Seen), String> {
    for _ in 0..4000 {
        exchange(&pair.client, &pair.server, at, 64)?;
        exchange(&pair.server, &pair.client, at, 64)?;
        let (client, server) = both(pair)?;
        if client.failures >= attempts {
            return Ok((client, server));
        }
    }
    Err(format!("no failure: {:x?}", both(pair)?))
}

/// Nobody listens at the server's port any more.
pub fn unreached() -> Outcome {
    after(16);
    let counted = Counted::now();
    let pair = begin()?;
    let mut at = 0;
    exchange(&pair.client, &pair.server, &mut at, 64)?;
    let Begun { pair, _listener } = pair;
    drop(_listener);
    let (client, server) = until_failed(&pair, &mut at, 1)?;
    let good = client.step == TCP && client.reason == PATHUNREACHED;
    wanted(
        "unreached",
        good && client.attempts == client.failures,
        client,
    )?;
    wanted(
        "nothing has come",
        (server.step, server.attempts) == (TCP, 0),
        server,
    )?;
    let failed = u64::from(client.failures);
    counted.is("begun", "promotion_begun ROLE", [failed, 0])?;
    counted.is("failed", "promotion_failed ROLE", [failed, 0])?;
    let reason = format!("promotion_reason ROLE {PATHUNREACHED:#010x}");
    counted.is("reason", &reason, [failed, 0])?;
    let said = rsmc("a", "why 10.77.0.2");
    let latest = said.find("PATHUNREACHED").unwrap_or(usize::MAX);
    let others = ["PATHREFUSED", "PATHATTACHED", "PATHENDS"];
    let first = others
        .iter()
        .filter_map(|name| said.find(&format!("{name}\n")))
        .all(|other| latest < other);
    wanted(
        "rsmc why, the latest first",
        first && said.contains("Not promoted, "),
        said,
    )?;
    let said = rsmc("a", "ss -e");
    wanted("rsmc ss -e", said.contains("failed (PATHUNREACHED)"), said)
}

/// An option of the socket keeps it on TCP, first at the client, then at the server; once it is gone the connection is
/// promoted.
pub fn refused() -> Outcome {
    let low_water = |fd: &Fd, bytes| {
        let done = sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
        done.map_err(|e| format!("SO_RCVLOWAT: {e}"))
    };
    after(16);
    let counted = Counted::now();
    let pair = begin()?;
    let mut at = 0;
    low_water(&pair.client, 2)?;
    let (client, server) = until_failed(&pair, &mut at, 1)?;
    let (step, reason) = (client.step, client.reason);
    wanted("refused", (step, reason) == (TCP, PATHATTACHED), client)?;
    wanted("nothing has come", server.attempts == 0, server)?;
    counted.is("begun", "promotion_begun ROLE", [0, 0])?;
    counted.is(
        "refused",
        "promotion_refused ROLE",
        [u64::from(client.failures), 0],
    )?;
    // The server's is a candidate by now.
    low_water(&pair.server, 2)?;
    low_water(&pair.client, 1)?;
    let (client, server) = until_failed(&pair, &mut at, client.failures + 1)?;
    wanted(
        "refused by the server",
        client.reason == PATHREFUSED,
        client,
    )?;
    let (_, server) = match server.failures {
        0 => until(&pair, "the server's end", |_, server| server.failures != 0)?,
        _ => (client, server),
    };
    wanted("the server's reason", server.reason == PATHATTACHED, server)?;
    counted.is("failed", "promotion_failed ROLE", [1, 1])?;
    low_water(&pair.server, 1)?;
    until_moved(&pair, &mut at)?;
    let (client, server) = both(&pair)?;
    let again = client.attempts == client.failures + 1 && server.attempts == server.failures + 1;
    wanted("promoted after all", again, (client, server))?;
    counted.is("done", "promotion_done ROLE", [1, 1])
}

/// The server's device goes when its end waits for the client's side connection: that is declined. When the device is
/// back, the connection is promoted.
pub fn declined() -> Outcome {
    after(16);
    let counted = Counted::now();
    let pair = begin()?;
    let mut at = 0;
    for _ in 0..5 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    let (goes, comes) = match Path::new("/sys/module/card").exists() {
        true => ("link delete card_b", "link add card_b type card netdev vb"),
        false => ("link delete rxe_b", "link add rxe_b type rxe netdev vb"),
    };
    guest::run("b", "rdma", goes);
    let failed = until_failed(&pair, &mut at, 1);
    guest::run("b", "rdma", comes);
    let (client, _) = failed?;
    wanted("declined", client.reason == PATHREFUSED, client)?;
    let (_, server) = until(&pair, "the server's end", |_, server| server.failures != 0)?;
    wanted("no device", server.reason == NOSMCDEV, server)?;
    wanted(
        "a join was heard",
        counted.grown("promotion_failed ROLE")[1] == 1,
        server,
    )?;
    // Soon, not when an end has forgotten that it has tried.
    for _ in 0..2000 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
        if moved(&pair) {
            return Ok(());
        }
    }
    Err(format!("not promoted again: {:x?}", both(&pair)?))
}

/// Bytes come by TCP behind the cut: the connection is reset, and it is said why.
pub fn breach() -> Outcome {
    after(16);
    let counted = Counted::now();
    // The log gets at most one line a second.
    sys::sleep_ms(1100);
    let told = lines();
    let (listener, to) = listener();
    let pair = connect(&listener, to)?;
    let mut at = 0;
    until_moved(&pair, &mut at)?;
    intrude::write(&pair.client)?;
    let end = sys::recv_vec(pair.server.raw(), 100, 0);
    // The other end's reset may come before the program is told.
    let told_so = matches!(&end, Err(Errno(libc::ECONNABORTED | libc::ECONNRESET)));
    wanted("the end", told_so, end)?;
    let end = sys::recv_vec(pair.client.raw(), 100, 0);
    wanted(
        "the other end",
        matches!(&end, Err(Errno(libc::ECONNRESET))),
        end,
    )?;
    let info = smcinfo::info(pair.server.raw()).map_err(|e| format!("info: {e}"))?;
    wanted(
        "reason",
        (info.mode, info.reason) == (SMC, PATHBREACH),
        info,
    )?;
    wanted("mode", mode(&pair.client) == SMC, mode(&pair.client))?;
    counted.is(
        "counted",
        &format!("reason ROLE {PATHBREACH:#010x}"),
        [0, 1],
    )?;
    wanted("a line in the log", lines() > told, lines())
}
