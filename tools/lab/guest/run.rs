// SPDX-License-Identifier: GPL-2.0

//! Starting one program, streaming its output, ending it and everything it
//! left behind.

use crate::serve::Control;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program to start.
pub struct Job {
    /// Names the run in messages and in the kernel log.
    pub id: String,
    /// Seconds after which it is killed.
    pub timeout: u64,
    /// `KEY=value` words.
    pub env: Vec<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// The longest line passed on; longer ones are cut, with a note.
const LINE_LIMIT: usize = 4096;

/// Writes a line to the kernel log, and so to the console.
pub fn mark(text: &str) {
    let _ = fs::OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .and_then(|mut kmsg| kmsg.write_all(format!("<5>rsmc-lab: {text}\n").as_bytes()));
}

fn forward(
    verb: &'static str,
    stream: impl Read + Send + 'static,
    control: Control,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader
                .by_ref()
                .take(LINE_LIMIT as u64)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            while matches!(line.last(), Some(b'\n' | b'\r')) {
                line.pop();
            }
            control.send(&[verb, &String::from_utf8_lossy(&line)]);
        }
    })
}

fn status_word(status: ExitStatus) -> (i32, String) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (code, String::new()),
        (None, Some(signal)) => (128 + signal, format!("killed by signal {signal}")),
        (None, None) => (255, "ended strangely".into()),
    }
}

fn environment(job: &Job, command: &mut Command) {
    command.env_clear().envs([
        (
            "PATH",
            "/rsmc/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("HOME", "/root"),
        ("LC_ALL", "C.UTF-8"),
        ("TERM", "dumb"),
    ]);
    for word in &job.env {
        if let Some((key, value)) = word.split_once('=') {
            command.env(key, value);
        }
    }
}

/// Runs a job to its end and reports it. `stop` ends it early.
pub fn run(job: &Job, control: &Control, stop: &Arc<AtomicBool>) {
    mark(&format!("begin {}", job.id));
    let (status, why) = match start(job) {
        Ok(child) => supervise(child, job, control, stop),
        Err(error) => (127, format!("cannot start {}: {error}", job.argv.join(" "))),
    };
    mark(&format!("end {}", job.id));
    control.send(&["exit", &job.id, &status.to_string(), &why]);
}

fn start(job: &Job) -> std::io::Result<Child> {
    let mut argv = job.argv.iter();
    let program = argv.next().map_or("/bin/true", String::as_str);
    let mut command = Command::new(program);
    command
        .args(argv)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir("/tmp")
        .process_group(0);
    environment(job, &mut command);
    command.spawn()
}

fn supervise(mut child: Child, job: &Job, control: &Control, stop: &AtomicBool) -> (i32, String) {
    let mut readers = Vec::new();
    if let Some(stream) = child.stdout.take() {
        readers.push(forward("out", stream, control.clone()));
    }
    if let Some(stream) = child.stderr.take() {
        readers.push(forward("err", stream, control.clone()));
    }
    let deadline = Instant::now() + Duration::from_secs(job.timeout);
    let result = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status_word(status),
            Ok(None) => {}
            Err(error) => break (255, format!("wait: {error}")),
        }
        let stopped = stop.swap(false, Ordering::SeqCst);
        if stopped || Instant::now() > deadline {
            if !stopped {
                stacks(control);
            }
            sweep();
            let _ = child.wait();
            let why = if stopped { "stopped" } else { "timeout" };
            break (124, why.to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Whatever still holds the pipes is killed, so the readers end.
    let left = sweep();
    if left > 0 {
        control.send(&[
            "err",
            &format!("lab: killed {left} processes the program left behind"),
        ]);
    }
    for reader in readers {
        let _ = reader.join();
    }
    result
}

/// Says where every user process is stuck, for the log of a timeout.
fn stacks(control: &Control) {
    for pid in processes() {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let command = read("cmdline").replace('\0', " ");
        control.send(&[
            "err",
            &format!("lab: still running: {pid} {}", command.trim()),
        ]);
        for line in read("stack").lines() {
            control.send(&["err", &format!("lab:   {line}")]);
        }
    }
}

/// The user processes of this guest but ourselves.
fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != 1 && fs::read_link(format!("/proc/{pid}/exe")).is_ok())
        .collect()
}

/// Kills every user process and reaps the orphans; returns how many there
/// were.
pub fn sweep() -> usize {
    let mut killed = std::collections::HashSet::new();
    for _ in 0..200 {
        let pids = processes();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            killed.insert(pid);
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.len()
}

/// Collects orphans that have ended; only while no job's child is waited for.
pub fn reap() {
    use rustix::process::{wait, WaitOptions};
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}
