// SPDX-License-Identifier: GPL-2.0

//! `lab bench`: what a socket costs, counted in instructions.
//!
//! The guest runs on one emulated CPU whose clock advances by 1 ns for each
//! instruction, so its times are instruction counts and repeat to under half a
//! percent on any machine, however busy.

mod profile;
mod table;

use super::boot::{exit_status, Ready, Which};
use crate::data::Data;
use crate::guest::cluster::{Options, Stream};
use anyhow::{bail, Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use table::Table;

/// Arguments of `lab bench`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Times each measurement is taken; the median is shown
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Divide the amounts, for a quick look
    #[arg(long, default_value_t = 1)]
    scale: u32,
    /// Seconds one run of the program may take
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// Only metrics that begin with one of these, separated by commas
    #[arg(long, value_name = "METRIC")]
    only: Option<String>,
    /// Write medians as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show which functions the instructions of a metric are spent in instead
    #[arg(long, value_name = "METRIC")]
    profile: Option<String>,
    /// With --profile: whom to look at, by the name of a column
    #[arg(long, default_value = "SMC-R", requires = "profile")]
    column: String,
    /// With --profile: the number of functions to show
    #[arg(long, default_value_t = 50, requires = "profile")]
    lines: usize,
}

/// Who plays which end.
struct Column {
    name: &'static str,
    /// The module that is loaded.
    module: &'static str,
    /// Arguments of the program.
    ends: &'static [&'static str],
}

const fn column(name: &'static str, module: &'static str, ends: &'static [&'static str]) -> Column {
    Column { name, module, ends }
}

/// Without RDMA devices every connection falls back. The second and third have
/// one end that is an ordinary TCP socket.
const FALLBACK: &[Column] = &[
    column("TCP", "rsmc", &["tcp"]),
    column("client", "rsmc", &["inet", "tcp"]),
    column("server", "rsmc", &["tcp", "inet"]),
    column("both", "rsmc", &["inet"]),
    column("AF_SMC", "rsmc", &["smc"]),
    column("C both", "smc", &["inet"]),
];
const RDMA: &[Column] = &[
    column("TCP", "rsmc", &["tcp"]),
    column("AF_UNIX", "rsmc", &["unix"]),
    column("C SMC-R", "smc", &["inet", "--mode", "0"]),
    column("SMC-R", "rsmc", &["inet", "--mode", "0"]),
];

/// The columns that make sense on this kernel.
fn columns(which: &Which) -> Result<Vec<&'static Column>> {
    let all = if which.rdma { RDMA } else { FALLBACK };
    let in_tree = Data::get().flavour(&which.kernel)?.has_smc();
    let fits = |c: &&Column| match which.module.as_str() {
        "none" => c.name == "TCP",
        // The default.
        "rsmc" => c.module == "rsmc" || in_tree,
        module => c.module == module,
    };
    let found: Vec<&Column> = all.iter().filter(fits).collect();
    if found.is_empty() {
        bail!("nothing to measure with the module {}", which.module);
    }
    Ok(found)
}

/// Boots guests with a module, ready to measure.
fn boot(arguments: &Arguments, module: &str, plugin: Option<PathBuf>) -> Result<Ready> {
    let mut which = arguments.which.clone();
    if which.module != "none" {
        which.module = module.into();
    }
    let options = Options {
        count: true,
        plugin,
    };
    let mut ready = which.boot(options, None)?;
    if module == "smc" && which.rdma {
        // Without an id of its own the C module does not find itself in another namespace.
        let words = ["/rsmc/bin/rsmc", "ueid", "add", "RSMC-DEFAULT"];
        let outcomes = ready.collect(
            words.map(str::to_owned).to_vec(),
            Duration::from_secs(60),
            &mut |_, _| {},
        )?;
        if exit_status(&outcomes) != 0 {
            bail!("rsmc ueid add failed\n{}", ready.cluster.last_words(0));
        }
    }
    Ok(ready)
}

/// Runs the program in the guest.
fn measure(
    ready: &mut Ready,
    arguments: &Arguments,
    ends: &[&str],
    more: &[&str],
    found: &mut dyn FnMut(&str),
) -> Result<()> {
    let scale = arguments.scale.to_string();
    let mut argv = vec!["/rsmc/bin/bench"];
    argv.extend(ends);
    argv.extend(["--counting", "--scale", &scale]);
    argv.extend(more);
    let outcomes = ready.collect(
        argv.into_iter().map(str::to_owned).collect(),
        Duration::from_secs(arguments.timeout),
        &mut |stream, line| match stream {
            Stream::Out => found(line),
            Stream::Err => eprintln!("{line}"),
        },
    )?;
    if exit_status(&outcomes) != 0 {
        bail!("bench failed\n{}", ready.cluster.last_words(0));
    }
    Ok(())
}

/// Runs it.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let columns = columns(&arguments.which)?;
    if let Some(metric) = &arguments.profile {
        return profile::main(arguments, metric, &columns);
    }
    let mut table = Table::new(columns.iter().map(|c| c.name).collect());
    let only: Vec<&str> = match &arguments.only {
        Some(only) => vec!["--only", only],
        None => Vec::new(),
    };
    for module in ["rsmc", "smc"] {
        let mine = || columns.iter().filter(|c| c.module == module);
        if mine().next().is_none() {
            continue;
        }
        let mut ready = boot(arguments, module, None)?;
        for run in 0..arguments.runs {
            for column in mine() {
                measure(&mut ready, arguments, column.ends, &only, &mut |line| {
                    table.take(column.name, line);
                })
                .with_context(|| format!("column {}, run {run}", column.name))?;
            }
        }
        ready.finish()?;
    }
    print!("{}", table.render());
    if let Some(file) = &arguments.json {
        std::fs::write(file, table.json()).with_context(|| file.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
