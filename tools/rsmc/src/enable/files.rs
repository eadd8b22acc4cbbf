// SPDX-License-Identifier: GPL-2.0
//! Changes of several files that are made together: all of them, or none.

use crate::error::{Error, Result};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// First line of the files that `rsmc enable` makes, and of no others.
pub const MARK: &str = "# Made by `rsmc enable`; `rsmc disable` takes it back.";

/// A file that is to have these contents, or to be no more.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Its contents; `None` removes it.
    pub contents: Option<String>,
}

/// State of a file that may be `rsmc enable`'s.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    Missing,
    /// It is, with these contents.
    Ours(String),
    /// Somebody else made it.
    Foreign,
}

/// Looks at a file.
///
/// # Errors
/// Errors of reading it.
pub fn look(path: &Path) -> Result<Found> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(Found::Ours(text)),
        Ok(_) => Ok(Found::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Found::Foreign),
        Err(error) => Err(Error::at(path, error)),
    }
}

/// The path of a file below `root`.
///
/// # Errors
/// `Usage` when a symbolic link on its way leads out of there.
pub fn below(root: &Path, path: &str) -> Result<PathBuf> {
    let whole = root.join(path.trim_start_matches('/'));
    if root == Path::new("/") {
        return Ok(whole);
    }
    let top = fs::canonicalize(root)
        .map_err(|error| Error::Usage(format!("{}: {error}", root.display())))?;
    let there = whole.ancestors().find_map(|at| fs::canonicalize(at).ok());
    match there.is_some_and(|there| there.starts_with(&top)) {
        true => Ok(whole),
        false => Err(Error::Usage(format!(
            "{}: a link on its way leads out of {}",
            whole.display(),
            root.display()
        ))),
    }
}

/// Name of a file beside another one.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    path.with_file_name(format!(".{name}.rsmc-{what}"))
}

/// Removes a file if it is there.
fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What has been done so far, to be taken back.
#[derive(Default)]
struct Done {
    directories: Vec<PathBuf>,
    prepared: Vec<PathBuf>,
    /// Files that were changed, and whether there was one before.
    changed: Vec<(PathBuf, bool)>,
}

impl Done {
    /// Makes a directory and those above it.
    fn directory(&mut self, at: &Path) -> Result<()> {
        if at.is_dir() {
            return Ok(());
        }
        if let Some(above) = at.parent() {
            self.directory(above)?;
        }
        fs::create_dir(at).map_err(|error| Error::at(at, error))?;
        self.directories.push(at.into());
        Ok(())
    }

    fn prepare(&mut self, path: &Path, contents: &str) -> Result<()> {
        self.directory(path.parent().unwrap_or(Path::new("/")))?;
        let new = beside(path, "new");
        let write = || {
            unlink(&new)?;
            let mut file = File::create_new(&new)?;
            file.write_all(contents.as_bytes())?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.sync_all()
        };
        self.prepared.push(new.clone());
        write().map_err(|error| Error::at(path, error))
    }

    fn put(&mut self, change: &Change) -> Result<()> {
        let path = &change.path;
        let old = beside(path, "old");
        let put = || -> io::Result<bool> {
            unlink(&old)?;
            // A second name, so that a reader finds the old file or the new one.
            let was = match fs::hard_link(path, &old) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                done => done.map(|()| true)?,
            };
            let placed = match change.contents {
                Some(_) => fs::rename(beside(path, "new"), path),
                None => unlink(path),
            };
            placed.inspect_err(|_| {
                let _ = unlink(&old);
            })?;
            Ok(was)
        };
        let was = put().map_err(|error| Error::at(path, error))?;
        self.changed.push((path.clone(), was));
        Ok(())
    }

    /// Takes everything back, as far as that can be.
    fn undo(self) {
        for (path, was) in self.changed.iter().rev() {
            let _ = match was {
                true => fs::rename(beside(path, "old"), path),
                false => unlink(path),
            };
        }
        for new in &self.prepared {
            let _ = unlink(new);
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }

    fn all(&mut self, changes: &[Change]) -> Result<()> {
        for change in changes {
            if let Some(contents) = &change.contents {
                self.prepare(&change.path, contents)?;
            }
        }
        changes.iter().try_for_each(|change| self.put(change))
    }
}

/// Makes all changes.
///
/// # Errors
/// The first that cannot be made; the files are as they were then.
pub fn apply(changes: &[Change]) -> Result<()> {
    let mut done = Done::default();
    if let Err(error) = done.all(changes) {
        done.undo();
        return Err(error);
    }
    for (path, was) in &done.changed {
        if *was {
            let _ = unlink(&beside(path, "old"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let at = std::env::temp_dir().join(format!("rsmc-files-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&at);
            fs::create_dir_all(&at).unwrap();
            Self(at)
        }

        /// All files and directories, with the contents of files.
        fn all(&self) -> Vec<String> {
            fn walk(at: &Path, found: &mut Vec<String>) {
                for entry in fs::read_dir(at).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        found.push(format!("{}/", path.display()));
                        walk(&path, found);
                    } else {
                        let text = fs::read_to_string(&path).unwrap();
                        found.push(format!("{}: {text}", path.display()));
                    }
                }
            }
            let mut found = Vec::new();
            walk(&self.0, &mut found);
            found.sort();
            found
        }

        fn write(&self, name: &str, text: &str) -> Change {
            let path = self.0.join(name);
            let contents = Some(text.into());
            Change { path, contents }
        }

        fn remove(&self, name: &str) -> Change {
            let path = self.0.join(name);
            let contents = None;
            Change { path, contents }
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_come_and_go_with_their_directories() {
        let at = Scratch::new("come");
        fs::write(at.0.join("kept"), "k").unwrap();
        let before = at.all();
        apply(&[at.write("a/b/one", "1"), at.write("two", "2")]).unwrap();
        apply(&[at.write("two", "3")]).unwrap();
        assert_eq!(fs::read_to_string(at.0.join("a/b/one")).unwrap(), "1");
        assert_eq!(fs::read_to_string(at.0.join("two")).unwrap(), "3");
        let mode = fs::metadata(at.0.join("two")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        apply(&[at.remove("a/b/one"), at.remove("two"), at.remove("never")]).unwrap();
        fs::remove_dir(at.0.join("a/b")).unwrap();
        fs::remove_dir(at.0.join("a")).unwrap();
        assert_eq!(at.all(), before);
    }

    #[test]
    fn a_failure_leaves_everything_as_it_was() {
        let at = Scratch::new("fail");
        fs::write(at.0.join("old"), "o").unwrap();
        fs::write(at.0.join("gone"), "g").unwrap();
        fs::create_dir_all(at.0.join("full/dir")).unwrap();
        let before = at.all();
        // A file stands where a directory would have to be: nothing is begun.
        let all = [at.write("new/one", "1"), at.write("old/below", "2")];
        apply(&all).unwrap_err();
        assert_eq!(at.all(), before);
        // A directory stands where a file would have to be: what was put before comes back.
        let all = [
            at.write("x/y/one", "1"),
            at.write("old", "2"),
            at.remove("gone"),
            at.write("full", "3"),
        ];
        let error = apply(&all).unwrap_err().to_string();
        assert!(error.contains("full"), "{error}");
        assert_eq!(at.all(), before);
    }

    #[test]
    fn whose_a_file_is() {
        let at = Scratch::new("whose");
        let path = at.0.join("f");
        assert_eq!(look(&path).unwrap(), Found::Missing);
        fs::write(&path, "# mine\n").unwrap();
        assert_eq!(look(&path).unwrap(), Found::Foreign);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Foreign);
        fs::write(&path, format!("{MARK}\nx\n")).unwrap();
        assert!(matches!(look(&path).unwrap(), Found::Ours(_)));
    }

    #[test]
    fn links_do_not_lead_out() {
        let at = Scratch::new("links");
        let root = at.0.join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink("etc", root.join("in")).unwrap();
        for good in ["/etc/a/b", "etc/x", "/in/x", "/new/x"] {
            assert!(below(&root, good).unwrap().starts_with(&root));
        }
        for bad in ["/out/rsmc-no-such", "/etc/../../x/y", "/out"] {
            assert!(below(&root, bad).is_err(), "{bad}");
        }
    }
}
