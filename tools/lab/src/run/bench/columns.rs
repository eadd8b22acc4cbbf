// SPDX-License-Identifier: GPL-2.0

//! The columns of the table: ways to connect.

use crate::data::Data;
use crate::run::boot::Which;
use anyhow::{bail, Result};

/// Metrics that `verbs.sh` measures.
const VERBS: [&str; 3] = ["bulk_per_KiB", "pingpong_16384", "pingpong_64"];

/// The verbs with one WRITE with immediate for each message.
pub const VERBS_IMM: &str = "verbs imm";

/// TCP over veth, where the other columns are over a card.
pub const OVER_VETH: &str = "TCP veth";

/// Column of a table: the module and the programs at both ends.
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// The module that is loaded.
    pub module: &'static str,
    /// Arguments of the program.
    ends: &'static [&'static str],
    /// Way of running ordinary programs, the arguments of `programs.sh`; none if they are not measured.
    ordinary: &'static [&'static str],
    /// Whether the ends are joined by Ethernet ports of model cards.
    over_port: bool,
}

impl Column {
    /// Tells whether the ends are joined by Ethernet ports of model cards, not by veth.
    pub fn is_over_port(&self) -> bool {
        self.over_port
    }

    /// Programs that measure, with their arguments.
    pub fn programs(&self) -> Vec<Vec<&'static str>> {
        if self.is_verbs() {
            let mut words = vec!["/rsmc/selftests/bench/verbs.sh"];
            words.extend((self.name == VERBS_IMM).then_some("imm"));
            return vec![words];
        }
        let mut found = vec![self.bench()];
        if !self.ordinary.is_empty() {
            let mut words = vec!["/rsmc/selftests/bench/programs.sh"];
            words.extend(self.ordinary);
            found.push(words);
        }
        found
    }

    /// The one of them that has a metric.
    pub fn program_of(&self, metric: &str) -> Vec<&'static str> {
        let ordinary = ["redis", "nginx", "iperf3", "pgbench"];
        let last = ordinary.iter().any(|program| metric.starts_with(program));
        let mut programs = self.programs().into_iter();
        let found = if last {
            programs.next_back()
        } else {
            programs.next()
        };
        found.unwrap_or_default()
    }

    /// Tells whether a kernel module measures, without sockets.
    pub fn is_verbs(&self) -> bool {
        self.ends.is_empty()
    }

    /// Tells whether a metric begins with one of these prefixes (separated by commas; empty fits all).
    pub fn has(&self, only: &str) -> bool {
        let some = |prefix: &str| VERBS.iter().any(|metric| metric.starts_with(prefix));
        !self.is_verbs() || only.split(',').any(some)
    }

    /// Tells whether its sockets are of the family.
    pub fn is_smc(&self) -> bool {
        self.ends.iter().any(|end| ["inet", "smc"].contains(end))
    }

    /// The program for sockets.
    pub fn bench(&self) -> Vec<&'static str> {
        let mut words = self.timed();
        words.push("--counting");
        words
    }

    /// The same by the clock.
    pub fn timed(&self) -> Vec<&'static str> {
        let mut words = vec!["/rsmc/bin/bench"];
        words.extend(self.ends);
        words
    }

    /// Tells whether the figures are rsmc's, which the baseline is about.
    pub fn is_ours(&self) -> bool {
        self.module == "rsmc" && self.is_smc()
    }
}

const fn column(name: &'static str, module: &'static str, ends: &'static [&'static str]) -> Column {
    Column {
        name,
        module,
        ends,
        ordinary: &[],
        over_port: false,
    }
}

const fn with_programs(column: Column, ordinary: &'static [&'static str]) -> Column {
    Column { ordinary, ..column }
}

const fn over_port(column: Column) -> Column {
    Column {
        over_port: true,
        ..column
    }
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
    with_programs(column("TCP", "rsmc", &["tcp"]), &["plain"]),
    column("AF_UNIX", "rsmc", &["unix"]),
    column("verbs", "none", &[]),
    column(VERBS_IMM, "none", &[]),
    with_programs(column("C SMC-R", "smc", &["inet", "--mode", "0"]), &["smc"]),
    with_programs(column("SMC-R", "rsmc", &["inet", "--mode", "0"]), &["smc"]),
    column(
        FIRST,
        "rsmc",
        &[
            "inet",
            "--mode",
            "3",
            "--reason",
            PATHREMOTE,
            "--first=1073741824",
        ],
    ),
    // By default; the devices are software, so they are left to TCP with their first byte.
    column("TCP kept", "rsmc", &["inet", "--mode", "3", "--kept"]),
];

/// The same over model cards and their Ethernet ports, which carry TCP and its handshakes; and TCP over veth, which has no
/// hardware to drive.
const CARD: &[Column] = &[
    over_port(with_programs(column("TCP", "rsmc", &["tcp"]), &["plain"])),
    with_programs(column(OVER_VETH, "rsmc", &["tcp"]), &["plain"]),
    over_port(column("verbs", "none", &[])),
    over_port(column(VERBS_IMM, "none", &[])),
    over_port(with_programs(
        column("C SMC-R", "smc", &["inet", "--mode", "0"]),
        &["smc"],
    )),
    over_port(with_programs(
        column("SMC-R", "rsmc", &["inet", "--mode", "0"]),
        &["smc"],
    )),
    over_port(with_programs(
        column(
            FIRST,
            "rsmc",
            &["inet", "--mode", "3", "--reason", PATHREMOTE, "--first"],
        ),
        &["first"],
    )),
];

/// Connections that begin as TCP: over soft-RoCE they stay so, over cards they move to SMC-R.
const FIRST: &str = "TCP first";
/// Why they are TCP at first.
const PATHREMOTE: &str = "0x03060103";

/// Two processes on one host, without RDMA devices: in one namespace.
const LOCAL: &[Column] = &[
    with_programs(
        column("TCP", "rsmc", &["tcp", PROCESSES, LOOPBACK]),
        &["plain", LOOPBACK],
    ),
    with_programs(
        column("AF_UNIX", "rsmc", &["unix", PROCESSES, LOOPBACK]),
        &["unix", LOOPBACK],
    ),
    column("pipe", "rsmc", &["pipe", PROCESSES, LOOPBACK]),
    column("shared memory", "rsmc", &["shared", PROCESSES, LOOPBACK]),
    column("sockmap", "rsmc", &["sockmap", PROCESSES, LOOPBACK]),
    with_programs(
        column("local", "rsmc", &["inet", "--local=1", PROCESSES, LOOPBACK]),
        &["local", LOOPBACK],
    ),
    with_programs(
        column("C SMC-D", "smc", &["inet", "--mode=2", PROCESSES, LOOPBACK]),
        &["smcd", LOOPBACK],
    ),
];
/// The same between two, joined by veth.
const NAMESPACES: &[Column] = &[
    column("TCP-ns", "rsmc", &["tcp", PROCESSES]),
    column("sockmap-ns", "rsmc", &["sockmap", PROCESSES]),
    column("local-ns", "rsmc", &["inet", "--local=2", PROCESSES]),
];
/// Programs that ask for TCP, by `net.smc.tcp2smc` and rules: untouched; with another namespace that
/// converts; with 500 rules that are not about them; converted; converted by the last of 500 rules.
const CONVERTED: &[Column] = &[
    column("TCP", "rsmc", &["tcp", SOCKETS]),
    column("beside", "rsmc", &["tcp", SOCKETS, "--converted=beside"]),
    column("500 rules", "rsmc", &["tcp", SOCKETS, "--converted=rules"]),
    column("converted", "rsmc", &["tcp", SOCKETS, "--converted=all"]),
    column("by rule 500", "rsmc", &["tcp", SOCKETS, "--converted=last"]),
];
const SOCKETS: &str = "--sockets";
const PROCESSES: &str = "--processes";
const LOOPBACK: &str = "--loopback";

/// The set of columns that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Fallback,
    Rdma,
    /// And, if true, between namespaces.
    Local(bool),
    Converted,
    Card,
}

impl Set {
    /// Its name in the baseline.
    pub fn name(self) -> &'static str {
        match self {
            Set::Fallback => "fallback",
            Set::Rdma => "SMC-R",
            Set::Local(_) => "local",
            Set::Converted => "converted",
            Set::Card => "card",
        }
    }

    /// Times each measurement is taken if nobody says. The last sets are repeated often by hand, and counts on one
    /// processor without a wire hardly differ; but what is `held` is a median.
    pub fn runs(self, held: bool) -> u32 {
        match self {
            Set::Local(_) | Set::Converted | Set::Card if !held => 1,
            _ => 3,
        }
    }

    /// The column that a profile is of if nobody says.
    pub fn ours(self) -> &'static str {
        match self {
            Set::Local(_) => "local",
            Set::Converted => "converted",
            _ => "SMC-R",
        }
    }

    fn columns(self) -> Vec<&'static Column> {
        match self {
            Set::Fallback => FALLBACK.iter().collect(),
            Set::Rdma => RDMA.iter().collect(),
            Set::Local(false) => LOCAL.iter().collect(),
            Set::Converted => CONVERTED.iter().collect(),
            Set::Card => CARD.iter().collect(),
            Set::Local(true) => LOCAL.iter().chain(NAMESPACES).collect(),
        }
    }
}

/// All columns of a set.
#[cfg(test)]
pub fn fitting_set(set: Set) -> Vec<&'static Column> {
    set.columns()
}

/// The columns that make sense on this kernel; `only` some, by their names, separated by commas.
pub fn fitting(which: &Which, set: Set, only: Option<&str>) -> Result<Vec<&'static Column>> {
    let all = set.columns();
    let named = |c: &&Column| {
        let same = |name: &str| c.name.eq_ignore_ascii_case(name);
        only.is_none_or(|only| only.split(',').any(same))
    };
    if !all.iter().any(&named) {
        let names: Vec<&str> = all.iter().map(|c| c.name).collect();
        bail!("no such column; there are: {}", names.join(", "));
    }
    let flavour = Data::get().flavour(&which.kernel)?;
    let in_tree = match set {
        Set::Local(_) => flavour.has_smc_d(),
        _ => flavour.has_smc(),
    };
    let fits = |c: &&Column| match which.module.as_str() {
        "none" => c.name == "TCP",
        // The default.
        "rsmc" => c.module != "smc" || in_tree,
        module => c.module == module,
    };
    let found: Vec<&Column> = all.into_iter().filter(named).filter(fits).collect();
    if found.is_empty() {
        bail!(
            "nothing to measure with the module {} on the kernel {}",
            which.module,
            which.kernel
        );
    }
    Ok(found)
}
