// SPDX-License-Identifier: GPL-2.0

//! `lab demo`: an unmodified Redis over SMC sockets between two guests.

use super::boot::{exit_status, Which};
use crate::guest::cluster::Options;
use crate::progress;
use anyhow::{bail, Context, Result};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `lab demo`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Requests redis-benchmark makes for each of SET and GET
    #[arg(long, default_value_t = 2000)]
    requests: u32,
}

/// Runs it.
pub fn main(mut arguments: Arguments) -> Result<ExitCode> {
    arguments.which.pair = true;
    arguments.which.rdma = true;
    let mut ready = arguments.which.boot(Options::default(), None)?;
    println!(
        "two guests of kernel {}; redis-server in b (10.77.0.2), redis-benchmark in a",
        ready.kernel.release
    );
    let client = vec![
        "/rsmc/lab/demo-client.sh".to_owned(),
        arguments.requests.to_string(),
    ];
    let server = vec!["/rsmc/lab/demo-server.sh".to_owned()];
    let mut why = None;
    let outcomes = progress::during("redis-benchmark over SMC", || {
        ready.run_but(
            &[client, server],
            Duration::from_secs(600),
            &mut |_, line| {
                match line.strip_prefix("demo: ") {
                    Some(reason) => why.get_or_insert_with(|| reason.to_owned()),
                    None => return false,
                };
                true
            },
        )
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
    println!("demo: finished, every connection was SMC, the module unloaded");
    Ok(ExitCode::SUCCESS)
}
