// SPDX-License-Identifier: GPL-2.0

//! Packages in the guests instead of what was built for them. They are laid out in
//! `/rsmc/debs`, from where `module.sh` installs them before it loads the module; the
//! module and their programs in `/rsmc` are links to the files that they install.

use super::stage::Stage;
use crate::deb;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Lays out the tools and the module for a kernel's release; `directory` has the packages.
pub fn lay_out(stage: &Stage, directory: &Path, release: &str) -> Result<()> {
    fs::create_dir_all(stage.path.join("debs"))?;
    for package in ["rsmc-tools".to_owned(), format!("rsmc-modules-{release}")] {
        let file = find(directory, &package)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        stage.copy(&file, &format!("debs/{name}"))?;
        for path in files(&file)? {
            link(stage, &path)?;
        }
    }
    if !stage.path.join("rsmc.ko").is_symlink() {
        bail!("the package for {release} has no rsmc.ko");
    }
    Ok(())
}

/// The file of a package; there has to be one version of it.
fn find(directory: &Path, package: &str) -> Result<PathBuf> {
    let mut found = deb::sorted(directory)?;
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_"))
    });
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("{} has no {package}_*.deb: lab deb", directory.display()),
        _ => bail!("{} has several {package}_*.deb", directory.display()),
    }
}

/// What is in a package, as it will be called in the guest.
fn files(package: &Path) -> Result<Vec<PathBuf>> {
    let mut command = sysroot::get()?.command("dpkg-deb");
    let out = command.arg("--contents").arg(package).output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{}: {}", package.display(), said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(path)
        .collect())
}

/// The path in a line of `dpkg-deb --contents`; none of a directory.
fn path(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once(" ./")?;
    let path = path.split(" -> ").next()?;
    (!path.is_empty() && !path.ends_with('/')).then(|| Path::new("/").join(path))
}

/// Puts a link in the place of what was built: of the module, or of a program that is there.
fn link(stage: &Stage, installed: &Path) -> Result<()> {
    let name = installed.file_name().unwrap_or_default();
    let place = match name == "rsmc.ko" {
        true => stage.path.join(name),
        false => stage.path.join("bin").join(name),
    };
    if name == "rsmc.ko" || place.exists() {
        let _ = fs::remove_file(&place);
        symlink(installed, &place).with_context(|| place.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::path;
    use std::path::PathBuf;

    #[test]
    fn a_line_names_a_file() {
        let line = |text: &str| path(text);
        let file = "-rwxr-xr-x root/root   9 2026-11-25 03:00 ./usr/bin/rsmc";
        assert_eq!(line(file), Some(PathBuf::from("/usr/bin/rsmc")));
        let link = "lrwxrwxrwx root/root   0 2026-11-25 03:00 ./usr/bin/smcss -> rsmc";
        assert_eq!(line(link), Some(PathBuf::from("/usr/bin/smcss")));
        assert_eq!(line("drwxr-xr-x root/root 0 2026-11-25 03:00 ./usr/"), None);
        assert_eq!(line("drwxr-xr-x root/root 0 2026-11-25 03:00 ./"), None);
    }
}
