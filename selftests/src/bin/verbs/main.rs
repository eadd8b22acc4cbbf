// SPDX-License-Identifier: GPL-2.0
//! RDMA verbs that fail, one call at a time, at either end of a connection.
//!
//! Needs the kernel module `verb_fault`, namespaces `a` and `b`, and devices `rxe_a` and `rxe_b`.
//! A point is a verb, an end, and whether the connection makes its group (`first`) or joins one
//! (`join`). For each, the first, second, ... call of that verb fails until a connection has none
//! left to fail, and at last all of them. Such a connection must carry its bytes, over SMC-R or as a
//! fallback with a reason, or end with an errno, in bounded time; the one after it is SMC-R.
//!
//! `verbs [--family F] [--ip I] [--only TEXT]`

mod devices;
mod exchange;

use exchange::{Kind, Stop, Story};
use st::args::Args;
use st::ktap::Ktap;
use std::collections::BTreeMap;
use std::time::Duration;

/// The reason of an end that does not know the group the other end named.
const SYNC_ERROR: u32 = 0x0400_0000;
/// More calls of a verb than a connection makes.
const ENDLESS: u32 = 500;
/// Times that the verb of a point fails "always".
const ALWAYS: u32 = 1_000_000;

/// Verbs, and whether one that joins a group uses them, too.
const VERBS: [(&str, bool); 11] = [
    ("query_port", true),
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

struct Test {
    kind: Kind,
    port: u16,
    join: bool,
}

impl Test {
    fn connect(&mut self, kind: Kind) -> Story {
        self.port = self.port.checked_add(1).unwrap_or(20_000);
        exchange::run(&kind, self.port)
    }

    /// A connection that must be SMC-R. An end that has not noticed yet that the group has gone
    /// learns it from the first one, which falls back for that.
    fn smc(&mut self) -> Result<(), String> {
        let first = self.connect(self.kind);
        if first.went_over(0) {
            return Ok(());
        }
        let out_of_sync = [&first.client, &first.server]
            .iter()
            .any(|e| e.info.is_some_and(|i| i.reason == SYNC_ERROR));
        if !out_of_sync || !first.went_over(1) {
            return Err(first.to_string());
        }
        let second = self.connect(self.kind);
        if second.went_over(0) {
            return Ok(());
        }
        Err(format!("{first}, then {second}"))
    }

    /// One connection with `times` failures from call `nth` on; its story, and how many calls failed.
    fn faulty(&mut self, verb: &str, device: &str, nth: u32, times: u32) -> Result<(Story, u32), String> {
        devices::renew()?;
        let mut kind = self.kind;
        if self.join {
            self.smc().map_err(|e| format!("before: {e}"))?;
            // Buffers of another size than the group has: it registers memory for them.
            kind.buffer = Some(300_000);
        }
        devices::arm(&format!("{verb} {device} {nth} {times}"))?;
        let story = self.connect(kind);
        let hits = devices::hits();
        devices::arm("off")?;
        if let Some(why) = story.wrong() {
            return Err(format!("{why}: {story}"));
        }
        if hits == 0 && !story.went_over(0) {
            return Err(format!("nothing failed: {story}"));
        }
        self.smc()
            .map_err(|e| format!("{story}; afterwards: {e}"))?;
        Ok((story, hits))
    }

    fn point(&mut self, k: &mut Ktap, verb: &str, device: &str) -> Result<(), String> {
        let mut stories: BTreeMap<String, u32> = BTreeMap::new();
        let mut bad = Vec::new();
        let (mut longest, mut failed) = (Duration::ZERO, 0);
        for nth in 1..ENDLESS {
            match self.faulty(verb, device, nth, 1) {
                Ok((_, 0)) => break,
                Ok((story, _)) => {
                    failed += 1;
                    longest = longest.max(story.took);
                    *stories.entry(short(&story)).or_default() += 1;
                }
                Err(e) => {
                    failed += 1;
                    bad.push(format!("call {nth}: {e}"));
                }
            }
            if bad.len() > 5 {
                break;
            }
        }
        match self.faulty(verb, device, 1, ALWAYS) {
            Ok((story, hits)) => k.diag(&format!("all {hits}: {story} in {:.1?}", story.took)),
            Err(e) => bad.push(format!("all: {e}")),
        }
        k.diag(&format!("{failed} calls failed one by one, at most {longest:.1?}"));
        for (story, n) in &stories {
            k.diag(&format!("{n} x {story}"));
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
        None => st::family::Family::Inet,
    };
    let ip = match a.opt("ip") {
        Some(_) => a.ips()[0],
        None => st::family::Ip::V4,
    };
    let only = a.opt("only").unwrap_or_default();
    let mut points = Vec::new();
    for join in [false, true] {
        for (verb, joins) in VERBS {
            for (end, device) in [("client", "rxe_a"), ("server", "rxe_b")] {
                let contact = if join { "join" } else { "first" };
                let name = format!("{verb}.{contact}.{end}");
                if (joins || !join) && name.contains(only) {
                    points.push((name, verb, device, join));
                }
            }
        }
    }
    let mut k = Ktap::plan(points.len());
    let mut test = Test {
        kind: Kind {
            family,
            ip,
            buffer: None,
        },
        port: 20_000,
        join: false,
    };
    for (name, verb, device, join) in points {
        test.join = join;
        let outcome = test.point(&mut k, verb, device);
        k.outcome(&name, outcome);
    }
    std::process::exit(k.finish());
}
