// SPDX-License-Identifier: GPL-2.0
//! The command line of `rsmc policy`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Where rules are kept from one boot to the next.
pub const FILE: &str = "/etc/rsmc/policy.conf";

/// Show or change the rules that say which TCP sockets become SMC sockets (sysctl net.smc.tcp2smc)
///
/// With `net.smc.tcp2smc` at 2, TCP sockets become SMC sockets if a rule allows it; at 3, unless one
/// denies it. The first rule that matches wins. A rule is a verdict and any number of conditions, all of
/// which must hold:
///
///   allow | deny | auto | share=PERCENT
///                   auto: SMC where connections have been found to pay; see `learned`
///   exe=PATTERN     path of the program; `*` and `?` as in a shell, and `*` matches `/`, too
///   comm=PATTERN    name of the thread, at most 15 bytes
///   cgroup=PATH     cgroup (version 2) from the host's root, or one below it
///   uid=USER        effective user, by name or number
///   port=N[-N]      local port
///   peer=ADDR[/N]   the peer's address, or a network
///   peer-port=N[-N] the peer's port
///   mptcp           sockets that ask for MPTCP, which other rules are not about
///
/// A program's path, name, cgroup and user are compared when it makes a socket, and again when that
/// listens or connects; ports and peers when these are known. Sockets that exist keep what they are.
/// Each network namespace has its own rules.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  rsmc policy add allow exe=/usr/bin/redis-server\n  \
rsmc policy add deny peer=192.0.2.0/24 --at 1\n  rsmc policy add share=10 cgroup=/system.slice/app.service\n  \
rsmc policy save /etc/rsmc/policy.conf\n  rsmc policy test --pid 4711 --port 6379"
)]
pub struct PolicyArgs {
    /// Action [default: list]
    #[command(subcommand)]
    pub action: Option<PolicyAction>,
}

/// Actions of `rsmc policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyAction {
    /// List the rules in their order, with how often each has decided
    List {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Add a rule, at the end or at a place
    Add {
        /// Place in the order, from 1; the rule there and those behind it move on
        #[arg(long, value_name = "PLACE", value_parser = clap::value_parser!(u32).range(1..))]
        at: Option<u32>,
        /// The rule: a verdict and conditions
        #[arg(required = true)]
        rule: Vec<String>,
    },
    /// Remove a rule by its id, the first column of the list
    Del {
        /// Id
        id: u32,
    },
    /// Remove all rules
    Flush,
    /// Replace all rules, at once, by those of a file, or of all files
    Load {
        /// The file, or - for standard input [default: /etc/rsmc/policy.conf, and behind its rules those of
        /// /etc/rsmc/policy.d/*.conf, which `rsmc enable` makes]
        file: Option<PathBuf>,
        /// Read the file and say what is wrong with it; change nothing
        #[arg(long)]
        check: bool,
    },
    /// Write the rules as `load` reads them
    Save {
        /// The file, which is replaced at once; - for standard output. /etc/rsmc/policy.conf gets none of the
        /// rules that /etc/rsmc/policy.d has
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Remove the rules of `rsmc run --scope` whose commands have ended
    Prune,
    /// Say which rule would decide about a socket, and how
    Test(PolicyTest),
    /// List what rules with `auto` have learnt: which services have connections that pay
    ///
    /// A service is a port that listens here, or a port of a peer. It has credits: a connection that lived too briefly
    /// or moved too little takes one, one that paid gives two back. Without any SMC is not offered for a
    /// while, which doubles each time, and then with half the credits.
    Learned {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Forget all that rules with `auto` have learnt
    Forget,
}

/// A socket for `rsmc policy test`.
#[derive(Args, Debug, Default)]
pub struct PolicyTest {
    /// Take program, name, cgroup and user from this process
    #[arg(long)]
    pub pid: Option<u32>,
    /// Path of the program
    #[arg(long, value_name = "PATH")]
    pub exe: Option<String>,
    /// Name of the thread [default: the last part of the program's path]
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Path of the cgroup
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// User, by name or number
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    /// Local port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The peer's address
    #[arg(long, value_name = "ADDR")]
    pub peer: Option<std::net::IpAddr>,
    /// The peer's port
    #[arg(long, value_name = "PORT", requires = "peer", default_value = "0")]
    pub peer_port: u16,
    /// The socket asks for MPTCP
    #[arg(long)]
    pub mptcp: bool,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}
