// SPDX-License-Identifier: GPL-2.0
//! Where the preload library is, and how it joins `LD_PRELOAD`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// File name of the preload library.
pub const NAME: &str = "librsmc_preload.so";

/// The library's absolute path: `given` if there is one, else beside this program, in `../lib`,
/// or in a system directory.
///
/// # Errors
/// A line for the user: none found, or a path that `LD_PRELOAD` cannot express.
pub fn find(given: Option<&Path>) -> Result<PathBuf, String> {
    let candidates = match given {
        Some(path) => vec![path.to_path_buf()],
        None => candidates(),
    };
    let Some(found) = candidates.iter().find(|path| path.is_file()) else {
        return Err(match given {
            Some(path) => format!("{}: no such library", path.display()),
            None => {
                let mut places: Vec<String> = Vec::new();
                for path in &candidates {
                    if let Some(parent) = path.parent() {
                        places.push(parent.display().to_string());
                    }
                }
                format!("{NAME} is not in {}", places.join(", "))
            }
        });
    };
    let found = found
        .canonicalize()
        .map_err(|error| format!("{}: {error}", found.display()))?;
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':'))
    {
        return Err(format!(
            "{}: LD_PRELOAD cannot hold a path with a space or a colon; move the library",
            found.display()
        ));
    }
    Ok(found)
}

fn candidates() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let Ok(program) = std::env::current_exe() {
        if let Some(beside) = program.parent() {
            directories.push(beside.to_path_buf());
            if let Some(prefix) = beside.parent() {
                directories.push(prefix.join("lib"));
                directories.push(prefix.join("lib/rsmc"));
            }
        }
    }
    directories.push(PathBuf::from("/usr/local/lib/rsmc"));
    directories.push(PathBuf::from("/usr/lib/rsmc"));
    let mut files: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let file = directory.join(NAME);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// The value of `LD_PRELOAD` with `library` after what is there already, and never twice.
pub fn preload_list(present: Option<&OsStr>, library: &Path) -> OsString {
    let library = library.as_os_str().as_bytes();
    let mut list = present
        .map(|value| value.as_bytes().to_vec())
        .unwrap_or_default();
    let known = list
        .split(|byte| matches!(byte, b' ' | b':'))
        .any(|entry| entry == library);
    if !known {
        if !list.is_empty() {
            list.push(b':');
        }
        list.extend_from_slice(library);
    }
    OsString::from_vec(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_once() {
        let library = Path::new("/usr/lib/rsmc/librsmc_preload.so");
        let list = |present: Option<&str>| preload_list(present.map(OsStr::new), library);
        assert_eq!(list(None), library.as_os_str());
        assert_eq!(list(Some("")), library.as_os_str());
        assert_eq!(
            list(Some("/a.so b.so")),
            OsStr::new("/a.so b.so:/usr/lib/rsmc/librsmc_preload.so")
        );
        let there = "/usr/lib/rsmc/librsmc_preload.so:/a.so";
        assert_eq!(list(Some(there)), OsStr::new(there));
    }

    #[test]
    fn a_wrong_path_is_named() {
        let error = find(Some(Path::new("/no/such.so"))).unwrap_err();
        assert!(error.contains("/no/such.so"), "{error}");
    }
}
