// SPDX-License-Identifier: GPL-2.0

//! Barriers between the programs of two guests.
//!
//! `rsmc-barrier NAME [SECONDS]` tells `lab-init` over a Unix socket, which
//! tells the lab; when the program in the other guest has done the same the
//! lab releases both.

use crate::serve::Control;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SOCKET: &str = "/run/rsmc-barrier";

/// Programs that wait, by the barrier's name.
#[derive(Clone, Default)]
pub struct Barriers(Arc<Mutex<HashMap<String, Vec<Sender<bool>>>>>);

impl Barriers {
    /// Releases all programs that wait at `name`; `met` says whether the other
    /// side has come.
    pub fn release(&self, name: &str, met: bool) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in waiting.remove(name).unwrap_or_default() {
            let _ = sender.send(met);
        }
    }

    /// Serves `rsmc-barrier` from now on.
    pub fn listen(&self, control: Control) -> std::io::Result<()> {
        let listener = UnixListener::bind(SOCKET)?;
        let barriers = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (barriers, control) = (barriers.clone(), control.clone());
                std::thread::spawn(move || barriers.client(stream, &control));
            }
        });
        Ok(())
    }

    fn client(&self, mut stream: UnixStream, control: &Control) {
        let mut name = String::new();
        if BufReader::new(&stream).read_line(&mut name).is_err() {
            return;
        }
        let name = name.trim();
        let (sender, receiver) = channel();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .push(sender);
        control.send(&["barrier", name]);
        let met = receiver.recv().unwrap_or(false);
        let _ = stream.write_all(if met { b"1\n" } else { b"0\n" });
    }
}

/// The command `rsmc-barrier`.
pub fn command() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(name) = args.next() else {
        eprintln!("usage: rsmc-barrier NAME [SECONDS]");
        return ExitCode::from(2);
    };
    if std::env::var("RSMC_TOPO").is_ok_and(|topology| topology != "pair") {
        return ExitCode::SUCCESS;
    }
    let seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(60);
    match wait(&name, Duration::from_secs(seconds)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("rsmc-barrier: {name}: the other side has ended");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("rsmc-barrier: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wait(name: &str, limit: Duration) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(SOCKET)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(format!("{name}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim() == "1")
}
