// SPDX-License-Identifier: GPL-2.0

//! One boot, many tests: the tests of one kernel and topology, each with its
//! own namespaces and its own window of the console, and the checks that
//! belong to the boot as a whole.

mod scripts;

use super::again::{End, Ended, Waiting};
use super::group::Group;
use super::plan::{Kind, Module, Test};
use super::reader::{shown, Reader};
use super::{environment, left};
use crate::data::{Data, Flavour};
use crate::guest::cluster::{slowness, Cluster, Job, Options, Outcome, Topology};
use crate::guest::{faults, image, kvm};
use crate::kernel::Kernel;
use crate::ktap::report::Shared;
use crate::ktap::Point;
use anyhow::{anyhow, Result};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// By how much longer than on a quiet machine a test may take: its limit is to tell a hang from a loaded machine.
const LOADED: u32 = 3;

/// Why a test was left out that had its turn too late.
pub const OVER: &str = "not run: the time that --within gives was over";

/// Runner of the tests that share a boot.
pub struct Session<'a> {
    kind: Kind,
    kernel: &'a Kernel,
    topology: Topology,
    /// Words for the kernel's command line.
    cmdline: Vec<String>,
    stage: &'a Path,
    cluster: Option<Cluster>,
    loaded: [Module; 2],
    link_device: String,
    counter: usize,
    /// Fault that the C module reported of itself in the last test, if there was no other report.
    peer_fault: Option<String>,
    /// A test asked for guests.
    asked: bool,
    /// Checks of the boots, in order; reported as a test of their own.
    points: Vec<Point>,
    /// State of each guest before the test.
    before: Vec<Vec<String>>,
    /// The logs of the consoles of the last boot.
    consoles: Vec<PathBuf>,
}

/// A test that was run, as far as that tells.
struct Tried {
    point: Point,
    /// Shown if it failed.
    log: Vec<String>,
    /// All that its programs printed, but for the beginning of very much.
    output: Vec<String>,
    /// True when its failure is not by chance, or its boot could not be searched to the end.
    grave: bool,
}

impl Tried {
    /// A test whose program never ran.
    fn before(name: &str, point: Point) -> Tried {
        Tried {
            grave: !point.ok,
            point: Point::of(name, vec![point]),
            log: Vec::new(),
            output: Vec::new(),
        }
    }
}

impl<'a> Session<'a> {
    /// A session that has not booted yet.
    pub fn new(group: &Group, kernel: &'a Kernel, stage: &'a Path) -> Session<'a> {
        Session {
            kind: group.kind,
            kernel,
            topology: group.topology,
            cmdline: group.cmdline().to_vec(),
            stage,
            cluster: None,
            loaded: [Module::None; 2],
            link_device: String::new(),
            counter: 0,
            peer_fault: None,
            asked: false,
            points: Vec::new(),
            before: Vec::new(),
            consoles: Vec::new(),
        }
    }

    /// Runs the tests and then the session's own checks (as the test `own`), reporting each, but
    /// for those that failed and are `waiting` for another run. Returns how long the tests took
    /// that passed. Skips what would begin after `until`.
    pub fn run<W: Write>(
        mut self,
        tests: &[Test],
        own: &str,
        until: Option<Instant>,
        report: &Shared<W>,
        waiting: Option<&Waiting>,
    ) -> Vec<(String, Duration)> {
        let mut times = Vec::new();
        let prefix = format!("{}.{}", self.kind.name(), self.topology);
        for test in tests {
            let name = test.full_name(self.kind);
            report.begin(&name);
            if until.is_some_and(|until| Instant::now() >= until) {
                report.end(&Point::skip(name, OVER));
                continue;
            }
            let ended = self.one(&name, test, report);
            if ended.end == End::Passed {
                times.push((name, ended.time));
            }
            match waiting {
                Some(waiting) if ended.end == End::Failed => {
                    report.put_aside(&ended.point.name);
                    waiting.push(self.kind, test, ended);
                }
                _ => report.end(&ended.point),
            }
        }
        let name = format!("{prefix}/{own}");
        report.begin(&name);
        self.close();
        report.end(&Point::of(name, std::mem::take(&mut self.points)));
        times
    }

    /// Runs one test alone. What the boot's own checks find is found of the test.
    pub fn alone<W: Write>(mut self, test: &Test, report: &Shared<W>) -> Ended {
        let mut ended = self.one(&test.full_name(self.kind), test, report);
        self.close();
        let wrong = self.points.iter().filter(|point| !point.ok).cloned();
        ended.of_its_boot(wrong.collect());
        ended
    }

    /// Runs one test, and measures it.
    fn one<W: Write>(&mut self, name: &str, test: &Test, report: &Shared<W>) -> Ended {
        let (start, before) = (Instant::now(), self.cost());
        let mut tried = self.test(name, test, report);
        if let Some(fault) = self.peer_fault.take().filter(|_| !tried.point.ok) {
            let why = format!("the C module reported of itself: {fault}");
            tried = self.test_anew(name, test, report, &why);
        }
        if let Some(log) = tried.grave.then(|| self.emulator_fault()).flatten() {
            let why = format!("the emulator ran an instruction that was being changed: {log}");
            tried = self.test_anew(name, test, report, &why);
        }
        let (time, cost) = (start.elapsed(), self.cost().saturating_sub(before));
        let mut point = tried.point;
        point.notes.push(format!(
            "{:.1} s, {:.1} s of CPU",
            time.as_secs_f64(),
            cost.as_secs_f64()
        ));
        let end = match (point.ok, tried.grave) {
            (true, _) => End::Passed,
            (false, true) => End::Grave,
            (false, false) => End::Failed,
        };
        if end != End::Passed {
            point.notes.extend(tried.log);
        }
        Ended {
            point,
            end,
            time,
            output: tried.output,
            consoles: self.consoles.clone(),
        }
    }

    /// Runs one test once more: its guest is of no more use, and what we did there is not known to be wrong.
    fn test_anew<W: Write>(
        &mut self,
        name: &str,
        test: &Test,
        report: &Shared<W>,
        why: &str,
    ) -> Tried {
        self.cluster = None;
        let mut tried = self.test(name, test, report);
        let note = format!("tried again in a new guest, because {why}");
        tried.point.notes.push(note);
        tried
    }

    /// The console's log of a guest that has died of what an emulator does wrong and no processor does.
    fn emulator_fault(&self) -> Option<String> {
        let shows = |log: &&PathBuf| {
            let console = fs::read(log).unwrap_or_default();
            faults::is_of_patching(&String::from_utf8_lossy(&console))
        };
        let log = self.consoles.iter().find(shows)?;
        let emulated = !kvm::works(self.kernel).unwrap_or(true);
        emulated.then(|| log.display().to_string())
    }

    /// CPU time of the guests there are.
    fn cost(&self) -> Duration {
        self.cluster.as_ref().map(Cluster::cost).unwrap_or_default()
    }

    /// Boots if there is no living cluster.
    fn boot(&mut self) -> Result<()> {
        if self.cluster.as_ref().is_some_and(Cluster::is_alive) {
            return Ok(());
        }
        self.cluster = None;
        self.loaded = [Module::None; 2];
        let number = self
            .points
            .iter()
            .filter(|point| point.name.starts_with("boot"))
            .count()
            + 1;
        let name = format!("boot.{number}");
        if number > 5 {
            return Err(anyhow!("guests died too often"));
        }
        let options = Options {
            cmdline: self.cmdline.clone(),
            ..Options::default()
        };
        match Cluster::boot(self.kernel, self.topology, self.stage, options) {
            Ok(cluster) => {
                let mut point = Point::fail(name, shown(&cluster.boot_reports));
                point.ok = cluster.boot_reports.is_empty();
                point.notes.push(format!(
                    "booted in {:.1} s",
                    cluster.boot_time.as_secs_f64()
                ));
                self.points.push(point);
                let logs = cluster.guests.iter().map(|guest| &guest.console.log);
                self.consoles = logs.cloned().collect();
                self.cluster = Some(cluster);
            }
            Err(error) => {
                let text = format!("{error:#}");
                self.points
                    .push(Point::fail(name, text.lines().map(str::to_owned)));
                return Err(error);
            }
        }
        self.first_checks(number);
        Ok(())
    }

    /// Checks of the debug kernels right after booting.
    fn first_checks(&mut self, number: usize) {
        if self.kind.has_lockdep() {
            self.check(&format!("lockdep_on.{number}"), "lockdep");
        }
        if self.kind == Kind::UmlDebug {
            self.check(&format!("kmemleak_cleared.{number}"), "leaks-clear");
        }
        if self.topology == Topology::Pair {
            if let Ok(said) = self.script(0, &["topo.sh", "device", "pair"]) {
                self.link_device = said.out.first().cloned().unwrap_or_default();
            }
        }
    }

    fn guests(&self) -> usize {
        if self.topology == Topology::Pair {
            2
        } else {
            1
        }
    }

    /// The guests that live.
    fn living(&self) -> Vec<usize> {
        let lives = |index: &usize| self.cluster.as_ref().is_some_and(|c| c.lives(*index));
        (0..self.guests()).filter(lives).collect()
    }

    /// Brings guest, modules and network into the state a test wants.
    fn prepare(&mut self, test: &Test) -> Result<()> {
        self.asked = true;
        self.boot()?;
        let wanted = test.modules()?;
        for (index, wanted) in wanted.into_iter().enumerate().take(self.guests()) {
            if self.loaded[index] != wanted || test.reload {
                self.must(index, &["module.sh", "unload", self.loaded[index].word()])?;
                self.loaded[index] = Module::None;
                self.must(index, &["module.sh", "load", wanted.word()])?;
                self.loaded[index] = wanted;
            }
        }
        let topology = self.topology.to_string();
        self.before.clear();
        for (index, side) in ["a", "b"].iter().take(self.guests()).enumerate() {
            let wanted = if test.private { "private" } else { &topology };
            let state = self.must(index, &["topo.sh", "up", wanted, side, test.path()])?;
            self.before.push(state);
            match &test.card {
                Some(profile) => {
                    self.must(index, &["topo.sh", "card", &topology, profile])?;
                }
                None if test.rdma => {
                    self.must(index, &["topo.sh", "rdma", &topology])?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Undoes the network. Returns what is not as it was.
    fn tidy(&mut self) -> Result<Option<Point>> {
        let topology = self.topology.to_string();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for index in self.living() {
            after.push(self.must(index, &["topo.sh", "down", &topology])?);
            before.push(self.before.get(index).cloned().unwrap_or_default());
        }
        Ok(left::behind(&before, &after))
    }

    /// Runs one test.
    fn test<W: Write>(&mut self, name: &str, test: &Test, report: &Shared<W>) -> Tried {
        self.peer_fault = None;
        let flavour = Data::get().flavour(&self.kernel.flavour);
        if test.wants(Module::Smc) && !flavour.is_ok_and(Flavour::has_smc) {
            let lacks = format!("the kernel {} has no smc.ko", self.kernel.flavour);
            return Tried::before(name, Point::skip("module", lacks));
        }
        if test.rdma && test.card.is_none() && !image::has_module(self.kernel, "rdma_rxe") {
            let lacks = format!("the kernel {} has no soft-RoCE", self.kernel.flavour);
            return Tried::before(name, Point::skip("rdma", lacks));
        }
        if let Err(error) = self.prepare(test) {
            let mut notes: Vec<String> = format!("{error:#}").lines().map(str::to_owned).collect();
            notes.extend(self.tail());
            // A guest in an unknown state is no place for the next test.
            self.cluster = None;
            return Tried::before(name, Point::fail("prepare", notes));
        }
        let limit = test.limit(slowness(self.kernel)) * LOADED;
        let jobs: Vec<Option<Job>> = (0..self.guests())
            .map(|index| {
                let mut argv = vec!["/rsmc/lab/test.sh".to_owned(), test.needs.join(" ")];
                argv.extend(test.argv());
                Some(Job {
                    id: test.name.clone(),
                    timeout: limit,
                    env: self.environment(index),
                    argv,
                })
            })
            .collect();
        let mut readers: Vec<Reader> = (0..self.guests())
            .map(|index| Reader::new(self.topology, index))
            .collect();
        let mut points = Vec::new();
        let victim = test.victim();
        if let (Some(cluster), Some(index)) = (self.cluster.as_mut(), victim) {
            cluster.offer(index);
        }
        let result = match self.cluster.as_mut() {
            Some(cluster) => cluster.run(&jobs, &mut |index, stream, line| {
                let Some(reader) = readers.get_mut(index) else {
                    return;
                };
                if let Some(point) = reader.line(stream, line) {
                    report.stream(&point);
                    points.push(point);
                }
            }),
            None => Err(anyhow!("no guest")),
        };
        let (mut log, mut output, mut grave) = (Vec::new(), Vec::new(), false);
        match result {
            Err(error) => {
                grave = true;
                points.push(Point::fail("guest", [format!("{error:#}")]));
            }
            Ok(outcomes) => {
                self.peer_fault = peer_fault(test, &outcomes);
                for (index, (outcome, reader)) in outcomes.iter().zip(readers).enumerate() {
                    let said = reader.finish(outcome);
                    points.extend(said.points);
                    log.extend(said.errors);
                    output.extend(said.all);
                    grave |= !outcome.reports.is_empty();
                    if outcome.status == 255 {
                        let words = self.cluster.as_ref().map(|c| c.last_words(index));
                        log.extend(words.unwrap_or_default().lines().map(str::to_owned));
                    }
                }
            }
        }
        if self.cluster.as_ref().is_some_and(Cluster::is_alive) {
            match self.tidy() {
                Ok(point) => points.extend(point),
                Err(error) => {
                    grave = true;
                    let text = format!("{error:#}");
                    points.push(Point::fail("tidy", text.lines().map(str::to_owned)));
                    self.cluster = None;
                }
            }
        } else {
            grave = true;
            if points.iter().all(|point| point.ok) {
                let note = "it died after its program had ended";
                points.push(Point::fail("guest", [note.to_owned()]));
            }
        }
        if victim.is_some() {
            // What is left must be able to unload its module; then there is no pair any more.
            self.close();
            self.cluster = None;
        }
        Tried {
            point: Point::of(name, points),
            log,
            output,
            grave,
        }
    }

    fn tail(&self) -> Vec<String> {
        let Some(cluster) = &self.cluster else {
            return Vec::new();
        };
        (0..self.guests())
            .flat_map(|index| {
                cluster
                    .last_words(index)
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Returns the environment of a test (see selftests/README.md).
    fn environment(&self, index: usize) -> Vec<String> {
        environment::of(
            self.kind.name(),
            self.kernel,
            self.topology,
            index,
            &self.link_device,
        )
    }

    /// The checks at the end, and the end.
    fn close(&mut self) {
        if !self.cluster.as_ref().is_some_and(Cluster::is_alive) {
            if self.points.is_empty() {
                self.points.push(match self.asked {
                    true => Point::fail("boot", ["never booted".to_owned()]),
                    false => Point::skip("boot", "this kernel lacks what its tests need"),
                });
            }
            return;
        }
        let ours = |index: usize| self.loaded[index].word() == "rsmc";
        if self.kind.has_lockdep() && self.living().into_iter().all(ours) {
            // Before the module goes, and lockdep forgets its locks.
            self.check("locks_held", "held");
        }
        for index in self.living() {
            let word = self.loaded[index].word();
            let name = format!("unload.{word}.{}", ["a", "b"][index]);
            let point = match self.must(index, &["module.sh", "unload", word]) {
                Ok(_) => Point::pass(name),
                Err(error) => Point::fail(name, format!("{error:#}").lines().map(str::to_owned)),
            };
            self.points.push(point);
        }
        if self.kind == Kind::UmlDebug {
            self.check("kmemleak", "leaks-scan");
        }
        if self.kind.has_lockdep() {
            self.check("lockdep_still_on", "lockdep");
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.shut_down();
        }
    }
}

/// The C module's report of itself, if all the kernels' reports are such, each from a guest that has
/// the module as a peer and nothing of ours: its warnings, and what KASAN finds in the driver of its
/// queue pairs (a memory region that it frees while the device is still to register it).
fn peer_fault(test: &Test, outcomes: &[Outcome]) -> Option<String> {
    let modules = test.modules().ok()?;
    let mut first = None;
    for (outcome, module) in outcomes.iter().zip(modules) {
        for report in &outcome.reports {
            let line = report.lines().next().unwrap_or_default();
            let warns = line.contains("WARNING: net/smc/") && line.contains("[smc]");
            let own = warns || line.contains("BUG: KASAN") && line.contains("[rdma_rxe]");
            if module != Module::Smc || !own {
                return None;
            }
            first.get_or_insert_with(|| line.to_owned());
        }
    }
    first.filter(|_| modules.contains(&Module::Rsmc))
}
