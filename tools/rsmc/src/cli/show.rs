// SPDX-License-Identifier: GPL-2.0
//! The command lines of the commands that show something.

use clap::{ArgAction, Args, ValueEnum};
use std::net::IpAddr;
use std::time::Duration;

use crate::ss::filter::Subnet;

/// List SMC sockets: state, addresses, mode, and in words why one is TCP
///
/// Asks the kernel by sock_diag. Without options, connections; sockets that are listening or were
/// not connected yet are left out. The process column shows what this user may see in /proc. `*`
/// is any address, or one the kernel does not tell (the in-tree module does not for sockets made
/// with IPPROTO_SMC).
///
/// Received and Sent are the bytes of the connection so far; where a connection uses RDMA they
/// start again from 0 after 65536 times the buffer's size (4 GiB with buffers of 64 KiB). Those of
/// TCP connections come from TCP and contain the handshake's. A connection that began as TCP is `TCP first`, `promoting`
/// while it goes over to SMC-R, and SMC-R then; its bytes are those of both, and -e tells which, and of attempts that failed.
#[derive(Args, Debug, Default)]
#[command(
    after_help = "Modes: SMC-R (RDMA), SMC-D (shared memory), TCP (fallback, with its reason). \
A reason in parentheses is what the peer gave.\n\n\
Examples:\n  rsmc ss\n  rsmc ss -l\n  rsmc ss --mode tcp --port 6379\n  \
rsmc ss --dst 10.0.0.0/8 --reason PEERNOSMC --watch=5\n  rsmc ss -a --json | jq '.[].fallback'"
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
    /// Only sockets with this local or remote address, or one in this subnet
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub addr: Option<Subnet>,
    /// Only sockets with this local address
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub src: Option<Subnet>,
    /// Only sockets with this remote address
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub dst: Option<Subnet>,
    /// Only connections that fell back for this reason, of this side or the peer: a name or a
    /// code in hexadecimal (repeatable)
    #[arg(long, value_name = "REASON", value_parser = crate::reason::from_text, action = ArgAction::Append)]
    pub reason: Vec<u32>,
    /// Only sockets of this program or process
    #[arg(long, value_name = "NAME|PID")]
    pub process: Option<String>,
    /// A second line for each connection that has one: queues, buffers, RDMA device and addresses
    #[arg(short, long)]
    pub extended: bool,
    /// Show again and again
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Repetition of the output.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Repeat {
    /// Show again every SECONDS seconds, until interrupted; with --json a line each time
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// End after N times
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// A duration in seconds, from 0.1 to a day.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: Option<f64> = text.parse().ok();
    match number.filter(|number| (0.1..=86400.0).contains(number)) {
        Some(number) => Ok(Duration::from_secs_f64(number)),
        None => Err("not a number of seconds from 0.1 to 86400".into()),
    }
}

/// Values of `rsmc ss --mode`.
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

/// Explain why connections fell back to TCP, and what keeps them from being SMC
///
/// Reads the module's counters of this network namespace: how many connections became SMC, how
/// many fell back, for which reasons and with which peers, and says what can be done about each.
/// Then looks at what SMC needs: the module, a common EID, usable RDMA devices.
///
/// With ADDR only what concerns that peer, and the way to it as well: route, MTU, an RDMA port on
/// the right interface with an address of the right kind. --probe asks a service there with a SYN
/// how it answers SMC's TCP option (with CAP_NET_RAW), makes one SMC connection, which negotiates SMC
/// before data whatever net.smc.path says, sends nothing, and says what it became. With PID the
/// sockets of that process.
///
/// Peers that do not bear SMC's TCP option are listed, with what was seen and for how long connections to
/// them send none; --forget forgets them, or the one with ADDR: the next connection sends it again.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  rsmc why\n  rsmc why 192.0.2.1 --probe 6379\n  rsmc why $(pidof redis-server)\n  rsmc why --forget"
)]
pub struct WhyArgs {
    /// IPv4 or IPv6 address of a peer, or a process id
    #[arg(value_name = "ADDR|PID")]
    pub target: Option<Target>,
    /// Connect to this port of the peer
    #[arg(long, value_name = "PORT", requires = "target", value_parser = clap::value_parser!(u16).range(1..))]
    pub probe: Option<u16>,
    /// Forget the peers that do not bear the option, or this one, and show nothing
    #[arg(long, conflicts_with_all = ["probe", "json"])]
    pub forget: bool,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Subject of `rsmc why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A peer.
    Peer(IpAddr),
    /// A process.
    Process(u32),
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let peer = text.parse().map(Target::Peer).ok();
        let target = peer.or_else(|| text.parse().map(Target::Process).ok());
        target.ok_or_else(|| "neither an address nor a process id".into())
    }
}

/// Watch connections, rates and fallbacks in the terminal
///
/// The busiest connections first, with what they receive and send per second; above them the rates
/// of the namespace and its fallback reasons. Keys: q ends it, space halts and resumes, b r s w t
/// sort by bytes both ways, received, sent, waiting, and time. Seen is the time since `rsmc top` saw the connection first.
///
/// Where the output is no terminal, one picture is printed after one interval. With --json it is an
/// object in a line of its own, wherever the output goes: the connections as `rsmc ss --json` has them
/// with received_per_second, sent_per_second, waiting (bytes) and seen (seconds), and the namespace's
/// rates by counter in per_second.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  rsmc top\n  rsmc top --sort sent --interval 5\n  rsmc top > now.txt\n  \
rsmc top --json --count 10 | jq .per_second"
)]
pub struct TopArgs {
    /// Time between two pictures
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub interval: Duration,
    /// End after N pictures [default: 1 where the output is no terminal, or JSON]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print JSON, a line for each picture
    #[arg(short, long)]
    pub json: bool,
    /// Sort connections by this
    #[arg(long, value_enum, value_name = "BY", default_value = "bytes")]
    pub sort: TopSort,
    /// Numbers, not names: reason codes, user ids
    #[arg(short, long)]
    pub numeric: bool,
}

/// Sort keys of `rsmc top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// bytes per second, both ways
    Bytes,
    /// bytes received per second
    Received,
    /// bytes sent per second
    Sent,
    /// bytes waiting, to be read or sent
    Queue,
    /// the newest connections first
    Time,
}
