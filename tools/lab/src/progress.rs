// SPDX-License-Identifier: GPL-2.0

//! Telling people what takes so long.
//!
//! A [`Watch`] stays silent for five seconds. Then, on a terminal, it shows one
//! line with the elapsed time and the latest output; elsewhere it prints such a
//! line every fifteen seconds. [`run`] does that for a command whose output goes
//! to a log file, and turns its failure into one clear line.

use anyhow::{bail, Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const SILENT: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(15);

/// Shows that something long is going on, until dropped.
pub struct Watch {
    what: String,
    start: Instant,
    printed: Cell<Option<Instant>>,
    bar: Option<ProgressBar>,
}

impl Watch {
    /// Starts the clock. `what` is a short phrase like "kernel uml: building".
    pub fn new(what: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(what.to_string());
            bar
        });
        Watch {
            what: what.to_string(),
            start: Instant::now(),
            printed: Cell::new(None),
            bar,
        }
    }

    /// To be called often; `detail` is the latest news and may be empty.
    pub fn tick(&self, detail: &str) {
        if self.start.elapsed() < SILENT {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_message(detail.to_string());
            bar.tick();
            return;
        }
        let due = match self.printed.get() {
            None => true,
            Some(last) => last.elapsed() >= PERIOD,
        };
        if due {
            self.printed.set(Some(Instant::now()));
            let seconds = self.start.elapsed().as_secs();
            eprintln!("{}: {seconds} s {detail}", self.what);
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Prints a line without disturbing the display.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Runs a command with its output appended to `log`, showing progress; its
/// failure is an error, after the end of its output has been shown.
pub fn run(what: &str, command: &mut Command, log: &Path) -> Result<()> {
    let (status, text) = watch(what, command, log)?;
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(25);
    for line in lines.iter().skip(start) {
        eprintln!("    {line}");
    }
    match explain(&text) {
        Some(reason) => bail!("{what}: {reason} (log: {})", log.display()),
        None => bail!("{what}: {status} (log: {})", log.display()),
    }
}

/// Runs a command likewise, but leaves the judgement to the caller, who gets
/// its status and the last 16 KiB of its output.
pub fn watch(what: &str, command: &mut Command, log: &Path) -> Result<(ExitStatus, String)> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let out = File::options().create(true).append(true).open(log);
    let out = out.with_context(|| log.display().to_string())?;
    let from = out.metadata()?.len();
    let watch = Watch::new(what);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    let mut pause = Duration::from_millis(5);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        watch.tick(&last_line(log, from));
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    };
    if watch.elapsed() >= SILENT {
        let verdict = if status.success() { "done" } else { "failed" };
        watch.say(&format!(
            "{what}: {verdict} after {} s",
            watch.elapsed().as_secs()
        ));
    }
    Ok((status, tail(log, from, 16 * 1024)))
}

/// Recognises the usual outside causes in a command's output.
pub fn explain(text: &str) -> Option<String> {
    const CAUSES: [(&str, &str); 9] = [
        (
            "No space left on device",
            "the disk is full: the cache needs 15 GB (RSMC_CACHE moves it)",
        ),
        (
            "Disk quota exceeded",
            "the disk quota is used up (RSMC_CACHE moves the cache)",
        ),
        (
            "Temporary failure resolving",
            "no network: a host name could not be resolved",
        ),
        (
            "Could not resolve",
            "no network: a host name could not be resolved",
        ),
        ("Could not connect", "no network: a connection failed"),
        ("Network is unreachable", "no network: it is unreachable"),
        (
            "Unable to locate package",
            "the archive lacks a package named in lab.toml",
        ),
        (
            "was not found",
            "the archive no longer has a version named in lab.toml",
        ),
        (
            "SSL certificate problem",
            "a TLS certificate was refused: set SSL_CERT_FILE to your CA bundle",
        ),
    ];
    let (sign, reason) = CAUSES.iter().find(|(sign, _)| text.contains(sign))?;
    let line = text
        .lines()
        .find(|line| line.contains(sign))
        .unwrap_or("")
        .trim();
    Some(format!("{reason}: {line}"))
}

fn tail(log: &Path, from: u64, most: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(len.saturating_sub(most))))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn last_line(log: &Path, from: u64) -> String {
    let text = tail(log, from, 512);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("").trim().chars().take(100).collect()
}
