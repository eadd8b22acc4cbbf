// SPDX-License-Identifier: GPL-2.0

//! A guest's console: logged, capped, searched for kernel reports, and cut
//! into windows by the marks `lab-init` writes to the kernel log around each
//! program.

use super::faults;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A console that has said this much is looping; the guest is killed.
pub const CAP: u64 = 8 << 20;

/// Lines kept for failure messages.
const TAIL: usize = 40;

/// Lines of context kept after a report.
const CONTEXT: usize = 25;

#[derive(Default)]
struct State {
    bytes: u64,
    tail: VecDeque<String>,
    /// Reports since they were last taken, with the lines after them.
    reports: Vec<String>,
    context: usize,
    /// Names of programs whose end mark has been seen.
    ended: VecDeque<String>,
    closed: bool,
    full: bool,
    fatal: bool,
}

/// See the module's description.
#[derive(Clone)]
pub struct Console {
    shared: Arc<(Mutex<State>, Condvar)>,
    /// Where it is logged.
    pub log: PathBuf,
}

impl Console {
    /// Follows `stream` to its end, then calls `closed`.
    pub fn new(
        log: &Path,
        stream: impl Read + Send + 'static,
        closed: impl FnOnce() + Send + 'static,
    ) -> Result<Console> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let console = Console {
            shared: Arc::default(),
            log: log.to_owned(),
        };
        let follower = console.clone();
        std::thread::spawn(move || {
            follower.follow(BufReader::new(stream), BufWriter::new(file));
            follower.state().closed = true;
            follower.shared.1.notify_all();
            closed();
        });
        Ok(console)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, mut stream: impl BufRead, mut log: impl Write) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match stream.by_ref().take(4096).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let mut state = self.state();
            state.bytes += line.len() as u64;
            if state.bytes > CAP {
                if !state.full {
                    let _ = writeln!(
                        log,
                        "\nlab: the console exceeded {} MiB; guest killed",
                        CAP >> 20
                    );
                    state.full = true;
                }
                // Returning closes the pipe and so ends a guest that prints.
                let _ = log.flush();
                return;
            }
            let _ = log.write_all(&line);
            let _ = log.flush();
            let text = String::from_utf8_lossy(&line);
            state.line(text.trim_end());
            drop(state);
            self.shared.1.notify_all();
        }
    }

    /// Takes the reports seen so far, each a line with some that followed it.
    pub fn take_reports(&self) -> Vec<String> {
        let mut state = self.state();
        state.context = 0;
        std::mem::take(&mut state.reports)
    }

    /// True if the kernel has panicked.
    pub fn is_fatal(&self) -> bool {
        self.state().fatal
    }

    /// True if the console overflowed.
    pub fn is_full(&self) -> bool {
        self.state().full
    }

    /// The last lines.
    pub fn tail(&self) -> Vec<String> {
        self.state().tail.iter().cloned().collect()
    }

    /// Waits until the console shows that program `id` has ended: all its
    /// kernel messages are in then. False if that takes longer than `limit`.
    pub fn wait_end(&self, id: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if state.ended.iter().any(|name| name == id) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                return false;
            }
            state = match self.shared.1.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl State {
    fn line(&mut self, line: &str) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        if let Some((_, id)) = line.split_once("rsmc-lab: end ") {
            self.context = 0;
            if self.ended.len() == 16 {
                self.ended.pop_front();
            }
            self.ended.push_back(id.to_owned());
            return;
        }
        self.fatal |= faults::is_fatal(line);
        if self.context > 0 {
            self.context -= 1;
            if let Some(last) = self.reports.last_mut() {
                last.push('\n');
                last.push_str(line);
            }
        } else if faults::is_report(line) {
            self.reports.push(line.to_owned());
            self.context = CONTEXT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> State {
        let mut state = State::default();
        for line in text {
            state.line(line);
        }
        state
    }

    #[test]
    fn a_report_keeps_what_follows() {
        let state = lines(&["quiet", "WARNING: x", "Call Trace:", " f+0x1"]);
        assert_eq!(state.reports, ["WARNING: x\nCall Trace:\n f+0x1"]);
    }

    #[test]
    fn an_end_mark_closes_the_window() {
        let state = lines(&["WARNING: x", "[ 1.0] rsmc-lab: end t", "after"]);
        assert_eq!(state.reports, ["WARNING: x"]);
        assert_eq!(state.ended, ["t"]);
    }

    #[test]
    fn a_looping_console_is_cut() {
        let path = std::env::temp_dir().join(format!("lab-console-{}", std::process::id()));
        let (done, wait) = std::sync::mpsc::channel();
        let text = std::io::repeat(b'x').take(CAP * 2);
        let console = Console::new(&path, text, move || done.send(()).unwrap()).unwrap();
        wait.recv().unwrap();
        assert!(console.is_full());
        assert!(std::fs::metadata(&path).unwrap().len() < CAP + 4096);
        std::fs::remove_file(&path).unwrap();
    }
}
