// SPDX-License-Identifier: GPL-2.0
//! Measures operations in nanoseconds of the guest's clock; under `-icount` these are
//! instructions, of both ends together.
//!
//! `bench CLIENT [SERVER] [--ip v4] [--mode 1] [--scale N] [--only METRIC,..] [--counting]
//! [--mark]` prints lines `bench METRIC VALUE UNIT`; CLIENT and SERVER (default: the same) are tcp,
//! inet, smc or unix. `--scale` divides the amounts, for a quick look; `--counting` says that it runs
//! under `-icount`, where first contacts and memory can be measured, too. `bench mark` sets a mark for
//! the profiler and does nothing else.

mod flow;
mod many;
mod meter;
mod place;
mod setup;

use meter::Meter;
use place::{End, Place};
use st::args::{bail, Args};
use st::family::Ip;
use st::proof::Proof;
use st::{guest, net, sys};

fn main() {
    let a = Args::get();
    if a.words.first().is_some_and(|word| word == "mark") {
        return meter::mark();
    }
    let word = |i: usize| {
        let parse =
            |w: &String| End::parse(w).unwrap_or_else(|| bail("an end is tcp, inet, smc or unix"));
        a.words.get(i).map(parse)
    };
    let client = word(0).unwrap_or_else(|| bail("bench CLIENT [SERVER]"));
    let server = word(1).unwrap_or(client);
    let ip = a.opt("ip").map_or(Ip::V4, |i| {
        Ip::parse(i).unwrap_or_else(|| bail("--ip v4|v6|mapped"))
    });
    let p = Place {
        client,
        server,
        ip,
        split: guest::has_netns(),
        proof: Proof::from_args(&a),
        rcvbuf: None,
    };
    if !p.split {
        net::private().expect("private network namespace (root needed)");
    }
    let only = a.opt("only").unwrap_or_default();
    let m = Meter {
        only: only
            .split(',')
            .filter(|o| !o.is_empty())
            .map(Into::into)
            .collect(),
        scale: a.num("scale", 1).max(1),
        counting: a.opt("counting").is_some(),
        mark: a.opt("mark").is_some(),
    };
    sys::more_files(8192).unwrap_or_else(|e| bail(&format!("RLIMIT_NOFILE: {e}")));
    setup::first_contact(&p, &m);
    setup::connect_close(&p, &m);
    flow::ping_pong(&p, &m, 64, 5000);
    flow::ping_pong(&p, &m, 16 << 10, 1000);
    flow::bulk(&p, &m);
    for n in [1, 16, 256, 1024] {
        many::requests(&p, &m, n);
    }
    setup::memory(&p, &m);
}
