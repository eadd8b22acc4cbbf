// SPDX-License-Identifier: GPL-2.0
//! The limit: verbs between two kernels without a socket. `verbs_bench.ko` measures; the two programs
//! here carry what each end must know of the other one over a TCP connection.

use st::args::bail;
use st::family::Ip;
use st::guest::{self, Role};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

const PORT: u16 = 6901;
const KO: &str = "/rsmc/kmod/verbs_bench.ko";
const NUMBERS: &str = "/proc/sys/net/verbs_bench";
/// Numbers that describe an end to the other.
const OWN: [&str; 7] = ["qpn", "psn", "mtu", "rkey", "addr_high", "addr_low", "ipv4"];
/// Values of `step`, as the module has them.
const OFFERED: u32 = 1;
const TOLD: u32 = 2;
const CONNECTED: u32 = 3;
const GO: u32 = 4;

fn read(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("{NUMBERS}/{name}")).ok()?;
    text.trim().parse().ok()
}

fn write(name: &str, value: u32) {
    fs::write(format!("{NUMBERS}/{name}"), value.to_string())
        .unwrap_or_else(|e| bail(&format!("{name}: {e}")));
}

/// The module, which measures while it is loaded.
struct Module(Child);

impl Module {
    fn load(first: bool, scale: u64) -> Module {
        let depends = Command::new("modinfo").args(["-F", "depends", KO]).output();
        let depends = depends.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        for name in depends.unwrap_or_default().trim().split(',') {
            let _ = Command::new("modprobe").arg(name).status();
        }
        let far = if first { "far=1" } else { "far=2" };
        let child = Command::new("insmod")
            .args([KO, far, &format!("scale={scale}")])
            .spawn();
        Module(child.unwrap_or_else(|e| bail(&format!("insmod: {e}"))))
    }

    /// Waits until the module has come to `step`.
    fn until(&mut self, step: u32) {
        while read("step") != Some(step) {
            if let Ok(Some(status)) = self.0.try_wait() {
                bail(&format!("verbs_bench ended before step {step}: {status}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has loaded.
    fn loaded(&mut self) {
        let status = self.0.wait();
        if !status.is_ok_and(|s| s.success()) {
            bail("verbs_bench does not load; see the kernel log");
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = Command::new("rmmod").arg("verbs_bench").status();
    }
}

/// The connection to the other guest's program.
fn control(first: bool) -> TcpStream {
    let done = |r: std::io::Result<TcpStream>| r.unwrap_or_else(|e| bail(&format!("control: {e}")));
    if first {
        guest::barrier("verbs-listen");
        return done(TcpStream::connect(guest::sockaddr(true, Ip::V4, PORT)));
    }
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = TcpListener::bind(any).unwrap_or_else(|e| bail(&format!("control: {e}")));
    guest::barrier("verbs-listen");
    done(listener.accept().map(|(stream, _)| stream))
}

/// Exchanges descriptions with the other end, once it has come as far as we.
fn swap(control: &mut TcpStream, own: &[u32; 7]) -> [u32; 7] {
    let mut bytes = [0; 28];
    for (to, from) in bytes.chunks_exact_mut(4).zip(own) {
        to.copy_from_slice(&from.to_be_bytes());
    }
    let swapped = control
        .write_all(&bytes)
        .and_then(|()| control.read_exact(&mut bytes));
    swapped.unwrap_or_else(|e| bail(&format!("the other guest: {e}")));
    let mut theirs = [0; 7];
    for (to, from) in theirs.iter_mut().zip(bytes.chunks_exact(4)) {
        *to = from.try_into().map_or(0, u32::from_be_bytes);
    }
    theirs
}

/// Measures in both guests; the client prints what was wanted.
pub fn main(role: Role, scale: u64, wants: impl Fn(&str) -> bool) {
    let first = role == Role::Client;
    let mark = format!("verbs: begin {}", std::process::id());
    fs::write("/dev/kmsg", &mark).unwrap_or_else(|e| bail(&format!("/dev/kmsg: {e}")));
    let mut module = Module::load(first, scale);
    let mut control = control(first);
    module.until(OFFERED);
    let own = OWN.map(|name| read(name).unwrap_or(0));
    let theirs = swap(&mut control, &own);
    for (name, value) in OWN.iter().zip(theirs) {
        write(&format!("peer_{name}"), value);
    }
    write("step", TOLD);
    module.until(CONNECTED);
    swap(&mut control, &own);
    if first {
        write("step", GO);
        module.loaded();
        swap(&mut control, &own);
    } else {
        swap(&mut control, &own);
        write("step", GO);
        module.loaded();
        return;
    }
    let log = Command::new("dmesg").output().map(|o| o.stdout);
    let log = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
    let lines = log.lines().skip_while(|line| !line.contains(&mark));
    for line in lines {
        if let Some((_, found)) = line.split_once("verbs_bench: bench ") {
            if wants(found) {
                println!("bench {found}");
            }
        }
    }
}
