// SPDX-License-Identifier: GPL-2.0

//! The conversation with the lab over a serial line.

use crate::barrier::Barriers;
use crate::mounts::Kind;
use crate::run::{self, Job};
use crate::wire;
use rustix::fs::{open, Mode, OFlags};
use rustix::termios::{tcgetattr, tcsetattr, OptionalActions};
use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The sending half of the line, shared by all threads.
#[derive(Clone)]
pub struct Control(Arc<Mutex<File>>);

impl Control {
    /// Sends one message.
    pub fn send(&self, words: &[&str]) {
        let line = format!("{}{}\n", wire::PREFIX, wire::join(words));
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }

    /// Goes on with another open file of the same line.
    fn replace(&self, file: File) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }
}

fn open_control(path: &str) -> Result<File> {
    let fd = open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
        .map_err(|e| Error::new(Error::from(e).kind(), format!("{path}: {e}")))?;
    raw(&fd)?;
    Ok(File::from(fd))
}

fn raw(fd: impl std::os::fd::AsFd) -> Result<()> {
    let mut mode = tcgetattr(&fd)?;
    mode.make_raw();
    tcsetattr(&fd, OptionalActions::Now, &mode)?;
    Ok(())
}

/// Serves until told to power off.
pub fn serve(kind: &Kind) -> Result<()> {
    let mut input = open_control(&kind.control)?;
    let control = Control(Arc::new(Mutex::new(input.try_clone()?)));
    let barriers = Barriers::default();
    let stop = Arc::new(AtomicBool::new(false));
    barriers.listen(control.clone())?;

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    control.send(&["hello", release.trim()]);

    let mut job: Option<std::thread::JoinHandle<()>> = None;
    let mut reader = BufReader::new(input.try_clone()?);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(Error::other("the lab closed the line"));
        }
        let words = wire::split(&line);
        let arg = |n: usize| words.get(n).map_or("", String::as_str);
        match arg(0) {
            "run" => {
                if let Some(job) = job.take() {
                    let _ = job.join();
                }
                run::reap();
                if let Some(next) = parse_run(&words) {
                    let (control, stop) = (control.clone(), stop.clone());
                    stop.store(false, Ordering::SeqCst);
                    job = Some(std::thread::spawn(move || run::run(&next, &control, &stop)));
                }
            }
            "stop" => stop.store(true, Ordering::SeqCst),
            "release" => barriers.release(arg(1), arg(2) == "1"),
            "shell" => {
                let status = shell(&input, &words)?;
                // The end of its session has hung the terminal up.
                input = open_control(&kind.control)?;
                reader = BufReader::new(input.try_clone()?);
                control.replace(input.try_clone()?);
                control.send(&["exit", arg(1), &status.to_string(), ""]);
            }
            "poweroff" => return Ok(()),
            _ => control.send(&["err", &format!("lab-init: unknown message {}", arg(0))]),
        }
    }
}

/// `run ID TIMEOUT NENV K=V… ARG…`
fn parse_run(words: &[String]) -> Option<Job> {
    let number = words.get(3)?.parse::<usize>().ok()?;
    let rest = words.get(4..)?;
    Some(Job {
        id: words.get(1)?.clone(),
        timeout: words.get(2)?.parse().ok()?,
        env: rest.get(..number)?.to_vec(),
        argv: rest.get(number..)?.to_vec(),
    })
}

/// `shell ID ROWS COLS NENV K=V… ARG…`: the line becomes the terminal of an
/// interactive program until that ends.
fn shell(line: &File, words: &[String]) -> Result<i32> {
    let arg = |n: usize| words.get(n).map_or("", String::as_str);
    let number: usize = arg(4).parse().unwrap_or(0);
    let (env, argv) = words
        .get(5..)
        .unwrap_or(&[])
        .split_at_checked(number)
        .unwrap_or((&[], &[]));
    let mut command = Command::new("/usr/bin/setsid");
    command.args(["--ctty", "--wait", "/bin/sh", "-c"]);
    command.arg("stty sane rows \"$1\" cols \"$2\"; shift 2; exec \"$@\"");
    command.args(["sh", arg(2), arg(3)]).args(argv);
    command.stdin(line.try_clone()?);
    command.stdout(line.try_clone()?);
    command.stderr(line.try_clone()?);
    command.env_clear();
    command.env("PATH", "/rsmc/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("HOME", "/root").env("TERM", "xterm");
    for word in env {
        if let Some((key, value)) = word.split_once('=') {
            command.env(key, value);
        }
    }
    let status = command.current_dir("/root").status()?;
    run::sweep();
    Ok(status.code().unwrap_or(255))
}
