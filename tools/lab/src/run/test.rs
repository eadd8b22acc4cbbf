// SPDX-License-Identifier: GPL-2.0

//! `lab test`: host tests, builds and guests, as one KTAP stream.

use super::plan::{self, Kind, Test};
use super::session::Session;
use super::stage::Stage;
use super::{host, user};
use crate::data::Data;
use crate::guest::cluster::Topology;
use crate::kernel::Kernel;
use crate::ktap::report::{Report, Shared};
use crate::ktap::Point;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Stdout, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// What to run.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Only guests of this kind (may be repeated)
    #[arg(long)]
    kernel: Vec<Kind>,
    /// Only tests whose name contains this text (may be repeated)
    #[arg(long)]
    only: Vec<String>,
    /// Only guests with this topology
    #[arg(long, value_parser = ["netns", "pair"])]
    topology: Option<String>,
    /// Also the tests that take long
    #[arg(long)]
    long: bool,
    /// Leave out the tests that need no guest
    #[arg(long)]
    no_host: bool,
    /// Groups of guests at a time; with 1, points appear as they come
    #[arg(long, short, default_value_t = 3)]
    jobs: usize,
    /// List what would run
    #[arg(long)]
    list: bool,
    /// Take this module instead of building one (for one --kernel)
    #[arg(long)]
    ko: Option<PathBuf>,
    /// Take programs from this directory instead of building them
    #[arg(long)]
    programs: Option<PathBuf>,
}

/// Tests that share a boot.
struct Group {
    kind: Kind,
    topology: Topology,
    boot: String,
    tests: Vec<Test>,
}

impl Group {
    /// The name of the test in which the boot's own checks are reported.
    fn session(&self) -> String {
        if self.boot.is_empty() {
            "session".into()
        } else {
            format!("session.{}", self.boot)
        }
    }
}

impl Arguments {
    fn wants(&self, kind: Kind, test: &Test) -> bool {
        let kernel = self.kernel.is_empty() || self.kernel.contains(&kind);
        let name = self.only.is_empty() || self.only.iter().any(|text| test.name.contains(text));
        let topology = self
            .topology
            .as_ref()
            .is_none_or(|name| test.topology.to_string() == *name);
        kernel && name && topology && test.kernels.contains(&kind) && (self.long || !test.long)
    }

    fn groups(&self, tests: &[Test]) -> Vec<Group> {
        let boots: BTreeSet<&str> = tests.iter().map(|test| test.boot.as_str()).collect();
        let mut groups = Vec::new();
        for topology in [Topology::Netns, Topology::Pair] {
            for boot in &boots {
                for kind in Kind::ALL {
                    let wanted = |test: &&Test| {
                        test.topology == topology && test.boot == *boot && self.wants(kind, test)
                    };
                    let tests: Vec<Test> = tests.iter().filter(wanted).cloned().collect();
                    if !tests.is_empty() {
                        groups.push(Group {
                            kind,
                            topology,
                            boot: (*boot).to_owned(),
                            tests,
                        });
                    }
                }
            }
        }
        groups
    }
}

/// Kernels the module is built for: those of the groups and, in a full run,
/// those that are only built for.
fn flavours(arguments: &Arguments, groups: &[Group]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for group in groups {
        let name = group.kind.flavour().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if arguments.kernel.is_empty() && arguments.only.is_empty() && !arguments.no_host {
        let all = &Data::get().flavour;
        names.extend(
            all.iter()
                .filter(|(_, flavour)| flavour.build_only)
                .map(|(name, _)| name.clone()),
        );
    }
    names
}

/// Runs everything that was asked for.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let groups = arguments.groups(&plan::read()?);
    let crates: &[&str] = if arguments.no_host { &[] } else { host::CRATES };
    let flavours = if arguments.ko.is_some() {
        Vec::new()
    } else {
        flavours(arguments, &groups)
    };
    if arguments.list {
        for group in &groups {
            for test in &group.tests {
                println!("{}.{}/{}", group.kind.name(), group.topology, test.name);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let in_guests: usize = groups.iter().map(|group| group.tests.len() + 1).sum();
    let planned = crates.len() + flavours.len() + 1 + in_guests;
    let mut report = Report::new(std::io::stdout(), planned);

    for directory in crates {
        let name = format!("host/{directory}");
        report.begin(&name);
        let point = match host::cargo_test(directory, &mut |point| report.stream(point)) {
            Ok(Some(point)) => point,
            Ok(None) => Point::skip(name, "the checkout has no such crate"),
            Err(error) => Point::fail(name, [format!("{error:#}")]),
        };
        report.end(&point);
    }
    let mut built: BTreeMap<String, (Kernel, PathBuf)> = BTreeMap::new();
    for flavour in &flavours {
        report.begin(&format!("build/{flavour}"));
        let (point, result) = host::build(flavour);
        built.extend(result.map(|result| (flavour.clone(), result)));
        report.end(&point);
    }
    if let Some(ko) = &arguments.ko {
        for group in &groups {
            let flavour = group.kind.flavour();
            built.insert(flavour.into(), (crate::kernel::get(flavour)?, ko.clone()));
        }
    }
    let programs = match user::build(arguments.programs.as_deref()) {
        Ok(programs) => {
            report.end(&Point::pass("build/user-space"));
            Some(programs)
        }
        Err(error) => {
            report.end(&Point::fail("build/user-space", [format!("{error:#}")]));
            None
        }
    };
    let workers = arguments.jobs.clamp(1, groups.len().max(1));
    let shared = Shared::new(report, workers == 1);
    let queue = Mutex::new(groups.iter());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(group) = next else { return };
                match built.get(group.kind.flavour()).zip(programs.as_ref()) {
                    Some(((kernel, module), programs)) => {
                        run_group(group, kernel, module, programs, &shared)
                    }
                    None => not_run(
                        group,
                        &shared,
                        "its kernel, module or programs were not built",
                    ),
                }
            });
        }
    });
    let counts = shared.into_inner().finish();
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_group(
    group: &Group,
    kernel: &Kernel,
    module: &Path,
    programs: &[PathBuf],
    report: &Shared<Stdout>,
) {
    let name = format!(
        "{}-{}-{}",
        group.kind.name(),
        group.topology,
        group.session()
    );
    match Stage::new(&name, Some(module), programs).and_then(|stage| {
        stage.helpers(kernel, group.tests.iter().flat_map(|test| &test.kmod))?;
        Ok(stage)
    }) {
        Ok(stage) => {
            let session = Session::new(group.kind, kernel, group.topology, &stage.path);
            session.run(&group.tests, &group.session(), report);
        }
        Err(error) => not_run(group, report, &format!("{error:#}")),
    }
}

/// A test that could not run has failed.
fn not_run<W: Write>(group: &Group, report: &Shared<W>, why: &str) {
    let names = group
        .tests
        .iter()
        .map(|test| test.name.as_str())
        .map(str::to_owned)
        .chain([group.session()]);
    for name in names {
        let name = format!("{}.{}/{name}", group.kind.name(), group.topology);
        report.begin(&name);
        report.end(&Point::fail(name, [why.to_owned()]));
    }
}
