// SPDX-License-Identifier: GPL-2.0

//! The lab's own scripts in the guests of a session: they prepare, check and clear up, beside the
//! tests' programs.

use super::Session;
use crate::guest::cluster::{slowness, Job, Outcome, Stream};
use crate::ktap::Point;
use crate::run::reader::shown;
use anyhow::{anyhow, Result};
use std::time::Duration;

/// Result and output of a script in a guest.
pub(super) struct Said {
    pub(super) outcome: Outcome,
    pub(super) out: Vec<String>,
    err: Vec<String>,
}

impl Said {
    pub(super) fn explain(&self) -> Vec<String> {
        let mut lines = self.err.clone();
        lines.push(format!(
            "exit status {} {}",
            self.outcome.status, self.outcome.why
        ));
        lines
    }
}

impl Session<'_> {
    /// Runs one of the lab's scripts in a guest.
    pub(super) fn script(&mut self, index: usize, argv: &[&str]) -> Result<Said> {
        self.counter += 1;
        let mut words: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        if let Some(script) = words.first_mut() {
            *script = format!("/rsmc/lab/{script}");
        }
        let job = Job {
            id: format!("script-{}", self.counter),
            timeout: Duration::from_secs(30) * slowness(self.kernel),
            env: vec!["RSMC_KO=/rsmc/rsmc.ko".into()],
            argv: words,
        };
        let mut jobs = vec![None; self.guests()];
        jobs[index] = Some(job);
        let cluster = self.cluster.as_mut().ok_or_else(|| anyhow!("no guest"))?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outcomes = cluster.run(&jobs, &mut |_, stream, line| match stream {
            Stream::Out => out.push(line.to_owned()),
            Stream::Err => err.push(line.to_owned()),
        })?;
        let outcome = outcomes
            .get_mut(index)
            .map(std::mem::take)
            .unwrap_or_default();
        Ok(Said { outcome, out, err })
    }

    /// A script that must succeed without a kernel report, and what it said.
    pub(super) fn must(&mut self, index: usize, argv: &[&str]) -> Result<Vec<String>> {
        let said = self.script(index, argv)?;
        if said.outcome.status == 0 && said.outcome.reports.is_empty() {
            return Ok(said.out);
        }
        let mut lines = said.explain();
        lines.extend(shown(&said.outcome.reports));
        Err(anyhow!("{} failed:\n{}", argv.join(" "), lines.join("\n")))
    }

    /// Runs a check in every guest and records the result.
    pub(super) fn check(&mut self, name: &str, what: &str) {
        let mut wrong = Vec::new();
        for index in self.living() {
            match self.script(index, &["checks.sh", what]) {
                Ok(said) if said.outcome.status == 0 => wrong.extend(shown(&said.outcome.reports)),
                Ok(said) => wrong.extend(said.explain()),
                Err(error) => wrong.push(format!("{error:#}")),
            }
        }
        let mut point = Point::fail(name, wrong);
        point.ok = point.notes.is_empty();
        self.points.push(point);
    }
}
