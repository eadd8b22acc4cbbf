// SPDX-License-Identifier: GPL-2.0

//! Telling people what takes so long.
//!
//! A [`Watch`] stays silent for five seconds. Then, on a terminal, it shows one
//! line with the elapsed time and the latest output; elsewhere it prints such a
//! line every fifteen seconds. [`run`] does that for a command whose output goes
//! to a log file, and turns its failure into one clear line.

use crate::space;
use anyhow::{bail, Context, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const SILENT: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(15);

/// What is shown on a terminal, a line for each of what runs side by side.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Number of things being watched.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

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
            let bar = BARS.add(ProgressBar::new_spinner());
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(what.to_string());
            bar
        });
        WATCHED.fetch_add(1, Relaxed);
        Watch {
            what: what.to_string(),
            start: Instant::now(),
            printed: Cell::new(None),
            bar,
        }
    }

    /// The same in lines of its own, where others write to the terminal meanwhile.
    fn in_lines(what: &str) -> Self {
        let mut watch = Watch::new(what);
        watch.bar = None;
        watch
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
            Some(_) => BARS.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.fetch_sub(1, Relaxed);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Does something that tells nothing of itself; what it watches in turn is shown instead.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    news(what, String::new, work)
}

/// The same with the latest news.
pub fn news<T>(what: &str, latest: impl Fn() -> String + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (working, done) = channel::<()>();
        scope.spawn(move || {
            let watch = Watch::in_lines(what);
            let pause = Duration::from_millis(200);
            while done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if WATCHED.load(Relaxed) == 1 {
                    watch.tick(&latest());
                }
            }
        });
        let result = work();
        drop(working);
        result
    })
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
    match space::full().or_else(|| explain(&text)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that commands print, and the beginning of the line about each: here and in `tools/bootstrap`.
    const FAILURES: [(&str, &str); 6] = [
        (
            "cp: error writing 'x': No space left on device",
            "the disk is full",
        ),
        (
            "W: Failed to fetch http://x  Temporary failure resolving 'x'",
            "no network: ",
        ),
        (
            "E: Failed to fetch http://x  Could not connect to x:80",
            "no network: ",
        ),
        ("connect: Network is unreachable", "no network: "),
        ("E: Unable to locate package nonsense", ""),
        (
            "curl: (60) SSL certificate problem: self-signed",
            "a TLS certificate was refused",
        ),
    ];

    #[test]
    fn usual_failures_become_one_line() {
        for (text, begin) in FAILURES {
            let line = explain(&format!("Get:1 something\n{text}\nmore\n")).unwrap();
            assert!(line.starts_with(begin), "{line}");
            assert!(line.contains(text.trim()), "{line}");
            assert_eq!(line.lines().count(), 1);
        }
        assert_eq!(explain("error[E0308]: mismatched types"), None);
    }

    /// A function of `tools/bootstrap`, with `df` telling `free` KiB.
    fn bootstrap(free: &str, call: &str) -> String {
        let all = include_str!("../../bootstrap");
        let mut script =
            format!("cache=/nowhere\ndf() {{ printf 'x\\nd 1 1 {free} 1%% /\\n'; }}\n");
        for name in ["full", "explain"] {
            let begin = all.find(&format!("\n{name}() {{")).unwrap();
            let end = begin + all[begin..].find("\n}\n").unwrap() + 3;
            script += &all[begin..end];
        }
        let done = Command::new("sh").args(["-c", &(script + call)]).output();
        String::from_utf8_lossy(&done.unwrap().stdout)
            .trim()
            .to_owned()
    }

    #[test]
    fn the_bootstrap_says_the_same() {
        let log = std::env::temp_dir().join(format!("lab-explain-{}", std::process::id()));
        let call = format!("explain {}", log.display());
        for (text, begin) in FAILURES {
            fs::write(&log, format!("Get:1 something\n{text}\nmore\n")).unwrap();
            let line = bootstrap("99999999", &call);
            assert!(line.starts_with(begin) && line != "failed", "{line}");
            assert_eq!(line.lines().count(), 1);
            // A log on the same disk says nothing of it.
            assert!(bootstrap("1000", &call).starts_with("the disk is full: 0 MB are free"));
        }
        fs::write(&log, "something else\n").unwrap();
        assert_eq!(bootstrap("99999999", &call), "failed");
        fs::remove_file(&log).unwrap();
    }
}
