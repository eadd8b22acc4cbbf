// SPDX-License-Identifier: GPL-2.0

//! `lab test`: host tests, builds and guests, as one KTAP stream.

use super::again::{self, Waiting};
use super::boots::{Boots, Programs};
use super::group::{self, Group, Rank};
use super::plan::{self, Kind, Test};
use super::times::Times;
use super::{fuzz, headers, host, installed, user};
use crate::data::Data;
use crate::kernel::Kernel;
use crate::ktap::report::{Report, Shared};
use crate::ktap::Point;
use anyhow::Result;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Stdout;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `test`.
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
    /// The whole list of each kind of guest, not the short one; so does --only
    #[arg(long)]
    thorough: bool,
    /// Also the tests that take many minutes; implies --thorough
    #[arg(long)]
    long: bool,
    /// On every kind of guest also what the plan has for uml only; implies --thorough
    #[arg(long)]
    everywhere: bool,
    /// Leave out the tests that need no guest
    #[arg(long)]
    no_host: bool,
    /// Boots at a time, instead of as many as keep the processors busy; with 1,
    /// points appear as they come
    #[arg(long, short)]
    jobs: Option<usize>,
    /// Run what failed again, each entry alone in a boot of its own: what passes then is FLAKY and
    /// fails nothing, unless there are more than two, the kernel reported something, or
    /// selftests/flaky.md has it
    #[arg(long)]
    again: bool,
    /// Begin no test in a guest after this many minutes: those that are left are skipped, each by name.
    /// What only the whole list has comes last then, and last of that what debug kernels repeat
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// In another order and in other boots, a different one for each number: no test may depend on
    /// those before it
    #[arg(long, value_name = "NUMBER")]
    shuffle: Option<u64>,
    /// Give the ends model cards (selftests/kmod/card) of this kind instead of soft-RoCE, in the tests that have RDMA
    /// within one guest; no others run
    #[arg(long, value_name = "PROFILE")]
    card: Option<String>,
    /// List what would run
    #[arg(long)]
    list: bool,
    /// Take this module instead of building one (for one --kernel)
    #[arg(long)]
    ko: Option<PathBuf>,
    /// Install the packages of this directory (lab deb) in each guest instead of building them
    #[arg(long, conflicts_with = "ko")]
    packages: Option<PathBuf>,
    /// Take programs from this directory instead of building them
    #[arg(long)]
    programs: Option<PathBuf>,
}

impl Arguments {
    /// The tests that would run but for the time that they take, and what would bring them.
    fn postponed(&self, plan: &[Test]) -> Vec<(String, &'static str)> {
        let mut names = Vec::new();
        for test in plan {
            let kinds = Kind::ALL.into_iter();
            let kinds = kinds.filter(|kind| self.selects(*kind, test) && !self.wants(*kind, test));
            let why = match test.long {
                true => "takes many minutes: --long",
                false => "not in the short list: --thorough",
            };
            names.extend(kinds.map(|kind| (test.full_name(kind), why)));
        }
        names
    }

    /// Tells whether all of a kind's list is wanted, but for what takes many minutes.
    fn whole(&self) -> bool {
        self.thorough
            || self.long
            || self.everywhere
            || self.card.is_some()
            || !self.only.is_empty()
    }

    /// The kinds of guest that only a request brings, in a run of every other.
    fn unasked(&self) -> Vec<&'static str> {
        let all = self.kernel.is_empty() && self.only.is_empty() && self.topology.is_none();
        let kinds = Kind::ALL
            .into_iter()
            .filter(|kind| all && kind.on_request());
        kinds.map(Kind::name).collect()
    }

    fn wants(&self, kind: Kind, test: &Test) -> bool {
        let listed = self.whole() || test.is_short_for(kind);
        self.selects(kind, test) && listed && (self.long || !test.long)
    }

    /// What is left out first if the time is over.
    fn rank(&self, kind: Kind, test: &Test) -> Rank {
        match self.within {
            Some(_) => Rank::of(kind, test),
            None => Rank::First,
        }
    }

    fn selects(&self, kind: Kind, test: &Test) -> bool {
        let kernel = match self.kernel.is_empty() {
            true => !kind.on_request(),
            false => self.kernel.contains(&kind),
        };
        let name = self.only.is_empty() || self.only.iter().any(|text| test.name.contains(text));
        let topology = self
            .topology
            .as_ref()
            .is_none_or(|name| test.topology.to_string() == *name);
        let listed = test.is_for(kind) || (self.everywhere && test.is_for(Kind::Uml));
        kernel && name && topology && listed
    }
}

/// Kernels the module is built for: those of the groups and, in a full run,
/// Debian's next one.
fn flavours(arguments: &Arguments, groups: &[Group]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for group in groups {
        let name = group.kind.flavour().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if arguments.kernel.is_empty() && arguments.only.is_empty() && !arguments.no_host {
        names.push(Data::get().next.clone());
    }
    names
}

/// Builds the programs for the architectures of kernels.
fn programs(
    arguments: &Arguments,
    built: &BTreeMap<String, (Kernel, PathBuf)>,
) -> Result<Programs> {
    let of = |(kernel, _): &(Kernel, PathBuf)| (kernel.arch.foreign(), kernel.arch);
    let arches: BTreeMap<_, _> = built.values().map(of).collect();
    let build = |(foreign, arch)| Ok((foreign, user::build(arch, arguments.programs.as_deref())?));
    arches.into_iter().map(build).collect()
}

/// Runs everything that was asked for.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let until = arguments
        .within
        .map(|minutes| Instant::now() + Duration::from_secs(minutes.saturating_mul(60)));
    let mut plan = plan::read()?;
    if let Some(profile) = &arguments.card {
        plan.retain_mut(|test| test.use_card(profile));
    }
    // Where a test takes as long as others, the order decides on its boot, too.
    let times = match arguments.shuffle {
        Some(seed) => {
            plan.sort_by_cached_key(|test| Sha256::digest(format!("{seed} {}", test.name)));
            Times::default()
        }
        None => Times::read(),
    };
    let waiting = arguments.again.then(Waiting::default);
    let known = match &waiting {
        Some(_) => again::known()?,
        None => BTreeSet::new(),
    };
    let postponed = arguments.postponed(&plan);
    let unasked = arguments.unasked();
    let wanted = |kind, test: &Test| arguments.wants(kind, test);
    let rank = |kind, test: &Test| arguments.rank(kind, test);
    let groups = group::make(&plan, &times, wanted, rank);
    let on_host = match arguments.no_host {
        true => 0,
        false => host::CRATES.len() + 2,
    };
    let given = arguments.packages.as_ref().or(arguments.ko.as_ref());
    let flavours = if given.is_some() {
        Vec::new()
    } else {
        flavours(arguments, &groups)
    };
    if arguments.list {
        for group in &groups {
            for test in &group.tests {
                println!("{}", test.full_name(group.kind));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let in_guests: usize = groups.iter().map(|group| group.tests.len() + 1).sum();
    let planned = on_host + flavours.len() + 1 + in_guests + postponed.len() + unasked.len();
    let mut report = Report::new(std::io::stdout(), planned);

    for (name, why) in postponed {
        report.begin(&name);
        report.end(&Point::skip(name, why));
    }
    for name in unasked {
        report.begin(name);
        let why = format!("only on request: --kernel {name}");
        report.end(&Point::skip(name, why));
    }
    let mut built: BTreeMap<String, (Kernel, PathBuf)> = BTreeMap::new();
    for flavour in &flavours {
        report.begin(&format!("build/{flavour}"));
        let (point, result) = host::build(flavour);
        built.extend(result.map(|result| (flavour.clone(), result)));
        report.end(&point);
    }
    if let Some(given) = given {
        let flavours: BTreeSet<&str> = groups.iter().map(|group| group.kind.flavour()).collect();
        for flavour in flavours {
            let kernel = crate::kernel::get(flavour)?;
            let ready = match arguments.packages {
                Some(_) => installed::install(&kernel, given)?,
                None => (kernel, given.clone()),
            };
            built.insert(flavour.into(), ready);
        }
    }
    let programs = match programs(arguments, &built) {
        Ok(programs) => {
            report.end(&Point::pass("build/user-space"));
            programs
        }
        Err(error) => {
            report.end(&Point::fail("build/user-space", [format!("{error:#}")]));
            Programs::new()
        }
    };
    // With one boot at a time the tests of the host come first, else they fill its gaps.
    let alone = arguments.jobs == Some(1) || groups.len() < 2;
    // What may pass another time has not failed before that.
    let shared = Shared::new(report, alone && waiting.is_none());
    if !arguments.no_host && alone {
        host_tests(&shared);
    }
    let boots = Boots {
        built,
        installed: arguments.packages.is_some(),
        programs,
        jobs: arguments.jobs,
        until,
        report: &shared,
    };
    let new = boots.run(&groups, waiting.as_ref(), || {
        if !arguments.no_host && !alone {
            host_tests(&shared);
        }
    });
    if let Err(error) = Times::save(&new) {
        // The next run only starts its guests in a worse order.
        eprintln!("lab: the times of the tests are not kept: {error:#}");
    }
    let flaky = waiting.map(|waiting| {
        let held = waiting.into_inner();
        let chosen = again::chosen(&held, &known);
        let seconds = boots.again(&held, &chosen, &times);
        let settled = again::settle(held, seconds, &known);
        for point in &settled.points {
            shared.end(point);
        }
        settled.flaky
    });
    // The closing line is the last one.
    let mut report = shared.into_inner();
    if let Some(flaky) = flaky {
        report.flaky(flaky);
    }
    let counts = report.finish();
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The tests that need no guest.
fn host_tests(report: &Shared<Stdout>) {
    for directory in host::CRATES {
        let name = format!("host/{directory}");
        report.begin(&name);
        let point = match host::cargo_test(directory, &mut |point| report.stream(point)) {
            Ok(Some(point)) => point,
            Ok(None) => Point::skip(name, "the checkout has no such crate"),
            Err(error) => Point::fail(name, [format!("{error:#}")]),
        };
        report.end(&point);
    }
    let name = format!("host/{}", fuzz::DIRECTORY);
    report.begin(&name);
    report.end(&fuzz::replay().unwrap_or_else(|e| Point::fail(name, [format!("{e:#}")])));
    report.begin(headers::NAME);
    report.end(&headers::test());
}
