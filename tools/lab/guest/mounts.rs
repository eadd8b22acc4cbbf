// SPDX-License-Identifier: GPL-2.0

//! From the first root (an initramfs, or a read-only hostfs directory) to the
//! guest's real one: the sysroot, read-only, under an overlay on tmpfs, with
//! the kernel's modules and `/rsmc` mounted in it.

use rustix::fs::{chmod, Mode};
use rustix::mount::{mount, mount_move, MountFlags};
use rustix::process::{chdir, chroot};
use rustix::system::{finit_module, RebootCommand};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::Path;

/// Means by which the host's directories reach this guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// UML: paths of the machine it runs on.
    HostFs,
    /// QEMU: 9p tags.
    NineP,
    /// QEMU: disks with ext4, for a kernel without 9p.
    Disk,
}

/// Settings from the kernel's command line.
pub struct Kind {
    share: Share,
    /// The serial device the lab talks on.
    pub control: String,
}

/// Adds what was being done to an error.
fn at<T>(what: &str, result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|e| {
        let e = Error::from(e);
        Error::new(e.kind(), format!("{what}: {e}"))
    })
}

fn mount_at(source: &str, target: &str, kind: &str, flags: MountFlags, data: &str) -> Result<()> {
    let data = CString::new(data)?;
    let data: Option<&CStr> = if data.is_empty() { None } else { Some(&data) };
    at(
        &format!("mount {kind} {source} on {target}"),
        mount(source, target, kind, flags, data),
    )
}

/// The value of `rsmc.KEY=` on the kernel's command line.
fn word(cmdline: &str, key: &str) -> Option<String> {
    let prefix = format!("rsmc.{key}=");
    cmdline
        .split_ascii_whitespace()
        .find_map(|w| w.strip_prefix(&prefix))
        .map(str::to_owned)
}

/// The disk of a tag; the lab attaches them in this order.
fn disk(tag: &str) -> Result<&'static str> {
    match tag {
        "root" => Ok("/dev/vda"),
        "mods" => Ok("/dev/vdb"),
        "stage" => Ok("/dev/vdc"),
        _ => Err(Error::other(format!("there is no disk '{tag}'"))),
    }
}

fn share(kind: Share, source: &str, target: &str) -> Result<()> {
    let flags = MountFlags::RDONLY;
    match kind {
        Share::HostFs => mount_at("none", target, "hostfs", flags, source),
        Share::NineP => {
            let data = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";
            mount_at(source, target, "9p", flags, data)
        }
        Share::Disk => mount_at(disk(source)?, target, "ext4", flags, ""),
    }
}

/// Loads the modules the first root carries, in the order of their names.
fn load_modules() -> Result<()> {
    let Ok(entries) = fs::read_dir("/modules") else {
        return Ok(());
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // 4 is MODULE_INIT_COMPRESSED_FILE.
        let compressed = path.extension().is_some_and(|ext| ext != "ko");
        let flags = if compressed { 4 } else { 0 };
        let what = format!("load {}", path.display());
        at(&what, finit_module(&File::open(&path)?, c"", flags))?;
    }
    Ok(())
}

/// Makes an overlay of `lower` at `target`, its changes below `/rw/NAME`.
fn overlay(lower: &str, name: &str, target: &str) -> Result<()> {
    let (upper, work) = (format!("/rw/{name}/upper"), format!("/rw/{name}/work"));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    let data = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    mount_at("overlay", target, "overlay", MountFlags::empty(), &data)
}

/// Builds the guest's root and changes into it.
pub fn set_up() -> Result<Kind> {
    let none = MountFlags::empty();
    mount_at("proc", "/proc", "proc", none, "")?;
    let cmdline = fs::read_to_string("/proc/cmdline")?;
    let by = match word(&cmdline, "share").as_deref() {
        Some("hostfs") => Share::HostFs,
        Some("disk") => {
            mount_at("devtmpfs", "/dev", "devtmpfs", none, "")?;
            Share::Disk
        }
        _ => Share::NineP,
    };
    let control = word(&cmdline, "control").unwrap_or_else(|| "/dev/ttyS0".into());
    let kind = Kind { share: by, control };
    load_modules()?;

    let get = |key: &str| word(&cmdline, key).unwrap_or_else(|| key.to_owned());
    mount_at("tmpfs", "/rw", "tmpfs", none, "mode=0755,size=80%")?;
    share(kind.share, &get("root"), "/lower")?;
    overlay("/lower", "root", "/new")?;

    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let modules = format!("/new/usr/lib/modules/{}", release.trim());
    fs::create_dir_all(&modules)?;
    fs::create_dir_all("/new/rsmc")?;
    fs::create_dir_all("/rw/mods")?;
    share(kind.share, &get("mods"), "/rw/mods")?;
    overlay("/rw/mods", "mods-changes", &modules)?;
    share(kind.share, &get("stage"), "/new/rsmc")?;

    for (source, target, data) in [
        ("devtmpfs", "dev", "mode=0755"),
        ("tmpfs", "run", "mode=0755"),
        ("tmpfs", "tmp", "mode=1777"),
        ("sysfs", "sys", ""),
    ] {
        mount_at(source, &format!("/new/{target}"), source, none, data)?;
    }
    fs::create_dir_all("/new/dev/pts")?;
    fs::create_dir_all("/new/dev/shm")?;
    mount_at(
        "devpts",
        "/new/dev/pts",
        "devpts",
        none,
        "gid=5,mode=620,ptmxmode=666",
    )?;
    mount_at("tmpfs", "/new/dev/shm", "tmpfs", none, "mode=1777")?;
    // Not every kernel has these.
    for (source, target) in [("debugfs", "debug"), ("tracefs", "tracing")] {
        let _ = mount_at(
            source,
            &format!("/new/sys/kernel/{target}"),
            source,
            none,
            "",
        );
    }

    at("move /proc", mount_move("/proc", "/new/proc"))?;
    at("enter /new", chdir("/new"))?;
    at("move the root", mount_move("/new", "/"))?;
    at("chroot", chroot("."))?;
    at("enter /", chdir("/"))?;

    at("chmod /tmp", chmod("/tmp", Mode::from_raw_mode(0o1777)))?;
    links()?;
    start_processors()?;
    let _ = fs::write("/proc/sys/kernel/printk", "8");
    Ok(kind)
}

/// The small files a distribution's init would have made.
fn links() -> Result<()> {
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        if !Path::new(link).exists() {
            std::os::unix::fs::symlink(target, link)?;
        }
    }
    let _ = fs::write(
        "/etc/hosts",
        "127.0.0.1 localhost\n::1 localhost\n10.77.0.1 a\n10.77.0.2 b\n",
    );
    let _ = fs::write("/etc/resolv.conf", "");
    let _ = fs::write("/proc/sys/kernel/hostname", "guest");
    Ok(())
}

/// Starts the processors that the kernel's command line kept it from starting.
fn start_processors() -> Result<()> {
    // The kernel without SMP has no such directory, and the first processor no such file.
    for entry in fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
    {
        let online = entry?.path().join("online");
        if fs::read_to_string(&online).is_ok_and(|text| text.trim() == "0") {
            fs::write(&online, "1")
                .map_err(|e| Error::new(e.kind(), format!("start {}: {e}", online.display())))?;
        }
    }
    Ok(())
}

/// Ends the guest.
pub fn power_off() {
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
}
