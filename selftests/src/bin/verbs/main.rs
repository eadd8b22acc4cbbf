// SPDX-License-Identifier: GPL-2.0
//! RDMA verbs that fail, one call at a time, at either end of a connection; or allocations in the
//! kernel's workers, where handshakes run.
//!
//! Needs namespaces `a` and `b`, devices `rxe_a` and `rxe_b`, and the kernel module `verb_fault`, or
//! for `--memory` a kernel with failslab and fail_page_alloc.
//! A point is a verb, an end, and whether the connection makes its group (`first`) or joins one
//! (`join`). For each, the first, second, ... call of that verb fails until a connection has none
//! left to fail, and at last all of them. Such a connection must carry its bytes, over SMC-R or as a
//! fallback with a reason, or end with an errno, in bounded time; the one after it is SMC-R.
//!
//! `verbs [--family F] [--only TEXT] [--memory] [--from N] [--bytes N]
//! [--verbose]`

mod devices;
mod exchange;
mod memory;

use exchange::{Kind, Stop, Story};
use st::args::{bail, Args};
use st::family::{Family, Ip};
use st::ktap::Ktap;
use std::collections::BTreeMap;
use std::time::Duration;

/// The reason of an end that does not know the group the other end named.
const SYNC_ERROR: u32 = 0x0400_0000;
/// Bytes each way: more than a ring has, so that both wrap.
const MANY: u64 = 80_000;
/// Bytes each way where every packet makes the driver allocate, and where it is enough to see that they pass.
const FEW: u64 = 100;
/// More calls of a verb than a connection makes.
const ENDLESS: u32 = 500;
/// Most connections for one failure that join no group.
const JOIN_TRIES: u32 = 20;

/// Verbs, and whether one that joins a group uses them, too.
const VERBS: [(&str, bool); 11] = [
    // What a port has said is kept until its next event.
    ("query_port", false),
    ("alloc_pd", false),
    ("create_cq", false),
    ("create_qp", false),
    ("alloc_mr", true),
    ("map_mr_sg", true),
    ("modify_qp", false),
    ("post_recv", true),
    ("post_send", true),
    ("post_send_tail", true),
    ("completion", true),
];

/// The calls that fail.
#[derive(Clone, Copy)]
enum What {
    /// A verb of a device.
    Verb(&'static str, &'static str),
    /// Allocations of workers, at both ends.
    Memory,
}

struct Test {
    kind: Kind,
    port: u16,
    join: bool,
    /// The first call to fail.
    from: u32,
    /// Tell every story at once.
    verbose: bool,
    /// Connections of this point that were to join a group and did not.
    apart: u32,
}

impl Test {
    fn connect(&mut self, kind: Kind) -> Story {
        self.port = self.port.checked_add(1).unwrap_or(20_000);
        exchange::run(&kind, self.port)
    }

    /// A connection that must be SMC-R. An end that has not noticed yet that the group has gone
    /// learns it from the first one, which falls back for that.
    fn smc(&mut self, bytes: usize) -> Result<(), String> {
        let kind = Kind { bytes, ..self.kind };
        let first = self.connect(kind);
        if first.went_over(0) {
            return Ok(());
        }
        let out_of_sync = [&first.client, &first.server]
            .iter()
            .any(|e| e.info.is_some_and(|i| i.reason == SYNC_ERROR));
        if !out_of_sync || !first.went_over(1) {
            return Err(first.to_string());
        }
        let second = self.connect(kind);
        if second.went_over(0) {
            return Ok(());
        }
        Err(format!("{first}, then {second}"))
    }

    /// One connection with failures from the `nth` on, one or all; its story, and how many came. One that makes a
    /// group where it was to join one is not counted: the server keeps from a group whose port was down, and the event
    /// that says so may come when the port is back and the group there.
    fn faulty(&mut self, what: What, nth: u32, always: bool) -> Result<(Story, u32), String> {
        for _ in 0..JOIN_TRIES {
            if let Some(told) = self.attempt(what, nth, always)? {
                return Ok(told);
            }
            self.apart += 1;
        }
        Err(format!("none of {JOIN_TRIES} connections joined the group"))
    }

    /// The same; `None` if it has joined no group, but was to.
    fn attempt(
        &mut self,
        what: What,
        nth: u32,
        always: bool,
    ) -> Result<Option<(Story, u32)>, String> {
        devices::interrupt()?;
        let mut kind = self.kind;
        if self.join {
            // As many bytes as will follow: how far the receive queue has come depends on them.
            self.smc(kind.bytes).map_err(|e| format!("before: {e}"))?;
            // Buffers of another size than the group has: it registers memory for them.
            kind.buffer = Some(300_000);
        }
        let made = devices::queue_pairs_made()?;
        let (story, hits) = match what {
            What::Verb(verb, device) => {
                let times = if always { 1_000_000 } else { 1 };
                devices::arm(&format!("{verb} {device} {nth} {times}"))?;
                let story = self.connect(kind);
                let hits = devices::hits();
                devices::arm("off")?;
                (story, hits)
            }
            What::Memory => {
                let armed = memory::arm(nth, always)?;
                let story = self.connect(kind);
                (story, armed.disarm()?)
            }
        };
        if let Some(why) = story.wrong() {
            return Err(format!("{why}: {story}"));
        }
        // Without memory a handshake may not get as far as to join.
        if self.join && matches!(what, What::Verb(..)) && devices::queue_pairs_made()? != made {
            return Ok(None);
        }
        if hits == 0 && !story.went_over(0) {
            return Err(format!("nothing failed: {story}"));
        }
        // What a device refuses once it takes later: a receive with the next that has come, and a send, unless
        // it is one of several, as those of a connection's first message.
        let later = matches!(what, What::Verb("post_send" | "post_recv", _)) && self.join;
        if later && !always && !story.went_over(0) {
            return Err(format!("refused once: {story}"));
        }
        self.smc(FEW as usize)
            .map_err(|e| format!("{story}; afterwards: {e}"))?;
        Ok(Some((story, hits)))
    }

    fn point(&mut self, k: &mut Ktap, what: What) -> Result<(), String> {
        let mut stories: BTreeMap<String, u32> = BTreeMap::new();
        let mut bad = Vec::new();
        let (mut longest, mut failed, mut missed) = (Duration::ZERO, 0, 0);
        self.apart = 0;
        let mut nth = self.from;
        while nth < ENDLESS {
            match self.faulty(what, nth, false) {
                Ok((_, 0)) => {
                    missed += 1;
                    let most = match what {
                        What::Verb(..) if failed > 0 => 1,
                        // An event of the device may have had the port asked before that was to fail.
                        What::Verb(..) => 20,
                        // How much memory a handshake takes varies with what was there before.
                        What::Memory => 5,
                    };
                    if missed >= most {
                        break;
                    }
                    if matches!(what, What::Memory) {
                        nth += 1;
                    }
                    continue;
                }
                Ok((story, _)) => {
                    if self.verbose {
                        k.diag(&format!("call {nth}: {story} in {:.1?}", story.took));
                    }
                    longest = longest.max(story.took);
                    *stories.entry(short(&story)).or_default() += 1;
                }
                Err(e) => bad.push(format!("call {nth}: {e}")),
            }
            failed += 1;
            nth += 1;
            if bad.len() > 5 {
                break;
            }
        }
        match self.faulty(what, 1, true) {
            Ok((story, hits)) => k.diag(&format!("all {hits}: {story} in {:.1?}", story.took)),
            Err(e) => bad.push(format!("all: {e}")),
        }
        k.diag(&format!(
            "{failed} calls failed one by one, at most {longest:.1?}"
        ));
        for (story, n) in &stories {
            k.diag(&format!("{n} x {story}"));
        }
        if self.apart > 0 {
            k.diag(&format!("{} made a group of their own", self.apart));
        }
        if failed == 0 {
            bad.push("no call was made to fail".into());
        }
        if bad.is_empty() {
            Ok(())
        } else {
            Err(bad.join("\n"))
        }
    }
}

/// A story without its numbers.
fn short(story: &Story) -> String {
    let text = story.to_string();
    match &story.server.end {
        Err(Stop::Cut(_)) => text.split('@').next().unwrap_or_default().to_owned(),
        _ => text,
    }
}

fn main() {
    let a = Args::get();
    let family = match a.opt("family") {
        Some(_) => a.families()[0],
        None => Family::Inet,
    };
    let only = a.opt("only").unwrap_or_default();
    let workers = a.opt("memory").is_some();
    let mut points = Vec::new();
    for (contact, join) in [("first", false), ("join", true)] {
        if workers {
            points.push((format!("memory.{contact}"), What::Memory, join));
            continue;
        }
        for (verb, joins) in VERBS {
            for (end, device) in [("client", "rxe_a"), ("server", "rxe_b")] {
                if joins || !join {
                    let name = format!("{verb}.{contact}.{end}");
                    points.push((name, What::Verb(verb, device), join));
                }
            }
        }
    }
    points.retain(|(name, ..)| name.contains(only));
    if workers {
        memory::prepare().unwrap_or_else(|e| bail(&e));
    }
    let mut k = Ktap::plan(points.len());
    let mut test = Test {
        kind: Kind {
            family,
            ip: Ip::V4,
            bytes: a.num("bytes", if workers { FEW } else { MANY }) as usize,
            buffer: None,
            immediate: true,
        },
        port: 20_000,
        join: false,
        from: a.num("from", 1) as u32,
        verbose: a.opt("verbose").is_some(),
        apart: 0,
    };
    for (name, what, join) in points {
        test.join = join;
        // Only a chain of several requests can be posted in part.
        test.kind.immediate = !name.starts_with("post_send_tail");
        let outcome = test.point(&mut k, what);
        k.outcome(&name, outcome);
    }
    std::process::exit(k.finish());
}
