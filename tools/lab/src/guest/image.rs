// SPDX-License-Identifier: GPL-2.0

//! The first root of a guest: `lab-init`, mount points, and for QEMU the
//! modules without which the real root cannot be mounted. An initramfs for
//! QEMU, a directory for UML. Neither needs privileges.

use super::cpio::Archive;
use super::disk;
use crate::cross;
use crate::kernel::{Arch, Kernel};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where `lab-init` mounts things before there is a real root.
const DIRECTORIES: &[&str] = &["dev", "proc", "sys", "rw", "lower", "new", "modules"];

/// Modules that the real root and the link of a pair need, where they are not built in.
const WANTED: &[&str] = &[
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_net",
    "virtio_rng",
    // Not needed yet, but by every topology, and quicker from here.
    "veth",
    "dummy",
];

/// The same for the disks of a guest without 9p, whose file system is built in.
const DISKS: &[&str] = &["virtio_blk"];

/// The directory of a kernel's modules.
pub fn module_dir(kernel: &Kernel) -> PathBuf {
    kernel.modules.join("lib/modules").join(&kernel.release)
}

/// The modules of `wanted` and what they depend on, in loading order, as paths
/// relative to the kernel's module directory. Names that `modules.dep` does
/// not know are taken for built in.
pub fn closure(modules_dep: &str, wanted: &[&str]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let found = modules_dep
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(path, _)| module_name(path) == *name);
        let Some((path, needs)) = found else { continue };
        // A line lists what must be loaded first, the farthest last.
        for path in needs.split_ascii_whitespace().rev().chain([path]) {
            if !order.iter().any(|known| known == path) {
                order.push(path.to_owned());
            }
        }
    }
    order
}

/// Tells whether a kernel has the module, or has it built in.
pub fn has_module(kernel: &Kernel, name: &str) -> bool {
    let directory = module_dir(kernel);
    ["modules.dep", "modules.builtin"].iter().any(|list| {
        let list = fs::read_to_string(directory.join(list)).unwrap_or_default();
        lists(&list, name)
    })
}

/// Tells whether one of the lines begins with the path of the module.
fn lists(list: &str, name: &str) -> bool {
    list.lines()
        .map(|line| line.split(':').next().unwrap_or(line))
        .any(|path| module_name(path) == name)
}

fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// Writes the initramfs for a kernel to `path`.
pub fn initramfs(kernel: &Kernel, path: &Path) -> Result<()> {
    let mut archive = Archive::default();
    for directory in DIRECTORIES {
        archive.directory(directory)?;
    }
    archive.character_device("dev/console", 5, 1)?;
    archive.character_device("dev/null", 1, 3)?;
    let init = cross::init(kernel.arch)?;
    archive.file(
        "init",
        &fs::read(&init).with_context(|| init.display().to_string())?,
    )?;
    let modules = module_dir(kernel);
    let dep = fs::read_to_string(modules.join("modules.dep")).unwrap_or_default();
    let mut wanted = WANTED.to_vec();
    if disk::wanted(kernel) {
        wanted.extend(DISKS);
    }
    for (number, name) in closure(&dep, &wanted).iter().enumerate() {
        let file = modules.join(name);
        let data = fs::read(&file).with_context(|| file.display().to_string())?;
        let base = name.rsplit('/').next().unwrap_or(name);
        archive.file(&format!("modules/{number:02}-{base}"), &data)?;
    }
    let bytes = archive.finish()?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Makes the directory UML mounts as its first root.
pub fn boot_directory(path: &Path) -> Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for directory in DIRECTORIES {
        fs::create_dir_all(path.join(directory))?;
    }
    let init = path.join("init");
    let program = cross::init(Arch::Uml)?;
    // Replaced, never written to: another run may be executing the old one.
    let fresh = path.join(format!(".init-{}", std::process::id()));
    fs::copy(&program, &fresh).with_context(|| fresh.display().to_string())?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    fs::rename(&fresh, &init).with_context(|| init.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_by_name() {
        let dep = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/net/9p/9p.ko.xz\n";
        let builtin = "kernel/fs/9p/9p.ko\nkernel/drivers/block/virtio-blk.ko\n";
        assert!(lists(dep, "rdma_rxe") && !lists(dep, "9p"));
        assert!(lists(builtin, "9p") && lists(builtin, "virtio_blk"));
        assert!(!lists(builtin, "rdma_rxe") && !lists("", "9p"));
    }

    #[test]
    fn dependencies_come_first() {
        let dep = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                   kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\n\
                   kernel/drivers/net/virtio-net.ko:\n";
        assert_eq!(
            closure(dep, &["9p", "9pnet_virtio", "virtio_net", "absent"]),
            [
                "kernel/fs/netfs/netfs.ko.xz",
                "kernel/net/9p/9pnet.ko.xz",
                "kernel/fs/9p/9p.ko.xz",
                "kernel/net/9p/9pnet_virtio.ko.xz",
                "kernel/drivers/net/virtio-net.ko",
            ]
        );
    }
}
