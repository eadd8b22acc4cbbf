// SPDX-License-Identifier: GPL-2.0
//! A further network namespace, which a thread holds and does work in.

use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

type Work = Box<dyn FnOnce() + Send>;

/// The namespace; it goes with the last thing in it.
pub struct Realm {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's number, by which `ip link set ... netns` knows the namespace.
    pub tid: i32,
}

impl Realm {
    /// A fresh one with loopback up.
    pub fn new() -> Realm {
        let (work, all) = channel::<Work>();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            st::net::private().expect("namespace");
            // SAFETY: No pointers.
            let _ = tell.send(unsafe { libc::gettid() });
            for one in all {
                one();
            }
        });
        Realm {
            work: Some(work),
            thread: Some(thread),
            tid: told.recv().expect("the namespace's thread"),
        }
    }

    /// Does something in it, and returns what comes of that. Threads that it starts are in it, too.
    pub fn within<V: Send + 'static>(&self, what: impl FnOnce() -> V + Send + 'static) -> V {
        let (tell, told) = channel();
        let work: Work = Box::new(move || drop(tell.send(what())));
        let sent = self
            .work
            .as_ref()
            .is_some_and(|queue| queue.send(work).is_ok());
        assert!(sent, "the namespace's thread has ended");
        told.recv().expect("what was done in the namespace")
    }

    /// Runs commands, one a line.
    pub fn sh(&self, lines: &str) -> Result<(), String> {
        let lines = lines.to_owned();
        self.within(move || sh(&lines))
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        self.work.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs commands, one a line; ends at the first that fails.
pub fn sh(lines: &str) -> Result<(), String> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(st::net::sh).collect()
}
