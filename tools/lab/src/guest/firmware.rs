// SPDX-License-Identifier: GPL-2.0

//! Booting as a machine with Secure Boot does: its firmware starts shim, shim starts
//! GRUB, and GRUB the kernel, each only with a signature that the one before accepts.

use super::{plain, qemu};
use crate::kernel::Arch;
use anyhow::{bail, Context, Result};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What a machine with UEFI has that one which is handed its kernel has not.
#[derive(Clone, Debug)]
pub struct Firmware {
    /// The firmware's code, which needs SMM.
    pub code: PathBuf,
    /// Its variables. What the guest changes in them stays.
    pub variables: PathBuf,
    /// The system partition as a directory: shim as `EFI/BOOT/BOOTX64.EFI`, GRUB beside it.
    pub partition: PathBuf,
}

/// Keys to press once a text is on the screen.
pub struct Answer {
    /// The text.
    pub to: &'static str,
    /// The keys, as a terminal sends them.
    pub keys: &'static [&'static str],
}

/// Time that a text may take to appear, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time from a text to the program's being ready for a key, and to the next key.
const PAUSE: Duration = Duration::from_millis(500);

impl Firmware {
    /// Adds a kernel to the partition, and to the command the machine that boots from it.
    pub fn boot(
        &self,
        command: &mut Command,
        kernel: &Path,
        initramfs: &Path,
        arguments: &str,
    ) -> Result<()> {
        let place = |name: &str| self.partition.join(name);
        for (from, to) in [(kernel, "vmlinuz"), (initramfs, "initrd")] {
            fs::copy(from, place(to)).with_context(|| from.display().to_string())?;
        }
        // Debian's GRUB looks for it there, wherever it has been started from.
        fs::create_dir_all(place("EFI/debian"))?;
        fs::write(
            place("EFI/debian/grub.cfg"),
            format!("linux /vmlinuz {arguments}\ninitrd /initrd\nboot\n"),
        )?;
        self.machine(command)
    }

    fn machine(&self, command: &mut Command) -> Result<()> {
        command.args(["-machine", "q35,smm=on"]);
        command.args(["-global", "driver=cfi.pflash01,property=secure,value=on"]);
        let (code, variables) = (plain(&self.code)?, plain(&self.variables)?);
        let partition = plain(&self.partition)?;
        for drive in [
            format!("if=pflash,unit=0,format=raw,readonly=on,file={code}"),
            format!("if=pflash,unit=1,format=raw,file={variables}"),
            format!("if=none,id=esp,format=raw,readonly=on,file=fat:{partition}"),
        ] {
            command.arg("-drive").arg(drive);
        }
        command.args(["-device", "virtio-blk-pci,drive=esp"]);
        Ok(())
    }

    /// Boots and answers what is asked on the screen before a kernel runs; with the last
    /// answer the machine restarts or goes off.
    pub fn answer(&self, answers: &[Answer], log: &Path) -> Result<()> {
        let mut command = qemu::program(Arch::X86)?;
        command.args(["-accel", "tcg", "-m", "512M", "-nodefaults"]);
        command.args(["-no-user-config", "-no-reboot", "-display", "none"]);
        command.args(["-vga", "none", "-net", "none", "-serial", "stdio"]);
        self.machine(&mut command)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut screen = Screen::new(command.spawn().context("qemu")?, log)?;
        for answer in answers {
            screen.wait(answer.to)?;
            for key in answer.keys {
                std::thread::sleep(PAUSE);
                screen.press(key)?;
            }
        }
        screen.wait_end()
    }
}

/// A machine's serial terminal; the machine ends with it.
struct Screen {
    machine: Child,
    output: Receiver<Vec<u8>>,
    /// What has been shown since the last text that was waited for.
    shown: String,
    log: File,
}

impl Screen {
    fn new(mut machine: Child, log: &Path) -> Result<Screen> {
        let output = machine.stdout.take().context("no output")?;
        Ok(Screen {
            machine,
            output: follow(output),
            shown: String::new(),
            log: File::create(log).with_context(|| log.display().to_string())?,
        })
    }

    /// Waits for a text and forgets all up to its end.
    fn wait(&mut self, text: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return Ok(());
            }
            if !self.more(deadline)? {
                bail!("the machine ended instead of showing '{text}'");
            }
        }
    }

    fn wait_end(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.more(deadline)? {}
        let status = self.machine.wait()?;
        if !status.success() {
            bail!("qemu: {status}");
        }
        Ok(())
    }

    /// Reads on; false at the end.
    fn more(&mut self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.output.recv_timeout(left) {
            Ok(bytes) => {
                self.log.write_all(&bytes)?;
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
                Ok(true)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(false),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the screen stays at {:?}", self.shown)
            }
        }
    }

    fn press(&mut self, key: &str) -> Result<()> {
        let stdin = self.machine.stdin.as_mut().context("no input")?;
        stdin.write_all(key.as_bytes())?;
        Ok(stdin.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

fn follow(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            let Some(bytes) = buffer.get(..length) else {
                return;
            };
            if sender.send(bytes.to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
