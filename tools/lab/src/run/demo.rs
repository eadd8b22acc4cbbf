// SPDX-License-Identifier: GPL-2.0

//! `lab demo`: an unmodified Redis over SMC sockets between two guests.

use super::boot::{exit_status, Which};
use crate::guest::cluster::Options;
use anyhow::Result;
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
        "two guests of kernel {} with rsmc.ko loaded; redis-server in b (10.77.0.2), redis-benchmark in a",
        ready.kernel.release
    );
    let client = vec![
        "/rsmc/lab/demo-client.sh".to_owned(),
        arguments.requests.to_string(),
    ];
    let server = vec!["/rsmc/lab/demo-server.sh".to_owned()];
    let outcomes = ready.run(&[client, server], Duration::from_secs(600))?;
    let status = exit_status(&outcomes);
    ready.finish()?;
    println!(
        "{}",
        if status == 0 {
            "demo: finished, the module unloaded"
        } else {
            "demo: failed"
        }
    );
    Ok(ExitCode::from(status))
}
