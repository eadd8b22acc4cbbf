// SPDX-License-Identifier: GPL-2.0

//! The command that starts a guest under QEMU.

use super::{disk, image, kvm, plain, Spec};
use crate::cache;
use crate::cross;
use crate::kernel::Arch;
use crate::sysroot;
use anyhow::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Means by which QEMU executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualisation that has been seen to work.
    Kvm,
    /// Translation, a thread per virtual CPU.
    Tcg,
    /// Translation, one thread, the clock counting instructions (1 ns each).
    Counting,
}

impl Accelerator {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Accelerator::Kvm => &["-accel", "kvm"],
            Accelerator::Tcg => &["-accel", "tcg,thread=multi"],
            Accelerator::Counting => &["-accel", "tcg", "-icount", "shift=0,sleep=off"],
        }
    }

    /// The guest's processor, and its machine where QEMU takes none by itself.
    fn processor(self, arch: Arch) -> &'static [&'static str] {
        match (arch, self) {
            // With atomic instructions, and without pointer authentication, which is slow to translate.
            (Arch::Arm64, _) => &["-machine", "virt", "-cpu", "neoverse-n1"],
            (_, Accelerator::Kvm) => &["-cpu", "host"],
            // An old processor: what newer ones have makes emulated kernels slower by up to a tenth.
            (_, Accelerator::Tcg) => &["-cpu", "qemu64"],
            (_, Accelerator::Counting) => &["-cpu", "max,-erms,-fsrm"],
        }
    }
}

/// Builds the command; `control` is the guest's end of the control line.
pub fn command(spec: &Spec<'_>, control: &OwnedFd) -> Result<Command> {
    let accelerator = match spec.count {
        true => Accelerator::Counting,
        false if kvm::works(spec.kernel)? => Accelerator::Kvm,
        false => Accelerator::Tcg,
    };
    command_with(spec, control, accelerator)
}

/// The same with a given accelerator.
pub fn command_with(spec: &Spec<'_>, control: &OwnedFd, how: Accelerator) -> Result<Command> {
    let initramfs = initramfs(&spec.name);
    image::initramfs(spec.kernel, &initramfs)?;
    let disks = disk::wanted(spec.kernel);

    let arch = spec.kernel.arch;
    let mut command = program(arch)?;
    command.args(how.arguments()).args(how.processor(arch));
    command.args([
        "-smp",
        &spec.cpus.to_string(),
        "-m",
        &format!("{}M", spec.memory),
    ]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    command.args(["-vga", "none", "-device", "virtio-rng-pci"]);
    command.args([
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
    ]);
    if let Some(plugin) = &spec.plugin {
        command.arg("-plugin").arg(plugin);
    }
    let fd = control.as_raw_fd();
    command.args(["-chardev", &format!("socket,id=control,fd={fd}")]);
    command.args(["-serial", "chardev:control"]);
    if disks {
        attach(&mut command, spec)?;
    } else {
        let root = match &spec.root {
            Some(root) => root.clone(),
            None => cross::root(arch)?,
        };
        share(&mut command, "root", &root)?;
        share(&mut command, "mods", &image::module_dir(spec.kernel))?;
        share(&mut command, "stage", &spec.stage)?;
    }
    let share = if disks { "disk" } else { "9p" };
    let arguments = kernel_arguments(arch, how, share, &spec.cmdline);
    let image = &spec.kernel.image;
    if let Some(firmware) = &spec.firmware {
        firmware.boot(&mut command, image, &initramfs, &arguments)?;
    } else {
        command.arg("-kernel").arg(image);
        command.arg("-initrd").arg(&initramfs);
        command.args(["-append", &arguments]);
    }
    match &spec.link {
        Some(link) => {
            command.args([
                "-netdev",
                &format!("socket,id=link,fd={}", link.as_raw_fd()),
            ]);
            let mac = if spec.name.ends_with('a') { 1 } else { 2 };
            let device = format!("virtio-net-pci,netdev=link,romfile=,mac=52:54:00:77:00:0{mac}");
            command.args(["-device", &device]);
        }
        None => {
            command.args(["-net", "none"]);
        }
    }
    Ok(command)
}

/// Where the initramfs of a guest of this run is.
pub fn initramfs(name: &str) -> PathBuf {
    cache::work().join(format!("initramfs-{name}-{}", std::process::id()))
}

/// Returns the files that are made for a guest of this run alone.
pub fn images(name: &str) -> Vec<PathBuf> {
    let disks = ["root", "mods", "stage"].map(|tag| disk::path(name, tag));
    std::iter::once(initramfs(name)).chain(disks).collect()
}

/// QEMU itself: the host's, or that of the tools for another architecture.
pub fn program(arch: Arch) -> Result<Command> {
    let (mut command, name) = match arch {
        Arch::Arm64 => (cross::sysroot(arch)?.command("env"), "qemu-system-aarch64"),
        Arch::Uml | Arch::X86 => (super::as_root("env"), "qemu-system-x86_64"),
    };
    command.args(super::dies_with_us(name));
    Ok(command)
}

fn kernel_arguments(arch: Arch, how: Accelerator, share: &str, further: &[String]) -> String {
    let line = if arch == Arch::Arm64 {
        "ttyAMA"
    } else {
        "ttyS"
    };
    let (console, control) = (
        format!("console={line}0"),
        format!("rsmc.control=/dev/{line}1"),
    );
    let mut words = vec![
        console.as_str(),
        &control,
        "panic=-1",
        "oops=panic",
        "loglevel=6",
        "net.ifnames=0",
    ];
    if how != Accelerator::Kvm {
        words.push("mitigations=off");
    }
    if how != Accelerator::Kvm && arch == Arch::X86 {
        // Emulated clocks are slow and jumpy: do not let the kernel spend a
        // second on calibrating them, nor distrust them later.
        words.extend(["tsc=reliable", "no_timer_check"]);
    }
    if how == Accelerator::Tcg {
        // The translator can run an instruction that another virtual CPU is just patching as it is
        // in the midst of that. A kernel patches itself all through its boot, so it boots on one;
        // `lab-init` starts the others.
        words.push("maxcpus=1");
    }
    let share = format!("rsmc.share={share}");
    words.push(&share);
    words.extend(further.iter().map(String::as_str));
    words.join(" ")
}

/// Gives the guest its directories as disks, in the order in which `lab-init` knows them.
fn attach(command: &mut Command, spec: &Spec<'_>) -> Result<()> {
    let log = cache::work().join("disk.log");
    let own = |tag: &str, directory: &Path| -> Result<PathBuf> {
        let image = disk::path(&spec.name, tag);
        disk::make(directory, &image, &log)?;
        Ok(image)
    };
    let root = match &spec.root {
        Some(root) => own("root", root)?,
        None => disk::of_sysroot(&sysroot::get()?)?,
    };
    let mods = own("mods", &image::module_dir(spec.kernel))?;
    let stage = own("stage", &spec.stage)?;
    for (tag, image) in [("root", root), ("mods", mods), ("stage", stage)] {
        let path = plain(&image)?;
        command.arg("-drive").arg(format!(
            "file={path},format=raw,if=none,id={tag},readonly=on"
        ));
        command.args([
            "-device",
            &format!("virtio-blk-pci,drive={tag},serial={tag}"),
        ]);
    }
    Ok(())
}

/// Shares a directory read-only under a 9p tag.
fn share(command: &mut Command, tag: &str, path: &Path) -> Result<()> {
    let path = plain(path)?;
    command.arg("-fsdev").arg(format!(
        "local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap"
    ));
    command
        .arg("-device")
        .arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
    Ok(())
}
