// SPDX-License-Identifier: GPL-2.0
//! Private network namespaces and the links inside them.

use crate::errno::{cvt, R};
use crate::sys;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Values of the sysctls `path` and `path_flip` in what [`private`] makes. Tests are about SMC-R and
/// fallbacks; those about paths say so themselves.
static PATH: AtomicU32 = AtomicU32::new(0);
static FLIP: AtomicU32 = AtomicU32::new(0);

/// Has connections within each namespace that [`private`] makes begin as TCP and leave it. With `--flip
/// N` they change carriers after at most N messages, again and again.
pub fn local_paths(a: &crate::args::Args) {
    PATH.store(1, Relaxed);
    FLIP.store(a.num("flip", 0) as u32, Relaxed);
}

/// In place of a value of `path`: what users find.
const DEFAULT: u32 = u32::MAX;

/// Has [`private`] leave the settings of the namespaces that it makes as users find them.
pub fn default_path() {
    PATH.store(DEFAULT, Relaxed);
}

/// Sets the sysctl `net.smc.path_flip` of the current namespace, unless that is 0.
fn flip(most: u32) -> Result<(), String> {
    match most {
        0 => Ok(()),
        _ => sysctl("net.smc.path_flip", &most.to_string()),
    }
}

/// A counter of the current namespace's TCP, of the lines `TcpExt:` in `/proc/net/netstat`.
pub fn tcp_ext(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").expect("netstat");
    let mut rows = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let mut row = || rows.next().expect("TcpExt").split_whitespace();
    let (names, values) = (row(), row());
    let found = names.zip(values).find(|both| both.0 == name);
    found.expect("counter").1.parse().expect("number")
}

/// Moves the calling thread into a fresh network namespace with loopback up.
pub fn private() -> R<()> {
    // The RDMA core copies its devices into a new namespace, and fails if one is about to go.
    let end = crate::guest::until(1000);
    loop {
        // SAFETY: no pointers.
        match cvt(i64::from(unsafe { libc::unshare(libc::CLONE_NEWNET) })) {
            Err(e) if e.0 == libc::ENODEV && std::time::Instant::now() < end => {
                crate::sys::sleep_ms(10);
            }
            Err(e) => return Err(e),
            Ok(_) => {
                match PATH.load(Relaxed) {
                    DEFAULT => (),
                    value => drop(crate::path::set(value)),
                }
                let _ = flip(FLIP.load(Relaxed));
                return lo_up();
            }
        }
    }
}

/// Sends a byte in each direction, and another one back: both ends of a connection that may leave TCP
/// know each other then, and both directions have left it.
///
/// # Errors
///
/// The kernel's.
pub fn warm(a: i32, b: i32) -> R<()> {
    for (from, to) in [(a, b), (b, a), (a, b)] {
        crate::sys::send(from, b"w", 0)?;
        crate::sys::recv_vec(to, 1, libc::MSG_WAITALL)?;
    }
    // TCP acknowledges the last one after a while.
    crate::sys::sleep_ms(60);
    Ok(())
}

#[repr(C)]
struct IfReq {
    name: [u8; 16],
    flags: i16,
    pad: [u8; 22],
}

/// Asks for or sets a device's flags, as `request` says.
fn flags(request: libc::c_ulong, device: &str, flags: i16) -> R<i16> {
    let s = crate::sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut r = IfReq {
        name: [0; 16],
        flags,
        pad: [0; 22],
    };
    r.name[..device.len()].copy_from_slice(device.as_bytes());
    // SAFETY: `IfReq` has the size and layout of `struct ifreq`.
    cvt(i64::from(unsafe {
        libc::ioctl(s.raw(), request as _, &mut r)
    }))?;
    Ok(r.flags)
}

/// Sets a device up or down.
///
/// # Errors
///
/// The kernel's.
pub fn link(device: &str, up: bool) -> R<()> {
    let now = flags(libc::SIOCGIFFLAGS as _, device, 0)?;
    let wanted = match up {
        true => now | libc::IFF_UP as i16,
        false => now & !(libc::IFF_UP as i16),
    };
    flags(libc::SIOCSIFFLAGS as _, device, wanted)?;
    Ok(())
}

/// Returns whether a device is up and its queues take packets, which a worker of the kernel sees to.
///
/// # Errors
///
/// The kernel's.
pub fn runs(device: &str) -> R<bool> {
    let now = flags(libc::SIOCGIFFLAGS as _, device, 0)?;
    Ok(now & libc::IFF_RUNNING as i16 != 0)
}

/// Brings loopback up.
pub fn lo_up() -> R<()> {
    link("lo", true)
}

/// Returns whether the current namespace has a device of this name.
pub fn has(device: &str) -> bool {
    flags(libc::SIOCGIFFLAGS as _, device, 0).is_ok()
}

/// Waits for what workers of the kernel do after a command.
fn soon(what: &str, done: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..5000 * crate::guest::slow() {
        if done() {
            return Ok(());
        }
        crate::sys::sleep_ms(1);
    }
    Err(format!("waited in vain until {what}"))
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

/// Removes an RDMA device, within `seconds`.
///
/// `rdma` looks the name up in a dump of all devices, and the kernel goes on with a dump by
/// position: a device before it that goes meanwhile hides one. So it is asked again if the
/// device is there all the same.
pub fn rdma_delete(device: &str, seconds: u64) -> Result<(), String> {
    let line = format!("timeout {seconds} rdma link delete {device}");
    let entry = format!("/sys/class/infiniband/{device}");
    for _ in 0..20 {
        match sh(&line) {
            Err(e) if e.contains("Wrong device name") && Path::new(&entry).exists() => {
                println!("# {e}, but {entry} is there: once more");
                sys::sleep_ms(20);
            }
            ended => return ended,
        }
    }
    sh(&line)
}

/// Runs several commands of `ip`, one a line, in one process: starting one is
/// most of what a command costs. Ends at the first that fails.
pub fn ip(lines: &str) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("ip -batch: {e}");
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).map_err(fail)?;
    }
    let o = child.wait_with_output().map_err(fail)?;
    match o.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&o.stderr).trim().to_owned()),
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
/// that whatever is sent to 10.77.0.2, fd77::2 or the same with 3 reaches `vb` and meets only packet
/// sockets. Without a packet socket it is a black hole.
pub fn wire() -> Result<(), String> {
    // A closed connection of which nobody acknowledges the end holds its namespace for minutes, and
    // each namespace there is makes the next device of soft-RoCE dearer.
    sysctl("net.ipv4.tcp_orphan_retries", "1")?;
    let m = |m: [u8; 6]| m.map(|b| format!("{b:02x}")).join(":");
    let (ma, mb) = (m(MAC_A), m(MAC_B));
    ip(&format!(
        "link add va address {ma} type veth peer name vb address {mb}
         link set vb addrgenmode none
         link set va up
         link set vb up
         addr add 10.77.0.1/24 dev va
         addr add fd77::1/64 dev va nodad
         neigh replace 10.77.0.2 lladdr {mb} dev va nud permanent
         neigh replace fd77::2 lladdr {mb} dev va nud permanent
         neigh replace 10.77.0.3 lladdr {mb} dev va nud permanent
         neigh replace fd77::3 lladdr {mb} dev va nud permanent
"
    ))?;
    for device in ["va", "vb"] {
        soon(&format!("{device} runs"), || runs(device).unwrap_or(false))?;
    }
    soon("fd77::1 is local", || {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route");
        routes.is_ok_and(|all| all.contains("fd770000000000000000000000000001 80 "))
    })
}

/// Puts a soft-RoCE device on the current namespace's loopback and waits until its port has both
/// addresses. It goes with the namespace. Returns its name.
pub fn roce_on_loopback() -> Result<String, String> {
    // SAFETY: No pointers.
    let name = format!("rxl{}", unsafe { libc::gettid() });
    sh(&format!("rdma link add {name} type rxe netdev lo"))?;
    let gids = format!("/sys/class/infiniband/{name}/ports/1/gids");
    let has = |wanted: &str| {
        (0..8).any(|i| {
            let gid = std::fs::read_to_string(format!("{gids}/{i}"));
            gid.is_ok_and(|gid| gid.trim() == wanted)
        })
    };
    soon(&format!("{name} has addresses"), || {
        has("0000:0000:0000:0000:0000:ffff:7f00:0001")
            && has("0000:0000:0000:0000:0000:0000:0000:0001")
    })?;
    Ok(name)
}

/// Writes a sysctl such as `net.ipv4.tcp_syncookies` of the current namespace.
pub fn sysctl(name: &str, v: &str) -> Result<(), String> {
    let p = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&p, v).map_err(|e| format!("{p}: {e}"))
}
