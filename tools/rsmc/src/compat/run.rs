// SPDX-License-Identifier: GPL-2.0
//! `smc_run`: a program over SMC sockets.

use super::parse;
use crate::cli::RunArgs;
use crate::visible::complain;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::fs;
use std::io::Write;

/// Run a command whose TCP sockets become SMC sockets (rsmc run with the options of smc_run)
#[derive(Debug, Parser)]
#[command(name = "smc_run", version, disable_version_flag = true)]
struct Options {
    /// Say what became of each socket; SMC_DEBUG does the same
    #[arg(short)]
    debug: bool,
    /// Receive buffer in bytes or with k or m; net.core.rmem_max is raised to it if it is lower
    #[arg(short, value_name = "SIZE", value_parser = crate::cli::buffer_size)]
    receive: Option<u32>,
    /// Send buffer, likewise
    #[arg(short = 't', value_name = "SIZE", value_parser = crate::cli::buffer_size)]
    transmit: Option<u32>,
    /// Show the version
    #[arg(short, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The options, for the manual.
pub fn command() -> Command {
    Options::command()
}

/// `smc_run`. Returns only if the command could not be started.
pub fn main(arguments: &[OsString], _: &mut dyn Write) -> u8 {
    let options = match parse::<Options>(arguments, 1) {
        Ok(options) => options,
        Err(code) => return code,
    };
    // As in that tool's environment.
    let size = |name: &str| {
        let text = std::env::var(name).ok()?;
        crate::cli::buffer_size(&text).ok()
    };
    let receive = options.receive.or_else(|| size("SMC_RCVBUF"));
    let transmit = options.transmit.or_else(|| size("SMC_SNDBUF"));
    raise("rmem_max", receive);
    raise("wmem_max", transmit);
    let failure = crate::run::run(&RunArgs {
        scope: false,
        family: None,
        strict: false,
        debug: options.debug || std::env::var_os("SMC_DEBUG").is_some_and(|value| value != "0"),
        sndbuf: transmit,
        rcvbuf: receive,
        library: None,
        command: options.command,
    });
    complain("smc_run", &failure.message);
    failure.code
}

/// Raises the limit of a buffer's size to what is asked for, if it may.
fn raise(limit: &str, size: Option<u32>) {
    let path = format!("/proc/sys/net/core/{limit}");
    let now = fs::read_to_string(&path).ok();
    let now: Option<u32> = now.and_then(|text| text.trim().parse().ok());
    let Some((size, now)) = size.zip(now) else {
        return;
    };
    if size > now && fs::write(&path, size.to_string()).is_err() {
        let why = format!("net.core.{limit} is {now} and cannot be raised to {size}");
        complain("smc_run: warning", &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_own_options_are_left_alone() {
        let parsed = |line: &str| Options::try_parse_from(line.split_whitespace());
        let options = parsed("smc_run -d -r 512k ls -l -d").unwrap();
        assert_eq!(options.command, ["ls", "-l", "-d"]);
        assert_eq!((options.debug, options.receive), (true, Some(512 << 10)));
        assert!(parsed("smc_run").is_err());
        assert!(parsed("smc_run -r 1x ls").is_err());
    }
}
