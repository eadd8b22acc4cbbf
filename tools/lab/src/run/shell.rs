// SPDX-License-Identifier: GPL-2.0

//! `lab shell`: a prompt in a guest with the module loaded.

use super::boot::Which;
use crate::guest::cluster::Options;
use crate::guest::Event;
use anyhow::Result;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::termios::{isatty, tcgetattr, tcgetwinsize, tcsetattr, OptionalActions, Termios};
use std::io::{stdin, stdout, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The key that switches between the guests of a pair: Ctrl-].
const SWITCH: u8 = 0x1d;

/// Arguments of `lab shell`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
}

/// The terminal in raw mode, until dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn new() -> Raw {
        if !isatty(stdin()) {
            return Raw(None);
        }
        let old = tcgetattr(stdin()).ok();
        if let Some(mut mode) = old.clone() {
            mode.make_raw();
            let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
        }
        Raw(old)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(old) = &self.0 {
            let _ = tcsetattr(stdin(), OptionalActions::Now, old);
        }
    }
}

/// Runs it.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let mut ready = arguments.which.boot(Options::default(), None)?;
    let pair = ready.cluster.guests.len() == 2;
    for guest in &ready.cluster.guests {
        println!(
            "{}: kernel log in {}",
            guest.name,
            guest.console.log.display()
        );
    }
    if pair {
        println!(
            "guest a; Ctrl-] switches between a and b; the session ends when either shell does"
        );
    } else {
        println!("namespaces a (10.77.0.1) and b (10.77.0.2): ip netns exec a COMMAND");
    }
    println!("selftests are in /rsmc/selftests, programs in /rsmc/bin; exit ends the guest");
    stdout().flush()?;

    let (rows, columns) = match tcgetwinsize(stdin()) {
        Ok(size) => (size.ws_row.max(1), size.ws_col.max(1)),
        Err(_) => (24, 80),
    };
    for index in 0..ready.cluster.guests.len() {
        let mut env = ready.environment(index);
        let side = if !pair {
            "guest"
        } else if index == 0 {
            "a"
        } else {
            "b"
        };
        env.push(format!("PS1={side}:\\w# "));
        let mut words = vec![
            "shell".to_owned(),
            "shell".into(),
            rows.to_string(),
            columns.to_string(),
        ];
        words.push(env.len().to_string());
        words.extend(env);
        words.extend(["/bin/bash", "--norc", "-i"].map(str::to_owned));
        if let Some(guest) = ready.cluster.guests.get_mut(index) {
            guest.send(&words);
        }
    }
    let raw = Raw::new();
    let code = relay(&mut ready.cluster);
    drop(raw);
    println!();
    if code == 255 {
        eprintln!("lab: a guest died\n{}", ready.cluster.last_words(0));
        return Ok(ExitCode::FAILURE);
    }
    if !pair {
        ready.finish()?;
    }
    Ok(ExitCode::from(code))
}

/// Copies between the terminal and the guests' shells until one ends.
fn relay(cluster: &mut crate::guest::cluster::Cluster) -> u8 {
    let mut current = 0;
    let mut input_open = true;
    loop {
        while let Some((index, event)) = cluster.next_event(Duration::from_millis(10)) {
            match event {
                Event::Raw(bytes) if index == current => {
                    let _ = stdout().write_all(&bytes);
                    let _ = stdout().flush();
                }
                Event::Exit(_, status, _) => return u8::try_from(status).unwrap_or(1),
                Event::Dead => return 255,
                _ => {}
            }
        }
        if !input_open {
            continue;
        }
        let tick = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        let stdin = stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&tick)), Ok(1)) {
            continue;
        }
        let mut buffer = [0; 1024];
        let Ok(length) = stdin.lock().read(&mut buffer) else {
            return 255;
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            // End of input: what the shells would have read.
            input_open = false;
            for guest in &mut cluster.guests {
                guest.send_raw(b"\nexit\n");
            }
        } else if bytes == [SWITCH] && cluster.guests.len() == 2 {
            current = 1 - current;
            let side = ["a", "b"][current];
            let _ = write!(stdout(), "\r\n[guest {side}]\r\n");
            if let Some(guest) = cluster.guests.get_mut(current) {
                guest.send_raw(b"\r");
            }
        } else if let Some(guest) = cluster.guests.get_mut(current) {
            guest.send_raw(bytes);
        }
    }
}
