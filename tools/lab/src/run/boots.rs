// SPDX-License-Identifier: GPL-2.0

//! Runs groups of tests, each in its boot, as many side by side as there is room for.

use super::again::{Ended, Held, Waiting};
use super::group::{Group, Queue};
use super::installed;
use super::session::{Session, OVER};
use super::stage::Stage;
use super::times::Times;
use crate::kernel::Kernel;
use crate::ktap::report::Shared;
use crate::ktap::Point;
use crate::progress;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Programs for guests, by the architecture they were built for, see [`Arch::foreign`](crate::kernel::Arch::foreign).
pub type Programs = BTreeMap<Option<&'static str>, Vec<PathBuf>>;

/// Settings common to all boots of a run.
pub struct Boots<'a, W: Write> {
    /// Kernels by flavour, and for each the module, or where its packages were installed.
    pub built: BTreeMap<String, (Kernel, PathBuf)>,
    /// Packages were installed, instead of the module and what they have of `bin/`.
    pub installed: bool,
    /// Programs that go into `bin/`.
    pub programs: Programs,
    /// Boots at a time, if that is limited.
    pub jobs: Option<usize>,
    /// When the last test may begin, if that is limited.
    pub until: Option<Instant>,
    /// Where tests are reported.
    pub report: &'a Shared<W>,
}

impl<W: Write + Send> Boots<'_, W> {
    /// Runs groups, and `aside` meanwhile. Returns how long those tests took that passed. What
    /// failed and may pass another time is added to those `waiting` and not reported.
    pub fn run(
        &self,
        groups: &[Group],
        waiting: Option<&Waiting>,
        aside: impl FnOnce() + Send,
    ) -> Vec<(String, Duration)> {
        let times = Mutex::new(Vec::new());
        self.each("guests", groups, aside, |group| match self.stage(group) {
            Ok(_) if self.is_over() => left_out(group, self.report),
            Ok((kernel, stage)) => {
                let session = Session::new(group, kernel, &stage.path);
                let new = session.run(
                    &group.tests,
                    &group.session,
                    self.until,
                    self.report,
                    waiting,
                );
                let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                times.extend(new);
            }
            Err(error) => not_run(group, self.report, &format!("{error:#}")),
        });
        times.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the entries with these numbers once more, each in a boot of its own.
    pub fn again(&self, held: &[Held], chosen: &[usize], times: &Times) -> Vec<(usize, Ended)> {
        let groups: Vec<Group> = chosen
            .iter()
            .filter_map(|number| Some((*number, held.get(*number)?)))
            .map(|(number, held)| Group::alone(held.kind, &held.test, number, times))
            .collect();
        let all = Mutex::new(Vec::new());
        self.each(
            "once more",
            &groups,
            || (),
            |group| {
                let number = groups.iter().position(|each| std::ptr::eq(each, group));
                let number = number.and_then(|at| chosen.get(at).copied());
                let (Some(number), Some(test)) = (number, group.tests.first()) else {
                    return;
                };
                let name = test.full_name(group.kind);
                self.report.begin(&name);
                let ended = match self.stage(group) {
                    Ok((kernel, stage)) => {
                        Session::new(group, kernel, &stage.path).alone(test, self.report)
                    }
                    Err(error) => Ended::not_at_all(&name, format!("{error:#}")),
                };
                self.report.put_aside(&name);
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((number, ended));
            },
        );
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether no test may begin any more.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Hands out groups as there is room for them.
    fn each(
        &self,
        what: &str,
        groups: &[Group],
        aside: impl FnOnce() + Send,
        run: impl Fn(&Group) + Sync,
    ) {
        let queue = Queue::new(groups, self.jobs);
        let all = || {
            std::thread::scope(|scope| {
                scope.spawn(aside);
                for _ in groups {
                    scope.spawn(|| {
                        if let Some(group) = queue.next() {
                            run(group);
                            queue.done(group);
                        }
                    });
                }
            });
        };
        progress::news(what, || self.report.news(), all);
    }

    /// A group's kernel, and what goes into its guests.
    fn stage(&self, group: &Group) -> Result<(&Kernel, Stage)> {
        let built = self.built.get(group.kind.flavour());
        let parts =
            built.and_then(|built| Some((built, self.programs.get(&built.0.arch.foreign())?)));
        let ((kernel, module), programs) =
            parts.context("its kernel, module or programs were not built")?;
        let name = format!("{}-{}-{}", group.kind.name(), group.topology, group.session);
        let built = (!self.installed).then_some(module.as_path());
        let stage = Stage::new(&name, kernel.arch, built, programs)?;
        if self.installed {
            installed::lay_out(&stage, module)?;
        }
        stage.helpers(kernel, group.tests.iter().flat_map(|test| &test.kmod))?;
        stage.suites(group.tests.iter().flat_map(|test| &test.suites))?;
        Ok((kernel, stage))
    }
}

/// Tests for which there was no time are skipped, and so are the checks of the boot that they would have shared.
fn left_out<W: Write>(group: &Group, report: &Shared<W>) {
    let names = group.tests.iter().map(|test| &test.name);
    for name in names.chain([&group.session]) {
        let name = format!("{}.{}/{name}", group.kind.name(), group.topology);
        report.begin(&name);
        report.end(&Point::skip(name, OVER));
    }
}

/// A test that could not run has failed.
fn not_run<W: Write>(group: &Group, report: &Shared<W>, why: &str) {
    let names = group.tests.iter().map(|test| &test.name);
    for name in names.chain([&group.session]) {
        let name = format!("{}.{}/{name}", group.kind.name(), group.topology);
        report.begin(&name);
        report.end(&Point::fail(name, [why.to_owned()]));
    }
}
