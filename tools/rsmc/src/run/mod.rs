// SPDX-License-Identifier: GPL-2.0
//! `rsmc run`: start a program whose TCP sockets become SMC sockets.
//!
//! Finds the preload library ([`library`]) and the command, looks whether the library can reach
//! that command at all ([`reach`]), sets the environment and executes it in place of itself. With `--scope` it is a
//! rule for the command's cgroup instead ([`scope`]).

pub mod elf;
pub mod library;
pub mod reach;
pub mod scope;

use crate::cli::{Family, RunArgs};
use crate::visible::complain;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code when `rsmc run` itself fails before it gets to the command (as env(1) does).
pub const EXIT_OWN: u8 = 125;
/// Exit code when the command was found and cannot be run over SMC, or not be run at all.
pub const EXIT_CANNOT: u8 = 126;
/// Exit code when the command was not found.
pub const EXIT_MISSING: u8 = 127;

/// Why the command was not started: what to say and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// One line for the user.
    pub message: String,
    /// 125, 126 or 127.
    pub code: u8,
}

/// Executes the command in place of this process. Returns only if that was not possible.
pub fn run(args: &RunArgs) -> Failure {
    if args.scope {
        return scope::run(args);
    }
    match prepare(args) {
        Ok(mut command) => {
            let error = command.exec();
            let program = command.get_program().to_string_lossy().into_owned();
            start_failure(&program, &error)
        }
        Err(failure) => failure,
    }
}

/// What went wrong here, and not with the command.
fn own(message: String) -> Failure {
    Failure {
        message,
        code: EXIT_OWN,
    }
}

fn prepare(args: &RunArgs) -> Result<Command, Failure> {
    let library = library::find(args.library.as_deref()).map_err(own)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(own("no command given".into()));
    };
    let path = which(program, std::env::var_os("PATH").as_deref())?;
    for remark in reach::check(&path, &library)? {
        complain("rsmc: warning", &remark);
    }

    if let Some(remark) = crate::module::before_first_socket() {
        complain("rsmc: warning", &remark);
    }
    let mut command = Command::new(program);
    command.args(rest);
    let preload = library::preload_list(std::env::var_os("LD_PRELOAD").as_deref(), &library);
    command.env("LD_PRELOAD", preload);
    if let Some(family) = args.family {
        let name = match family {
            Family::Inet => "inet",
            Family::Smc => "smc",
        };
        command.env("RSMC_FAMILY", name);
    }
    if args.strict {
        command.env("RSMC_STRICT", "1");
    }
    if args.debug {
        command.env("RSMC_DEBUG", "1");
    }
    if let Some(bytes) = args.sndbuf {
        command.env("RSMC_SNDBUF", bytes.to_string());
    }
    if let Some(bytes) = args.rcvbuf {
        command.env("RSMC_RCVBUF", bytes.to_string());
    }
    Ok(command)
}

/// The file a shell would execute for `program`: itself if it has a slash, else the first
/// executable file of that name in the directories of `path`.
fn which(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let shown = program.to_string_lossy();
    let missing = || Failure {
        message: format!("{shown}: command not found"),
        code: EXIT_MISSING,
    };
    if program.is_empty() {
        return Err(missing());
    }
    if program.as_bytes().contains(&b'/') {
        let file = PathBuf::from(program);
        return match std::fs::metadata(&file) {
            Ok(_) if is_executable(&file) => Ok(file),
            Ok(_) => Err(Failure {
                message: format!("{shown}: not an executable file"),
                code: EXIT_CANNOT,
            }),
            Err(error) => Err(start_failure(&shown, &error)),
        };
    }
    let path = path.map_or_else(|| OsString::from("/usr/bin:/bin"), OsStr::to_os_string);
    let mut found = None;
    for directory in std::env::split_paths(&path) {
        let directory = if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        };
        let file = directory.join(program);
        if is_executable(&file) {
            return Ok(file);
        }
        if found.is_none() && file.is_file() {
            found = Some(file);
        }
    }
    match found {
        Some(file) => Err(Failure {
            message: format!("{}: permission denied", file.display()),
            code: EXIT_CANNOT,
        }),
        None => Err(missing()),
    }
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

fn start_failure(program: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return Failure {
            message: format!("{program}: no such file, or its interpreter is missing"),
            code: EXIT_MISSING,
        };
    }
    Failure {
        message: format!("{program}: {error}"),
        code: EXIT_CANNOT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_does() {
        let path = OsStr::new("/nonexistent:/usr/bin:/bin");
        assert!(which(OsStr::new("env"), Some(path)).is_ok());
        assert!(which(OsStr::new("/usr/bin/env"), None).is_ok());
        let code = |name: &str| which(OsStr::new(name), Some(path)).unwrap_err().code;
        assert_eq!(code("no-such-command-here"), EXIT_MISSING);
        assert_eq!(code("/no/such/file"), EXIT_MISSING);
        assert_eq!(code(""), EXIT_MISSING);
        assert_eq!(code("/etc/passwd"), EXIT_CANNOT);
        assert_eq!(code("/usr"), EXIT_CANNOT);
        let etc = Some(OsStr::new("/etc"));
        assert_eq!(
            which(OsStr::new("passwd"), etc).unwrap_err().code,
            EXIT_CANNOT
        );
    }
}
