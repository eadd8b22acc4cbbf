// SPDX-License-Identifier: GPL-2.0

//! `lab bench`: what a socket costs, counted in instructions.
//!
//! The guest runs on one emulated CPU whose clock advances by 1 ns for each
//! instruction, so its times are instruction counts and repeat to under half a
//! percent on any machine, however busy.

mod baseline;
mod card;
mod columns;
mod figures;
mod own;
mod owners;
mod plot;
mod profile;
mod table;
mod wall;

use super::boot::{exit_status, Ready, Which};
use crate::guest::cluster::{Options, Stream};
use crate::progress;
use anyhow::{bail, Context, Result};
use baseline::Figures;
use columns::{Column, Set};
pub use figures::svg as figures;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use table::Table;

/// Arguments of `lab bench`.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Between processes of one host, in one namespace: TCP, AF_UNIX, pipe, shared memory, sockmap
    /// and the local path; on the kernel `bench`, or another
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, require_equals = true, default_missing_value = "bench",
        conflicts_with_all = ["kernel", "rdma", "pair", "own"])]
    local: Option<String>,
    /// With --local: TCP, sockmap and the local path between two namespaces as well
    #[arg(long, requires = "local")]
    namespaces: bool,
    /// SMC-R over model cards (selftests/kmod/card) in place of soft-RoCE, less what the card itself executes; on the
    /// kernel `bench`, or another
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, require_equals = true, default_missing_value = "bench",
        conflicts_with_all = ["kernel", "local", "rdma", "pair", "own", "wall", "converted"])]
    card: Option<String>,
    /// Programs that ask for TCP, by `net.smc.tcp2smc` and rules
    #[arg(long, conflicts_with_all = ["local", "rdma", "pair", "wall", "own", "save", "check"])]
    converted: bool,
    /// Times each measurement is taken; the median is shown [default: 3, local 1 but with --check and --save, of the wall
    /// clock 5]
    #[arg(long)]
    runs: Option<u32>,
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
    /// Fail if a figure differs from what an earlier run wrote with --json: more than 1 %, of bulk 5 %
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    against: Option<PathBuf>,
    /// Draw medians as multiples of TCP's, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Fail if a figure is worse than the committed one, and say which
    #[arg(long, conflicts_with_all = ["profile", "scale"])]
    check: bool,
    /// Make the medians the committed ones
    #[arg(long, conflicts_with_all = ["profile", "scale", "check"])]
    save: bool,
    /// Take the time instead of counting: between two user-mode guests, or with --local within one guest
    #[arg(long, conflicts_with_all = ["profile", "save", "check", "converted"])]
    wall: bool,
    /// Only what sockets cost without soft-RoCE, IP and veth, the C module's and ours
    #[arg(long, conflicts_with_all = ["profile", "wall", "plot"], requires = "rdma")]
    own: bool,
    /// Show which functions the instructions of a metric are spent in instead
    #[arg(long, value_name = "METRIC")]
    profile: Option<String>,
    /// Only these columns, separated by commas; with --profile the one to look at
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// With --profile: the number of functions to show
    #[arg(long, default_value_t = 50, requires = "profile")]
    lines: usize,
}

impl Arguments {
    fn set(&self) -> Set {
        match (&self.local, self.which.rdma) {
            _ if self.converted => Set::Converted,
            _ if self.card.is_some() => Set::Card,
            (Some(_), _) => Set::Local(self.namespaces),
            (None, true) => Set::Rdma,
            (None, false) => Set::Fallback,
        }
    }

    /// Which metrics, for the programs that measure.
    fn metrics(&self) -> Vec<&str> {
        self.only.iter().flat_map(|only| ["--only", only]).collect()
    }

    /// The same with other amounts.
    fn with_scale(&self, scale: u32) -> Arguments {
        Arguments {
            scale,
            ..self.clone()
        }
    }
}

/// Boots guests with a module, ready to measure.
fn boot(arguments: &Arguments, module: &str, plugin: Option<PathBuf>) -> Result<Ready> {
    let mut which = arguments.which.clone();
    if which.module != "none" {
        which.module = module.into();
    }
    if module == "none" {
        which.kmod = vec!["verbs_bench".into()];
    }
    let options = Options {
        count: Some(1),
        plugin,
        ..Options::default()
    };
    let mut ready = which.boot(options, None)?;
    if module == "smc" && (which.rdma || which.card || arguments.local.is_some()) {
        add_ueid(&mut ready)?;
    }
    Ok(ready)
}

/// Without an id of its own the C module does not find itself in another namespace.
fn add_ueid(ready: &mut Ready) -> Result<()> {
    let words = ["/rsmc/bin/rsmc", "ueid", "add", "RSMC-DEFAULT"];
    let outcomes = ready.collect(
        words.map(str::to_owned).to_vec(),
        Duration::from_secs(60),
        &mut |_, _| {},
    )?;
    if exit_status(&outcomes) != 0 {
        bail!("rsmc ueid add failed\n{}", ready.cluster.last_words(0));
    }
    Ok(())
}

/// Runs one of the programs that measure, in the guest.
fn measure(
    ready: &mut Ready,
    arguments: &Arguments,
    program: &[&str],
    more: &[&str],
    found: &mut dyn FnMut(&str),
) -> Result<()> {
    let scale = arguments.scale.to_string();
    let mut argv = program.to_vec();
    argv.extend(["--scale", &scale]);
    argv.extend(more);
    let what = format!("bench: {}", argv.join(" "));
    let outcomes = progress::during(&what, || {
        ready.collect(
            argv.iter().map(|word| (*word).to_owned()).collect(),
            Duration::from_secs(arguments.timeout),
            &mut |stream, line| match stream {
                Stream::Out => found(line),
                Stream::Err => eprintln!("{line}"),
            },
        )
    })?;
    if exit_status(&outcomes) != 0 {
        bail!(
            "{} failed\n{}",
            program.join(" "),
            ready.cluster.last_words(0)
        );
    }
    Ok(())
}

/// Runs it.
pub fn main(mut arguments: Arguments) -> Result<ExitCode> {
    if let Some(kernel) = &arguments.local {
        arguments.which.kernel.clone_from(kernel);
    }
    if let Some(kernel) = &arguments.card {
        arguments.which.kernel.clone_from(kernel);
        arguments.which.card = true;
    }
    if arguments.wall {
        return wall::main(arguments);
    }
    let arguments = &arguments;
    let set = arguments.set();
    let held = arguments.check || arguments.save;
    if let Some(metric) = &arguments.profile {
        let name = arguments.column.as_deref().unwrap_or(set.ours());
        let columns = columns::fitting(&arguments.which, set, Some(name))?;
        return profile::main(arguments, metric, &columns);
    }
    let columns = columns::fitting(&arguments.which, set, arguments.column.as_deref())?;
    let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
    let ours = columns.iter().filter(|c| c.is_ours());
    let ours: Vec<&str> = ours.map(|c| c.name).collect();
    if set == Set::Card {
        let figures = card::measure(arguments, &columns)?;
        return conclude(arguments, set.name(), &figures, &names, &ours);
    }
    let mut table = Table::new("instructions", columns.iter().map(|c| c.name).collect());
    let only = arguments.metrics();
    let filter = arguments.only.as_deref().unwrap_or_default();
    let modules: &[&str] = match own::only(arguments) {
        true => &[],
        false => &["rsmc", "smc", "none"],
    };
    for module in modules {
        let here = |c: &&&Column| c.module == *module && c.has(filter);
        let mine = || columns.iter().filter(here);
        if mine().next().is_none() {
            continue;
        }
        let mut ready = boot(arguments, module, None)?;
        for run in 0..arguments.runs.unwrap_or(set.runs(held)) {
            for column in mine() {
                for program in column.programs() {
                    measure(&mut ready, arguments, &program, &only, &mut |line| {
                        table.take(column.name, line);
                    })
                    .with_context(|| format!("column {}, run {run}", column.name))?;
                }
            }
        }
        ready.finish()?;
    }
    if !modules.is_empty() {
        print!("{}", table.render());
    }
    let mut figures = table.medians();
    if arguments.which.rdma {
        figures.extend(own::measure(arguments, &columns)?);
    }
    conclude(arguments, set.name(), &figures, &names, &ours)
}

/// Writes, saves and judges what was measured.
fn conclude(
    arguments: &Arguments,
    what: &str,
    figures: &Figures,
    columns: &[&str],
    ours: &[&str],
) -> Result<ExitCode> {
    let name = format!("{what} on {}", arguments.which.kernel);
    if let Some(file) = &arguments.json {
        let sets = [(name.clone(), figures.clone())].into_iter().collect();
        fs::write(file, baseline::json(&sets)).with_context(|| file.display().to_string())?;
    }
    if let Some(file) = &arguments.plot {
        let drawing = plot::svg(&name, columns, ours, figures)?;
        fs::write(file, drawing).with_context(|| file.display().to_string())?;
    }
    if arguments.save {
        baseline::save(&name, figures)?;
    }
    if let Some(file) = &arguments.against {
        if !baseline::against(file, &name, figures)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let wanted = |metric: &str| match arguments.set() {
        Set::Card => card::asked(arguments, metric),
        _ => own::asked(arguments, metric),
    };
    if arguments.check && !baseline::check(&name, figures, ours, &wanted)? {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
