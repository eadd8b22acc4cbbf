// SPDX-License-Identifier: GPL-2.0
//! Private network namespaces and the links inside them.

use crate::errno::{cvt, R};
use std::process::{Command, Stdio};

/// Moves the calling thread into a fresh network namespace with loopback up.
pub fn private() -> R<()> {
    // SAFETY: no pointers.
    cvt(i64::from(unsafe { libc::unshare(libc::CLONE_NEWNET) }))?;
    lo_up()
}

/// Brings loopback up.
pub fn lo_up() -> R<()> {
    #[repr(C)]
    struct IfReq {
        name: [u8; 16],
        flags: i16,
        pad: [u8; 22],
    }
    let s = crate::sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut r = IfReq {
        name: [0; 16],
        flags: 0,
        pad: [0; 22],
    };
    r.name[..2].copy_from_slice(b"lo");
    // SAFETY: `IfReq` has the size and layout of `struct ifreq`.
    unsafe {
        cvt(i64::from(libc::ioctl(
            s.raw(),
            libc::SIOCGIFFLAGS as _,
            &mut r,
        )))?;
        r.flags |= libc::IFF_UP as i16;
        cvt(i64::from(libc::ioctl(
            s.raw(),
            libc::SIOCSIFFLAGS as _,
            &mut r,
        )))?;
    }
    Ok(())
}

/// Runs a command line (split at spaces) quietly.
pub fn sh(line: &str) -> Result<(), String> {
    let mut w = line.split_whitespace();
    let prog = w.next().ok_or("empty command")?;
    let o = Command::new(prog)
        .args(w)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{prog}: {e}"))?;
    if o.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&o.stderr).trim()
        ))
    }
}

/// MAC of the kernel's end of the wire made by [`wire`].
pub const MAC_A: [u8; 6] = [2, 0x77, 0, 0, 0, 1];
/// MAC of the other end, which no IP stack serves.
pub const MAC_B: [u8; 6] = [2, 0x77, 0, 0, 0, 2];
/// Addresses of the kernel's end.
pub const A4: [u8; 4] = [10, 77, 0, 1];
/// Address of the end without a stack.
pub const B4: [u8; 4] = [10, 77, 0, 2];
/// As [`A4`].
pub const A6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// As [`B4`].
pub const B6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// In the current namespace: `va` (10.77.0.1, fd77::1) joined to `vb`, which has no address, so
/// that whatever is sent to 10.77.0.2 or fd77::2 reaches `vb` and meets only packet sockets.
/// Without a packet socket it is a black hole.
pub fn wire() -> Result<(), String> {
    let m = |m: [u8; 6]| m.map(|b| format!("{b:02x}")).join(":");
    let (ma, mb) = (m(MAC_A), m(MAC_B));
    for c in [
        format!("ip link add va address {ma} type veth peer name vb address {mb}"),
        "ip link set vb addrgenmode none".into(),
        "ip link set va up".into(),
        "ip link set vb up".into(),
        "ip addr add 10.77.0.1/24 dev va".into(),
        "ip -6 addr add fd77::1/64 dev va nodad".into(),
        format!("ip neigh replace 10.77.0.2 lladdr {mb} dev va nud permanent"),
        format!("ip -6 neigh replace fd77::2 lladdr {mb} dev va nud permanent"),
    ] {
        sh(&c)?;
    }
    Ok(())
}

/// Writes a sysctl such as `net.ipv4.tcp_syncookies` of the current namespace.
pub fn sysctl(name: &str, v: &str) -> Result<(), String> {
    let p = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&p, v).map_err(|e| format!("{p}: {e}"))
}
