// SPDX-License-Identifier: GPL-2.0
//! `rsmc policy test`: what would happen to a socket, and which rule says so.

use super::rule::{conditions, mapped, user, verdict_text};
use super::wire::{self, attribute, command, rule};
use super::{collect, family};
use crate::cli::PolicyTest;
use crate::error::{Error, Result};
use crate::netlink::wire::{Attributes, NLM_F_ACK};
use crate::visible;
use rustix::io::Errno;
use serde::Serialize;
use smc_proto::policy::{Network, Range};
use std::io::Write;
use std::path::Path;

/// What is known about the socket's process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    exe: Option<String>,
    comm: Option<String>,
    cgroup: Option<String>,
    uid: Option<u32>,
}

/// An answer as `--json` prints it. The names are an interface.
#[derive(Serialize)]
pub(crate) struct Answer {
    tcp2smc: u64,
    pub(crate) smc: bool,
    /// More rules may match once port and peer are known.
    open: bool,
    rule: Option<u64>,
    pub(crate) text: String,
}

/// Says what would happen to a socket.
///
/// # Errors
/// `NotThere` without the netlink family or the process, `Usage` for a user that there is not, or the
/// kernel's.
pub(super) fn run(socket: &PolicyTest, out: &mut dyn Write) -> Result<()> {
    let answer = ask(socket)?;
    if socket.json {
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", visible::text(&answer.text))?;
    }
    Ok(())
}

/// Asks the kernel about a socket.
///
/// # Errors
/// As [`run`].
pub(crate) fn ask(socket: &PolicyTest) -> Result<Answer> {
    let facts = facts(socket)?;
    let mut family = family()?;
    let request = family
        .command(command::TEST, NLM_F_ACK)
        .nest(attribute::FACTS, &facts);
    let bodies = family.ask("asking about a socket", &request)?;
    let body = bodies.first().ok_or(Error::Malformed("no answer"))?;
    let (mut mode, mut smc, mut open, mut id) = (0, false, false, None);
    for attribute in body.attributes()? {
        let number = attribute.number().unwrap_or(0);
        match attribute.kind {
            attribute::MODE => mode = number,
            attribute::ALLOWED => smc = number != 0,
            attribute::OPEN => open = number != 0,
            attribute::ID => id = Some(number),
            _ => {}
        }
    }
    Ok(Answer {
        tcp2smc: mode,
        smc,
        open,
        rule: id,
        text: words(mode, smc, open, id)?,
    })
}

fn words(mode: u64, smc: bool, open: bool, id: Option<u64>) -> Result<String> {
    let becomes = if smc { "SMC" } else { "TCP" };
    let because = match (mode, id) {
        (0, _) => "net.smc.tcp2smc is 0, so no TCP socket is changed".into(),
        (1, _) if smc => "net.smc.tcp2smc is 1, so every TCP socket is".into(),
        (_, Some(id)) => {
            let rules = collect()?;
            let found = rules.iter().find(|listed| u64::from(listed.id) == id);
            let line = found.map_or(String::new(), |listed| {
                let text = conditions(&listed.rule);
                format!(": {} {text}", verdict_text(listed.rule.verdict))
            });
            format!("rule {id}{}", line.trim_end())
        }
        (_, None) => format!("no rule matches, and net.smc.tcp2smc is {mode}"),
    };
    let later = match open {
        true => {
            "; rules about ports or peers before that may decide otherwise once these are known"
        }
        false => "",
    };
    Ok(format!("{becomes}: {because}{later}"))
}

fn facts(socket: &PolicyTest) -> Result<Attributes> {
    let mut process = match socket.pid {
        Some(pid) => of_process(Path::new("/proc"), pid)?,
        None => Process::default(),
    };
    if let Some(exe) = &socket.exe {
        if socket.pid.is_none() {
            process.comm = exe
                .rsplit('/')
                .next()
                .map(|name| name.chars().take(15).collect());
        }
        process.exe = Some(exe.clone());
    }
    process.comm = socket.comm.clone().or(process.comm);
    process.cgroup = socket.cgroup.clone().or(process.cgroup);
    if let Some(name) = &socket.uid {
        process.uid = Some(user(name)?);
    }
    let mut all = Attributes::default();
    for (kind, text) in [
        (rule::EXE, process.exe),
        (rule::COMM, process.comm),
        (rule::CGROUP, process.cgroup),
    ] {
        if let Some(text) = text {
            all = all.text(kind, &text);
        }
    }
    if let Some(uid) = process.uid {
        all = all.attribute(rule::UID, &uid.to_ne_bytes());
    }
    let only = |port| Range {
        first: port,
        last: port,
    };
    if let Some(port) = socket.port {
        all = all.attribute(rule::PORT, &wire::ports(only(port)));
    }
    if let Some(peer) = socket.peer {
        if let Some(network) = Network::new(mapped(peer), 128) {
            all = all
                .attribute(rule::PEER, &wire::peer(network))
                .attribute(rule::PEER_PORT, &wire::ports(only(socket.peer_port)));
        }
    }
    if socket.mptcp {
        all = all.attribute(rule::MPTCP, &[1]);
    }
    Ok(all)
}

/// Reads what `/proc` tells about a process; `proc` is where that is.
fn of_process(proc: &Path, pid: u32) -> Result<Process> {
    let at = proc.join(pid.to_string());
    let status = std::fs::read_to_string(at.join("status")).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Error::NotThere(format!("there is no process {pid}")),
            _ => Error::at(&at.join("status"), error),
        }
    })?;
    let cgroups = std::fs::read_to_string(at.join("cgroup")).unwrap_or_default();
    // Real, effective, saved, of the file system.
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let exe = std::fs::read_link(at.join("exe")).ok();
    let exe = exe.map(|path| {
        path.to_string_lossy()
            .trim_end_matches(" (deleted)")
            .to_string()
    });
    Ok(Process {
        exe,
        comm: std::fs::read_to_string(at.join("comm"))
            .ok()
            .map(|name| name.trim_end_matches('\n').into()),
        cgroup: cgroups
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .map(Into::into),
        uid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_as_the_kernel_sees_it() {
        let me = of_process(Path::new("/proc"), std::process::id()).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(me.exe.as_deref(), exe.to_str());
        assert_eq!(me.uid, Some(rustix::process::geteuid().as_raw()));
        assert!(matches!(
            of_process(Path::new("/nowhere"), 1),
            Err(Error::NotThere(_))
        ));
    }
}
