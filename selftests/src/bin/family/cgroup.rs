// SPDX-License-Identifier: GPL-2.0
//! A cgroup whose BPF program refuses every socket, when the kernel has made it already.

use st::cgroup::Hierarchy;
use st::errno::{Errno, R};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::{bpf, child, sys};
use std::os::fd::AsRawFd;

const CGROUP_SOCK: u32 = 9;
const INET_SOCK_CREATE: u32 = 2;

/// A program that refuses: "return 0".
fn program() -> R<Fd> {
    bpf::load(CGROUP_SOCK, INET_SOCK_CREATE, &[0xb7, 0x95])
}

/// Checks that a refused socket leaves its row of `/proc/net/protocols` as it was, and no reference to the module.
pub fn refused(row: &dyn Fn(&str) -> Option<i64>) -> Result<(), String> {
    let all = [
        ("SMC", Family::Smc, Ip::V4),
        ("SMC6", Family::Smc, Ip::V6),
        ("INET_SMC", Family::Inet, Ip::V4),
        ("INET6_SMC", Family::Inet, Ip::V6),
    ];
    let hierarchy = Hierarchy::new()?;
    let cgroup = std::fs::File::open(hierarchy.inside()).map_err(|e| e.to_string())?;
    let program = program().map_err(|e| format!("BPF_PROG_LOAD: {e}"))?;
    bpf::attach(cgroup.as_raw_fd(), &program, INET_SOCK_CREATE)
        .map_err(|e| format!("BPF_PROG_ATTACH: {e}"))?;
    let references = st::smcinfo::references();
    let before = all.map(|(name, ..)| row(name));
    let procs = hierarchy.inside().join("cgroup.procs");
    let (text, end) = child::run(20_000 * st::guest::slow(), |out| {
        use std::io::Write;
        std::fs::write(&procs, "0").expect("cgroup.procs");
        for (name, family, ip) in all {
            let (domain, protocol) = family.triple(ip);
            for _ in 0..5 {
                let made = sys::socket(domain, libc::SOCK_STREAM, protocol);
                if !matches!(made, Err(Errno(libc::EPERM))) {
                    let _ = writeln!(out, "{name}: {:?}", made.map(|_| "made"));
                }
            }
        }
    });
    if end != child::End::Exit(0) || !text.is_empty() {
        return Err(format!("{text}{end:?}"));
    }
    st::smcinfo::settled(references, 5000)?;
    let after = all.map(|(name, ..)| row(name));
    if before != after || before.contains(&None) {
        return Err(format!("rows {before:?} before, {after:?} after"));
    }
    Ok(())
}
