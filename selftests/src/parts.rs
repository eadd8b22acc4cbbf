// SPDX-License-Identifier: GPL-2.0
//! A program's points shared out among copies of itself that run side by side, their KTAP joined
//! into one stream. For programs whose points mostly wait.

use crate::args::Args;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

/// Which part this process is to run: `--part I/N`, or all.
#[derive(Clone, Copy)]
pub struct Part {
    index: usize,
    of: usize,
}

impl Part {
    /// True if the item at `i` belongs to this part.
    pub fn has(&self, i: usize) -> bool {
        i % self.of == self.index
    }
}

/// The part to run. Without `--part`, starts the `--jobs` copies (default `jobs`), joins their
/// streams of altogether `total` points and ends the process.
pub fn part(a: &Args, jobs: u64, total: usize) -> Part {
    if let Some((i, n)) = a.opt("part").and_then(|p| p.split_once('/')) {
        let (i, n) = (i.parse().unwrap_or(0), n.parse().unwrap_or(1));
        return Part { index: i, of: n };
    }
    let n = a.num("jobs", jobs).max(1) as usize;
    if n == 1 {
        return Part { index: 0, of: 1 };
    }
    println!("KTAP version 1\n1..{total}");
    let (tx, rx) = mpsc::channel();
    let exe = std::env::current_exe().expect("own name");
    for i in 0..n {
        let mut c = Command::new(&exe)
            .args(std::env::args_os().skip(1))
            .arg(format!("--part={i}/{n}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a part");
        let out = c.stdout.take().expect("its output");
        let tx = tx.clone();
        std::thread::spawn(move || {
            let mut notes = String::new();
            for l in BufReader::new(out).lines().map_while(Result::ok) {
                if l.starts_with('#') {
                    notes += &l;
                    notes.push('\n');
                } else if l.starts_with("ok ") || l.starts_with("not ok ") {
                    let _ = tx.send((std::mem::take(&mut notes), Some(l)));
                }
            }
            let good = c.wait().is_ok_and(|s| matches!(s.code(), Some(0 | 1 | 4)));
            if !good {
                notes += &format!("# part {i} of {n} ended badly\n");
            }
            let _ = tx.send((notes, None));
        });
    }
    drop(tx);
    let (mut seen, mut failed, mut skipped) = (0, 0, 0);
    for (notes, line) in rx {
        print!("{notes}");
        let Some(l) = line else { continue };
        seen += 1;
        failed += usize::from(l.starts_with("not "));
        skipped += usize::from(l.contains("# SKIP "));
        let (head, name) = l.split_once(" - ").unwrap_or((&l, ""));
        println!(
            "{} {seen} - {name}",
            if head.starts_with("not") {
                "not ok"
            } else {
                "ok"
            }
        );
    }
    if seen != total {
        println!("# planned {total} points, saw {seen}");
    }
    std::process::exit(match () {
        () if seen != total || failed > 0 => 1,
        () if skipped == total => 4,
        () => 0,
    })
}
