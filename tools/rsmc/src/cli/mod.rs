// SPDX-License-Identifier: GPL-2.0
//! The command line: every option and help text, and nothing else.

mod enable;
mod policy;
mod run;
mod show;
mod stats;
mod tables;

pub use enable::{DisableArgs, EnableArgs, Services, UpArgs};
pub use policy::{PolicyAction, PolicyArgs, PolicyTest, FILE as POLICY_FILE};
pub(crate) use run::buffer_size;
pub use run::{Family, RunArgs, ScopeEndArgs};
pub use show::{DevArgs, LinkArgs, ModeFilter, Repeat, SsArgs, Target, TopArgs, TopSort, WhyArgs};
pub use stats::{StatsAction, StatsArgs};
pub use tables::{PnetAction, PnetArgs, UeidAction, UeidArgs};

use crate::error::EXIT_CODES;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// SMC sockets: run programs over them, list them, and learn why a connection is TCP instead.
///
/// SMC (Shared Memory Communications, RFC 7609) carries the byte stream of a TCP socket over RDMA
/// when both hosts can, and falls back to TCP when they cannot. The kernel side is the module
/// `rsmc` or the in-tree `smc`; this program works with both.
#[derive(Debug, Parser)]
#[command(
    name = "rsmc",
    version,
    max_term_width = 100,
    after_help = EXIT_CODES,
    after_long_help = format!("{EXIT_CODES} `rsmc run` has its own: see its help.")
)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands; each is described at its arguments, where the help text comes from.
#[expect(missing_docs, reason = "described at their arguments")]
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Ss(SsArgs),
    Link(LinkArgs),
    Dev(DevArgs),
    Why(WhyArgs),
    Stats(StatsArgs),
    Ueid(UeidArgs),
    Pnet(PnetArgs),
    Policy(PolicyArgs),
    Demote(DemoteArgs),
    Enable(EnableArgs),
    Disable(DisableArgs),
    Up(UpArgs),
    Unload(UnloadArgs),
    Top(TopArgs),
    Report(ReportArgs),
    Completion(CompletionArgs),
    Man(ManArgs),
    #[command(hide = true)]
    ScopeEnd(ScopeEndArgs),
}

/// Have connections that were promoted to SMC-R go back to TCP
///
/// No byte is lost, and programs see nothing but time. A connection is promoted again when it has carried enough for
/// that; net.smc.path_promote = 0 keeps all of them on TCP. One of which a direction has ended stays as it is. Needs
/// CAP_NET_ADMIN, and is about the network namespace alone.
///
/// Examples: rsmc demote --peer 192.0.2.7; rsmc demote --all
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["all", "peer", "cookie"]))]
pub struct DemoteArgs {
    /// All of them
    #[arg(short, long)]
    pub all: bool,
    /// Those with this peer
    #[arg(short, long, value_name = "ADDRESS")]
    pub peer: Option<std::net::IpAddr>,
    /// The one with this cookie, which `rsmc ss --json` tells
    #[arg(short, long, value_name = "NUMBER")]
    pub cookie: Option<u64>,
}

/// Unload the module, or say which processes keep it loaded
///
/// The module stays while there is a socket of it, in any network namespace. Programs that are to go on get TCP
/// sockets once net.smc.tcp2smc is 0 and they make new ones.
#[derive(Args, Debug)]
pub struct UnloadArgs {}

/// Collect what a bug report needs into one file
///
/// A tar archive with the versions, the module, sysctls, RDMA devices and their addresses,
/// interfaces and routes, link groups, sockets with their program's name and id, statistics,
/// fallback reasons, and the kernel log's lines about SMC and RDMA. Addresses and host names of
/// this host and its peers are in it; what programs transfer, their arguments and their environment
/// are not. What this user may not see, or the kernel does not have, is named in its README.txt.
///
/// With --hardware a list is printed instead: kernel, module and each RDMA port with its driver,
/// firmware, protocol, state, addresses, MTU, limits, flow control and losses, what is well, what
/// is worth a look and what to do then. It is for hosts with an RDMA card, and to be sent to those
/// who write this. The exit status is 0 if SMC-R can use a port, else 1.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The file, which must not exist, or - for standard output [default: rsmc-report-HOST-TIME.tar
    /// in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print what SMC-R needs of RDMA devices, item by item, and make no archive
    #[arg(long, conflicts_with = "output")]
    pub hardware: bool,
    /// With --hardware: print JSON
    #[arg(short, long, requires = "hardware")]
    pub json: bool,
}

/// Print a completion script for a shell, or write those of all names into a directory
///
/// The names are rsmc and those of smc-tools (smcss, smcr, smcd, smc_pnet, smc_run, smc_chk).
///
/// Examples: rsmc completion bash > /usr/share/bash-completion/completions/rsmc;
/// rsmc completion fish /usr/share/fish/vendor_completions.d
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
    /// Write a script for each name here, in a file called as the shell expects it; the directory
    /// must exist
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

/// Write the manual pages into a directory
///
/// A page for each command (rsmc.1, rsmc-ss.1 and so on) and for each name of smc-tools (smcss.1,
/// smcr.1, smcd.1, smc_pnet.1, smc_run.1, smc_chk.1); af_smc.7 and policy.conf.5. Where the directory is called
/// man1, those of other sections go into man5 and man7 beside it.
///
/// Example: rsmc man /usr/local/share/man/man1
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory, which must exist
    pub directory: PathBuf,
}
