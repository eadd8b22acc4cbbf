// SPDX-License-Identifier: GPL-2.0

//! Running programs inside the sysroot.
//!
//! The sysroot itself is made by `tools/bootstrap`, before this tool exists.
//! `enter.sh` does the mounting, inside a private mount namespace made by
//! `unshare`; without root also inside a user namespace.

use crate::cache::{self, Key};
use crate::data::{self, Data};
use crate::root::Root;
use anyhow::{bail, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of the caller that programs in the sysroot see: how to reach the
/// network, and how much to say.
const PASSED: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "TERM",
    "V",
    "SSL_CERT_FILE",
    "RSMC_CA_BUNDLE",
    "RSMC_MIRROR",
    "RUST_BACKTRACE",
];

/// A complete Debian tree: the toolchain, and the guests' root file system.
#[derive(Clone, Debug)]
pub struct Sysroot {
    /// Its directory in the cache.
    pub path: PathBuf,
    /// What programs see over it.
    pub layer: Option<PathBuf>,
}

/// Returns the sysroot `tools/bootstrap` made.
pub fn get() -> Result<Sysroot> {
    match std::env::var_os("RSMC_SYSROOT") {
        Some(path) if Path::new(&path).join("usr/bin").is_dir() => Ok(Sysroot {
            path: path.into(),
            layer: None,
        }),
        _ => bail!("no sysroot: start this tool as tools/bootstrap"),
    }
}

/// The sysroot with further packages of Debian, which are a layer over it.
pub fn with(name: &str, packages: &[String]) -> Result<Sysroot> {
    let plain = get()?;
    let script = format!(
        "apt-get -q -o APT::Update::Error-Mode=any update
        apt-get -qy install --no-install-recommends {}
        apt-get clean",
        packages.join(" ")
    );
    let layer = Root::of(plain.path.clone()).with(name, &script)?;
    Ok(Sysroot {
        layer: Some(layer.highest().to_owned()),
        ..plain
    })
}

impl Sysroot {
    /// A command that runs `program` inside the sysroot, in a clean environment.
    ///
    /// The checkout and the cache have the same paths inside as outside; `/tmp`,
    /// `/run` and `/root` are empty and private; everything else is read-only.
    /// The working directory is kept where it exists inside. File descriptors,
    /// signals and the exit status pass through.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("/usr/bin/unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user", "--map-auto"]);
        }
        command.args(["--mount", "--propagation", "private", "/bin/sh"]);
        command
            .arg(data::dir().join("enter.sh"))
            .arg(&self.path)
            .arg(program);
        command.env_clear();
        for name in PASSED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        for (name, value) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if [
                "CARGO_REGISTR",
                "CARGO_SOURCE_",
                "CARGO_HTTP_",
                "CARGO_NET_",
            ]
            .iter()
            .any(|prefix| text.starts_with(prefix))
            {
                command.env(&name, value);
            }
        }
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("LC_ALL", "C.UTF-8")
            .env("LIBCLANG_PATH", "/usr/lib/llvm-19/lib")
            .env("CARGO_HOME", cache::root().join("cargo"))
            .env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
            .env("CARGO_HTTP_CAINFO", "/etc/ssl/certs/ca-certificates.crt")
            .env("RSMC_LAYER", self.layer.as_deref().unwrap_or(Path::new("")))
            .env("RSMC_TOP", cache::top())
            .env("RSMC_CACHE", cache::root());
        if let Some(bundle) = std::env::var_os("SSL_CERT_FILE") {
            command.env("RSMC_CA_BUNDLE", bundle);
        }
        command
    }

    /// Adds the exact versions of the toolchain's packages to a key.
    pub fn toolchain_key(&self, key: &mut Key) -> Result<()> {
        self.packages_key(key, &Data::get().sysroot.toolchain)
    }

    /// Adds the exact versions of installed packages to a key.
    ///
    /// # Errors
    ///
    /// One of them is not installed.
    pub fn packages_key(&self, key: &mut Key, names: &[impl AsRef<str>]) -> Result<()> {
        let status = fs::read_to_string(self.path.join("var/lib/dpkg/status"))?;
        for name in names.iter().map(AsRef::as_ref) {
            let Some(version) = version(&status, name) else {
                bail!("the sysroot lacks package {name}: remove it with 'lab cache gc'");
            };
            key.add(name, version.as_bytes());
        }
        Ok(())
    }

    /// The version line of the sysroot's rustc, as in `CONFIG_RUSTC_VERSION_TEXT`.
    pub fn rustc_version(&self) -> Result<String> {
        let out = self.command("rustc").arg("--version").output()?;
        if !out.status.success() {
            bail!(
                "rustc in the sysroot: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_string())
    }
}

/// Finds the version of an installed package in dpkg's status file.
fn version<'a>(status: &'a str, package: &str) -> Option<&'a str> {
    let paragraph = status.split("\n\n").find(|paragraph| {
        paragraph
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("Package: "))
            == Some(package)
    })?;
    paragraph
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_of_exact_package() {
        let status = "Package: gcc-14-base\nVersion: 1\n\nPackage: gcc-14\nStatus: x\nVersion: 2\n";
        assert_eq!(super::version(status, "gcc-14"), Some("2"));
        assert_eq!(super::version(status, "gcc"), None);
    }
}
