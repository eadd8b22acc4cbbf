// SPDX-License-Identifier: GPL-2.0

//! `make modules KDIR=...` as on a machine that has nothing but a package of kernel headers.

use crate::cache;
use crate::data::Data;
use crate::kernel::{self, debian, make, Kernel};
use crate::ktap::Point;
use crate::{module, progress, sysroot};
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the whole.
pub const NAME: &str = "host/kdir";

/// Runs the points.
pub fn test() -> Point {
    match points() {
        Ok(points) => Point::of(NAME, points),
        Err(error) => Point::fail(NAME, [format!("{error:#}")]),
    }
}

fn point(name: &str, result: Result<()>) -> Point {
    match result {
        Ok(()) => Point::pass(name),
        Err(error) => Point::fail(name, format!("{error:#}").lines().map(str::to_owned)),
    }
}

fn points() -> Result<Vec<Point>> {
    let kernel = kernel::get(Data::default_flavour())?;
    let dir = cache::work().join("headers");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    let front = Front {
        tree: dir.join("tree"),
        log: dir.join("log"),
        kernel: &kernel,
    };
    fs::write(&front.log, "")?;
    module::front(&front.tree, &front.log)?;
    let package = package(&kernel, &dir, &front.log)?;

    let nothing = dir.join("nothing");
    let plain = dir.join("plain");
    strip(&package, &plain)?;
    Ok(vec![
        point("nothing", front.refuses(&nothing, "Makefile")),
        point("no_rust", front.refuses(&plain, "rust/libcore.rmeta")),
        point("headers", front.builds(&package)),
        point("same_types", front.same_types()),
    ])
}

/// The headers of a kernel as a package has them, made once.
fn package(kernel: &Kernel, dir: &Path, log: &Path) -> Result<PathBuf> {
    let package = dir.join("package");
    let made = dir.join("made");
    let of = kernel.build.display().to_string();
    if fs::read_to_string(&made).is_ok_and(|text| text == of) {
        return Ok(package);
    }
    cache::remove_file(&made)?;
    // The kernel's own list of what external modules need knows nothing of Rust.
    let mut command = sysroot::get()?.command("sh");
    command.arg(debian::script()).arg("pack");
    command.arg(&kernel.source).arg(&kernel.build).arg(&package);
    progress::run("headers: packaging", &mut command, log)?;
    for file in ["bindings/bindings_generated.rs", "Makefile", "kernel"] {
        if package.join("rust").join(file).exists() {
            bail!("the package has rust/{file}, which packages have not");
        }
    }
    fs::write(made, of)?;
    Ok(package)
}

/// The same headers without Rust, by links.
fn strip(package: &Path, plain: &Path) -> Result<()> {
    if plain.exists() {
        fs::remove_dir_all(plain)?;
    }
    fs::create_dir(plain)?;
    for entry in fs::read_dir(package)? {
        let entry = entry?;
        if entry.file_name() != "rust" {
            std::os::unix::fs::symlink(entry.path(), plain.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A copy of the checkout's front door.
struct Front<'a> {
    tree: PathBuf,
    log: PathBuf,
    kernel: &'a Kernel,
}

impl Front<'_> {
    fn modules(&self, kdir: &Path) -> Result<Command> {
        let flavour = Data::get().flavour(&self.kernel.flavour)?;
        let mut command = sysroot::get()?.command("make");
        command.arg("-C").arg(&self.tree).arg("modules");
        command.arg(format!("KDIR={}", kdir.display()));
        command.args(make::variables(flavour)?);
        Ok(command)
    }

    /// The build stops before it begins, and one line names the directory and what it lacks.
    fn refuses(&self, kdir: &Path, lacks: &str) -> Result<()> {
        let out = self.modules(kdir)?.output()?;
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let said: Vec<&str> = text.lines().filter(|l| !l.starts_with("make")).collect();
        let clear = |line: &str| {
            line.starts_with(&format!("KDIR={} ", kdir.display())) && line.contains(lacks)
        };
        if out.status.success() || said.len() != 1 || !said.iter().copied().all(clear) {
            bail!("{}\n{text}", out.status);
        }
        Ok(())
    }

    fn builds(&self, kdir: &Path) -> Result<()> {
        let made = self.tree.join("rsmc.ko");
        cache::remove_file(&made)?;
        let mut command = self.modules(kdir)?;
        progress::run("rsmc.ko for packaged headers", &mut command, &self.log)?;
        if !made.exists() {
            bail!("no rsmc.ko");
        }
        match module::warnings(&fs::read_to_string(&self.log)?) {
            warnings if warnings.is_empty() => Ok(()),
            warnings => bail!("{}", warnings.join("\n")),
        }
    }

    /// The types that are the kernel crate's are those that the whole build directory tells.
    fn same_types(&self) -> Result<()> {
        let ours = fs::read_to_string(self.tree.join("rust/bindings/kernel_types.txt"))?;
        let mut command = sysroot::get()?.command("awk");
        command
            .arg("-f")
            .arg(self.tree.join("rust/bindings/types.awk"));
        command.arg(
            self.kernel
                .build
                .join("rust/bindings/bindings_generated.rs"),
        );
        let theirs = String::from_utf8(command.output()?.stdout)?;
        let mut theirs: Vec<&str> = theirs.lines().collect();
        theirs.sort_unstable();
        theirs.dedup();
        let ours: Vec<&str> = ours.trim_end().split('|').collect();
        if theirs.len() < 1000 || ours != theirs {
            let missing = theirs.iter().find(|name| !ours.contains(name));
            let more = ours.iter().find(|name| !theirs.contains(name));
            bail!(
                "{} types by the metadata, {} by the generated file; first missing {missing:?}, first more {more:?}",
                ours.len(),
                theirs.len()
            );
        }
        Ok(())
    }
}
