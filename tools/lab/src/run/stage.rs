// SPDX-License-Identifier: GPL-2.0

//! The directory that becomes `/rsmc` in a guest: the module, `bin/`,
//! `selftests/`, `doc/` and `lab/` (the lab's own scripts). One per running guest
//! group, removed with it.

use super::suite::Suite;
use super::{foreign, user};
use crate::cache;
use crate::cross;
use crate::kernel::{helper, leakroots, Arch, Kernel};
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The scripts of `tools/lab/guest`.
const SCRIPTS: &[(&str, &str)] = &[
    ("topo.sh", include_str!("../../guest/topo.sh")),
    ("module.sh", include_str!("../../guest/module.sh")),
    ("checks.sh", include_str!("../../guest/checks.sh")),
    ("test.sh", include_str!("../../guest/test.sh")),
    ("demo-local.sh", include_str!("../../guest/demo-local.sh")),
    ("demo-server.sh", include_str!("../../guest/demo-server.sh")),
    ("demo-client.sh", include_str!("../../guest/demo-client.sh")),
    ("demo-seen.py", include_str!("../../guest/demo-seen.py")),
];

/// See the module's description.
pub struct Stage {
    /// The directory.
    pub path: PathBuf,
}

impl Stage {
    /// Makes one. `module` is copied as `rsmc.ko`, `programs` into `bin/`.
    pub fn new(
        name: &str,
        arch: Arch,
        module: Option<&Path>,
        programs: &[PathBuf],
    ) -> Result<Stage> {
        let all = cache::work().join("stage");
        sweep(&all);
        let path = all.join(format!("{name}-{}", std::process::id()));
        cache::remove(&path)?;
        for directory in ["bin", "lab"] {
            fs::create_dir_all(path.join(directory))?;
        }
        let stage = Stage { path };
        if let Some(module) = module {
            stage.module(arch, module)?;
        }
        for program in programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            stage.copy(program, &format!("bin/{name}"))?;
        }
        stage.copy(&cross::init(arch)?, "bin/rsmc-barrier")?;
        for (name, text) in SCRIPTS {
            let file = stage.path.join("lab").join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        let selftests = cache::top().join("selftests");
        if selftests.is_dir() {
            copy_tree(&selftests, &stage.path.join("selftests"), 0)?;
        }
        stage.pages()?;
        Ok(stage)
    }

    /// Copies the pages of the documentation, whose commands tests run.
    fn pages(&self) -> Result<()> {
        let pages = cache::top().join("Documentation");
        fs::create_dir_all(self.path.join("doc"))?;
        for entry in fs::read_dir(&pages).with_context(|| pages.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.copy(&path, &format!("doc/{name}"))?;
            }
        }
        Ok(())
    }

    /// Copies the module without its debug information, most of its size,
    /// which would have to go through 9p.
    fn module(&self, arch: Arch, module: &Path) -> Result<()> {
        let to = self.path.join("rsmc.ko");
        self.copy(module, "rsmc.ko")?;
        let status = cross::tool(arch, "strip")?
            .arg("--strip-debug")
            .arg(&to)
            .status()?;
        if !status.success() {
            bail!("strip {}: {status}", to.display());
        }
        Ok(())
    }

    /// Adds what the debug kernels need to judge fairly, the modules of
    /// `selftests/kmod` that tests name, and programs of the kernel's source.
    pub fn helpers<'a>(
        &self,
        kernel: &Kernel,
        modules: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        for name in modules.collect::<BTreeSet<_>>() {
            fs::create_dir_all(self.path.join("kmod"))?;
            self.copy(&helper::of_tests(kernel, name)?, &format!("kmod/{name}.ko"))?;
        }
        // Their compilers are this machine's alone.
        let foreign = match kernel.arch.foreign() {
            Some(_) => Vec::new(),
            None => foreign::build()?,
        };
        for program in foreign.into_iter().chain(user::of_kernel(kernel)?) {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            self.copy(&program, &format!("bin/{name}"))?;
        }
        if let Some((module, parameters)) = leakroots::get(kernel)? {
            self.copy(&module, "lab/leakroots.ko")?;
            fs::write(self.path.join("lab/leakroots.args"), parameters)?;
        }
        Ok(())
    }

    /// Lays out other programs' own tests, below `suites/`.
    pub fn suites<'a>(&self, suites: impl Iterator<Item = &'a Suite>) -> Result<()> {
        for suite in suites.collect::<BTreeSet<_>>() {
            if let Some(directory) = suite.get()? {
                self.copy_directory(&directory, &format!("suites/{suite}"))?;
            }
        }
        Ok(())
    }

    /// Copies a file to a place below the stage.
    pub fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.path.join(to);
        fs::copy(from, &to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
        Ok(())
    }
}

impl Stage {
    /// Copies a directory to a place below the stage.
    pub fn copy_directory(&self, from: &Path, to: &str) -> Result<()> {
        copy_tree(from, &self.path.join(to), 0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = cache::remove(&self.path);
    }
}

/// Copies a directory but for build products.
fn copy_tree(from: &Path, to: &Path, depth: usize) -> Result<()> {
    if depth > 8 {
        bail!("{} is nested too deeply", from.display());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_dir() && name != "target" {
            copy_tree(&entry.path(), &to.join(&name), depth + 1)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(&name))?;
        }
    }
    Ok(())
}

/// Removes what runs left behind that were killed: their stages, and the
/// images beside those. Names end with the run's process id.
fn sweep(all: &Path) {
    let images = all.parent().map(Path::to_owned).unwrap_or_default();
    let own = |directory: &Path, prefix: &str| {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name
                .rsplit('-')
                .next()
                .and_then(|pid| pid.parse::<u32>().ok());
            let stale = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            if stale && name.starts_with(prefix) {
                let _ = cache::remove(&entry.path());
                let _ = fs::remove_file(entry.path());
            }
        }
    };
    own(all, "");
    own(&images, "initramfs-");
    own(&images, "disk-");
}
