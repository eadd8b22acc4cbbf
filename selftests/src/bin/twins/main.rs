// SPDX-License-Identifier: GPL-2.0
//! The same random calls on a TCP connection and on one of the family, compared step by step: answers,
//! errors, bytes, signals, and after each step what poll() and the ioctls show of both ends.
//!
//! `twins --family inet|smc[,..] --ip v4|v6[,..] [--mode 0|1] [--count N] [--from SEED] [--seed N]`
//!
//! `--mode 0`: over SMC-R, on a soft-RoCE device of its own; `1` (default): a fallback. A sequence
//! follows from its seed; `--seed N` plays one alone and shows it. What is known to differ is in
//! `known.rs` and in Documentation/programmer.md by the same names. A difference is looked at twice
//! more, with longer waits: it counts if it comes again, and if it does not it may have been the
//! machine that was late; of those there may be few.

mod known;
mod look;
mod model;
mod pair;
mod step;

use known::Then;
use model::Model;
use pair::{Pair, Source, PIPES};
use st::args::Args;
use st::family::{Family, Ip};
use st::ktap::Ktap;
use st::rng::Rng;
use st::{net, sys};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use step::Step;

/// The seeds of a run are shared out among so many points.
const POINTS: u64 = 4;
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

/// How a sequence ended.
enum End {
    Same,
    /// The last lines of the trace say where.
    Differs(usize, Vec<String>),
}

struct Run<'a> {
    sources: &'a [Source; 2],
    seed: u64,
    steps: usize,
    limit: Duration,
    urgent: Option<bool>,
    show: bool,
}

impl Run<'_> {
    fn play(&self, seen: &mut BTreeMap<&'static str, usize>) -> Result<End, String> {
        let mut r = Rng::new(self.seed);
        let urgent = r.draw() % 4 == 0;
        let urgent = self.urgent.unwrap_or(urgent);
        let steps = r.range(4, self.steps as u64);
        let mut pairs = [self.sources[0].pair()?, self.sources[1].pair()?];
        let mut m = Model::new(urgent, 8 << 10);
        let mut trace = vec![format!("seed {} urgent {urgent}", self.seed)];
        // SAFETY: No pointers.
        unsafe { libc::alarm(30 * st::guest::slow() as u32) };
        for i in 0..steps {
            let last = steps - i <= 2;
            let step = match last {
                // What is left at the end is compared, too.
                true => match (0..2)
                    .filter(|&end| m.ends[end].open)
                    .nth((steps - i - 1) as usize)
                {
                    Some(end) => Step::Drain { end },
                    None => continue,
                },
                false => step::draw(&mut r, &m),
            };
            if let Some(then) = self.step(&mut pairs, &mut m, &step, &mut trace, seen) {
                match then {
                    Ok(Then::On) => {}
                    Ok(Then::End) => break,
                    Err(()) => return Ok(End::Differs(i as usize, trace)),
                }
            }
        }
        if self.show {
            for line in &trace {
                println!("# {line}");
            }
        }
        Ok(End::Same)
    }

    fn step(
        &self,
        pairs: &mut [Pair; 2],
        m: &mut Model,
        step: &Step,
        trace: &mut Vec<String>,
        seen: &mut BTreeMap<&'static str, usize>,
    ) -> Option<Result<Then, ()>> {
        let a = pairs[0].act(step, m, self.seed);
        let b = pairs[1].act(step, m, self.seed);
        if a.text == b.text {
            trace.push(format!("{step:?} = {}", a.text));
        } else {
            trace.push(format!("{step:?} = tcp {} here {}", a.text, b.text));
            match known::answer(m, step, &a, &b) {
                None => return Some(Err(())),
                Some((name, then)) => {
                    *seen.entry(name).or_default() += 1;
                    if then == Then::End {
                        return Some(Ok(then));
                    }
                }
            }
        }
        m.did(step, a.count);
        if *step == Step::Pause {
            sys::sleep_ms(250);
        }
        match look::settle(pairs, m, step, self.limit) {
            Ok(then) => Some(Ok(then)),
            Err(what) => {
                trace.push(format!("then {what}"));
                Some(Err(()))
            }
        }
    }
}

fn place(rdma: bool) -> Result<(), String> {
    net::private().map_err(|e| format!("(root needed) {e}"))?;
    // What fills a buffer should not take long.
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        net::sysctl(name, "4096 131072 262144")?;
    }
    if rdma {
        net::roce_on_loopback()?;
        net::sysctl("net.smc.strict", "1")?;
    }
    Ok(())
}

struct Point {
    family: Family,
    ip: Ip,
    number: u64,
}

fn main() {
    let a = Args::get();
    let mode = a.num("mode", 1) as u32;
    let seed = a.opt("seed").map(|_| a.num("seed", 0));
    let count = if seed.is_some() {
        1
    } else {
        a.num("count", 400)
    };
    let from = seed.unwrap_or(a.num("from", 1));
    let points = if seed.is_some() { 1 } else { POINTS };
    let all: Vec<Point> = a
        .families()
        .into_iter()
        .flat_map(|family| a.ips().into_iter().map(move |ip| (family, ip)))
        .flat_map(|(family, ip)| (0..points).map(move |number| Point { family, ip, number }))
        .collect();
    let jobs = if seed.is_some() { 1 } else { points };
    let part = st::parts::part(&a, jobs, all.len());
    let mine: Vec<&Point> = all
        .iter()
        .enumerate()
        .filter(|x| part.has(x.0))
        .map(|x| x.1)
        .collect();
    let mut k = Ktap::plan(mine.len());
    signals();
    place(mode == 0).unwrap_or_else(|e| st::args::bail(&e));
    for point in mine {
        let result = compare(&a, point, mode, from, count, points, seed.is_some(), &k);
        let name = format!(
            "same.{}.{}.{}",
            point.family.name(),
            point.ip.name(),
            point.number
        );
        k.outcome(&name, result);
    }
    std::process::exit(k.finish());
}

#[allow(clippy::too_many_arguments)]
fn compare(
    a: &Args,
    point: &Point,
    mode: u32,
    from: u64,
    count: u64,
    points: u64,
    show: bool,
    k: &Ktap,
) -> Result<(), String> {
    let source = |family, mode| {
        Source::new(family, point.ip, mode).map_err(|e| format!("the listener: {e}"))
    };
    let mode = (point.family != Family::Tcp).then_some(mode);
    let sources = [source(Family::Tcp, None)?, source(point.family, mode)?];
    let mut seen = BTreeMap::new();
    let (mut bad, mut late, mut played) = (Vec::new(), 0u64, 0u64);
    let begin = Instant::now();
    for seed in (from..from + count).filter(|seed| seed % points == point.number || points == 1) {
        let mut differences = 0;
        let mut text = String::new();
        for look in 0..3 {
            let run = Run {
                sources: &sources,
                seed,
                steps: a.num("steps", 28) as usize,
                limit: Duration::from_millis(600 * st::guest::slow() * (1 + 3 * look)),
                urgent: a.opt("urgent").map(|u| u != "off"),
                show,
            };
            match run
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
        if bad.len() >= a.num("enough", ENOUGH as u64) as usize {
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
        point.family.name(),
        point.ip.name(),
        begin.elapsed().as_millis(),
        bad.len(),
        known.join(", ")
    ));
    if !bad.is_empty() {
        return Err(bad.join("\n"));
    }
    if late > 1 + played / 500 {
        return Err(format!("{late} of {played} sequences differed once"));
    }
    Ok(())
}
