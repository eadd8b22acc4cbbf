// SPDX-License-Identifier: GPL-2.0
//! The command line of `rsmc run`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

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
  rsmc run --strict -- iperf3 -c 192.0.2.1
  rsmc run --scope -- runuser -u app -- ./static-server",
    after_long_help = "Examples:
  rsmc run -- redis-server --port 7000
  rsmc run --debug -- curl http://server/
  rsmc run --strict -- iperf3 -c 192.0.2.1
  rsmc run --scope -- runuser -u app -- ./static-server

Environment of the command: LD_PRELOAD (the library is added at its end), RSMC_FAMILY, RSMC_STRICT, \
RSMC_DEBUG, RSMC_SNDBUF, RSMC_RCVBUF. Set by hand they do the same as the options.

Exit status: that of COMMAND; 125 if rsmc itself fails, 126 if COMMAND was found but cannot be run \
or not be reached, 127 if it was not found."
)]
pub struct RunArgs {
    /// Kind of SMC socket to ask for [default: inet, or RSMC_FAMILY]
    ///
    /// inet: AF_INET and AF_INET6 with IPPROTO_SMC. Address-family filters of services and
    /// sandboxes see an internet socket. smc: AF_SMC, which also kernels before 6.11 have, and whose
    /// connections never begin as TCP with other hosts.
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
    /// Without a library: by a rule for a cgroup that the command gets
    ///
    /// Reaches static programs, Go, set-user-ID programs and raw system calls too, and needs CAP_NET_ADMIN and cgroups
    /// of version 2. The command runs in a cgroup below that of its caller; the rule is there as long as a process is
    /// in it, listed by `rsmc policy`. net.smc.tcp2smc is made 2 for that time if it is 0 and there are no other rules.
    #[arg(long, conflicts_with_all = ["family", "strict", "debug", "sndbuf", "rcvbuf", "library"])]
    pub scope: bool,
    /// Use this preload library
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = clap::ValueHint::CommandWithArguments,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// Wait for the end of a command of `rsmc run --scope`, and clean up
#[derive(Args, Debug)]
pub struct ScopeEndArgs {
    /// Directory of the command's cgroup
    pub directory: PathBuf,
    /// Path of that cgroup
    pub cgroup: String,
    /// Directory of the cgroup to wait in
    pub home: PathBuf,
    /// net.smc.tcp2smc was 0
    #[arg(long)]
    pub restore: bool,
    /// Go on in a process of its own
    #[arg(long)]
    pub detach: bool,
}

/// Kind of SMC socket `rsmc run` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// AF_INET/AF_INET6 with IPPROTO_SMC
    Inet,
    /// AF_SMC
    Smc,
}

pub(crate) fn buffer_size(text: &str) -> Result<u32, String> {
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
    use crate::cli::{Cli, Command};
    use clap::{CommandFactory, Parser};

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
