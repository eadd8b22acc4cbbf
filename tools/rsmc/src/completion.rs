// SPDX-License-Identifier: GPL-2.0
//! `rsmc completion`: scripts with which shells complete the command line, for this program and for
//! the names of smc-tools.

use crate::cli::{Cli, CompletionArgs};
use crate::compat;
use crate::error::{Error, Result};
use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use std::fs;
use std::io::Write;

/// Prints the script for this program, or writes one for each name into a directory.
///
/// # Errors
/// Errors of writing the scripts.
pub fn run(args: &CompletionArgs, out: &mut dyn Write) -> Result<()> {
    let Some(directory) = &args.directory else {
        return Ok(out.write_all(&script(args.shell, Cli::command()))?);
    };
    let mut commands = compat::commands();
    commands.push(Cli::command());
    for command in commands {
        let path = directory.join(args.shell.file_name(command.get_name()));
        let text = script(args.shell, command);
        fs::write(&path, text).map_err(|error| Error::at(&path, error))?;
    }
    Ok(())
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_string();
    // Memory takes everything; a pipe that nobody reads any more would be a panic in there.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_script_for_each_name() {
        let directory = std::env::temp_dir().join(format!("rsmc-comp-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for shell in Shell::value_variants() {
            let args = CompletionArgs {
                shell: *shell,
                directory: Some(directory.clone()),
            };
            run(&args, &mut Vec::new()).unwrap();
            let script =
                |name: &str| fs::read_to_string(directory.join(shell.file_name(name))).unwrap();
            for (name, word) in [
                ("rsmc", "completion"),
                ("smcss", "listening"),
                ("smcr", "link-show"),
                ("smcd", "seid"),
                ("smc_pnet", "ibdevice"),
                ("smc_run", "smc_run"),
                ("smc_chk", "pnetid"),
            ] {
                assert!(script(name).contains(word), "{shell} {name}");
            }
            assert!(!script("smcd").contains("link-show"), "{shell}");
            assert!(!script("smcr").contains("seid"), "{shell}");
        }
        fs::remove_dir_all(&directory).unwrap();
        let args = CompletionArgs {
            shell: Shell::Bash,
            directory: Some(directory),
        };
        assert!(run(&args, &mut Vec::new()).is_err());
    }

    #[test]
    fn without_a_directory_that_of_this_program() {
        let args = CompletionArgs {
            shell: Shell::Bash,
            directory: None,
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("_rsmc()"));
    }
}
