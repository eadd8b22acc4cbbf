// SPDX-License-Identifier: GPL-2.0

//! `selftests/plan.toml`: which test runs on which kind of guest.
//! The file's meaning is described in `selftests/README.md`.

mod matrix;
pub mod show;

use super::suite::Suite;
use crate::cache;
use crate::data::Data;
use crate::guest::cluster::Topology;
use anyhow::{bail, Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A kind of guest the plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// User-mode Linux, fast.
    Uml,
    /// User-mode Linux with KASAN, kmemleak and more.
    UmlDebug,
    /// Debian's kernel as shipped, under QEMU.
    Debian,
    /// The next one. Only on request; runs what the plan has for debian.
    DebianNext,
    /// The one with PREEMPT_RT. Only on request; runs what the plan has for debian.
    DebianRt,
    /// The one for clouds. Only on request; runs what the plan has for debian, but for soft-RoCE.
    DebianCloud,
    /// The one for arm64, translated. Only on request; runs what the plan has for debian.
    DebianArm64,
    /// x86-64 with lockdep, under QEMU.
    Lockdep,
    /// The same with KASAN. Only on request; runs what the plan has for lockdep.
    LockdepKasan,
    /// The same with PREEMPT_RT. Only on request; runs what the plan has for lockdep.
    LockdepRt,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 10] = [
        Kind::Debian,
        Kind::DebianNext,
        Kind::DebianRt,
        Kind::DebianCloud,
        Kind::DebianArm64,
        Kind::Uml,
        Kind::Lockdep,
        Kind::LockdepKasan,
        Kind::LockdepRt,
        Kind::UmlDebug,
    ];

    /// Its name in the plan, and in `RSMC_KERNEL`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uml => "uml",
            Kind::UmlDebug => "uml-debug",
            Kind::Debian => "debian",
            Kind::DebianNext => "debian-next",
            Kind::DebianRt => "debian-rt",
            Kind::DebianCloud => "debian-cloud",
            Kind::DebianArm64 => "debian-arm64",
            Kind::Lockdep => "lockdep",
            Kind::LockdepKasan => "lockdep-kasan",
            Kind::LockdepRt => "lockdep-rt",
        }
    }

    /// By how much it is slower than the fast one.
    pub fn slowness(self) -> u32 {
        match self {
            Kind::Uml => 1,
            Kind::UmlDebug | Kind::Debian | Kind::DebianNext | Kind::DebianCloud => 4,
            Kind::DebianRt | Kind::DebianArm64 => 6,
            Kind::Lockdep => 10,
            Kind::LockdepKasan | Kind::LockdepRt => 20,
        }
    }

    /// Tells whether its guests check the order of locks.
    pub fn has_lockdep(self) -> bool {
        self.like() == Kind::Lockdep
    }

    /// Tells whether it is left out unless it is named: it adds too little to the others to
    /// justify what its kernel and its guests take on a fresh machine.
    pub fn on_request(self) -> bool {
        self.like() != self
    }

    /// The kind whose tests it runs.
    pub fn like(self) -> Kind {
        match self {
            Kind::LockdepKasan | Kind::LockdepRt => Kind::Lockdep,
            Kind::DebianNext | Kind::DebianRt | Kind::DebianCloud | Kind::DebianArm64 => {
                Kind::Debian
            }
            other => other,
        }
    }

    /// The flavour in `lab.toml` that is booted for it.
    pub fn flavour(self) -> &'static str {
        match self {
            Kind::Debian => Data::default_flavour(),
            Kind::DebianNext => &Data::get().next,
            other => other.name(),
        }
    }
}

/// Module that is loaded in a guest while a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Nothing.
    None,
    /// The module under test.
    Rsmc,
    /// The C implementation.
    Smc,
}

impl Module {
    /// The word `module.sh` knows.
    pub fn word(self) -> &'static str {
        match self {
            Module::None => "none",
            Module::Rsmc => "rsmc",
            Module::Smc => "smc",
        }
    }

    fn parse(word: &str) -> Result<Module> {
        match word {
            "none" => Ok(Module::None),
            "rsmc" => Ok(Module::Rsmc),
            "smc" => Ok(Module::Smc),
            _ => bail!("unknown module '{word}' (rsmc, smc or none)"),
        }
    }
}

/// A guest of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Client,
    Server,
}

/// One entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Unique name.
    pub name: String,
    program: String,
    #[serde(default)]
    args: Vec<String>,
    /// Where it runs.
    pub kernels: BTreeSet<Kind>,
    /// Those of them where it does not belong to the short list.
    #[serde(default)]
    thorough: BTreeSet<Kind>,
    /// With how many guests.
    #[serde(default = "netns")]
    pub topology: Topology,
    /// Name of the boot it takes part in, among those of its kernel and topology.
    #[serde(default)]
    pub boot: String,
    /// Words for the command line of its boot's kernel.
    #[serde(default)]
    pub cmdline: Vec<String>,
    timeout: u64,
    /// Programs and modules without which it is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Modules of `selftests/kmod` that it loads by itself.
    #[serde(default)]
    pub kmod: Vec<String>,
    /// Other programs' own tests that it runs.
    #[serde(default)]
    pub suites: Vec<Suite>,
    #[serde(default = "rsmc")]
    module: String,
    /// True when each end gets a soft-RoCE device.
    #[serde(default)]
    pub rdma: bool,
    /// True when no other RDMA device will do, because it looks at packets or counters of soft-RoCE.
    #[serde(default)]
    pub soft_roce: bool,
    /// The kind of model card that each end gets instead of soft-RoCE, if a run asks for one.
    #[serde(skip)]
    pub card: Option<String>,
    /// True when its program makes its namespaces and devices itself, and finds none.
    #[serde(default)]
    pub private: bool,
    /// True when `net.smc.path` is what users find; else SMC-R is negotiated before data.
    #[serde(default)]
    pub default_path: bool,
    /// True when the module is loaded afresh for it.
    #[serde(default)]
    pub reload: bool,
    /// The guest of a pair that the other one has killed.
    #[serde(default)]
    kills: Option<Side>,
    /// True when it only runs on request.
    #[serde(default)]
    pub long: bool,
}

fn netns() -> Topology {
    Topology::Netns
}

fn rsmc() -> String {
    "rsmc".into()
}

impl Test {
    /// Returns its name in the stream of a run.
    pub fn full_name(&self, kind: Kind) -> String {
        format!("{}.{}/{}", kind.name(), self.topology, self.name)
    }

    /// The word of `topo.sh` for `net.smc.path`.
    pub fn path(&self) -> &'static str {
        if self.default_path {
            "default"
        } else {
            "1"
        }
    }

    /// The program's path in the guest, and its arguments.
    pub fn argv(&self) -> Vec<String> {
        let path = match self.program.strip_prefix("bin/") {
            Some(name) => format!("/rsmc/bin/{name}"),
            None => format!("/rsmc/selftests/{}", self.program),
        };
        std::iter::once(path)
            .chain(self.args.iter().cloned())
            .collect()
    }

    /// Tells whether the plan has it for this kind.
    pub fn is_for(&self, kind: Kind) -> bool {
        self.kernels.contains(&kind) || self.kernels.contains(&kind.like())
    }

    /// Tells whether it belongs to the short list for this kind, or would but for its `long`.
    pub fn is_short_for(&self, kind: Kind) -> bool {
        self.is_for(kind) && !self.thorough.contains(&kind.like())
    }

    /// Its time limit on a kernel slower by `slowness` than the fast one.
    pub fn limit(&self, slowness: u32) -> Duration {
        Duration::from_secs(self.timeout.saturating_mul(slowness.into()))
    }

    /// The number of the guest that is killed.
    pub fn victim(&self) -> Option<usize> {
        self.kills.map(|side| match side {
            Side::Client => 0,
            Side::Server => 1,
        })
    }

    /// Has the ends get model cards of this kind instead of soft-RoCE. Returns whether they can: they need one kernel
    /// for both, and a test that makes its own devices has no use for them.
    pub fn use_card(&mut self, profile: &str) -> bool {
        let can = self.rdma
            && !self.soft_roce
            && self.topology == Topology::Netns
            && self.kmod.is_empty();
        if can {
            self.card = Some(profile.to_owned());
            self.kmod.push("card".to_owned());
        }
        can
    }

    /// Tells whether this module is loaded in one of the guests.
    pub fn wants(&self, module: Module) -> bool {
        self.modules().is_ok_and(|both| both.contains(&module))
    }

    /// Returns the modules to load in guest `a` (the client) and `b` (the server).
    pub fn modules(&self) -> Result<[Module; 2]> {
        if !self.module.contains(':') {
            let module = Module::parse(&self.module)?;
            return Ok([module, module]);
        }
        let mut modules = [Module::None; 2];
        for part in self.module.split(',') {
            match part.split_once(':') {
                Some(("client", word)) => modules[0] = Module::parse(word)?,
                Some(("server", word)) => modules[1] = Module::parse(word)?,
                _ => bail!(
                    "module = \"{}\": expected client:NAME,server:NAME",
                    self.module
                ),
            }
        }
        if self.topology != Topology::Pair {
            bail!("one guest has one module, not {}", self.module);
        }
        Ok(modules)
    }
}

/// Reads and checks the plan.
pub fn read() -> Result<Vec<Test>> {
    let path = path();
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

fn path() -> PathBuf {
    cache::top().join("selftests/plan.toml")
}

pub(super) fn parse(text: &str) -> Result<Vec<Test>> {
    let tests = matrix::expand(text)?;
    let mut names = BTreeSet::new();
    for test in &tests {
        if !names.insert(&test.name) {
            bail!("two tests are named {}", test.name);
        }
        if test.timeout == 0 || test.kernels.is_empty() {
            bail!(
                "test {}: needs a timeout and at least one kernel",
                test.name
            );
        }
        if !test.thorough.is_subset(&test.kernels) {
            bail!(
                "test {}: 'thorough' has a kernel that 'kernels' has not",
                test.name
            );
        }
        if test.kills.is_some() && test.topology != Topology::Pair {
            bail!("test {}: only a guest of a pair can be killed", test.name);
        }
        if test.private && (test.rdma || test.topology == Topology::Pair) {
            bail!(
                "test {}: what is private has neither a peer nor its device",
                test.name
            );
        }
        test.modules()
            .with_context(|| format!("test {}", test.name))?;
        let uml = |kind: &Kind| matches!(kind, Kind::Uml | Kind::UmlDebug);
        if !test.cmdline.is_empty() && test.kernels.iter().any(uml) {
            bail!("test {}: only QEMU takes words for the kernel", test.name);
        }
        let other = |with: &&Test| with.boot == test.boot && with.cmdline != test.cmdline;
        if let Some(other) = tests.iter().find(other) {
            bail!(
                "tests {} and {} have one boot and two command lines",
                test.name,
                other.name
            );
        }
    }
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let tests = parse(
            "[[test]]\nname = \"a\"\nprogram = \"bin/x\"\nargs = [\"--v6\"]\nkernels = [\"debian\", \"uml-debug\"]\ntimeout = 60\n\
             [[test]]\nname = \"b\"\nprogram = \"interop/y.sh\"\nkernels = [\"uml\"]\ntopology = \"pair\"\ntimeout = 5\nmodule = \"client:rsmc,server:smc\"\n",
        )
        .unwrap();
        assert_eq!(tests[0].argv(), ["/rsmc/bin/x", "--v6"]);
        assert_eq!(tests[0].modules().unwrap(), [Module::Rsmc; 2]);
        assert_eq!(tests[0].limit(4), Duration::from_secs(240));
        assert_eq!(tests[1].argv(), ["/rsmc/selftests/interop/y.sh"]);
        assert_eq!(tests[1].modules().unwrap(), [Module::Rsmc, Module::Smc]);
    }

    #[test]
    fn mistakes_are_found() {
        let entry = |extra: &str| {
            format!("[[test]]\nname = \"a\"\nprogram = \"x\"\nkernels = [\"uml\"]\ntimeout = 1\n{extra}\n")
        };
        assert!(parse(&entry("")).is_ok());
        for extra in [
            "module = \"client:rsmc,server:smc\"",
            "module = \"x\"",
            "kills = \"server\"",
            "private = true\nrdma = true",
            "private = true\ntopology = \"pair\"",
            "typo = 1",
            "thorough = [\"debian\"]",
            "cmdline = [\"quiet\"]",
        ] {
            assert!(parse(&entry(extra)).is_err(), "{extra}");
        }
        assert!(parse(&(entry("") + &entry(""))).is_err());
    }

    #[test]
    fn a_boot_has_one_command_line() {
        let entry = |name: &str, extra: &str| {
            format!("[[test]]\nname = \"{name}\"\nprogram = \"x\"\nkernels = [\"debian\"]\ntimeout = 1\n{extra}\n")
        };
        let quiet = "boot = \"quiet\"\ncmdline = [\"quiet\"]";
        let plain = entry("a", "");
        let tests = parse(&(plain.clone() + &entry("b", quiet) + &entry("c", quiet))).unwrap();
        assert_eq!(tests[1].cmdline, ["quiet"]);
        for wrong in ["cmdline = [\"quiet\"]", "boot = \"quiet\""] {
            let text = plain.clone() + &entry("b", quiet) + &entry("c", wrong);
            assert!(parse(&text).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_short_list_is_a_part_of_the_whole_one() {
        let text = "[[test]]\nname = \"a\"\nprogram = \"x\"\nkernels = [\"uml\", \"debian\"]\nthorough = [\"debian\"]\ntimeout = 1\n";
        let test = &parse(text).unwrap()[0];
        for (kind, whole, short) in [
            (Kind::Uml, true, true),
            (Kind::Debian, true, false),
            (Kind::DebianRt, true, false),
            (Kind::Lockdep, false, false),
        ] {
            assert_eq!(test.is_for(kind), whole);
            assert_eq!(test.is_short_for(kind), short);
        }
    }

    #[test]
    fn the_plan_of_this_checkout_is_valid() {
        if path().exists() {
            read().unwrap();
        }
    }
}
