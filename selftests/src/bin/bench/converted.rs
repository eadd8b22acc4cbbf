// SPDX-License-Identifier: GPL-2.0
//! The sysctl `tcp2smc` and rules, for programs that ask for TCP: what these cost them.

use crate::place::{End, Place};
use st::args::bail;
use st::family::Family;
use st::{guest, smcinfo, sys};
use std::fmt::Write;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const RULES: usize = 500;

/// What the namespaces of the ends are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// 0, while another namespace has 1.
    Beside,
    /// 2, with rules about other programs, users and control groups.
    Rules,
    /// 1.
    All,
    /// 2, with rules of all kinds, of which the last one allows this program.
    Last,
}

impl Wanted {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "beside" => Some(Self::Beside),
            "rules" => Some(Self::Rules),
            "all" => Some(Self::All),
            "last" => Some(Self::Last),
            _ => None,
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Self::Beside => "0",
            Self::All => "1",
            Self::Rules | Self::Last => "2",
        }
    }

    fn converts(self) -> bool {
        matches!(self, Self::All | Self::Last)
    }

    fn rules(self) -> String {
        let mut text = String::new();
        let kinds = if self == Self::Last { 6 } else { 4 };
        for i in 0..RULES - 1 {
            let _ = match i % kinds {
                0 => writeln!(text, "allow exe=/opt/service-{i}/bin/serve"),
                1 => writeln!(text, "deny comm=batch-{i}"),
                2 => writeln!(text, "allow uid={}", 2000 + i),
                3 => writeln!(text, "deny cgroup=/system.slice/unit-{i}.service"),
                4 => writeln!(text, "deny port={}", 1024 + i),
                _ => writeln!(text, "deny peer=10.{}.{}.0/24", i / 256 + 100, i % 256),
            };
        }
        text.push_str(match self {
            Self::Last => "allow comm=bench*\n",
            _ => "allow comm=other*\n",
        });
        text
    }
}

fn write_mode(mode: &str) {
    std::fs::write("/proc/sys/net/smc/tcp2smc", mode)
        .unwrap_or_else(|e| bail(&format!("net.smc.tcp2smc: {e}")));
}

/// Loads rules into the namespace of the calling task.
fn load(text: &str) {
    let file = std::env::temp_dir().join("bench.policy");
    std::fs::File::create(&file)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .unwrap_or_else(|e| bail(&format!("{}: {e}", file.display())));
    let done = Command::new("/rsmc/bin/rsmc")
        .args(["policy", "load"])
        .arg(&file)
        .stdout(Stdio::null())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        bail("rsmc policy load failed");
    }
}

/// Tells the namespaces of the ends, and proves that sockets are converted, or not.
pub fn set_up(place: &Place, wanted: Wanted) {
    if wanted == Wanted::Beside {
        another_namespace();
    }
    let names: &[&str] = if place.split { &["b", "a"] } else { &[""] };
    for ns in names {
        if place.split {
            guest::enter(ns).expect("setns");
        }
        if wanted.mode() == "2" {
            load(&wanted.rules());
        }
        write_mode(wanted.mode());
        let socket = place.socket(End::Net(Family::Tcp));
        if smcinfo::info(socket.raw()).is_ok() != wanted.converts() {
            bail("net.smc.tcp2smc has not done what it was to do");
        }
    }
}

/// Starts a process with a namespace in which all sockets are converted; it stays until this one ends.
fn another_namespace() {
    let (mut ready, mut told) = UnixStream::pair().expect("socketpair");
    // SAFETY: No other thread runs.
    match unsafe { libc::fork() } {
        -1 => bail("fork"),
        0 => {
            // SAFETY: No pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            drop(ready);
            st::net::private().expect("private network namespace");
            write_mode("1");
            let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("socket");
            if smcinfo::info(socket.raw()).is_err() {
                bail("the other namespace converts nothing");
            }
            let _ = told.write_all(b"1");
            drop(told);
            loop {
                sys::sleep_ms(1 << 30);
            }
        }
        _ => {
            drop(told);
            let mut byte = [0];
            if ready.read_exact(&mut byte).is_err() {
                bail("the other namespace did not come to be");
            }
        }
    }
}
