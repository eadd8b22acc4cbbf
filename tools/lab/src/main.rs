// SPDX-License-Identifier: GPL-2.0

//! `lab`: the sysroot, kernels and guests rsmc is developed and tested with.
//!
//! Started by `tools/bootstrap`, which makes the sysroot and builds this tool in
//! it. Modules: [`data`] (lab.toml), [`cache`], [`sysroot`], [`root`], [`cross`] (other machines), [`progress`],
//! [`kernel`], [`module`] (rsmc.ko), [`check`] (style), [`deb`] (packages), [`docs`] (the site),
//! [`examples`] (of kapi's documentation), [`guest`] (booting), [`run`] (what happens in guests), [`ktap`] (results).

mod cache;
mod check;
mod cross;
mod data;
mod deb;
mod docs;
mod examples;
mod guest;
mod kernel;
mod ktap;
mod module;
mod progress;
mod root;
mod run;
mod space;
mod sysroot;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// Kernels, sysroot and guests for developing and testing rsmc.
#[derive(Parser, Debug)]
#[command(name = "lab")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Build kernels that are missing and say where they are
    Kernel {
        /// Names from lab.toml; none: list what there is
        flavour: Vec<String>,
    },
    /// Build rsmc.ko for a kernel and print its path
    Module {
        /// Name from lab.toml
        #[arg(long, default_value = data::Data::default_flavour())]
        kernel: String,
        /// With the kernel's Rust crates inside: a prototype for kernels that have none
        #[arg(long)]
        private: bool,
    },
    /// Judge everything that needs no guest: style, lints, documentation, walls
    Check {
        /// Only checks whose name contains this
        only: Option<String>,
    },
    /// Format all Rust files as `check` wants them
    Fmt,
    /// Make a site of the documentation and follow all of its links
    Docs(docs::Arguments),
    /// Run a command inside the sysroot
    Sysroot {
        /// Program and arguments; none: a shell
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Make Debian packages
    Deb(deb::Arguments),
    /// Install, upgrade and remove the packages in fresh Debian roots, and boot with them
    TestPackages(deb::test::Arguments),
    /// Look at the cache or free some of it
    #[command(subcommand)]
    Cache(CacheCommand),
    #[command(flatten)]
    Run(run::Command),
}

#[derive(Subcommand, Debug)]
enum CacheCommand {
    /// List the entries and the time since their last use
    List,
    /// Remove entries that are incomplete or long unused
    Gc {
        /// Keep what was used within the last DAYS days
        #[arg(long, default_value_t = 30)]
        days: u64,
    },
}

fn main() -> ExitCode {
    // Before the arguments, whose defaults are in it.
    let loaded = data::Data::load();
    let arguments = Arguments::parse();
    match loaded.and_then(|()| dispatch(arguments.command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {}", space::explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Kernel { flavour } => kernels(&flavour)?,
        Command::Module { kernel, private } => {
            let kernel = kernel::get(&kernel)?;
            let module = match private {
                true => module::private::make(&kernel)?,
                false => module::build(&kernel)?,
            };
            println!("{}", module.display());
        }
        Command::Check { only } => return check::main(only.as_deref()),
        Command::Fmt => return check::format(),
        Command::Docs(arguments) => return docs::main(&arguments),
        Command::Sysroot { command } => {
            let (program, arguments) = match command.split_first() {
                Some((program, arguments)) => (program.as_str(), arguments),
                None => ("bash", [].as_slice()),
            };
            let status = sysroot::get()?.command(program).args(arguments).status()?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
        Command::Deb(arguments) => return deb::main(&arguments),
        Command::TestPackages(arguments) => return deb::test::main(&arguments),
        Command::Cache(CacheCommand::List) => {
            for found in cache::list()? {
                match found.idle {
                    Some(idle) => println!("{}: used {} h ago", found.name, idle.as_secs() / 3600),
                    None => println!("{}: incomplete", found.name),
                }
            }
        }
        Command::Cache(CacheCommand::Gc { days }) => {
            for name in cache::gc(Duration::from_secs(days.saturating_mul(86400)))? {
                println!("removed {name}");
            }
        }
        Command::Run(command) => return run::main(command),
    }
    Ok(ExitCode::SUCCESS)
}

fn kernels(names: &[String]) -> Result<()> {
    if names.is_empty() {
        for (name, flavour) in &data::Data::get().flavour {
            let note = if flavour.build_only {
                " (not booted)"
            } else {
                ""
            };
            println!("{name:12} {}{note}", flavour.about);
        }
    }
    for name in names {
        let kernel = kernel::get(name)?;
        println!(
            "{name}: release={} image={} modules={} build={} source={}",
            kernel.release,
            kernel.image.display(),
            kernel.modules.display(),
            kernel.build.display(),
            kernel.source.display()
        );
    }
    Ok(())
}
