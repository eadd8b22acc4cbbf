// SPDX-License-Identifier: GPL-2.0

//! Running things in guests (owner: LAB-B). Interface to `main.rs`: a clap
//! subcommand enum, flattened into the tool's own, and its `main`.

use anyhow::Result;
use std::process::ExitCode;

/// Subcommands that boot guests.
#[derive(clap::Subcommand, Debug)]
pub enum Command {}

/// Runs one of them.
pub fn main(command: Command) -> Result<ExitCode> {
    match command {}
}
