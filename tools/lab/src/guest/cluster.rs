// SPDX-License-Identifier: GPL-2.0

//! The one or two guests of a topology: booting them, running a program in each
//! at the same time, barriers between those, and the verdict of the consoles.

use super::barriers::{Barriers, KILL};
use super::firmware::Firmware;
use super::link::Ends;
use super::pin::Pin;
use super::{pace, Event, Guest, Spec};
use crate::cache;
use crate::kernel::{Arch, Kernel};
use crate::progress::Watch;
use anyhow::{bail, Context, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Layout of guests and namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One guest, two namespaces joined by veth.
    Netns,
    /// Two guests on a link.
    Pair,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Topology::Netns => "netns",
            Topology::Pair => "pair",
        })
    }
}

/// A program to run in one of the guests.
#[derive(Clone, Debug)]
pub struct Job {
    /// Names the run in the kernel log.
    pub id: String,
    /// Time after which it is killed inside the guest.
    pub timeout: Duration,
    /// `KEY=value`.
    pub env: Vec<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// Result of a program.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Exit status, 128 plus the signal, 124 for a timeout, 255 if the guest died.
    pub status: i32,
    /// Said if the status alone does not tell.
    pub why: String,
    /// Kernel reports while it ran, each with the lines that followed.
    pub reports: Vec<String>,
}

/// A line a program printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// To standard output.
    Out,
    /// To standard error.
    Err,
}

/// Options of a boot.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Count instructions (QEMU), with this number of virtual CPUs, which take turns.
    pub count: Option<u32>,
    /// Give QEMU this plugin, a file and its arguments.
    pub plugin: Option<PathBuf>,
    /// The root file system instead of the sysroot (QEMU).
    pub root: Option<PathBuf>,
    /// Boot by this instead of handing the kernel to QEMU.
    pub firmware: Option<Firmware>,
    /// Further words for the kernel's command line (QEMU).
    pub cmdline: Vec<String>,
}

/// See the module's description.
pub struct Cluster {
    /// Guest `a` and, for a pair, `b`.
    pub guests: Vec<Guest>,
    events: Receiver<(usize, Event)>,
    dead: Vec<bool>,
    /// The guest that the other one may have killed.
    victim: Option<usize>,
    ends: Option<Ends>,
    count: bool,
    _pin: Option<Pin>,
    /// Kernel reports of the boot itself.
    pub boot_reports: Vec<String>,
    /// Time that booting took.
    pub boot_time: Duration,
}

/// By how much this kernel, on this machine, is slower than the fast UML one usually.
pub fn slowness(kernel: &Kernel) -> u32 {
    kernel_slowness(kernel) * pace::factor()
}

/// The same on a machine that is well: how much less work a test is to do there.
pub fn kernel_slowness(kernel: &Kernel) -> u32 {
    match (kernel.arch, kernel.debug) {
        (Arch::Uml, false) => 1,
        (Arch::Uml, true) => 4,
        (Arch::X86, false) => 4,
        (Arch::Arm64, false) => 6,
        (Arch::X86 | Arch::Arm64, true) => 10,
    }
}

/// Returns the time limit of a boot, on a busy machine.
fn boot_limit(kernel: &Kernel, options: &Options) -> Duration {
    let factor = if options.count.is_some() { 3 } else { 1 };
    Duration::from_secs(factor * (20 + 25 * u64::from(slowness(kernel))))
}

impl Cluster {
    /// Boots the guests; `stage` becomes their `/rsmc`.
    pub fn boot(
        kernel: &Kernel,
        topology: Topology,
        stage: &Path,
        options: Options,
    ) -> Result<Cluster> {
        let (sender, events) = channel();
        let logs = cache::root().join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        prune(&logs, LOGS);
        let mut ends = None;
        let (sides, mut links): (&[&str], _) = match topology {
            Topology::Netns => (&[""], [None, None]),
            Topology::Pair => {
                let (a, b) = super::link::make(kernel)?;
                ends = Some(Ends::keep(&a, &b)?);
                (&["-a", "-b"], [Some(a), Some(b)])
            }
        };
        let mut guests = Vec::new();
        let pin = match kernel.arch {
            // Two slow guests that answer each other too late take their link for lost.
            Arch::Uml => Pin::new(match (topology, kernel.debug) {
                (Topology::Pair, true) => 4,
                _ => 1,
            }),
            Arch::X86 | Arch::Arm64 => None,
        };
        // Several clusters of a kind may run at a time.
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        for (index, (side, link)) in sides.iter().zip(&mut links).enumerate() {
            let name = format!("{}{side}", kernel.flavour);
            let spec = Spec {
                kernel,
                stage: stage.to_owned(),
                root: options.root.clone(),
                link: link.take(),
                cpus: options.count.unwrap_or(2),
                pin: pin.as_ref().map(Pin::number),
                memory: if kernel.debug { 3072 } else { 1536 },
                count: options.count.is_some(),
                plugin: options.plugin.clone(),
                firmware: options.firmware.clone(),
                cmdline: options.cmdline.clone(),
                log: logs.join(format!(
                    "{name}-{topology}-{}.{number}.log",
                    std::process::id()
                )),
                name,
            };
            guests.push(Guest::start(&spec, index, sender.clone())?);
        }
        let mut cluster = Cluster {
            dead: vec![false; guests.len()],
            victim: None,
            ends,
            count: options.count.is_some(),
            _pin: pin,
            guests,
            events,
            boot_reports: Vec::new(),
            boot_time: Duration::ZERO,
        };
        cluster.wait_hello(kernel, boot_limit(kernel, &options))?;
        cluster.boot_time = start.elapsed();
        for guest in &cluster.guests {
            cluster.boot_reports.extend(guest.console.take_reports());
        }
        Ok(cluster)
    }

    fn wait_hello(&mut self, kernel: &Kernel, limit: Duration) -> Result<()> {
        let watch = Watch::new(&format!("booting {}", kernel.flavour));
        let deadline = Instant::now() + limit;
        let mut missing = self.guests.len();
        while missing > 0 {
            watch.tick("");
            match self.events.recv_timeout(Duration::from_millis(200)) {
                Ok((_, Event::Hello(release))) => {
                    if release != kernel.release {
                        bail!("guest runs {release}, not {}", kernel.release);
                    }
                    missing -= 1;
                }
                Ok((index, Event::Dead)) => {
                    self.bury(index);
                    bail!(
                        "guest {} died while booting\n{}",
                        self.name(index),
                        self.last_words(index)
                    );
                }
                Ok(_) => {}
                Err(_) if Instant::now() > deadline => {
                    bail!(
                        "guests did not boot within {} s\n{}",
                        limit.as_secs(),
                        self.last_words(0)
                    );
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn name(&self, index: usize) -> &str {
        self.guests.get(index).map_or("?", |guest| &guest.name)
    }

    /// The end of a guest's console, for people.
    pub fn last_words(&self, index: usize) -> String {
        let Some(guest) = self.guests.get(index) else {
            return String::new();
        };
        let mut text = format!(
            "console of {} ({}), last lines:",
            guest.name,
            guest.console.log.display()
        );
        for line in guest.console.tail() {
            text.push_str("\n    ");
            text.push_str(&line);
        }
        text
    }

    fn bury(&mut self, index: usize) {
        match self.dead.get_mut(index) {
            Some(dead) if !*dead => *dead = true,
            _ => return,
        }
        if let Some(guest) = self.guests.get_mut(index) {
            guest.kill();
        }
        if let Some(ends) = &self.ends {
            ends.drain(index);
        }
    }

    /// True while every guest lives, or has been killed because a test wanted it.
    pub fn is_alive(&self) -> bool {
        (0..self.dead.len()).all(|index| self.lives(index) || self.victim == Some(index))
    }

    /// Tells whether this guest lives.
    pub fn lives(&self, index: usize) -> bool {
        self.dead.get(index) == Some(&false)
    }

    /// From now on guest `index` is killed at once when the other one comes to the barrier
    /// [`KILL`].
    pub fn offer(&mut self, index: usize) {
        self.victim = Some(index);
    }

    /// Runs one job per guest (`None`: nothing there) until all have ended.
    /// `line` sees every line as it comes.
    pub fn run(
        &mut self,
        jobs: &[Option<Job>],
        line: &mut dyn FnMut(usize, Stream, &str),
    ) -> Result<Vec<Outcome>> {
        if !self.is_alive() {
            bail!("a guest is dead");
        }
        let mut outcomes = vec![Outcome::default(); jobs.len()];
        let mut running = vec![false; jobs.len()];
        let mut limit = Duration::ZERO;
        for (index, job) in jobs.iter().enumerate() {
            let (Some(job), Some(guest)) = (job, self.guests.get_mut(index)) else {
                continue;
            };
            if self.dead.get(index) == Some(&true) {
                continue;
            }
            // While a counting guest waits for the host its clock races: there
            // the deadline below has to do.
            let stretch = if self.count { 1000 } else { 1 };
            let seconds = (job.timeout.as_secs().max(1) * stretch).to_string();
            let mut words = vec![
                "run".to_owned(),
                job.id.clone(),
                seconds,
                job.env.len().to_string(),
            ];
            words.extend(job.env.iter().cloned());
            words.extend(job.argv.iter().cloned());
            guest.send(&words);
            running[index] = true;
            limit = limit.max(job.timeout);
        }
        // The guest enforces the timeout; this is for one that no longer can.
        let deadline = Instant::now() + limit + limit / 4 + Duration::from_secs(30);
        let mut barriers = Barriers::default();
        let mut said = Volume(vec![0; jobs.len()]);
        while running.contains(&true) {
            let (index, event) = match self.events.recv_timeout(Duration::from_millis(500)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    for index in 0..running.len() {
                        if running[index] {
                            self.bury(index);
                            outcomes[index] = gone("the guest no longer answers");
                            running[index] = false;
                        }
                    }
                    break;
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => bail!("all guests are gone"),
            };
            match event {
                Event::Out(text) | Event::Err(text) if said.too_much(index, text.len()) => {
                    if let (true, Some(guest)) =
                        (said.just_now(index, text.len()), self.guests.get_mut(index))
                    {
                        guest.send(&["stop"]);
                        line(index, Stream::Err, "lab: stopped, it prints too much");
                    }
                }
                Event::Out(text) => line(index, Stream::Out, &text),
                Event::Err(text) => line(index, Stream::Err, &text),
                Event::Barrier(name) => {
                    let victim = self.victim.filter(|victim| *victim != index);
                    if let (KILL, Some(victim)) = (name.as_str(), victim) {
                        self.bury(victim);
                        if let Some(running) = running.get_mut(victim) {
                            *running = false;
                        }
                    }
                    barriers.arrive(index, name);
                    barriers.settle(&running, &mut self.guests);
                }
                Event::Exit(id, status, why) => {
                    let expected = jobs.get(index).and_then(Option::as_ref);
                    if expected.is_some_and(|job| job.id == id) {
                        outcomes[index].status = status;
                        outcomes[index].why = why;
                        running[index] = false;
                        barriers.settle(&running, &mut self.guests);
                    }
                }
                Event::Dead => {
                    let console = self.guests.get(index).map(|guest| &guest.console);
                    let why = match console {
                        Some(console) if console.is_full() => "the console overflowed",
                        Some(console) if console.is_fatal() => "the kernel panicked",
                        _ => "the guest died",
                    };
                    self.bury(index);
                    if running.get(index) == Some(&true) {
                        outcomes[index] = gone(why);
                        running[index] = false;
                    }
                    barriers.settle(&running, &mut self.guests);
                }
                Event::Hello(_) | Event::Raw(_) => {}
            }
        }
        for (index, outcome) in outcomes.iter_mut().enumerate() {
            let Some(guest) = self.guests.get(index) else {
                continue;
            };
            if let Some(Some(job)) = jobs.get(index) {
                if self.dead.get(index) == Some(&false) {
                    guest.console.wait_end(&job.id, Duration::from_secs(10));
                }
            }
            outcome.reports = guest.console.take_reports();
        }
        Ok(outcomes)
    }

    /// CPU time the guests have taken so far.
    pub fn cost(&self) -> Duration {
        self.guests.iter().map(Guest::cost).sum()
    }

    /// Receives the next event of an interactive program.
    pub fn next_event(&self, limit: Duration) -> Option<(usize, Event)> {
        self.events.recv_timeout(limit).ok()
    }

    /// Ends the guests in good order.
    pub fn shut_down(mut self) {
        for guest in &mut self.guests {
            guest.send(&["poweroff"]);
        }
        for guest in &mut self.guests {
            guest.shut_down(Duration::from_secs(5));
        }
    }
}

/// Console logs kept.
const LOGS: usize = 200;

/// Removes the oldest files of a directory, so that it has `most`.
pub fn prune(logs: &Path, most: usize) {
    let mut files: Vec<_> = fs::read_dir(logs)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    for (_, path) in files.iter().take(files.len().saturating_sub(most)) {
        let _ = fs::remove_file(path);
    }
}

fn gone(why: &str) -> Outcome {
    Outcome {
        status: 255,
        why: why.into(),
        reports: Vec::new(),
    }
}

/// A program that prints more than this is stopped.
const OUTPUT_CAP: usize = 16 << 20;

/// Bytes that each program has printed.
struct Volume(Vec<usize>);

impl Volume {
    /// Counts a line; true once the cap is exceeded.
    fn too_much(&mut self, index: usize, length: usize) -> bool {
        let Some(sum) = self.0.get_mut(index) else {
            return true;
        };
        *sum += length;
        *sum > OUTPUT_CAP
    }

    /// True if the line counted last was the first beyond the cap.
    fn just_now(&self, index: usize, length: usize) -> bool {
        self.0
            .get(index)
            .is_some_and(|sum| *sum - length <= OUTPUT_CAP)
    }
}
