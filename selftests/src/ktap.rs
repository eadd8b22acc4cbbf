// SPDX-License-Identifier: GPL-2.0
//! KTAP on standard output.

use std::io::Write;

/// A stream of results. Counts as it prints; [`Ktap::finish`] gives the exit status.
#[derive(Default)]
pub struct Ktap {
    n: usize,
    failed: usize,
    skipped: usize,
    planned: Option<usize>,
}

fn say(s: &str) {
    let mut o = std::io::stdout().lock();
    let _ = writeln!(o, "{s}");
    let _ = o.flush();
}

impl Ktap {
    /// Starts a stream whose number of tests is known.
    pub fn plan(n: usize) -> Ktap {
        say("KTAP version 1");
        say(&format!("1..{n}"));
        Ktap {
            planned: Some(n),
            ..Ktap::default()
        }
    }

    /// Starts a stream whose plan line comes at the end.
    pub fn open() -> Ktap {
        say("KTAP version 1");
        Ktap::default()
    }

    /// A comment line.
    pub fn diag(&self, s: &str) {
        for l in s.lines() {
            say(&format!("# {l}"));
        }
    }

    /// One result.
    pub fn result(&mut self, pass: bool, name: &str) {
        self.n += 1;
        if !pass {
            self.failed += 1;
        }
        say(&format!(
            "{} {} - {}",
            if pass { "ok" } else { "not ok" },
            self.n,
            name
        ));
    }

    /// One result; `Err` carries the reason, printed as comment lines first.
    pub fn outcome(&mut self, name: &str, r: Result<(), String>) {
        if let Err(e) = &r {
            self.diag(&format!("{name}: {e}"));
        }
        self.result(r.is_ok(), name);
    }

    /// A test that could not run, and why.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.n += 1;
        self.skipped += 1;
        say(&format!("ok {} - {} # SKIP {}", self.n, name, why));
    }

    /// Ends the stream: 0 passed, 1 something failed, 4 everything was skipped.
    pub fn finish(self) -> i32 {
        match self.planned {
            None => say(&format!("1..{}", self.n)),
            Some(p) if p != self.n => {
                say(&format!("# planned {p}, ran {}", self.n));
                return 1;
            }
            _ => {}
        }
        if self.failed > 0 {
            1
        } else if self.n > 0 && self.skipped == self.n {
            4
        } else {
            0
        }
    }
}
