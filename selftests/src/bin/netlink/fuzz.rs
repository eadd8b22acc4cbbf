// SPDX-License-Identifier: GPL-2.0
//! Random requests to `RSMC_POLICY`, most of them wrong: each is answered as [`judge`] says, a wrong one changes
//! nothing, and what there is in the end is what the good ones have left. Other namespaces notice nothing.

use crate::judge::{self, Verdict, CONDITIONS, FACTS, ID, POSITION, RULE};
use st::errno::{Errno, R};
use st::netlink::{attribute, Generic};
use st::rng::Rng;

/// Commands.
const LIST: u8 = 1;
const REPLACE: u8 = 2;
const ADD: u8 = 3;
const DEL: u8 = 4;
const FLUSH: u8 = 5;
const TEST: u8 = 6;

/// Threads, each in a namespace of its own.
const THREADS: u64 = 3;
/// Rules above which all are removed.
const MANY: usize = 300;

/// Runs it; the error says what was wrong.
pub fn run(seed: u64, rounds: u64) -> Result<(), String> {
    let own = Generic::open("RSMC_POLICY").map_err(|e| format!("RSMC_POLICY: {e}"))?;
    let before = rules(&own)?;
    let mark = attribute(
        RULE,
        &[attribute(1, &[0]), attribute(7, &[1, 0, 2, 0])].concat(),
    );
    own.act(ADD, &mark)
        .map_err(|e| format!("a rule here: {e}"))?;
    let marked = rules(&own);
    let done: Vec<_> = std::thread::scope(|scope| {
        let fuzz = |n| scope.spawn(move || thread(seed.wrapping_add(n), rounds));
        let all: Vec<_> = (0..THREADS).map(fuzz).collect();
        all.into_iter()
            .map(|t| t.join().map_err(|_| "panicked".to_string()))
            .collect()
    });
    let after = rules(&own);
    let (marked, after) = (marked?, after?);
    for rule in marked.iter().filter(|rule| !before.contains(rule)) {
        own.act(DEL, &attribute(ID, &rule.id.to_ne_bytes()))
            .map_err(|e| e.to_string())?;
    }
    let mut counts = [0; 2];
    for one in done {
        let some = one??;
        counts = [counts[0] + some[0], counts[1] + some[1]];
    }
    println!(
        "# seed {seed}: {} requests taken, {} refused",
        counts[0], counts[1]
    );
    if marked != after {
        return Err(format!("the rules of another namespace: {after:?}"));
    }
    match counts.iter().all(|count| *count >= rounds / 10) {
        true => Ok(()),
        false => Err("one kind of answer was rare".into()),
    }
}

/// A rule that is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    id: u32,
    /// Its attributes as a request has them.
    bytes: Vec<u8>,
}

fn rules(netlink: &Generic) -> Result<Vec<Listed>, String> {
    let told = netlink.dump(LIST).map_err(|e| format!("list: {e}"))?;
    let read = |message: &Vec<u8>| {
        let top = judge::split(message)?;
        let inner = judge::split(top.iter().find(|a| a.0 == RULE)?.1)?;
        let id = inner.iter().find(|a| a.0 == 11)?.1.try_into().ok()?;
        let conditions = inner.iter().filter(|a| a.0 <= CONDITIONS);
        let bytes: Vec<u8> = conditions.flat_map(|a| attribute(a.0, a.1)).collect();
        (judge::rule(&bytes) == Verdict::Good).then_some(Listed {
            id: u32::from_ne_bytes(id),
            bytes,
        })
    };
    let listed = told
        .iter()
        .map(|message| read(message).ok_or(format!("listed: {message:02x?}")));
    listed.collect()
}

fn thread(seed: u64, rounds: u64) -> Result<[u64; 2], String> {
    // SAFETY: no pointers; of this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err("unshare".into());
    }
    let netlink = Generic::open("RSMC_POLICY").map_err(|e| e.to_string())?;
    let mut rng = Rng::new(seed);
    let mut known: Vec<Listed> = vec![];
    let mut counts = [0; 2];
    for round in 0..rounds {
        let (command, body) = request(&mut rng, &known);
        let ids: Vec<u32> = known.iter().map(|rule| rule.id).collect();
        // Two of three are asked for as they should be.
        let dump = match rng.range(0, 5) {
            0 => command != LIST,
            _ => command == LIST,
        };
        let (wanted, count) = match (command, dump) {
            (LIST, true) => (Verdict::Good, known.len()),
            (TEST, true) => (Verdict::Unknown, known.len()),
            (REPLACE, false) => judge::replace(&body),
            (ADD, false) => (judge::add(&body), known.len() + 1),
            (DEL, false) => (judge::remove(&body, &ids), known.len().saturating_sub(1)),
            (FLUSH, false) => (Verdict::Good, 0),
            (TEST, false) => (judge::test(&body), known.len()),
            (7..=32, _) => (Verdict::Unknown, known.len()),
            _ => (Verdict::Bad, known.len()),
        };
        // What answers by a message needs no acknowledgment, which would come behind it.
        let flags = match (dump, command) {
            (true, _) => libc::NLM_F_DUMP,
            (false, TEST) => 0,
            (false, _) => libc::NLM_F_ACK,
        };
        let here = |what: String| {
            format!("seed {seed}, round {round}, command {command}, {body:02x?}: {what}")
        };
        let got: R<Vec<Vec<u8>>> = match command {
            // Later versions may answer it in more than one way.
            7..=32 => Err(Errno(libc::EOPNOTSUPP)),
            _ => netlink.ask_so(command, flags, 1 << 16, &body),
        };
        let taken = match (&got, wanted) {
            (Ok(_), Verdict::Bad) => return Err(here("was taken".into())),
            (Err(e), Verdict::Good) => return Err(here(format!("was refused: {e}"))),
            (Err(Errno(e)), _)
                if ![libc::EINVAL, libc::ERANGE, libc::ENOENT, libc::EOPNOTSUPP].contains(e) =>
            {
                return Err(here(format!("strange error {}", Errno(*e))));
            }
            (got, _) => got.is_ok(),
        };
        counts[usize::from(!taken)] += 1;
        let now = rules(&netlink).map_err(here)?;
        let count = if taken { count } else { known.len() };
        let same = taken || now == known;
        if now.len() != count || !same {
            return Err(here(format!("{} rules, not {count}", now.len())));
        }
        known = now;
        if known.len() > MANY {
            again(&netlink, &known).map_err(here)?;
            netlink.act(FLUSH, &[]).map_err(|e| here(e.to_string()))?;
            known.clear();
        }
    }
    Ok(counts)
}

/// What is listed can be put back, and is the same then.
fn again(netlink: &Generic, known: &[Listed]) -> Result<(), String> {
    let body: Vec<u8> = known
        .iter()
        .flat_map(|rule| attribute(RULE, &rule.bytes))
        .collect();
    netlink
        .act(REPLACE, &body)
        .map_err(|e| format!("put back: {e}"))?;
    let now = rules(netlink)?;
    match now
        .iter()
        .map(|r| &r.bytes)
        .eq(known.iter().map(|r| &r.bytes))
    {
        true => Ok(()),
        false => Err("put back: other rules".into()),
    }
}

/// A request, good or not.
fn request(rng: &mut Rng, known: &[Listed]) -> (u8, Vec<u8>) {
    let command = match rng.range(0, 19) {
        0..=6 => ADD,
        7..=9 => REPLACE,
        10..=12 => DEL,
        13..=15 => TEST,
        16 => LIST,
        17 if rng.range(0, 4) == 0 => FLUSH,
        18 => rng.draw() as u8,
        _ => ADD,
    };
    let mut body = match command {
        REPLACE => {
            let many = rng.range(0, 8);
            (0..many)
                .flat_map(|_| attribute(RULE, &conditions(rng)))
                .collect()
        }
        DEL => {
            let id = match known {
                [] => rng.draw() as u32,
                _ => known[rng.range(0, known.len() as u64 - 1) as usize].id,
            };
            attribute(ID, &id.to_ne_bytes())
        }
        TEST => attribute(FACTS, &conditions(rng)),
        _ => {
            let mut body = attribute(RULE, &conditions(rng));
            if rng.range(0, 2) == 0 {
                let position = (rng.draw() as u32) >> rng.range(0, 31);
                body.extend(attribute(POSITION, &position.to_ne_bytes()));
            }
            body
        }
    };
    match rng.range(0, 7) {
        // Some bytes are others.
        0 | 1 => {
            for _ in 0..rng.range(1, 4) {
                let at = rng.range(0, body.len().max(1) as u64 - 1) as usize;
                if let Some(byte) = body.get_mut(at) {
                    *byte = rng.draw() as u8;
                }
            }
        }
        // The end is missing, or there is more.
        2 => body.truncate(rng.range(0, body.len() as u64) as usize),
        3 => body.extend((0..rng.range(1, 40)).map(|_| rng.draw() as u8)),
        // Attributes deep in one another.
        4 if rng.range(0, 9) == 0 => {
            for _ in 0..rng.range(1, 200) {
                body = attribute(RULE, &body);
            }
        }
        // Nothing but noise.
        5 if rng.range(0, 4) == 0 => body = (0..rng.size(4096)).map(|_| rng.draw() as u8).collect(),
        _ => {}
    }
    (command, body)
}

/// A verdict and conditions, with seldom a mistake.
fn conditions(rng: &mut Rng) -> Vec<u8> {
    let mut all = vec![];
    let verdict = rng.range(0, 3) as u8;
    all.extend(attribute(1, &[verdict]));
    if verdict == 3 || rng.range(0, 9) == 0 {
        all.extend(attribute(2, &[rng.range(0, 102) as u8]));
    }
    for _ in 0..rng.range(0, 5) {
        let kind = rng.range(3, CONDITIONS.into()) as u16;
        let value: Vec<u8> = match kind {
            3..=5 => {
                let length = match rng.range(0, 19) {
                    0 => 0,
                    1 => rng.range(250, 260),
                    _ => rng.range(1, 30),
                };
                let text = (0..length).map(|_| b"/*?ab.\x7f\xff"[rng.range(0, 7) as usize]);
                text.chain([0]).collect()
            }
            6 => (rng.draw() as u32).to_ne_bytes().to_vec(),
            8 => {
                let mut peer: Vec<u8> = (0..17).map(|_| rng.draw() as u8).collect();
                peer[16] %= 130;
                peer
            }
            10 => vec![rng.range(0, 2) as u8],
            _ => {
                let (a, b) = (rng.draw() as u16, rng.draw() as u16);
                let (first, last) = if rng.range(0, 9) == 0 {
                    (a, b)
                } else {
                    (a.min(b), a.max(b))
                };
                [first.to_ne_bytes(), last.to_ne_bytes()].concat()
            }
        };
        all.extend(attribute(kind, &value));
    }
    match rng.range(0, 24) {
        0 => all.extend(attribute(rng.range(11, 70) as u16, &[0; 4])),
        1 => all.extend(attribute(
            rng.range(1, 10) as u16,
            &(rng.draw()).to_ne_bytes(),
        )),
        _ => {}
    }
    all
}
