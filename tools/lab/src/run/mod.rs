// SPDX-License-Identifier: GPL-2.0

//! Commands that boot guests.
//!
//! [`plan`] reads which test runs where, [`group`] decides which share a boot
//! and when it starts, from the [`times`] of earlier runs; [`boots`] starts them, [`session`] runs the tests that share
//! a boot, [`again`] what failed once more, [`reader`] reads what they print, [`host`], [`fuzz`] and [`headers`] those that need no guest, [`user`], [`foreign`], [`suite`] and
//! [`stage`] build and lay out what goes into a guest, [`installed`] packages instead of that. How guests are booted is [`crate::guest`].

mod again;
pub mod bench;
pub mod boot;
mod boots;
mod demo;
mod environment;
mod foreign;
mod fuzz;
mod group;
mod headers;
mod host;
mod installed;
mod left;
mod plan;
mod reader;
mod session;
mod shell;
pub mod stage;
mod suite;
mod test;
mod times;
pub mod user;

use anyhow::Result;
use std::process::ExitCode;

/// Subcommands that boot guests.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Run the tests: host, builds and guests, as one KTAP stream
    Test(test::Arguments),
    /// Show what the tests' plan says of each of its entries
    Plan(plan::show::Arguments),
    /// Show an unmodified Redis over SMC between two guests
    Demo(demo::Arguments),
    /// Get a prompt in a guest with the module loaded
    Shell(shell::Arguments),
    /// Count what sockets cost in instructions
    Bench(Box<bench::Arguments>),
    /// Run a command in fresh guests
    Boot(boot::Arguments),
}

/// Runs one of them.
pub fn main(command: Command) -> Result<ExitCode> {
    match command {
        Command::Test(arguments) => test::main(&arguments),
        Command::Plan(arguments) => plan::show::main(&arguments),
        Command::Demo(arguments) => demo::main(arguments),
        Command::Shell(arguments) => shell::main(&arguments),
        Command::Bench(arguments) => bench::main(*arguments),
        Command::Boot(arguments) => boot::main(&arguments),
    }
}
