// SPDX-License-Identifier: GPL-2.0
//! Differential test of the socket interface: every scenario runs on plain TCP and on the family
//! under test, each in a fresh process and a fresh network namespace, and what it observed
//! (return values, errnos, events) must be the same. Differences that are right are listed,
//! with the reason, in `expect.rs`, those of SMC-R in `differ.rs`. Scenarios that sleep for a moment
//! so that something settles may look too early in a guest that got no processor meanwhile: a
//! difference is looked at a second time with longer moments, and counts if it is still there.
//!
//! `api --family tcp|inet|smc[,..] [--ip v4|v6|mapped[,..]] [--mode 0|1|2|3|any] [--flip N] [--info off] [SCENARIO-PREFIX..]`
//!
//! `--mode 3` compares TCP with local paths that begin with the scenario's first byte, `2` with such on which
//! bytes have gone both ways; `--flip` has them change carriers.
//!
//! `--mode 0` compares TCP with SMC-R: the family's sockets have an RDMA device and strict mode, in one
//! namespace for many scenarios. Those that are about TCP by their nature run without strict mode then.
//! `--family tcp` compares TCP with itself: it validates the scenarios. `--info off` leaves out
//! the proof by `RSMC_INFO`, so that the C module can be looked at too.

mod accept;
mod bind;
mod blocked;
mod cgroup;
mod connect;
mod ctx;
mod data;
mod differ;
mod expect;
mod flags;
mod ioctls;
mod left;
mod oob;
mod opts;
mod poll;
mod replace;
mod ring;
mod seen;
mod share;
mod shut;
mod splice;
mod stamps;
mod tcpopts;

use ctx::{Namespace, Place, T};
use differ::Path;
use st::args::Args;
use st::child::{self, End};
use st::family::{Family, Ip};
use st::ktap::Ktap;
use st::sys;

/// One scenario.
pub struct Scenario {
    /// Name, `group_what`.
    pub name: &'static str,
    /// The function to run.
    pub run: fn(&mut T),
}

/// A list of scenarios from function names.
#[macro_export]
macro_rules! scenarios {
    ($($f:ident),* $(,)?) => {
        pub const LIST: &[$crate::Scenario] =
            &[$($crate::Scenario { name: stringify!($f), run: $f }),*];
    };
}

const GROUPS: &[&[Scenario]] = &[
    bind::LIST,
    connect::LIST,
    poll::LIST,
    accept::LIST,
    shut::LIST,
    data::LIST,
    flags::LIST,
    opts::LIST,
    tcpopts::LIST,
    ioctls::LIST,
    oob::LIST,
    splice::LIST,
    stamps::LIST,
    seen::LIST,
    cgroup::LIST,
    replace::LIST,
    share::LIST,
    blocked::LIST,
    ring::LIST,
    left::LIST,
];

/// Differences that are looked at a second time, in each part of a run: more are no accident.
const SECOND_LOOKS: u32 = 3;

/// By how much longer a scenario's moments are then.
const PATIENCE: u64 = 6;

struct Run {
    lines: Vec<(String, String)>,
    infos: Vec<String>,
    end: End,
}

fn run(s: &Scenario, family: Family, ip: Ip, info: bool, place: Place<'_>) -> Run {
    let (text, end) = child::run(25_000 * st::guest::slow(), |w| {
        let mut t = T::new(family, ip, info, place, w);
        (s.run)(&mut t);
        t.leave();
    });
    let mut r = Run {
        lines: Vec::new(),
        infos: Vec::new(),
        end,
    };
    for l in text.lines() {
        match l.strip_prefix('@') {
            Some(i) => r.infos.push(i.into()),
            None => {
                let (a, b) = l.split_once('\t').unwrap_or((l, ""));
                r.lines.push((a.into(), b.into()));
            }
        }
    }
    r
}

/// Differences of two runs after the table of expected ones has been applied.
fn compare(
    name: &str,
    fam: Family,
    over: Option<&[differ::Row]>,
    (a, b): (&Run, &Run),
    k: &Ktap,
) -> Vec<String> {
    let mut bad = Vec::new();
    if b.end != End::Exit(0) {
        bad.push(format!(
            "the scenario ended with {:?} (tcp: {:?})",
            b.end, a.end
        ));
    }
    let n = a.lines.len().max(b.lines.len());
    for i in 0..n {
        let (x, y) = (a.lines.get(i), b.lines.get(i));
        match (x, y) {
            (Some(x), Some(y)) if x == y => {}
            (Some(x), Some(y)) if x.0 == y.0 => match expect::find(name, &x.0, fam, over, &y.1) {
                Some(e) => k.diag(&format!(
                    "expected: {name} {}: tcp {} here {}: {}",
                    x.0, x.1, y.1, e
                )),
                None => bad.push(format!("{}: tcp {} here {}", x.0, x.1, y.1)),
            },
            (x, y) => {
                bad.push(format!("traces part at line {i}: tcp {x:?} here {y:?}"));
                break;
            }
        }
    }
    bad
}

/// Every connection reported by the scenario must have been on our family in the wanted mode.
fn check_infos(r: &Run, mode: &str) -> Vec<String> {
    let mut bad = Vec::new();
    for i in &r.infos {
        let ok = match mode {
            // A scenario looks before its first byte, or after.
            "2" | "3" => i.contains("mode=2 ") || i.contains("mode=3 "),
            // It says itself when bytes have gone both ways.
            "2 first" if i.ends_with("label=moved") => {
                i.contains("mode=2 ") || i.contains("mode=3 ")
            }
            "any" | "2 first" => !i.contains("mode=255") && !i.contains("mode=err"),
            m => {
                i.contains(&format!("mode={m} ")) && (m != "1" || !i.contains("reason=0x00000000"))
            }
        };
        if !ok {
            bad.push(format!("wrong path: {i}"));
        }
    }
    bad
}

fn main() {
    let a = Args::get();
    let info = a.opt("info") != Some("off");
    let mode = a.opt("mode").unwrap_or("1").to_string();
    let verbose = a.opt("verbose").is_some();
    let all: Vec<&Scenario> = GROUPS.iter().flat_map(|g| g.iter()).collect();
    let picked: Vec<&Scenario> = all
        .into_iter()
        .filter(|s| a.words.is_empty() || a.words.iter().any(|w| s.name.starts_with(w.as_str())))
        .collect();
    let (fams, ips) = (a.families(), a.ips());
    let total = picked.len() * fams.len() * ips.len();
    let part = st::parts::part(
        &a,
        if st::guest::less() > 4 {
            3
        } else if st::guest::less() > 1 {
            5
        } else if mode == "0" {
            4
        } else {
            8
        },
        total,
    );
    let picked: Vec<&Scenario> = picked
        .into_iter()
        .enumerate()
        .filter(|x| part.has(x.0))
        .map(|x| x.1)
        .collect();
    let mut k = Ktap::plan(picked.len() * fams.len() * ips.len());
    let rdma = mode == "0";
    let local = mode == "2" || mode == "3";
    if local {
        st::net::local_paths(&a);
        ctx::WARM.store(mode == "2", std::sync::atomic::Ordering::Relaxed);
    }
    let shared = Namespace::pair(rdma).unwrap_or_else(|e| st::args::bail(&e));
    let mut looks = SECOND_LOOKS;
    let mut seen_paths = std::collections::BTreeMap::<String, usize>::new();
    for s in &picked {
        for &ip in &ips {
            let alone = differ::is_alone(s.name) || rdma && differ::path(s.name) != Path::Smc;
            let usual = (!alone).then_some(&shared);
            let plain = usual.map_or(Place::Plain, |u| Place::In(&u.0));
            let base = run(s, Family::Tcp, ip, false, plain);
            for &f in &fams {
                let smc = rdma && f != Family::Tcp;
                let local = local && f != Family::Tcp;
                let (place, mode) = match (differ::path(s.name), usual) {
                    // TCP's by its nature, or in part.
                    (Path::Tcp, Some(u)) if local => (Place::In(&u.1), "any"),
                    (Path::Both, Some(u)) if local => (Place::In(&u.1), "2 first"),
                    (Path::Tcp | Path::Both, None) if local => (Place::Plain, "any"),
                    _ if !smc => (
                        usual.map_or(Place::Plain, |u| Place::In(&u.1)),
                        mode.as_str(),
                    ),
                    (Path::Tcp, _) => (Place::Own { strict: false }, "1"),
                    (Path::Both, _) => (Place::Own { strict: false }, "any"),
                    (Path::Smc, None) => (Place::Own { strict: true }, "0"),
                    (Path::Smc, Some(u)) => (Place::In(&u.1), "0"),
                };
                let over = match (smc, local) {
                    (true, _) => Some(differ::SMC),
                    (_, true) => Some(differ::LOCAL),
                    _ => None,
                };
                let info = info && f != Family::Tcp;
                let judge = |base: &Run, r: &Run, k: &Ktap| {
                    let mut bad = compare(s.name, f, over, (base, r), k);
                    if base.end != End::Exit(0) {
                        bad.push(format!("tcp itself ended with {:?}", base.end));
                    }
                    if info {
                        bad.extend(check_infos(r, mode));
                    }
                    bad
                };
                let mut r = run(s, f, ip, info, place);
                let mut bad = judge(&base, &r, &k);
                // Who hangs or took another path has not looked too early.
                let early = base.end == r.end && r.end == End::Exit(0);
                let early = early && (!info || check_infos(&r, mode).is_empty());
                if !bad.is_empty() && early && looks > 0 {
                    looks -= 1;
                    k.diag(&format!("{} differed at first: {}", s.name, bad.join("; ")));
                    sys::patience(PATIENCE);
                    let base = run(s, Family::Tcp, ip, false, plain);
                    r = run(s, f, ip, info, place);
                    sys::patience(1);
                    bad = judge(&base, &r, &k);
                }
                for i in &r.infos {
                    let path = i.split(" label=").next().unwrap_or(i);
                    *seen_paths.entry(path.to_string()).or_default() += 1;
                }
                if verbose {
                    for (l, v) in &r.lines {
                        k.diag(&format!("{l} = {v}"));
                    }
                }
                let name = format!("{}.{}.{}", s.name, f.name(), ip.name());
                let res = if bad.is_empty() {
                    Ok(())
                } else {
                    Err(bad.join("\n"))
                };
                k.outcome(&name, res);
            }
        }
    }
    for (p, n) in seen_paths {
        k.diag(&format!("path {p}: {n} sockets"));
    }
    std::process::exit(k.finish());
}
