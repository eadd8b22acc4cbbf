// SPDX-License-Identifier: GPL-2.0
//! Measures operations in nanoseconds of the guest's clock; under `-icount` these are
//! instructions, of both ends together.
//!
//! `bench CLIENT [SERVER] [--ip v4] [--mode 1] [--loopback] [--processes] [--local REACH] [--scale N]
//! [--only METRIC,..] [--counting] [--mark] [--converted WORD] [--sockets]` prints lines `bench METRIC VALUE UNIT`; CLIENT and SERVER
//! (default: the same) are tcp, inet, smc, unix, pipe, shared (memory) or sockmap. `--scale` divides the
//! amounts, for a quick look; `--counting` says that it runs under `-icount`, where first contacts and
//! memory can be measured, too; `--sockets` measures sockets that never connect, too. `--loopback` has both ends in one new namespace, `--processes` the far
//! one in a process of its own; `--local` sets `net.smc.path_local` and fails unless the local path is
//! taken. `--converted WORD` sets `net.smc.tcp2smc` and rules for TCP sockets: beside (0, while another
//! namespace has 1), rules (500, none of which is about this program), all, or last (500, the last of
//! which allows this program). `bench mark` sets a mark for the profiler and does nothing else; `bench counts` prints
//! what `counts` lines have, as it is now.

mod busy;
mod converted;
mod counts;
mod ends;
mod flow;
mod many;
mod meter;
mod place;
mod redirect;
mod setup;
mod shared;

use meter::Meter;
use place::Place;
use st::args::{bail, Args};
use st::sys;

fn main() {
    let a = Args::get();
    if a.words.first().is_some_and(|word| word == "mark") {
        return meter::mark();
    }
    if a.words.first().is_some_and(|word| word == "counts") {
        return println!("{}", counts::Counts::now());
    }
    let p = Place::from_args(&a);
    if !p.choose_path() {
        return eprintln!("skipped: the module has no local path (no net.smc.path_local)");
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
    if let Some(word) = a.opt("converted") {
        let wanted = converted::Wanted::parse(word)
            .unwrap_or_else(|| bail("--converted beside|rules|all|last"));
        converted::set_up(&p, wanted);
    }
    sys::more_files(8192).unwrap_or_else(|e| bail(&format!("RLIMIT_NOFILE: {e}")));
    setup::first_contact(&p, &m);
    if a.opt("sockets").is_some() {
        setup::socket_close(&p, &m);
    }
    setup::connect_close(&p, &m);
    flow::ping_pong(&p, &m, 64, 5000);
    flow::ping_pong(&p, &m, 16 << 10, 1000);
    flow::bulk(&p, &m);
    busy::ping_pong(&p, &m);
    for n in [1, 16, 256, 1024] {
        many::requests(&p, &m, n);
    }
    for n in [1, 16, 64] {
        many::in_flight(&p, &m, n);
    }
    setup::memory(&p, &m);
}
