// SPDX-License-Identifier: GPL-2.0

//! Packages in the guests instead of what was built for them. dpkg installs them once for a
//! kernel, on the host, over the sysroot and a copy of the kernel's modules, which takes seconds
//! there and minutes in an emulated guest. The guests get that copy as their modules, and what
//! else changed as an archive that `module.sh` unpacks before it loads the module. The module
//! and their programs in `/rsmc` are links to the files that they installed.

use super::stage::Stage;
use crate::cache;
use crate::deb;
use crate::guest::image;
use crate::kernel::Kernel;
use crate::progress;
use crate::root::{Root, Setting};
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs in the sysroot what is in `/run/debs`, with the modules in `/run/modules`.
const INSTALL: &str = r#"
mkdir -p "/lib/modules/$1"
mount --bind /run/modules "/lib/modules/$1"
dpkg -i /run/debs/*.deb
dpkg -s rsmc-tools "rsmc-modules-$1" | grep -c '^Status: install ok installed$' | grep -qx 2
"#;

/// Installs the tools and the module for a kernel; `directory` has the packages. Returns the kernel
/// with its modules as they are then, and a directory for [`lay_out`].
pub fn install(kernel: &Kernel, directory: &Path) -> Result<(Kernel, PathBuf)> {
    let release = &kernel.release;
    // Among the stages, as one of which it is removed when this run has ended.
    let name = format!("installed-{}-{}", kernel.flavour, std::process::id());
    let work = cache::work().join("stage").join(name);
    cache::remove(&work)?;
    let debs = work.join("debs");
    fs::create_dir_all(&debs)?;
    for package in ["rsmc-tools".to_owned(), format!("rsmc-modules-{release}")] {
        let file = find(directory, &package)?;
        fs::copy(&file, debs.join(file.file_name().unwrap_or_default()))?;
    }
    let log = work.join("log");
    let installed = Kernel {
        modules: work.join("modules"),
        ..kernel.clone()
    };
    let modules = image::module_dir(&installed);
    fs::create_dir_all(modules.parent().context("no parent")?)?;
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]);
    copy.arg(image::module_dir(kernel)).arg(&modules);
    progress::run(&format!("copying {release}'s modules"), &mut copy, &log)?;
    let root = Root::of(sysroot::get()?.path);
    let layer = work.join("layer");
    let bound: [(&Path, &str); 2] = [(&debs, "/debs"), (&modules, "/modules")];
    let mut install = root.command(&layer, Setting::default(), &bound)?;
    install.args(["sh", "-ec", INSTALL, "sh", release]);
    let what = format!("installing the packages for {release}");
    progress::run(&what, &mut install, &log)?;
    let archive = work.join("files.tar");
    progress::run("packing them", &mut Root::pack(&layer, &archive), &log)?;
    Ok((installed, work))
}

/// Lays out what [`install`] has left in `work`.
pub fn lay_out(stage: &Stage, work: &Path) -> Result<()> {
    stage.copy(&work.join("files.tar"), "installed.tar")?;
    for file in deb::sorted(&work.join("debs"))? {
        for path in files(&file)? {
            link(stage, &path)?;
        }
    }
    if !stage.path.join("rsmc.ko").is_symlink() {
        bail!("the packages have no rsmc.ko");
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
