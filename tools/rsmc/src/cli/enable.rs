// SPDX-License-Identifier: GPL-2.0
//! The command line of `rsmc enable`, `rsmc disable` and `rsmc up`.

use clap::Args;
use std::path::PathBuf;

/// Have the TCP sockets of services become SMC sockets, now and at each boot
///
/// For each UNIT: a rule for its cgroup in /etc/rsmc/policy.d, and a drop-in in /etc/systemd/system/UNIT.d that has
/// module and rule there before it starts. The unit's own files are not touched. If something is missing then, the
/// service starts all the same, over TCP, and the journal has a line. Where nobody has chosen a value of
/// net.smc.tcp2smc it becomes 2 (what the rules allow), in /etc/sysctl.d/50-rsmc.conf; another value stays.
/// A running service has to be restarted.
///
/// A UNIT is a service, with or without `.service`, an instance (app@1), a template (app@: all its instances), or a
/// slice, which gets the rule alone.
#[derive(Args, Debug)]
#[command(
    override_usage = "rsmc enable [OPTIONS] UNIT...\n       rsmc enable [OPTIONS] --all-on-this-host",
    after_help = "Examples:
  rsmc enable redis-server --restart
  rsmc enable --mptcp my-go-service
  rsmc enable --all-on-this-host --dry-run"
)]
pub struct EnableArgs {
    /// What, and how
    #[command(flatten)]
    pub what: Services,
    /// Also sockets that ask for MPTCP, as the listeners of Go programs do
    #[arg(long, conflicts_with = "all_on_this_host")]
    pub mptcp: bool,
    /// With --all-on-this-host: do not ask
    #[arg(long, requires = "all_on_this_host")]
    pub yes: bool,
}

/// Take back what `rsmc enable` did
///
/// Its files and rules go, and net.smc.tcp2smc is 0 again if `rsmc enable` set it and no rules are left. Sockets that
/// exist stay what they are.
#[derive(Args, Debug)]
#[command(
    override_usage = "rsmc disable [OPTIONS] UNIT...\n       rsmc disable [OPTIONS] --all-on-this-host"
)]
pub struct DisableArgs {
    /// What, and how
    #[command(flatten)]
    pub what: Services,
}

/// What both have.
#[derive(Args, Debug)]
pub struct Services {
    /// Units of systemd
    #[arg(
        value_name = "UNIT",
        required_unless_present = "all_on_this_host",
        conflicts_with = "all_on_this_host"
    )]
    pub units: Vec<String>,
    /// All TCP sockets of this network namespace (net.smc.tcp2smc=1), whoever makes them
    #[arg(long)]
    pub all_on_this_host: bool,
    /// Restart the units if they run
    #[arg(long, conflicts_with_all = ["all_on_this_host", "root"])]
    pub restart: bool,
    /// Say what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Change the files of a system that is installed here, not those of the running one, and nothing else
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

/// Load the module, and put in place what is configured: settings, rules and net.smc.tcp2smc
///
/// For the boot (rsmc.service) and the drop-ins of `rsmc enable`. The settings net.smc.* get their values of
/// /etc/sysctl.d and the other directories of sysctl.d(5); with --unit only if this has loaded the module. Where the network namespace has no rules, those of
/// /etc/rsmc/policy.conf and /etc/rsmc/policy.d are loaded, and net.smc.tcp2smc gets its value of /etc/sysctl.d if
/// it is 0. Where there are rules, only that of --unit is added if it is missing: `rsmc policy load` replaces all.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// The unit that is about to start
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<String>,
}
