// SPDX-License-Identifier: GPL-2.0

//! Output of a program in a guest, as points of its test.

use crate::guest::cluster::{Outcome, Stream, Topology};
use crate::ktap::parse::Parser;
use crate::ktap::Point;
use std::collections::VecDeque;

/// Lines of a program's standard error shown when it fails.
const ERRORS_SHOWN: usize = 40;

/// Lines of its output kept for a log.
const LINES_KEPT: usize = 5000;

/// Lines of a kernel report shown.
const REPORT_SHOWN: usize = 30;

/// The beginning of each kernel report, as diagnostic lines.
pub fn shown(reports: &[String]) -> Vec<String> {
    reports
        .iter()
        .take(3)
        .flat_map(|report| report.lines().take(REPORT_SHOWN).map(str::to_owned))
        .collect()
}

/// Follows one program's output.
pub struct Reader {
    prefix: &'static str,
    parser: Parser,
    streamed: usize,
    errors: VecDeque<String>,
    all: VecDeque<String>,
}

/// Output of a program that has ended.
pub struct Said {
    /// The points not streamed yet, and those the lab adds.
    pub points: Vec<Point>,
    /// The end of its standard error.
    pub errors: Vec<String>,
    /// The end of all its output.
    pub all: Vec<String>,
}

impl Reader {
    /// Of the program in guest `index`.
    pub fn new(topology: Topology, index: usize) -> Reader {
        Reader {
            prefix: match (topology, index) {
                (Topology::Netns, _) => "",
                (Topology::Pair, 0) => "client/",
                (Topology::Pair, _) => "server/",
            },
            parser: Parser::default(),
            streamed: 0,
            errors: VecDeque::new(),
            all: VecDeque::new(),
        }
    }

    /// Takes a line; a point that it completes.
    pub fn line(&mut self, stream: Stream, line: &str) -> Option<Point> {
        if self.all.len() == LINES_KEPT {
            self.all.pop_front();
        }
        let from = match stream {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        };
        self.all.push_back(format!("{}{from}: {line}", self.prefix));
        if stream == Stream::Err {
            if self.errors.len() == ERRORS_SHOWN {
                self.errors.pop_front();
            }
            self.errors
                .push_back(format!("{}stderr: {line}", self.prefix));
            return None;
        }
        let mut point = self.parser.feed(line)?;
        self.streamed += 1;
        point.name = format!("{}{}", self.prefix, point.name);
        Some(point)
    }

    /// Ends with the program.
    pub fn finish(self, outcome: &Outcome) -> Said {
        let name = |name: &str| format!("{}{name}", self.prefix);
        let all = self.parser.finish();
        let failed = all.iter().any(|point| !point.ok);
        let skipped = !all.is_empty() && all.iter().all(|point| point.skip.is_some());
        let mut points: Vec<Point> = all.into_iter().skip(self.streamed).collect();
        for point in &mut points {
            point.name = name(&point.name);
        }
        let status = outcome.status;
        if !outcome.why.is_empty() {
            points.push(Point::fail(name("ended"), [outcome.why.clone()]));
        } else if status != 0 && !failed && !(status == 4 && skipped) {
            let note = format!("exit status {status}, although no point failed");
            points.push(Point::fail(name("exit_status"), [note]));
        }
        if !outcome.reports.is_empty() {
            points.push(Point::fail(name("kernel_log"), shown(&outcome.reports)));
        }
        Said {
            points,
            errors: self.errors.into(),
            all: self.all.into(),
        }
    }
}
