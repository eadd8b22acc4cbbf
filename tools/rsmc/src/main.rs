// SPDX-License-Identifier: GPL-2.0
//! The `rsmc` program: reads the command line and calls the command.
#![forbid(unsafe_code)]

use clap::Parser;
use rsmc::cli::{Cli, Command};
use rsmc::error::Error;
use rsmc::visible::{complain, Output};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = Output::stdout();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(tool) = arguments.first().and_then(|name| rsmc::compat::tool(name)) {
        let code = tool(&arguments, &mut out);
        // As below: nobody reads it any more.
        let _ = out.flush();
        return ExitCode::from(code);
    }
    let done = match Cli::parse().command {
        Command::Run(args) => {
            let failure = rsmc::run::run(&args);
            complain("rsmc", &failure.message);
            return ExitCode::from(failure.code);
        }
        Command::Ss(args) => rsmc::ss::run(&args, &mut out),
        Command::Link(args) => rsmc::link::run(&args, &mut out),
        Command::Dev(args) => rsmc::dev::run(&args, &mut out),
        Command::Why(args) => rsmc::why::run(&args, &mut out),
        Command::Stats(args) => rsmc::stats::run(&args, &mut out),
        Command::Ueid(args) => rsmc::ueid::run(&args, &mut out),
        Command::Pnet(args) => rsmc::pnet::run(&args, &mut out),
        Command::Policy(args) => rsmc::policy::run(&args, &mut out),
        Command::Demote(args) => rsmc::demote::run(&args),
        Command::Enable(args) => rsmc::enable::enable(&args, &mut out),
        Command::Disable(args) => rsmc::enable::disable(&args, &mut out),
        Command::Up(args) => rsmc::up::run(&args, &mut out),
        Command::ScopeEnd(args) => rsmc::run::scope::end(&args),
        Command::Unload(_) => rsmc::unload::run(&mut out),
        Command::Top(args) => rsmc::top::run(&args, &mut out),
        Command::Report(args) => rsmc::report::run(&args, &mut out),
        Command::Completion(args) => rsmc::completion::run(&args, &mut out),
        Command::Man(args) => rsmc::man::run(&args),
    };
    // What there is to see comes before what went wrong.
    let flushed = out.flush();
    match done.and_then(|()| Ok(flushed?)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe had enough (`rsmc ss | head`): no fault of anyone.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain("rsmc", &error);
            ExitCode::from(error.exit_code())
        }
    }
}
