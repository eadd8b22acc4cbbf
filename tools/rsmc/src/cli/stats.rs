// SPDX-License-Identifier: GPL-2.0
//! The command line of `rsmc stats`.

use super::show::seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Show the statistics of this network namespace
///
/// Connections by protocol version and role, bytes and calls, buffer shortages, and fallback
/// reasons, by the standard netlink family SMC_GEN_NETLINK. Counters that are zero are left out of
/// the text, not of the JSON.
///
/// The kernel's counters only grow. `rsmc stats reset` notes them in /run/rsmc (for users other
/// than root in $XDG_RUNTIME_DIR/rsmc), by network namespace; from then on what came since is
/// shown. The note is forgotten when the counters start anew.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  rsmc stats\n  rsmc stats reset\n  rsmc stats --interval=1\n  \
rsmc stats --plot sizes.svg\n  rsmc stats --prometheus --output /var/lib/prometheus/node-exporter/rsmc.prom"
)]
pub struct StatsArgs {
    /// Show or reset the counters [default: show]
    #[arg(value_enum)]
    pub action: Option<StatsAction>,
    /// Print JSON; with --interval a line each time
    #[arg(short, long)]
    pub json: bool,
    /// Since the module was loaded, whatever was reset
    #[arg(short, long)]
    pub absolute: bool,
    /// Print the text format of Prometheus, always since the module was loaded
    #[arg(long, conflicts_with_all = ["json", "histograms", "plot", "interval"])]
    pub prometheus: bool,
    /// With --prometheus: write into this file, which is replaced at once, so that nobody reads half of it
    #[arg(short, long, value_name = "FILE", requires = "prometheus")]
    pub output: Option<PathBuf>,
    /// Print the sizes of buffers and calls as bars
    #[arg(long, conflicts_with_all = ["json", "plot", "interval"])]
    pub histograms: bool,
    /// Draw the same bars into an SVG file
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["json", "interval"])]
    pub plot: Option<PathBuf>,
    /// Print rates, a line every SECONDS seconds, until interrupted
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// End after N lines of rates
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// Actions of `rsmc stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsAction {
    /// Show the counters
    Show,
    /// Count from 0 from now on
    Reset,
}
