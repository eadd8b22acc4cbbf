// SPDX-License-Identifier: GPL-2.0

//! `lab boot`: run a command in fresh guests, and the parts it shares with the
//! other commands that boot.

use super::stage::Stage;
use super::{environment, user};
use crate::data::Data;
use crate::guest::cluster::{slowness, Cluster, Job, Options, Outcome, Stream, Topology};
use crate::kernel::{self, Arch, Kernel};
use crate::{module, progress};
use anyhow::{bail, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Which guests to boot.
#[derive(clap::Args, Clone, Debug)]
pub struct Which {
    /// Kernel, by its name in lab.toml
    #[arg(long, default_value = Data::default_flavour())]
    pub kernel: String,
    /// Two guests on a link instead of one with two namespaces
    #[arg(long)]
    pub pair: bool,
    /// Take this module instead of building rsmc.ko
    #[arg(long)]
    pub ko: Option<PathBuf>,
    /// Module to load: rsmc, smc (the C module) or none
    #[arg(long, default_value = "rsmc", value_parser = ["rsmc", "smc", "none"])]
    pub module: String,
    /// Put a soft-RoCE device on each end of the link
    #[arg(long)]
    pub rdma: bool,
    /// Do not build and stage user-space programs
    #[arg(long)]
    pub bare: bool,
    /// Take programs from this directory instead of building them
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// Modules of `selftests/kmod` to lay out.
    #[arg(skip)]
    pub kmod: Vec<String>,
    /// Of the programs only `rsmc` and its library.
    #[arg(skip)]
    pub tools_only: bool,
    /// Put a model card (`selftests/kmod/card`) on each end of the link.
    #[arg(skip)]
    pub card: bool,
    /// Let the link be Ethernet ports of model cards instead of veth.
    #[arg(skip)]
    pub port: bool,
}

/// Arguments of `lab boot`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Seconds after which the command is ended
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Show the guest's kernel log of the run at the end
    #[arg(long)]
    log: bool,
    /// Build this module of selftests/kmod and lay it out as /rsmc/kmod/NAME.ko
    #[arg(long, value_name = "NAME")]
    kmod: Vec<String>,
    /// Copy this directory to /rsmc/extra
    #[arg(long)]
    extra: Option<PathBuf>,
    /// Let the guest's clock count instructions, a nanosecond each, of this many virtual CPUs, which take turns (QEMU)
    #[arg(long, value_name = "CPUS", value_parser = clap::value_parser!(u32).range(1..=16))]
    count: Option<u32>,
    /// Command for guest a (and b of a pair: RSMC_ROLE tells them apart)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Guests with modules loaded and the network up.
pub struct Ready {
    /// The guests.
    pub cluster: Cluster,
    /// Their kernel.
    pub kernel: Kernel,
    /// Their layout.
    pub topology: Topology,
    /// Name of the link's device (pair).
    pub link: String,
    _stage: Stage,
    module: String,
}

impl Which {
    /// Builds what is missing, boots, loads and configures.
    pub fn boot(&self, options: Options, extra: Option<&PathBuf>) -> Result<Ready> {
        let (kernel, module, programs) = self.build()?;
        let topology = if self.pair {
            Topology::Pair
        } else {
            Topology::Netns
        };
        let stage = Stage::new(
            &format!("{}-{topology}-{}-boot", self.kernel, self.module),
            kernel.arch,
            module.as_deref(),
            &programs,
        )?;
        if !self.tools_only {
            let card = (self.card || self.port).then(|| "card".to_owned());
            stage.helpers(&kernel, self.kmod.iter().chain(card.iter()))?;
        }
        if let Some(extra) = extra {
            stage.copy_directory(extra, "extra")?;
        }
        let cluster = Cluster::boot(&kernel, topology, &stage.path, options)?;
        if !cluster.boot_reports.is_empty() {
            bail!(
                "kernel report while booting:\n{}",
                cluster.boot_reports.join("\n")
            );
        }
        let mut ready = Ready {
            cluster,
            kernel,
            topology,
            link: String::new(),
            _stage: stage,
            module: self.module.clone(),
        };
        progress::during("preparing the guests", || self.prepare(&mut ready))?;
        Ok(ready)
    }

    /// Builds the kernel, the module and the programs. The programs are built beside the others, as
    /// downloads and much of a kernel's build leave a processor idle.
    fn build(&self) -> Result<(Kernel, Option<PathBuf>, Vec<PathBuf>)> {
        let arch = Data::get()
            .flavour(Data::get().versioned(&self.kernel))?
            .arch;
        std::thread::scope(|scope| {
            let programs = scope.spawn(|| match (self.bare, self.tools_only) {
                (true, _) => Ok(Vec::new()),
                (false, true) => user::tools(arch, self.programs.as_deref()),
                (false, false) => user::build(arch, self.programs.as_deref()),
            });
            let kernel = kernel::get(&self.kernel)?;
            let module = match (&self.ko, self.module.as_str()) {
                (Some(path), _) => Some(path.clone()),
                (None, "rsmc") => Some(module::build(&kernel)?),
                (None, _) => None,
            };
            let programs = programs.join().expect("a build does not panic")?;
            Ok((kernel, module, programs))
        })
    }

    /// Sets up the network and loads the module.
    fn prepare(&self, ready: &mut Ready) -> Result<()> {
        let topology = ready.topology.to_string();
        for (index, side) in ["a", "b"]
            .iter()
            .take(ready.cluster.guests.len())
            .enumerate()
        {
            ready.check(index, "lockdep")?;
            ready.check(index, "leaks-clear")?;
            ready.script(index, &["topo.sh", "up", &topology, side])?;
            if self.rdma {
                ready.script(index, &["topo.sh", "rdma", &topology])?;
            }
            if self.port {
                ready.script(index, &["topo.sh", "port", &topology])?;
            }
            if self.card {
                ready.script(index, &["topo.sh", "card", &topology])?;
            }
            ready.script(index, &["module.sh", "load", &self.module])?;
        }
        if self.pair {
            ready.link = ready.script(0, &["topo.sh", "device", "pair"])?;
        }
        Ok(())
    }
}

impl Ready {
    /// Asks a debug kernel; another one cannot tell.
    fn check(&mut self, index: usize, what: &str) -> Result<()> {
        self.script_or(index, &["checks.sh", what], 4).map(drop)
    }

    /// Runs one of the lab's scripts in a guest; its last line of output.
    fn script(&mut self, index: usize, argv: &[&str]) -> Result<String> {
        self.script_or(index, argv, 0)
    }

    /// The same where another exit status than 0 is fine, too.
    fn script_or(&mut self, index: usize, argv: &[&str], fine: i32) -> Result<String> {
        let mut words: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        if let Some(script) = words.first_mut() {
            *script = format!("/rsmc/lab/{script}");
        }
        let mut jobs = vec![None; self.cluster.guests.len()];
        jobs[index] = Some(Job {
            id: argv.join("-"),
            timeout: Duration::from_secs(30) * slowness(&self.kernel),
            env: self.environment(index),
            argv: words,
        });
        let (mut last, mut errors) = (String::new(), Vec::new());
        let outcomes = self
            .cluster
            .run(&jobs, &mut |_, stream, line| match stream {
                Stream::Out => last = line.to_owned(),
                Stream::Err => errors.push(line.to_owned()),
            })?;
        let outcome = outcomes.into_iter().nth(index).unwrap_or_default();
        let passed = [0, fine].contains(&outcome.status);
        if !passed || !outcome.reports.is_empty() {
            bail!(
                "{} failed in the guest (status {} {}): {}\n{}{}",
                argv.join(" "),
                outcome.status,
                outcome.why,
                errors.join("\n"),
                outcome.reports.join("\n"),
                self.cluster.last_words(index)
            );
        }
        Ok(last)
    }

    /// The environment of programs in a guest.
    pub fn environment(&self, index: usize) -> Vec<String> {
        let kind = Data::kind(&self.kernel.flavour);
        environment::of(kind, &self.kernel, self.topology, index, &self.link)
    }

    /// Runs a command per guest, printing what it prints.
    pub fn run(&mut self, commands: &[Vec<String>], timeout: Duration) -> Result<Vec<Outcome>> {
        self.run_but(commands, timeout, &mut |_, _| false)
    }

    /// The same but for lines that `taken` keeps to itself.
    pub fn run_but(
        &mut self,
        commands: &[Vec<String>],
        timeout: Duration,
        taken: &mut dyn FnMut(Stream, &str) -> bool,
    ) -> Result<Vec<Outcome>> {
        let jobs: Vec<Option<Job>> = commands
            .iter()
            .enumerate()
            .map(|(index, argv)| {
                (!argv.is_empty()).then(|| Job {
                    id: "command".into(),
                    timeout,
                    env: self.environment(index),
                    argv: argv.clone(),
                })
            })
            .collect();
        let pair = self.topology == Topology::Pair;
        self.cluster.run(&jobs, &mut |index, stream, line| {
            let side = match (pair, index) {
                (false, _) => "",
                (true, 0) => "a: ",
                (true, _) => "b: ",
            };
            match stream {
                _ if taken(stream, line) => {}
                Stream::Out => println!("{side}{line}"),
                Stream::Err => eprintln!("{side}{line}"),
            }
        })
    }

    /// Runs a command in every guest, handing over its lines.
    pub fn collect(
        &mut self,
        argv: Vec<String>,
        timeout: Duration,
        line: &mut dyn FnMut(Stream, &str),
    ) -> Result<Vec<Outcome>> {
        let job = |index| Job {
            id: "command".into(),
            timeout,
            env: self.environment(index),
            argv: argv.clone(),
        };
        let jobs: Vec<_> = (0..self.cluster.guests.len())
            .map(|index| Some(job(index)))
            .collect();
        self.cluster
            .run(&jobs, &mut |_, stream, text| line(stream, text))
    }

    /// Unloads the module, asks debug kernels whether anything leaked or lockdep gave up, and ends the guests.
    pub fn finish(mut self) -> Result<()> {
        if self.cluster.is_alive() {
            progress::during("unloading and looking for leaks", || self.leave())?;
        }
        self.cluster.shut_down();
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let module = self.module.clone();
        let topology = self.topology.to_string();
        for index in 0..self.cluster.guests.len() {
            self.script(index, &["topo.sh", "down", &topology])?;
            self.script(index, &["module.sh", "unload", &module])?;
        }
        for index in 0..self.cluster.guests.len() {
            self.check(index, "leaks-scan")?;
            self.check(index, "lockdep")?;
        }
        Ok(())
    }
}

/// Boots a kernel, loads a module that was built for it, and takes it out again.
pub fn loads(kernel: &str, module: &Path) -> Result<()> {
    let which = Which {
        kernel: kernel.to_owned(),
        pair: false,
        ko: Some(module.to_owned()),
        module: "rsmc".into(),
        rdma: false,
        bare: true,
        programs: None,
        kmod: Vec::new(),
        tools_only: false,
        card: false,
        port: false,
    };
    which.boot(Options::default(), None)?.finish()
}

/// The worst of some outcomes as an exit status; kernel reports count as 1.
pub fn exit_status(outcomes: &[Outcome]) -> u8 {
    let mut worst = 0;
    for outcome in outcomes {
        if !outcome.why.is_empty() {
            eprintln!("lab: {}", outcome.why);
        }
        for report in &outcome.reports {
            eprintln!("lab: kernel report: {report}");
        }
        let status = u8::try_from(outcome.status).unwrap_or(255);
        worst = worst.max(status).max(u8::from(!outcome.reports.is_empty()));
    }
    worst
}

/// Runs `lab boot`.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let flavour = Data::get().flavour(Data::get().versioned(&arguments.which.kernel))?;
    if arguments.count.is_some() && flavour.arch == Arch::Uml {
        bail!("--count needs QEMU: a user-mode kernel's clock is the host's");
    }
    let options = Options {
        count: arguments.count,
        ..Options::default()
    };
    let which = Which {
        kmod: arguments.kmod.clone(),
        ..arguments.which.clone()
    };
    let mut ready = which.boot(options, arguments.extra.as_ref())?;
    let commands = vec![arguments.command.clone(); ready.cluster.guests.len()];
    let outcomes = ready.run(&commands, Duration::from_secs(arguments.timeout))?;
    let status = exit_status(&outcomes);
    if arguments.log || status != 0 {
        for index in 0..ready.cluster.guests.len() {
            eprintln!("{}", ready.cluster.last_words(index));
        }
    }
    ready.finish()?;
    Ok(ExitCode::from(status))
}
