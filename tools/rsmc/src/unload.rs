// SPDX-License-Identifier: GPL-2.0
//! `rsmc unload`: takes the module out of the kernel, or says which processes keep it there.

use crate::diag;
use crate::error::{Error, Result};
use crate::procs::{self, Process};
use crate::visible;
use rustix::io::Errno;
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;

/// The processes that a line names.
const NAMED: usize = 8;

/// Unloads the module.
///
/// # Errors
/// `NotThere` if it is not loaded; `Table` if something holds it; the kernel's.
pub fn run(out: &mut dyn Write) -> Result<()> {
    if !fs::exists("/sys/module/rsmc/refcnt").unwrap_or(false) {
        return Err(Error::NotThere("the module rsmc is not loaded".into()));
    }
    match rustix::system::delete_module(c"rsmc", Errno::WOULDBLOCK.raw_os_error()) {
        Ok(()) => Ok(writeln!(out, "rsmc is unloaded; new sockets are TCP")?),
        Err(Errno::WOULDBLOCK | Errno::BUSY) => {
            let references = fs::read_to_string("/sys/module/rsmc/refcnt").unwrap_or_default();
            let converts = fs::read_to_string("/proc/sys/net/smc/tcp2smc").unwrap_or_default();
            let converts = !matches!(converts.trim(), "" | "0");
            Err(Error::Table(in_use(
                &holders(),
                references.trim(),
                converts,
            )))
        }
        Err(errno) => Err(Error::Refused("unloading rsmc", errno)),
    }
}

/// The processes with sockets of the module, in all network namespaces that can be entered.
fn holders() -> Vec<Process> {
    let mut inodes: HashSet<u64> = HashSet::new();
    let mut list = || {
        let sockets = diag::dump().unwrap_or_default();
        inodes.extend(sockets.iter().map(|socket| socket.inode));
    };
    // This one's, whatever may be entered. Nothing follows that cares where it happens.
    list();
    for namespace in procs::network_namespaces() {
        let kind = Some(LinkNameSpaceType::Network);
        if move_into_link_name_space(namespace.as_fd(), kind).is_ok() {
            list();
        }
    }
    inodes.remove(&0);
    procs::holders(&inodes).into_values().flatten().collect()
}

/// The line about a module that is in use.
fn in_use(holders: &[Process], references: &str, converts: bool) -> String {
    let mut sockets: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for holder in holders {
        *sockets.entry((holder.pid, &holder.comm)).or_default() += 1;
    }
    let mut named: Vec<String> = sockets
        .iter()
        .take(NAMED)
        .map(|((pid, comm), count)| format!("{} ({pid}, sockets: {count})", visible::text(comm)))
        .collect();
    if sockets.len() > NAMED {
        named.push(format!("{} more processes", sockets.len() - NAMED));
    }
    if named.is_empty() {
        named.push(
            "no process that this user can see: sockets that are closing, or the kernel's own"
                .into(),
        );
    }
    let more = match converts {
        true => "; net.smc.tcp2smc is not 0, so that new sockets join them",
        false => "",
    };
    format!(
        "rsmc is in use ({references} references) by {}{more}",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32, comm: &str, fd: u32) -> Process {
        let comm = comm.into();
        Process { pid, comm, fd }
    }

    #[test]
    fn holders_are_named() {
        let two = [
            holder(7, "redis", 3),
            holder(7, "redis", 4),
            holder(9, "nginx", 5),
        ];
        assert_eq!(
            in_use(&two, "3", true),
            "rsmc is in use (3 references) by redis (7, sockets: 2), nginx (9, sockets: 1); \
             net.smc.tcp2smc is not 0, so that new sockets join them"
        );
        let many: Vec<Process> = (1..=20).map(|pid| holder(pid, "p", 1)).collect();
        assert!(in_use(&many, "20", false).ends_with("p (8, sockets: 1), 12 more processes"));
        let escape = [holder(1, "\x1b[2J\n", 1)];
        assert!(in_use(&escape, "1", false).ends_with(r" by \u001b[2J\u000a (1, sockets: 1)"));
        assert!(in_use(&[], "1", false).contains("no process that this user can see"));
    }
}
