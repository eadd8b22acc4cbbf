// SPDX-License-Identifier: GPL-2.0

//! Booting guests and talking to them.
//!
//! [`Guest`] is one running kernel, [`Cluster`](cluster::Cluster) the one or
//! two of a topology. A guest is reached over two lines: the console, which is
//! logged and searched for kernel reports ([`console`], [`faults`]), and a
//! control line to `lab-init` (`tools/lab/guest`). How a kernel is started is
//! in [`qemu`], [`firmware`] and [`uml`]; what runs in it, and what that means, is not here.

mod barriers;
pub mod cluster;
pub mod console;
pub mod cost;
pub mod cpio;
pub mod disk;
pub mod faults;
pub mod firmware;
pub mod image;
pub mod kvm;
pub mod link;
pub mod pace;
pub mod pin;
pub mod qemu;
pub mod uml;
#[path = "../../guest/wire.rs"]
pub mod wire;

use crate::kernel::{Arch, Kernel};
use anyhow::{bail, Context, Result};
use console::Console;
use firmware::Firmware;
use rustix::io::{fcntl_setfd, FdFlags};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Description of a guest.
pub struct Spec<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Names the guest in logs and messages, for instance `uml-a`.
    pub name: String,
    /// Directory that becomes `/rsmc`.
    pub stage: PathBuf,
    /// The root file system instead of the sysroot (QEMU only).
    pub root: Option<PathBuf>,
    /// Its end of the link of a pair.
    pub link: Option<OwnedFd>,
    /// Virtual CPUs (QEMU only).
    pub cpus: u32,
    /// The processor to run on (user-mode Linux only).
    pub pin: Option<usize>,
    /// Memory in MiB.
    pub memory: u32,
    /// Run QEMU so that the guest's clock counts instructions, 1 ns each.
    pub count: bool,
    /// QEMU's plugin, a file and its arguments.
    pub plugin: Option<PathBuf>,
    /// Boot by this instead of handing the kernel to QEMU.
    pub firmware: Option<Firmware>,
    /// Further words for the kernel's command line (QEMU only).
    pub cmdline: Vec<String>,
    /// Where the console is logged.
    pub log: PathBuf,
}

/// Something a guest said or did.
#[derive(Debug)]
pub enum Event {
    /// `lab-init` runs; the kernel's release.
    Hello(String),
    /// A line of the program's standard output.
    Out(String),
    /// A line of its standard error.
    Err(String),
    /// The program has ended: run id, exit status, and why if it was ended.
    Exit(String, i32, String),
    /// The program waits at a barrier.
    Barrier(String),
    /// Bytes of an interactive program.
    Raw(Vec<u8>),
    /// The guest is gone: panic, power off or killed.
    Dead,
}

/// One running guest.
pub struct Guest {
    /// As in its [`Spec`].
    pub name: String,
    /// Its console.
    pub console: Console,
    child: Child,
    control: File,
    /// What was made for it alone.
    images: Vec<PathBuf>,
}

/// A command, without root inside a user namespace like the sysroot's, so that a guest sees the same owners as
/// everything else does.
fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--map-auto", program]);
    command
}

/// A connected pair of stream sockets, not inherited by children.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

impl Guest {
    /// Starts a guest; its events arrive at `events`, tagged with `index`.
    pub fn start(spec: &Spec<'_>, index: usize, events: Sender<(usize, Event)>) -> Result<Guest> {
        let (ours, theirs) = socket_pair()?;
        let mut command = match spec.kernel.arch {
            Arch::Uml => uml::command(spec, &theirs)?,
            Arch::X86 | Arch::Arm64 => qemu::command(spec, &theirs)?,
        };
        let (console_read, console_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        command
            .stdin(Stdio::null())
            .stdout(console_write.try_clone()?)
            .stderr(console_write)
            .process_group(0);
        let child = spawn(&mut command, &[Some(&theirs), spec.link.as_ref()])
            .with_context(|| format!("cannot start guest {}", spec.name))?;
        // Our copies of the pipe's writing end go with the command, so that
        // the console ends when the guest does.
        drop(command);
        drop(theirs);

        let dead = events.clone();
        let console = Console::new(&spec.log, File::from(console_read), move || {
            let _ = dead.send((index, Event::Dead));
        })?;
        let control = File::from(ours);
        let reader = control.try_clone()?;
        std::thread::spawn(move || read_control(reader, index, &events));
        Ok(Guest {
            name: spec.name.clone(),
            console,
            child,
            control,
            images: qemu::images(&spec.name),
        })
    }

    /// Sends one message to `lab-init`. Errors do not matter here: a guest
    /// that cannot be written to is about to be reported dead.
    pub fn send<S: AsRef<str>>(&mut self, words: &[S]) {
        let _ = self
            .control
            .write_all(format!("{}\n", wire::join(words)).as_bytes());
    }

    /// Sends bytes to an interactive program.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.control.write_all(bytes);
    }

    /// CPU time it has taken so far.
    pub fn cost(&self) -> Duration {
        cost::of_group(self.child.id())
    }

    /// Ends the guest: asks first, then kills.
    pub fn shut_down(&mut self, patience: Duration) {
        self.send(&["poweroff"]);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Kills the guest and everything it consists of.
    pub fn kill(&mut self) {
        use rustix::process::{kill_process_group, Pid, Signal};
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
        for image in &self.images {
            let _ = std::fs::remove_file(image);
        }
    }
}

/// Spawns a command that inherits some file descriptors. One at a time, so
/// that no guest inherits another's.
fn spawn(command: &mut Command, inherited: &[Option<&OwnedFd>]) -> Result<Child> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let set = |flags: FdFlags| -> Result<()> {
        for fd in inherited.iter().flatten() {
            fcntl_setfd(fd.as_fd(), flags)?;
        }
        Ok(())
    };
    set(FdFlags::empty())?;
    let child = command.spawn();
    set(FdFlags::CLOEXEC)?;
    child.with_context(|| command.get_program().to_string_lossy().into_owned())
}

/// Wraps a program so that the guest dies with the lab, however that dies.
/// `sysroot` decides whose `setpriv` it is.
pub fn dies_with_us(program: &str) -> Vec<String> {
    ["setpriv", "--pdeathsig", "KILL", "--", program]
        .map(str::to_owned)
        .into()
}

fn read_control(stream: File, index: usize, events: &Sender<(usize, Event)>) {
    let mut reader = BufReader::new(stream);
    loop {
        // Whole lines are messages; anything else is an interactive program.
        let Ok(buffer) = reader.fill_buf() else {
            return;
        };
        if buffer.is_empty() {
            return;
        }
        let event = if wire::PREFIX
            .as_bytes()
            .starts_with(&buffer[..buffer.len().min(wire::PREFIX.len())])
        {
            let mut line = Vec::new();
            if reader
                .by_ref()
                .take(1 << 16)
                .read_until(b'\n', &mut line)
                .is_err()
            {
                return;
            }
            match parse(&String::from_utf8_lossy(&line)) {
                Some(event) => event,
                None => Event::Raw(line),
            }
        } else {
            // Up to where a message may begin.
            let start = find(buffer, b"@rsmc ")
                .filter(|at| *at > 0)
                .unwrap_or(buffer.len());
            let bytes = buffer[..start].to_vec();
            reader.consume(start);
            Event::Raw(bytes)
        };
        if events.send((index, event)).is_err() {
            return;
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn parse(line: &str) -> Option<Event> {
    let words = wire::split(line.strip_prefix(wire::PREFIX)?);
    let arg = |n: usize| words.get(n).cloned().unwrap_or_default();
    Some(match words.first()?.as_str() {
        "hello" => Event::Hello(arg(1)),
        "out" => Event::Out(arg(1)),
        "err" => Event::Err(arg(1)),
        "exit" => Event::Exit(arg(1), arg(2).parse().unwrap_or(255), arg(3)),
        "barrier" => Event::Barrier(arg(1)),
        _ => return None,
    })
}

/// Checks that a path can be a word on a kernel command line or in an option
/// of QEMU.
pub fn plain(path: &std::path::Path) -> Result<String> {
    let text = path.to_str().unwrap_or_default().to_owned();
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || ",:\"'\\".contains(c)) {
        bail!(
            "cannot use the path {}: it has a space, comma, colon or quote",
            path.display()
        );
    }
    Ok(text)
}
