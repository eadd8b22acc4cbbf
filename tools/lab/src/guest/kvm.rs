// SPDX-License-Identifier: GPL-2.0

//! Finds out whether KVM really works here.
//!
//! `/dev/kvm` may exist, open, create VMs and still be useless (a nested,
//! emulating KVM that hangs on the first newer instruction). Only a guest that
//! boots proves it, so one is booted for a few seconds, once per machine: the
//! answer is kept in the cache under the name of its CPU and host kernel.

use super::qemu::{command_with, Accelerator};
use super::{socket_pair, spawn, Spec};
use crate::cache::{self, Key};
use crate::kernel::Kernel;
use crate::progress::Watch;
use anyhow::Result;
use rustix::event::{poll, PollFd, PollFlags};
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Real KVM needs two seconds from start to `lab-init`.
const PATIENCE: Duration = Duration::from_secs(10);

/// True if guests are to be run by KVM. `RSMC_KVM=0` or `=1` overrides.
pub fn works(kernel: &Kernel) -> Result<bool> {
    if kernel.arch.foreign().is_some() {
        return Ok(false);
    }
    match std::env::var("RSMC_KVM").as_deref() {
        Ok("0") => return Ok(false),
        Ok("1") => return Ok(true),
        _ => {}
    }
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(false);
    }
    let answer = answer_file();
    if let Ok(text) = fs::read_to_string(&answer) {
        return Ok(text.trim() == "works");
    }
    let _lock = cache::lock("kvm-probe")?;
    if let Ok(text) = fs::read_to_string(&answer) {
        return Ok(text.trim() == "works");
    }
    let works = probe(kernel)?;
    eprintln!(
        "lab: KVM {} on this machine",
        if works { "works" } else { "does not work" }
    );
    fs::write(&answer, if works { "works\n" } else { "fails\n" })?;
    Ok(works)
}

/// One file per CPU model, host kernel and kind of virtual machine.
fn answer_file() -> PathBuf {
    let mut key = Key::new();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    for line in first
        .lines()
        .filter(|line| line.starts_with("model name") || line.starts_with("flags"))
    {
        key.add("cpu", line.as_bytes());
    }
    for path in [
        "/proc/sys/kernel/osrelease",
        "/sys/class/dmi/id/product_name",
    ] {
        key.add(path, &fs::read(path).unwrap_or_default());
    }
    cache::root().join(format!("kvm-{}", key.short()))
}

fn probe(kernel: &Kernel) -> Result<bool> {
    let stage = cache::work().join("kvm-probe");
    fs::create_dir_all(&stage)?;
    let (ours, theirs) = socket_pair()?;
    let spec = Spec {
        kernel,
        name: "kvm-probe".into(),
        stage: stage.clone(),
        root: None,
        link: None,
        cpus: 2,
        pin: None,
        memory: 512,
        count: false,
        plugin: None,
        firmware: None,
        cmdline: Vec::new(),
        log: stage.join("log"),
    };
    let mut command = command_with(&spec, &theirs, Accelerator::Kvm)?;
    command.stdin(Stdio::null());
    command
        .stdout(File::create(&spec.log)?)
        .stderr(Stdio::null());
    let mut child = spawn(&mut command, &[Some(&theirs)])?;
    drop(theirs);
    let works = greets(&mut File::from(ours), &mut child);
    let _ = child.kill();
    let _ = child.wait();
    let _ = fs::remove_file(super::qemu::initramfs(&spec.name));
    Ok(works)
}

/// Waits for the first message of `lab-init`.
fn greets(control: &mut File, child: &mut std::process::Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let watch = Watch::new("trying KVM once on this machine");
    let mut text = Vec::new();
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        watch.tick("");
        let tick = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut fds = [PollFd::new(control, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&tick)), Ok(1)) {
            continue;
        }
        let mut buffer = [0; 256];
        match control.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(length) => text.extend_from_slice(buffer.get(..length).unwrap_or_default()),
        }
        if text.windows(6).any(|window| window == b"hello ") {
            return true;
        }
    }
    false
}
