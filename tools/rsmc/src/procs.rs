// SPDX-License-Identifier: GPL-2.0
//! Which processes hold which sockets, as far as this user may see.

use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command name (`/proc/PID/comm`).
    pub comm: String,
    /// Descriptor.
    pub fd: u32,
}

/// The holders of the sockets with these inodes, found in `/proc`. Processes of other users are
/// left out without a word: ss(8) does the same.
pub fn holders(inodes: &HashSet<u64>) -> HashMap<u64, Vec<Process>> {
    scan(Path::new("/proc"), inodes)
}

/// A file for each network namespace that a process is in, as far as this user may open them.
pub fn network_namespaces() -> Vec<fs::File> {
    let mut seen = HashSet::new();
    let paths = numbered(Path::new("/proc")).map(|(_, directory)| directory.join("ns/net"));
    paths
        .filter(|path| fs::read_link(path).is_ok_and(|name| seen.insert(name)))
        .filter_map(|path| fs::File::open(path).ok())
        .collect()
}

/// The unit of systemd that a process belongs to.
pub fn unit(pid: u32) -> Option<String> {
    unit_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

fn unit_of(cgroups: &str) -> Option<String> {
    let paths = cgroups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        // Version 2, or the hierarchy that systemd has for itself beside others.
        rest.strip_prefix(':')
            .or_else(|| rest.strip_prefix("name=systemd:"))
    });
    let mut units = paths.filter_map(|path| {
        path.split('/')
            .find(|part| part.ends_with(".service") || part.ends_with(".scope"))
    });
    units.next().map(String::from)
}

/// The command name of a process, by its directory.
fn comm(directory: &Path) -> String {
    let comm = fs::read(directory.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_string()
}

fn scan(proc: &Path, inodes: &HashSet<u64>) -> HashMap<u64, Vec<Process>> {
    let mut found: HashMap<u64, Vec<Process>> = HashMap::new();
    if inodes.is_empty() {
        return found;
    }
    for (pid, directory) in numbered(proc) {
        let mut name = None;
        for (fd, link) in numbered(&directory.join("fd")) {
            let Some(inode) = fs::read_link(link)
                .ok()
                .and_then(|target| socket_inode(&target))
            else {
                continue;
            };
            if !inodes.contains(&inode) {
                continue;
            }
            let comm = name.get_or_insert_with(|| comm(&directory));
            found.entry(inode).or_default().push(Process {
                pid,
                comm: comm.clone(),
                fd,
            });
        }
    }
    for holders in found.values_mut() {
        holders.sort_by_key(|process| (process.pid, process.fd));
    }
    found
}

/// Entries of a directory whose names are numbers; none if it cannot be read.
fn numbered(directory: &Path) -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = fs::read_dir(directory).ok().into_iter().flatten();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))
    })
}

fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn links() {
        assert_eq!(socket_inode(Path::new("socket:[123]")), Some(123));
        assert_eq!(socket_inode(Path::new("pipe:[123]")), None);
        assert_eq!(socket_inode(Path::new("socket:[x]")), None);
    }

    #[test]
    fn units() {
        let unit = |text: &str| unit_of(text);
        assert_eq!(
            unit("0::/system.slice/a.service\n").as_deref(),
            Some("a.service")
        );
        assert_eq!(
            unit("3:cpu:/x\n1:name=systemd:/system.slice/b.service/sub\n0::/\n").as_deref(),
            Some("b.service")
        );
        assert_eq!(unit("0::/\n"), None);
    }

    #[test]
    fn this_namespace_is_found() {
        assert!(!network_namespaces().is_empty());
    }

    #[test]
    fn this_process_is_found() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", one.as_raw_fd())).unwrap();
        let inode = socket_inode(&link).unwrap();
        let holders = holders(&HashSet::from([inode]));
        let mine = holders[&inode]
            .iter()
            .find(|process| process.pid == std::process::id());
        assert_eq!(mine.unwrap().fd, one.as_raw_fd() as u32);
        assert!(!mine.unwrap().comm.is_empty());
    }
}
