// SPDX-License-Identifier: GPL-2.0
//! Security modules: labels in packets' headers, and a module that refuses a program its calls.

use crate::{mode, prepared, stays, talks, warm, ATTACHED, MODE_FIRST};
use st::bpf;
use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::point::T;
use st::sys;

/// Gives a socket's packets an option in their header, as CIPSO's and CALIPSO's labels are: IPv4's router
/// alert, or hop-by-hop options of padding.
fn label(fd: &Fd, ip: Ip) -> Result<i64, Errno> {
    match ip {
        Ip::V6 => {
            let padding = [0u8, 0, 1, 4, 0, 0, 0, 0];
            sys::setopt_raw(fd.raw(), libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &padding)
        }
        _ => sys::setopt_raw(fd.raw(), libc::IPPROTO_IP, 4, &[0x94, 4, 0, 0]),
    }
}

pub fn label_before(t: &mut T) {
    let ip = t.ip;
    let (c, s) = prepared(t, |fd, _| {
        label(fd, ip).expect("option");
    });
    stays(t, &c, &s);
    t.is("mode", mode(&c), Ok((MODE_FIRST, ATTACHED)));
}

pub fn label_after(t: &mut T) {
    let (c, s) = warm(t);
    t.is("option", label(&c, t.ip), Ok(0));
    stays(t, &c, &s);
}

/// Returns the number of a function in the kernel's own type information.
fn function(name: &str) -> Option<u32> {
    let all = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let word = |at: usize| Some(u32::from_ne_bytes(all.get(at..at + 4)?.try_into().ok()?));
    let header = word(4)? as usize;
    let (types, len) = (header + word(8)? as usize, word(12)? as usize);
    let strings = header + word(16)? as usize;
    let named = |at: usize| all.get(at..)?.split(|b| *b == 0).next();
    let (mut at, mut id) = (types, 1);
    while at < types + len {
        let info = word(at + 4)?;
        let (kind, count) = ((info >> 24) & 31, (info & 0xffff) as usize);
        if kind == 12 && named(strings + word(at)? as usize)? == name.as_bytes() {
            return Some(id);
        }
        // What follows the three words of each type, by its kind.
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                _ => 0,
            };
        id += 1;
    }
    None
}

/// A BPF program as a security module, which forbids this process to send: on a local path as on TCP.
pub fn refusal(t: &mut T) {
    let _ = st::net::sh("mount -t securityfs none /sys/kernel/security");
    let active = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    if !active.split(',').any(|one| one.trim() == "bpf") {
        return t.say(&format!(
            "skip: no BPF among the security modules ({active})"
        ));
    }
    let Some(id) = function("bpf_lsm_socket_sendmsg") else {
        return t.say("skip: the kernel has no type information");
    };
    let (c, s) = warm(t);
    let code = [
        // bpf_get_current_pid_tgid() >> 32 == ours?
        0x0000_000e_0000_0085,
        0x0000_0020_0000_0077,
        0x0000_0000_0001_0055 | (u64::from(std::process::id()) << 32),
        0x0000_0000_0001_0005,
        0x0000_0000_0002_0005,
        // -EPERM
        0xffff_ffff_0000_00b7,
        0x95,
        0x0000_0000_0000_00b7,
        0x95,
    ];
    let link = bpf::lsm(id, &code).expect("a program");
    let refused = Err(Errno(libc::EPERM));
    for fd in [&c, &s] {
        t.is("refused", sys::send(fd.raw(), b"x", 0), refused);
    }
    drop(link);
    // Its end is the kernel's to make.
    sys::sleep_ms(300);
    talks(t, &c, &s);
}
