// SPDX-License-Identifier: GPL-2.0
//! The same random calls on a TCP connection and on one of the family, compared step by step: answers,
//! errors, bytes, signals, and after each step what poll() and the ioctls show of both ends.
//!
//! `twins --family inet|smc[,..] --ip v4|v6[,..] [--mode 0|1|2|3|4] [--flip N] [--count N] [--from SEED] [--seed N]
//! [--points N] [--polls]
//! [--lose N]`
//!
//! `--mode 0`: over SMC-R, on a soft-RoCE device of its own; `1` (default): a fallback; `3`: over a local
//! path that begins with the sequence; `2`: over one on which bytes have gone both ways; `4`: over one that begins
//! as TCP and is promoted to SMC-R, most often by bytes before the sequence (`forced.rs`), else by its own. With
//! `--lose N` a promoted connection loses its link before or in every Nth step, on the average, over a model card
//! (`kmod/card`). With `--polls` each end asks poll() before it writes, and much more is under way unread.
//!
//! Of each family and address family `--count` sequences are played, in `--points` parts side by side. A sequence
//! follows from its seed; no two have the same one; `--seed N` plays one alone and shows it. What is
//! known to differ is in `known.rs` and in Documentation/programmer.md by the same names. A difference
//! is looked at twice more, with longer waits: it counts if it comes again, and if it does not it may
//! have been the machine that was late; of those there may be few.

mod forced;
mod known;
mod look;
mod lose;
mod model;
mod pair;
mod run;
mod step;

use look::Care;
use lose::Loser;
use pair::{Source, PIPES};
use run::{End, Run, Seen, Tally};
use st::args::Args;
use st::family::{Family, Ip};
use st::guest::slow;
use st::ktap::Ktap;
use st::net;
use st::proof::Counters;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The sequences of a kind of connection are shared out among this number of points.
const POINTS: u64 = 8;
/// The mode of connections that begin as TCP and are promoted to SMC-R.
const PROMOTED: u32 = 4;
/// The shares of sequences that are to be promoted, and to lose their links, in percent, and as many times as that they
/// are to be promoted again, where there are [`MANY`].
const PROMOTED_SHARE: u64 = 50;
const LOST_SHARE: u64 = 20;
const AGAIN_SHARE: u64 = 10;
const MANY: u64 = 20;
/// A sequence that takes longer is worth a line.
const LONG: Duration = Duration::from_secs(3);
/// Different sequences after which a point has seen enough.
const ENOUGH: usize = 3;

extern "C" fn on_pipe(_: i32) {
    PIPES.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn on_alarm(_: i32) {}

fn signals() {
    // SAFETY: The handlers are async-signal-safe; without SA_RESTART a call that hangs ends.
    unsafe {
        libc::signal(libc::SIGPIPE, on_pipe as extern "C" fn(i32) as usize);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
    }
}

fn place(mode: u32, polls: bool, lose: bool) -> Result<(), String> {
    let (rdma, promoted) = (mode == 0, mode == PROMOTED);
    net::private().map_err(|e| format!("(root needed) {e}"))?;
    // What fills a buffer should not take long.
    let sizes = match polls {
        true => "4096 524288 1048576",
        false => "4096 131072 262144",
    };
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        net::sysctl(name, sizes)?;
    }
    // The end that closed first keeps its state, however many there are: otherwise TCP answers with a reset.
    net::sysctl("net.ipv4.tcp_max_tw_buckets", "262144")?;
    if lose {
        lose::place()?;
    } else if rdma || promoted {
        net::roce_on_loopback()?;
    }
    if rdma {
        net::sysctl("net.smc.strict", "1")?;
    }
    if promoted {
        net::sysctl("net.smc.path_local", "0")?;
        st::path::first(1)?;
    }
    Ok(())
}

/// Settings common to all points.
struct Plan<'a> {
    args: &'a Args,
    mode: u32,
    /// The only sequence, if it was named.
    seed: Option<u64>,
    kinds: Vec<(Family, Ip)>,
    points: u64,
}

impl Plan<'_> {
    fn new(args: &Args) -> Plan<'_> {
        let ips = args.ips();
        let kinds = args.families().into_iter();
        let seed = args.opt("seed").map(|_| args.num("seed", 0));
        Plan {
            args,
            mode: args.num("mode", 1) as u32,
            seed,
            kinds: kinds
                .flat_map(|family| ips.iter().map(move |ip| (family, *ip)))
                .collect(),
            points: seed.map_or(args.num("points", POINTS), |_| 1),
        }
    }

    /// The seeds of a point.
    fn seeds(&self, point: &Point) -> Vec<u64> {
        if let Some(seed) = self.seed {
            return vec![seed];
        }
        let kinds = self.kinds.len() as u64;
        (0..self.args.num("count", 400))
            .filter(|n| n % self.points == point.number)
            .map(|n| self.args.num("from", 1) + n * kinds + point.kind as u64)
            .collect()
    }

    fn run<'a>(
        &self,
        sources: &'a [Source; 2],
        loser: Option<&'a Loser>,
        tally: &'a Tally,
        seed: u64,
        look: u64,
    ) -> Run<'a> {
        Run {
            sources,
            seed,
            steps: self.args.num("steps", 28) as usize,
            care: Care {
                // Longer than bytes may be held back.
                limit: Duration::from_millis(500 * slow() * (1 + 3 * look)),
                calm: if look == 0 { 1 } else { 2 },
            },
            urgent: self.args.opt("urgent").map(|u| u != "off"),
            local: self.mode >= 2 && self.mode != PROMOTED,
            by_tcp: self.mode >= 1,
            polls: self.args.opt("polls").is_some(),
            promotes: (self.mode == PROMOTED).then_some(tally),
            loser,
            show: self.seed.is_some(),
        }
    }
}

struct Point {
    kind: usize,
    number: u64,
}

fn main() {
    let args = Args::get();
    let plan = Plan::new(&args);
    let all: Vec<Point> = (0..plan.kinds.len())
        .flat_map(|kind| (0..plan.points).map(move |number| Point { kind, number }))
        .collect();
    let (polls, loses) = (args.opt("polls").is_some(), args.opt("lose").is_some());
    let placed = || place(plan.mode, polls, loses).unwrap_or_else(|e| st::args::bail(&e));
    if args.opt("part").is_none() {
        if plan.mode >= 2 && plan.mode != PROMOTED {
            net::local_paths(&args);
        }
        match loses {
            true => lose::load().unwrap_or_else(|e| st::args::bail(&e)),
            false => placed(),
        }
    }
    let part = st::parts::part(&args, plan.points, all.len());
    if loses {
        // Each part has a namespace and a card of its own: what one loses is no other one's.
        placed();
    }
    let mine: Vec<&Point> = all
        .iter()
        .enumerate()
        .filter(|x| part.has(x.0))
        .map(|x| x.1)
        .collect();
    let mut k = Ktap::plan(mine.len());
    signals();
    for point in mine {
        let result = compare(&plan, point, &k);
        let (family, ip) = plan.kinds[point.kind];
        let name = format!("same.{}.{}.{}", family.name(), ip.name(), point.number);
        k.outcome(&name, result);
    }
    std::process::exit(k.finish());
}

fn compare(plan: &Plan<'_>, point: &Point, k: &Ktap) -> Result<(), String> {
    let (family, ip) = plan.kinds[point.kind];
    let warm = plan.mode == 2;
    let source = |family, mode| {
        Source::new(family, ip, mode, warm).map_err(|e| format!("the listener: {e}"))
    };
    let mode = (family != Family::Tcp).then_some(plan.mode);
    let flips = plan.args.num("flip", 0) != 0;
    let sources = [
        source(Family::Tcp, None)?,
        source(family, mode)?.flipping(flips),
    ];
    let every = plan.args.num("lose", 0);
    let loser = (every != 0).then(|| Loser::new(every));
    let before = Counters::now();
    let tally = Tally::default();
    let mut seen = Seen::new();
    let (mut bad, mut late, mut played) = (Vec::new(), 0u64, 0u64);
    let begin = Instant::now();
    for seed in plan.seeds(point) {
        let start = Instant::now();
        let mut differences = 0;
        let mut text = String::new();
        for look in 0..3 {
            match plan
                .run(&sources, loser.as_ref(), &tally, seed, look)
                .play(&mut seen)
                .map_err(|e| format!("seed {seed}: {e}"))?
            {
                End::Same if differences == 0 => break,
                End::Same => {}
                End::Differs(step, trace) => {
                    differences += 1;
                    text = format!("step {step}\n{}", trace.join("\n"));
                }
            }
        }
        played += 1;
        if start.elapsed() > LONG * slow() as u32 {
            let ms = start.elapsed().as_millis();
            k.diag(&format!("seed {seed} took {ms} ms"));
        }
        match differences {
            0 => {}
            1 => {
                late += 1;
                k.diag(&format!(
                    "seed {seed} differed once, and not again:\n{text}"
                ));
            }
            _ => bad.push(text),
        }
        if bad.len() >= plan.args.num("enough", ENOUGH as u64) as usize {
            break;
        }
    }
    // SAFETY: No pointers.
    unsafe { libc::alarm(0) };
    let known: Vec<String> = seen
        .iter()
        .map(|(name, n)| format!("{n} x {name}"))
        .collect();
    k.diag(&format!(
        "{}.{}: {played} sequences in {} ms, {} differ, {late} once only; known: {}",
        family.name(),
        ip.name(),
        begin.elapsed().as_millis(),
        bad.len(),
        known.join(", ")
    ));
    if !bad.is_empty() {
        return Err(bad.join("\n"));
    }
    if plan.mode == PROMOTED {
        let ends = before.grown("smc_connections");
        let losses = loser.as_ref().map(|loser| loser.losses.get());
        told(k, &tally, ends, losses)?;
    }
    if late > 1 + played / 500 {
        return Err(format!("{late} of {played} sequences differed once"));
    }
    Ok(())
}

/// Says what became of connections that begin as TCP; `losses`: how many there were, if there were to be some.
fn told(k: &Ktap, tally: &Tally, ends: u64, losses: Option<u64>) -> Result<(), String> {
    let all = tally.played.get();
    let (promoted, alone) = (tally.promoted.get(), tally.alone.get());
    k.diag(&format!(
        "{promoted} of {all} were promoted, {alone} by their own bytes; SMC-R connections' ends: {ends}"
    ));
    let (lost, again) = (tally.lost.get(), tally.again.get());
    if let Some(losses) = losses {
        k.diag(&format!(
            "{losses} losses in {lost} sequences; promoted again {again} times"
        ));
    }
    if all < MANY {
        return Ok(());
    }
    let share = |what: &str, part: u64, percent: u64| match part * 100 >= all * percent {
        true => Ok(()),
        false => Err(format!("{what}: {part} of {all}, wanted {percent} %")),
    };
    share("promoted", promoted, PROMOTED_SHARE)?;
    if losses.is_some() {
        share("lost", lost, LOST_SHARE)?;
        share("promoted again", again, AGAIN_SHARE)?;
    }
    Ok(())
}
