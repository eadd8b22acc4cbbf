// SPDX-License-Identifier: GPL-2.0

//! `lab bench --wall`: time between two user-mode guests, TCP, verbs without
//! sockets, the C module and ours in turn; with `--local` within a guest. It depends on the machine and on what else it does: it
//! shows whether the instructions point the right way.
//!
//! The guests of a pair share a processor, as in all runs of the lab: a time is what both ends do, one
//! after the other. With a processor each there is more to gain, but a guest of user mode that falls
//! asleep just when a packet comes may sleep until its next tick, 10 ms later, and how often that
//! happens hides everything else.

use super::columns::fitting;
use super::table::Table;
use super::{add_ueid, conclude, measure, Arguments, Ready};
use crate::guest::cluster::Options;
use anyhow::{Context, Result};
use std::process::ExitCode;

/// Times each measurement is taken if nobody says.
const RUNS: u32 = 5;

/// Name, place of its guests in the list of boots, arguments.
const COLUMNS: [(&str, usize, &[&str]); 4] = [
    ("TCP", 0, &["tcp"]),
    ("verbs", 2, &["verbs"]),
    ("C SMC-R", 1, &["inet", "--mode", "0"]),
    ("SMC-R", 0, &["inet", "--mode", "0"]),
];

fn boot(arguments: &Arguments, module: &str) -> Result<Ready> {
    let mut which = arguments.which.clone();
    which.module = module.into();
    if module == "none" {
        which.kmod = vec!["verbs_bench".into()];
    }
    let mut ready = which.boot(Options::default(), None)?;
    if module == "smc" {
        add_ueid(&mut ready)?;
    }
    Ok(ready)
}

/// Runs it.
pub fn main(arguments: Arguments) -> Result<ExitCode> {
    match arguments.local.is_some() {
        true => within(arguments),
        false => between(arguments),
    }
}

/// The columns of `--local` by turns, within one guest.
fn within(arguments: Arguments) -> Result<ExitCode> {
    let mut columns = fitting(
        &arguments.which,
        arguments.set(),
        arguments.column.as_deref(),
    )?;
    columns.retain(|column| column.module == arguments.which.module);
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let mut table = Table::new("nanoseconds", names.clone());
    let only = arguments.metrics();
    let mut ready = arguments.which.boot(Options::default(), None)?;
    for run in 0..arguments.runs.unwrap_or(RUNS) {
        for column in &columns {
            measure(
                &mut ready,
                &arguments,
                &column.timed(),
                &only,
                &mut |line| table.take(column.name, line),
            )
            .with_context(|| format!("column {}, run {run}", column.name))?;
        }
    }
    ready.finish()?;
    print!("{}", table.render());
    conclude(
        &arguments,
        "wall clock within",
        &table.medians(),
        &names,
        &[],
    )
}

fn between(mut arguments: Arguments) -> Result<ExitCode> {
    // A pair with devices, and by default of the kernels that need no emulation.
    arguments.which.pair = true;
    arguments.which.rdma = true;
    if !arguments.which.kernel.starts_with("uml") {
        arguments.which.kernel = "uml".into();
    }
    let runs = arguments.runs.unwrap_or(RUNS);
    let mut table = Table::new("nanoseconds", COLUMNS.map(|(name, ..)| name).to_vec());
    let only = arguments.metrics();
    let mut boots = Vec::new();
    for module in ["rsmc", "smc", "none"] {
        boots.push(boot(&arguments, module)?);
    }
    for run in 0..runs {
        for (name, place, ends) in COLUMNS {
            let mut program = vec!["/rsmc/bin/wall"];
            program.extend(ends);
            let Some(ready) = boots.get_mut(place) else {
                continue;
            };
            measure(ready, &arguments, &program, &only, &mut |line| {
                table.take(name, line);
            })
            .with_context(|| format!("column {name}, run {run}"))?;
        }
    }
    for ready in boots {
        ready.finish()?;
    }
    print!("{}", table.render());
    conclude(
        &arguments,
        "wall clock",
        &table.medians(),
        &COLUMNS.map(|(name, ..)| name),
        &[],
    )
}
