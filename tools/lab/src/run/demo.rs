// SPDX-License-Identifier: GPL-2.0

//! `lab demo`: an unmodified Redis over SMC sockets, within one guest and between two.

use super::boot::{exit_status, Ready, Which};
use crate::guest::cluster::Options;
use crate::kernel::{self, Arch};
use crate::progress;
use anyhow::{bail, Context, Result};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `lab demo`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Requests redis-benchmark makes for each of SET and GET between two guests
    #[arg(long, default_value_t = 2000)]
    requests: u32,
    /// The same for each line of one guest
    #[arg(long, default_value_t = 20_000)]
    local_requests: u32,
}

/// Runs it.
pub fn main(arguments: Arguments) -> Result<ExitCode> {
    one(&arguments)?;
    println!();
    two(arguments)?;
    Ok(ExitCode::SUCCESS)
}

/// Two programs of one guest: TCP, AF_UNIX and the path within the kernel.
fn one(arguments: &Arguments) -> Result<()> {
    let which = Which {
        pair: false,
        rdma: false,
        tools_only: true,
        card: false,
        port: false,
        ..arguments.which.clone()
    };
    // A clock that counts instructions shows the same on any machine, however busy.
    let count = kernel::get(&which.kernel)?.arch != Arch::Uml;
    let options = Options {
        count: count.then_some(1),
        ..Options::default()
    };
    let ready = which.boot(options, None)?;
    println!("one guest of kernel {}", ready.kernel.release);
    let clock = if count { "counted" } else { "timed" };
    let argv = words(&[
        "demo-local.sh",
        &arguments.local_requests.to_string(),
        clock,
    ]);
    run(ready, &[argv], "Redis by TCP, AF_UNIX and rsmc")
}

/// Programs of two guests: RDMA.
fn two(arguments: Arguments) -> Result<()> {
    let which = Which {
        pair: true,
        rdma: true,
        tools_only: true,
        card: false,
        port: false,
        ..arguments.which
    };
    let ready = which.boot(Options::default(), None)?;
    println!(
        "two guests of kernel {}; redis-server in b (10.77.0.2), redis-benchmark in a",
        ready.kernel.release
    );
    let client = words(&["demo-client.sh", &arguments.requests.to_string()]);
    let server = words(&["demo-server.sh"]);
    run(ready, &[client, server], "redis-benchmark over SMC")?;
    println!("demo: finished, every connection was SMC, the module unloaded");
    Ok(())
}

/// Returns the command line of one of the lab's scripts.
fn words(argv: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    if let Some(script) = words.first_mut() {
        *script = format!("/rsmc/lab/{script}");
    }
    words
}

/// Runs a script in each guest, and ends the guests.
fn run(mut ready: Ready, scripts: &[Vec<String>], what: &str) -> Result<()> {
    let mut why = None;
    let outcomes = progress::during(what, || {
        ready.run_but(scripts, Duration::from_secs(600), &mut |_, line| {
            match line.strip_prefix("demo: ") {
                Some(reason) => why.get_or_insert_with(|| reason.to_owned()),
                None => return false,
            };
            true
        })
    })?;
    let status = exit_status(&outcomes);
    let unloaded = ready.finish();
    if let Some(why) = why {
        bail!("demo: failed: {why}");
    }
    unloaded.context("demo: failed")?;
    if status != 0 {
        bail!("demo: failed");
    }
    Ok(())
}
