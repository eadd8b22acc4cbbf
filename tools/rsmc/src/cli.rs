// SPDX-License-Identifier: GPL-2.0
//! The command line: every option and help text, and nothing else.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;
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
    after_help = "Exit status: 0 done, 1 it could not be done (one line says why), 2 wrong usage. \
                  `rsmc run` has its own: see its help."
)]
pub struct Cli {
    /// What to do.
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
    Completion(CompletionArgs),
}

/// Run a command whose TCP sockets become SMC sockets
///
/// Loads a small library into COMMAND and the programs it starts. The library overrides socket():
/// a stream socket of IPv4 or IPv6 is made as an SMC socket. If the kernel has no SMC or refuses
/// it, the program gets its TCP socket as if nothing had been asked. Nothing else of the program
/// changes; whether a connection then uses RDMA is negotiated with the peer (see `rsmc ss`,
/// `rsmc why`).
///
/// Not reached, and refused with an explanation: statically linked programs, programs with more
/// rights than their caller (set-user-ID, file capabilities), other architectures. Go programs
/// make their system calls themselves; they run, with a warning, over TCP. Sockets that io_uring
/// or the C library's resolver open stay TCP as well.
#[derive(Args, Debug)]
#[command(
    override_usage = "rsmc run [OPTIONS] [--] COMMAND [ARGUMENT]...",
    after_help = "Examples:
  rsmc run -- redis-server --port 7000
  rsmc run --debug -- curl http://server/
  rsmc run --strict -- iperf3 -c 192.0.2.1",
    after_long_help = "Examples:
  rsmc run -- redis-server --port 7000
  rsmc run --debug -- curl http://server/
  rsmc run --strict -- iperf3 -c 192.0.2.1

Environment of the command: LD_PRELOAD (the library is added at its end), RSMC_FAMILY, RSMC_STRICT, \
RSMC_DEBUG, RSMC_SNDBUF, RSMC_RCVBUF. Set by hand they do the same as the options.

Exit status: that of COMMAND; 125 if rsmc itself fails, 126 if COMMAND was found but cannot be run \
or not be reached, 127 if it was not found."
)]
pub struct RunArgs {
    /// Kind of SMC socket to ask for [default: inet, or RSMC_FAMILY]
    ///
    /// inet: AF_INET and AF_INET6 with IPPROTO_SMC. Address-family filters of services and
    /// sandboxes see an internet socket. smc: AF_SMC, which also kernels before 6.11 have.
    #[arg(long, value_enum, value_name = "KIND")]
    pub family: Option<Family>,
    /// SMC or an error, never TCP
    ///
    /// socket() fails where the kernel has no SMC, and connections that would fall back to TCP
    /// fail (where the module supports that option; older ones fall back all the same).
    #[arg(long)]
    pub strict: bool,
    /// Say on standard error what became of each TCP socket
    #[arg(long)]
    pub debug: bool,
    /// Send buffer of each SMC socket (SO_SNDBUF), in bytes or with k or m; the limit of
    /// net.core.wmem_max holds
    #[arg(long, value_name = "SIZE", value_parser = buffer_size)]
    pub sndbuf: Option<u32>,
    /// Receive buffer of each SMC socket (SO_RCVBUF), likewise; the limit is net.core.rmem_max
    #[arg(long, value_name = "SIZE", value_parser = buffer_size)]
    pub rcvbuf: Option<u32>,
    /// Use this preload library
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// Kind of SMC socket `rsmc run` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// AF_INET/AF_INET6 with IPPROTO_SMC
    Inet,
    /// AF_SMC
    Smc,
}

/// List SMC sockets: state, addresses, mode, and in words why one is TCP
///
/// Asks the kernel by sock_diag. Without options, connections; sockets that are listening or were
/// not connected yet are left out. The process column shows what this user may see in /proc. `*`
/// is any address, or one the kernel does not tell (the in-tree module does not for sockets made
/// with IPPROTO_SMC).
#[derive(Args, Debug)]
#[command(
    after_help = "Modes: SMC-R (RDMA), SMC-D (shared memory), TCP (fallback, with its reason). \
A reason in parentheses is what the peer gave.\n\n\
Examples:\n  rsmc ss\n  rsmc ss -l\n  rsmc ss --mode tcp --port 6379\n  rsmc ss -a --json | jq '.[].fallback'"
)]
pub struct SsArgs {
    /// All sockets, also listening and unconnected ones
    #[arg(short, long, conflicts_with = "listening")]
    pub all: bool,
    /// Listening sockets only
    #[arg(short, long)]
    pub listening: bool,
    /// Print JSON: one array, an object for each socket
    #[arg(short, long)]
    pub json: bool,
    /// Numbers, not names: reason codes, user ids
    #[arg(short, long)]
    pub numeric: bool,
    /// Only sockets in this state, whichever are shown otherwise (repeatable)
    #[arg(long, value_name = "STATE", value_parser = crate::diag::State::from_name, action = ArgAction::Append)]
    pub state: Vec<crate::diag::State>,
    /// Only sockets of this mode (repeatable)
    #[arg(long, value_enum, value_name = "MODE", action = ArgAction::Append)]
    pub mode: Vec<ModeFilter>,
    /// Only sockets with this local or remote port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Only sockets with this local port
    #[arg(long, value_name = "PORT")]
    pub sport: Option<u16>,
    /// Only sockets with this remote port
    #[arg(long, value_name = "PORT")]
    pub dport: Option<u16>,
}

/// What `rsmc ss --mode` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeFilter {
    /// RDMA
    Smcr,
    /// shared memory on one host
    Smcd,
    /// fell back to TCP
    Tcp,
}

/// List link groups: which hosts this one talks SMC-R with, over which RDMA ports
///
/// A link group is what all SMC-R connections with one peer share: a link (an RDMA queue pair) and
/// buffers. Shown are those of this network namespace; in the initial one, all (of the in-tree
/// module everywhere).
#[derive(Args, Debug)]
pub struct LinkArgs {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// List RDMA devices that SMC can use, by port
#[derive(Args, Debug)]
pub struct DevArgs {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Explain why connections fell back to TCP
///
/// Reads the module's counters of this network namespace: how many connections became SMC, how
/// many fell back, for which reasons and with which peers, and says what can be done about each.
/// With ADDR only what concerns that peer.
#[derive(Args, Debug)]
pub struct WhyArgs {
    /// IPv4 or IPv6 address of a peer
    #[arg(value_name = "ADDR")]
    pub peer: Option<IpAddr>,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Show the statistics of this network namespace
///
/// Connections by protocol version and role, bytes and calls, buffer shortages, and fallback
/// reasons, by the standard netlink family SMC_GEN_NETLINK. Counters that are zero are left out of
/// the text, not of the JSON.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Show or change the enterprise ids (UEIDs) by which SMC version 2 peers recognise each other
#[derive(Args, Debug)]
pub struct UeidArgs {
    /// What to do [default: show]
    #[command(subcommand)]
    pub action: Option<UeidAction>,
}

/// What `rsmc ueid` can do.
#[derive(Debug, Subcommand)]
pub enum UeidAction {
    /// List the configured UEIDs
    Show {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Add one: up to 32 of A-Z 0-9 . - beginning with a letter or digit, no two dots in a row
    Add {
        /// The UEID
        eid: String,
    },
    /// Remove one
    Del {
        /// The UEID
        eid: String,
    },
    /// Remove all
    Flush,
}

/// Show or change the PNET table: which interfaces and RDMA ports are on the same physical network
///
/// Only needed where a connection's interface and the RDMA device have no network device in common.
#[derive(Args, Debug)]
pub struct PnetArgs {
    /// What to do [default: show]
    #[command(subcommand)]
    pub action: Option<PnetAction>,
}

/// What `rsmc pnet` can do.
#[derive(Debug, Subcommand)]
pub enum PnetAction {
    /// List the table, or the entries of one id
    Show {
        /// PNET id
        id: Option<String>,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Put an interface, an RDMA port, or both into a physical network
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["interface", "ibdevice"]))]
    Add {
        /// PNET id: up to 16 letters and digits; the kernel stores capitals
        id: String,
        /// Network interface
        #[arg(short = 'I', long, value_name = "NAME")]
        interface: Option<String>,
        /// RDMA device (name, or PCI address for SMC-D devices)
        #[arg(short = 'D', long, value_name = "NAME")]
        ibdevice: Option<String>,
        /// Port of the RDMA device [default: 1]
        #[arg(short = 'P', long, value_name = "1|2", requires = "ibdevice", value_parser = clap::value_parser!(u8).range(1..=2))]
        ibport: Option<u8>,
    },
    /// Remove all entries of one id
    Del {
        /// PNET id
        id: String,
    },
    /// Empty the table
    Flush,
}

/// Print a completion script for a shell
///
/// Example: rsmc completion bash > /usr/share/bash-completion/completions/rsmc
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

fn buffer_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1024u32),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (1..=i32::MAX as u32).contains(bytes))
        .ok_or_else(|| "not a size from 1 byte to 2 GiB, such as 65536, 512k or 4m".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(buffer_size("65536"), Ok(65536));
        assert_eq!(buffer_size("512k"), Ok(524288));
        assert_eq!(buffer_size("4M"), Ok(4 << 20));
        for wrong in ["", "k", "0", "-1", "4096m", "1g", "é", "1é"] {
            assert!(buffer_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn run_takes_the_commands_own_options() {
        for line in [
            &["rsmc", "run", "--strict", "--", "ls", "-l", "--strict"][..],
            &["rsmc", "run", "--strict", "ls", "-l", "--strict"][..],
        ] {
            let Command::Run(run) = Cli::try_parse_from(line).unwrap().command else {
                panic!("not run")
            };
            assert!(run.strict && !run.debug);
            assert_eq!(run.command, ["ls", "-l", "--strict"]);
        }
    }
}
