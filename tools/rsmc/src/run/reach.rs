// SPDX-License-Identifier: GPL-2.0
//! Can the preload library reach this program? Said before it starts, because a program that was
//! not reached runs over TCP without a word.

use super::elf::{self, Elf};
use super::{Failure, EXIT_CANNOT};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Scripts whose interpreter is a script and so on are followed this far (as the kernel does).
const MAX_SCRIPTS: u32 = 5;

/// Looks at the program in `path` (through `#!` lines) and at the preload library.
/// Returns remarks for the user.
///
/// # Errors
/// The program can certainly not be reached: why, with exit code 126.
pub fn check(path: &Path, library: &Path) -> Result<Vec<String>, Failure> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_SCRIPTS {
        // A program may be executable and not readable. Then there is nothing to say.
        let Ok(file) = File::open(&path) else {
            return Ok(Vec::new());
        };
        if let Some(interpreter) = script_interpreter(&file) {
            path = interpreter;
            continue;
        }
        let verdict = match elf::read(&file) {
            Ok(Some(program)) => {
                let library = File::open(library)
                    .ok()
                    .and_then(|file| elf::read(&file).ok()?);
                judge(&program, library.as_ref(), gains_rights(&path, &file))
            }
            _ => Ok(Vec::new()),
        };
        return verdict.map_err(|why| Failure {
            message: format!("{}: {why}", path.display()),
            code: EXIT_CANNOT,
        });
    }
    Ok(Vec::new())
}

/// The pure part of [`check`].
fn judge(program: &Elf, library: Option<&Elf>, gains_rights: bool) -> Result<Vec<String>, String> {
    if let Some(library) = library {
        if (library.class, library.machine) != (program.class, program.machine) {
            return Err("made for another architecture than the preload library".into());
        }
    }
    if gains_rights {
        return Err(
            "set-user-ID, set-group-ID or file capabilities: the dynamic loader ignores the preload library"
                .into(),
        );
    }
    match &program.interpreter {
        None if !program.is_library => {
            return Err("statically linked: the preload library cannot reach it".into());
        }
        Some(loader) if loader.contains("ld-musl") => {
            return Err(
                "made for the musl C library; the preload library needs the GNU one".into(),
            );
        }
        _ => {}
    }
    let mut remarks = Vec::new();
    if program.is_go {
        remarks.push(
            "a Go program: it makes system calls without the C library, so its sockets stay TCP"
                .into(),
        );
    }
    Ok(remarks)
}

fn script_interpreter(file: &File) -> Option<PathBuf> {
    let mut line = [0u8; 256];
    let length = file.read_at(&mut line, 0).ok()?;
    let line = line.get(..length)?.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = String::from_utf8_lossy(line);
    word.split_whitespace().next().map(PathBuf::from)
}

/// True if the kernel would start this file in secure-execution mode for the calling user.
fn gains_rights(path: &Path, file: &File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let mode = metadata.mode();
    let user = rustix::process::geteuid().as_raw();
    if mode & 0o4000 != 0 && metadata.uid() != user {
        return true;
    }
    if mode & 0o2010 == 0o2010 && metadata.gid() != rustix::process::getegid().as_raw() {
        return true;
    }
    let mut capabilities = [0u8; 64];
    user != 0
        && rustix::fs::getxattr(path, "security.capability", &mut capabilities[..])
            .is_ok_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic() -> Elf {
        Elf {
            class: 2,
            machine: 62,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            ..Elf::default()
        }
    }

    fn refusal(program: &Elf) -> String {
        judge(program, Some(&dynamic()), false).unwrap_err()
    }

    #[test]
    fn ordinary_programs_pass() {
        assert_eq!(judge(&dynamic(), Some(&dynamic()), false), Ok(vec![]));
        assert_eq!(judge(&dynamic(), None, false), Ok(vec![]));
        let loader = Elf {
            interpreter: None,
            is_library: true,
            ..dynamic()
        };
        assert_eq!(judge(&loader, Some(&dynamic()), false), Ok(vec![]));
    }

    #[test]
    fn unreachable_ones_are_named() {
        let fixed = Elf {
            interpreter: None,
            ..dynamic()
        };
        assert!(refusal(&fixed).contains("statically linked"));
        let narrow = Elf {
            class: 1,
            machine: 3,
            ..dynamic()
        };
        assert!(refusal(&narrow).contains("architecture"));
        let musl = Elf {
            interpreter: Some("/lib/ld-musl-x86_64.so.1".into()),
            ..dynamic()
        };
        assert!(refusal(&musl).contains("musl"));
        assert!(judge(&dynamic(), None, true)
            .unwrap_err()
            .contains("set-user-ID"));
    }

    #[test]
    fn go_gets_a_warning() {
        let go = Elf {
            is_go: true,
            ..dynamic()
        };
        assert_eq!(judge(&go, Some(&dynamic()), false).unwrap().len(), 1);
    }
}
