// SPDX-License-Identifier: GPL-2.0
//! The parts of a report that are files of the kernel.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules worth naming: SMC, and what SMC-R stands on.
const MODULES: [&str; 12] = [
    "rsmc",
    "smc",
    "smc_diag",
    "tcp_diag",
    "inet_diag",
    "rdma_rxe",
    "siw",
    "ib_core",
    "ib_uverbs",
    "mlx5_ib",
    "mlx5_core",
    "erdma",
];
/// Lines of the kernel log with one of these are about SMC, or about RDMA.
const LOG_WORDS: [&str; 7] = ["smc", "rxe", "siw", "infiniband", "rdma", "mlx5", "roce"];

/// One file as it is.
pub fn one(path: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::at(Path::new(path), error))
}

/// Versions of the kernel, the system and this program.
pub fn versions() -> Result<Vec<u8>> {
    let mut text = format!("rsmc {}\n", env!("CARGO_PKG_VERSION"));
    for path in ["/proc/version", "/etc/os-release"] {
        section(&mut text, Path::new(path));
    }
    Ok(text.into_bytes())
}

/// The SMC module and its neighbours.
pub fn module() -> Result<Vec<u8>> {
    let mut text = String::new();
    let loaded = String::from_utf8_lossy(&one("/proc/modules")?).into_owned();
    for line in loaded.lines() {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|name| MODULES.contains(&name)) {
            // Without the address at its end.
            let kept: Vec<&str> = line.split_whitespace().take(5).collect();
            let _ = writeln!(text, "{}", kept.join(" "));
        }
    }
    let protocols = fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    for line in protocols.lines().filter(|line| line.contains("SMC")) {
        let _ = writeln!(text, "{line}");
    }
    for name in ["rsmc", "smc"] {
        let directory = Path::new("/sys/module").join(name);
        for file in ["version", "srcversion", "taint", "refcnt", "initstate"] {
            value(&mut text, &directory.join(file));
        }
        for parameter in entries(&directory.join("parameters")) {
            value(&mut text, &parameter);
        }
    }
    if text.is_empty() {
        text.push_str("No SMC and no RDMA module is loaded.\n");
    }
    if !crate::diag::has_smc_protocol() {
        let _ = writeln!(text, "{}", crate::absent::line());
    }
    Ok(text.into_bytes())
}

/// The sysctls of SMC and those that limit it.
pub fn sysctls() -> Result<Vec<u8>> {
    let mut text = String::new();
    for path in entries(Path::new("/proc/sys/net/smc")) {
        value(&mut text, &path);
    }
    for name in [
        "core/rmem_max",
        "core/wmem_max",
        "core/somaxconn",
        "ipv4/tcp_rmem",
        "ipv4/tcp_wmem",
        "ipv4/tcp_fastopen",
        "ipv4/tcp_keepalive_time",
        "ipv4/ip_forward",
    ] {
        value(&mut text, &Path::new("/proc/sys/net").join(name));
    }
    Ok(text.into_bytes())
}

/// RDMA devices with their ports and the addresses of these.
pub fn rdma() -> Result<Vec<u8>> {
    let mut text = String::new();
    for device in entries(Path::new("/sys/class/infiniband")) {
        for file in ["node_type", "fw_ver", "hca_type", "board_id"] {
            value(&mut text, &device.join(file));
        }
        for port in entries(&device.join("ports")) {
            for file in ["state", "phys_state", "link_layer", "rate"] {
                value(&mut text, &port.join(file));
            }
            for gid in crate::gid::of_port(&port) {
                let _ = writeln!(
                    text,
                    "{}/gids/{}: {} {} {}",
                    port.display(),
                    gid.index,
                    gid.address,
                    gid.kind,
                    gid.interface
                );
            }
        }
    }
    if text.is_empty() {
        text.push_str("There is no RDMA device in this namespace.\n");
    }
    Ok(text.into_bytes())
}

/// Network interfaces.
pub fn interfaces() -> Result<Vec<u8>> {
    let mut text = String::new();
    for interface in entries(Path::new("/sys/class/net")) {
        for file in ["ifindex", "type", "operstate", "mtu", "speed"] {
            value(&mut text, &interface.join(file));
        }
    }
    section(&mut text, Path::new("/proc/net/if_inet6"));
    Ok(text.into_bytes())
}

/// Routes of IPv4 with the own addresses, and those of IPv6.
pub fn routes() -> Result<Vec<u8>> {
    let mut text = String::new();
    for path in [
        "/proc/net/route",
        "/proc/net/fib_trie",
        "/proc/net/ipv6_route",
    ] {
        section(&mut text, Path::new(path));
    }
    Ok(text.into_bytes())
}

/// The kernel log's lines about SMC and RDMA.
pub fn kernel_log() -> Result<Vec<u8>> {
    let path = Path::new("/dev/kmsg");
    let failed = |errno: rustix::io::Errno| Error::at(path, errno.into());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let mut text = String::new();
    let mut buffer = [0u8; 8192];
    loop {
        match rustix::io::read(&log, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
            // Overwritten while it was read: the next one is there again.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Ok(length) => {
                let record = String::from_utf8_lossy(buffer.get(..length).unwrap_or(&[]));
                if let Some(line) = log_line(&record) {
                    let _ = writeln!(text, "{line}");
                }
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    if text.is_empty() {
        text.push_str("The kernel log has no line about SMC or RDMA.\n");
    }
    Ok(text.into_bytes())
}

/// A record (`priority,number,microseconds,flags;text`) as a line, if it is of interest.
fn log_line(record: &str) -> Option<String> {
    let (head, rest) = record.split_once(';')?;
    let message = rest.lines().next()?;
    let lower = message.to_lowercase();
    // The command line may hold what is nobody's business.
    if lower.contains("command line") || !LOG_WORDS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    Some(format!("[{seconds:>5}.{rest:06}] {message}"))
}

/// The entries of a directory in order; none if it is not there.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).ok().into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// A line with a file's path and its only line; nothing for one that cannot be read.
fn value(text: &mut String, path: &Path) {
    if let Ok(content) = fs::read_to_string(path) {
        let _ = writeln!(text, "{}: {}", path.display(), content.trim_end());
    }
}

/// A file under its name.
fn section(text: &mut String, path: &Path) {
    let _ = writeln!(text, "--- {}", path.display());
    match fs::read(path) {
        Ok(content) => text.push_str(&String::from_utf8_lossy(&content)),
        Err(error) => {
            let _ = writeln!(text, "({error})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines() {
        let record = "6,1234,5000123,-;rsmc: loaded\n SUBSYSTEM=module\n";
        assert_eq!(
            log_line(record).as_deref(),
            Some("[    5.000123] rsmc: loaded")
        );
        assert_eq!(log_line("6,1,2,-;usb 1-1: new device\n"), None);
        assert_eq!(log_line("nonsense"), None);
        assert_eq!(log_line("6,1,x,-;smc"), None);
    }

    #[test]
    fn versions_name_the_kernel() {
        let text = String::from_utf8(versions().unwrap()).unwrap();
        assert!(text.contains("--- /proc/version\nLinux version"), "{text}");
    }
}
