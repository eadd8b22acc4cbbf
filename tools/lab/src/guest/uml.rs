// SPDX-License-Identifier: GPL-2.0

//! The command that starts a user-mode Linux guest.
//!
//! One CPU: SMP dies under load. The kernel is a program linked against the
//! sysroot's C library, so it runs inside the sysroot; its disks are hostfs
//! mounts of directories that have the same path inside as outside.

use super::{image, plain, Spec};
use crate::cache;
use crate::sysroot;
use anyhow::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

/// Builds the command; `control` is the guest's end of the control line.
pub fn command(spec: &Spec<'_>, control: &OwnedFd) -> Result<Command> {
    let boot = cache::work().join("boot-uml");
    image::boot_directory(&boot)?;
    let sysroot = sysroot::get()?;
    let mut command = sysroot.command("env");
    // Guest memory is a file there; nothing else is fast enough.
    command.arg("TMPDIR=/dev/shm");
    if let Some(number) = spec.pin {
        command.args(["taskset", "--cpu-list", &number.to_string()]);
    }
    command.args(super::dies_with_us(&plain(&spec.kernel.image)?));
    command.arg(format!("mem={}M", spec.memory));
    command.args(["root=none", "rootfstype=hostfs", "ro", "init=/init"]);
    command.arg(format!("rootflags={}", plain(&boot)?));
    command.args(["seccomp=on", "con=null", "con0=null,fd:1", "ssl=null"]);
    let fd = control.as_raw_fd();
    command.arg(format!("ssl0=fd:{fd},fd:{fd}"));
    command.args(["panic=-1", "oops=panic", "loglevel=6", "rsmc.share=hostfs"]);
    command.arg(format!("rsmc.root={}", plain(&sysroot.path)?));
    command.arg(format!(
        "rsmc.mods={}",
        plain(&image::module_dir(spec.kernel))?
    ));
    command.arg(format!("rsmc.stage={}", plain(&spec.stage)?));
    if let Some(link) = &spec.link {
        let fd = link.as_raw_fd();
        command.arg(format!("vec0:transport=fd,fd={fd}"));
    }
    Ok(command)
}
