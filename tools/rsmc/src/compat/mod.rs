// SPDX-License-Identifier: GPL-2.0
//! The names of smc-tools: this program, started as one of them, takes that tool's options and
//! prints its columns.
//!
//! Scripts that read those columns go on working. What was wrong there is not kept: errors are
//! errors here also for `stats`, filters filter, and `--version` succeeds.

mod chk;
mod columns;
mod described;
mod devices;
mod groups;
mod info;
mod keys;
mod pnet;
mod run;
mod selection;
mod smc;
mod smcd;
mod smcss;
mod socket;
mod stats;

use crate::error::Error;
use crate::visible::complain;
use clap::error::ErrorKind;
use clap::{Command, Parser};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

/// A tool: takes all arguments with the program's name, returns the exit code.
pub type Tool = fn(&[OsString], &mut dyn Write) -> u8;

/// The tool that is called like this, by the last part of the path.
pub fn tool(program: &OsStr) -> Option<Tool> {
    match Path::new(program).file_name()?.to_str()? {
        "smcss" => Some(smcss::main),
        "smcr" => Some(smc::smcr),
        "smcd" => Some(smc::smcd),
        "smc_pnet" => Some(pnet::main),
        "smc_run" => Some(run::main),
        "smc_chk" => Some(chk::main),
        _ => None,
    }
}

/// The tools, as manual pages need them: their options, and what they are. Those of `smcr` and
/// `smcd` are read by hand; their page has what `--help` prints.
pub fn manual() -> Vec<(Command, Option<String>)> {
    let about = |command: Command, about: &'static str| (command.about(about), None);
    let by_hand = |technology, about: &'static str| {
        let mut help = Vec::new();
        // A vector takes everything.
        let _ = smc::usage(technology, &mut help);
        let command = Command::new(technology.tool())
            .about(about)
            .disable_help_flag(true);
        (command, Some(String::from_utf8_lossy(&help).into_owned()))
    };
    vec![
        about(
            smcss::command(),
            "List SMC sockets, in the columns of smc-tools",
        ),
        about(
            pnet::command(),
            "Show and change the PNET table, with the options of smc-tools",
        ),
        about(
            run::command(),
            "Run a program over SMC sockets, with the options of smc-tools",
        ),
        about(
            chk::command(),
            "Test SMC connections, with the options of smc-tools",
        ),
        by_hand(
            smc::Technology::R,
            "SMC-R link groups, devices, statistics and UEIDs, as smc-tools show them",
        ),
        by_hand(
            smc::Technology::D,
            "SMC-D link groups, devices, statistics and EIDs, as smc-tools show them",
        ),
    ]
}

/// The command lines of the tools, as shells complete them.
pub fn commands() -> Vec<Command> {
    vec![
        smcss::command(),
        pnet::command(),
        run::command(),
        chk::command(),
        described::command(smc::Technology::R),
        described::command(smc::Technology::D),
    ]
}

/// Reads a tool's arguments; the exit code if that is all there was to do.
fn parse<T: Parser>(arguments: &[OsString], wrong: u8) -> Result<T, u8> {
    T::try_parse_from(arguments).map_err(|error| {
        // Where this fails nobody reads it.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
            _ => wrong,
        }
    })
}

/// Says what went wrong; the exit code is `code` for all of it, as the tools have it.
fn finish(name: &str, done: Result<(), Error>, code: u8) -> u8 {
    match done {
        Ok(()) => 0,
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            complain(name, &error);
            code
        }
    }
}

/// Text or, where there is none, what the tools say then.
fn or_na(text: &str) -> String {
    match text {
        "" => "n/a".into(),
        text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_by_name() {
        for name in [
            "smcss",
            "/usr/sbin/smcr",
            "./smc_chk",
            "smcd",
            "smc_pnet",
            "smc_run",
        ] {
            assert!(tool(OsStr::new(name)).is_some(), "{name}");
        }
        for name in ["rsmc", "smc_dbg", "", "/"] {
            assert!(tool(OsStr::new(name)).is_none(), "{name}");
        }
    }
}
