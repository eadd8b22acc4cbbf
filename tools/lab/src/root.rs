// SPDX-License-Identifier: GPL-2.0

//! Small Debian root file systems to install packages in. Each is a layer over
//! the one before it; what a test changes goes into a layer of its own.

use crate::cache::{self, Key, Restart};
use crate::data::Data;
use crate::progress;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of the lowest layer, besides apt: what a small server has.
const SMALL: &[&str] = &[
    "ca-certificates",
    "iproute2",
    "kmod",
    "mount",
    "openssl",
    "procps",
    "socat",
];

/// Layers, the lowest first.
#[derive(Clone, Debug)]
pub struct Root {
    layers: Vec<PathBuf>,
}

/// Changes to a machine before a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// No network.
    pub offline: bool,
    /// Size of the directory in MB, where it matters.
    pub small: Option<(&'static str, u32)>,
}

/// The program that mounts the layers and enters them.
fn enter() -> PathBuf {
    cache::top().join("tools/deb/test/enter.sh")
}

/// The smallest one, with Debian's backports among its sources.
pub fn small() -> Result<Root> {
    let data = &Data::get().sysroot;
    let mut key = Key::new();
    key.add("recipe", b"1")
        .add(
            "suites",
            format!("{} {}", data.suite, data.backports).as_bytes(),
        )
        .add("packages", SMALL.join(" ").as_bytes());
    let dir = cache::entry("root", "small", &key, Restart::Clean, |dir| {
        let tree = dir.join("tree");
        let mirror = std::env::var("RSMC_MIRROR").ok();
        // The backports line is derived from what mmdebstrap wrote, as in tools/bootstrap.
        let hook = format!(
            "cd \"$1\" && sed -n 's/^\\(deb .*\\) {0} \\(main.*\\)$/\\1 {1} \\2/p' etc/apt/sources.list \
             | head -n 1 > etc/apt/sources.list.d/backports.list",
            data.suite, data.backports
        );
        let mut command = mmdebstrap();
        command
            .args(["--variant=apt", "--architectures=amd64"])
            .arg(format!("--include={}", SMALL.join(",")))
            .arg(format!("--customize-hook={hook}"));
        let log = dir.join("log");
        if rustix::process::geteuid().is_root() {
            command.arg("--mode=root").arg(&data.suite).arg(&tree);
            return progress::run("a small Debian", command.args(mirror), &log);
        }
        let archive = dir.join("root.tar");
        command.args(["--mode=unshare", "--format=tar"]);
        command.arg(&data.suite).arg(&archive).args(mirror);
        progress::run("a small Debian", &mut command, &log)?;
        fs::create_dir_all(&tree)?;
        let mut unpack = private();
        unpack.arg("tar").arg("-C").arg(&tree);
        unpack.args(["--numeric-owner", "--exclude=./dev/*", "-xf"]);
        progress::run("a small Debian: unpacking", unpack.arg(&archive), &log)?;
        cache::remove_file(&archive)
    })?;
    Ok(Root {
        layers: vec![dir.join("tree")],
    })
}

/// mmdebstrap with what all roots have in common.
pub fn mmdebstrap() -> Command {
    let mut command = Command::new("mmdebstrap");
    command.arg("--keyring=/usr/share/keyrings/debian-archive-keyring.gpg");
    for option in [
        "APT::Install-Recommends \"false\"",
        "Acquire::Languages \"none\"",
        "Acquire::Retries \"3\"",
    ] {
        command.arg(format!("--aptopt={option}"));
    }
    command
}

/// `unshare` as the sysroot has it.
fn private() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user", "--map-auto"]);
    }
    command.args(["--mount", "--propagation", "private"]);
    command
}

impl Root {
    /// The one directory of a root without further layers.
    pub fn directory(&self) -> Result<&Path> {
        match self.layers.as_slice() {
            [one] => Ok(one),
            _ => bail!("this root has several layers"),
        }
    }

    /// One that is there already.
    pub fn of(directory: PathBuf) -> Root {
        Root {
            layers: vec![directory],
        }
    }

    /// The highest layer.
    pub fn highest(&self) -> &Path {
        self.layers.last().map_or(Path::new(""), PathBuf::as_path)
    }

    /// A command that packs what was changed by one of [`Root::command`] with the same `dir`, but
    /// for what was removed and what no package has.
    pub fn pack(dir: &Path, archive: &Path) -> Command {
        const PACK: &str = r#"
cd "$1"
find . \( -path ./run -o -path ./tmp -o -path ./dev -o -path ./var/cache -o -path ./var/log \) -prune \
	-o \( -type f -o -type l \) -print0 | LC_ALL=C sort -z | tar --null -T - --numeric-owner -cf "$2""#;
        let mut command = private();
        command.args(["sh", "-ec", PACK, "sh"]);
        command.arg(dir.join("upper")).arg(archive);
        command
    }

    /// Another layer, made by a command in the last one and kept in the cache.
    pub fn with(&self, name: &str, script: &str) -> Result<Root> {
        let mut key = Key::new();
        key.add("script", script.as_bytes());
        for layer in &self.layers {
            key.add("layer", layer.as_os_str().as_encoded_bytes());
        }
        let dir = cache::entry("root", name, &key, Restart::Clean, |dir| {
            let mut command = self.command(dir, Setting::default(), &[])?;
            command.args(["sh", "-ec", script]);
            progress::run(
                &format!("a Debian with {name}"),
                &mut command,
                &dir.join("log"),
            )
        })?;
        let mut layers = self.layers.clone();
        layers.push(dir.join("upper"));
        Ok(Root { layers })
    }

    /// A command in this root, whose changes go to `dir`. The directories of `bound`
    /// appear at the paths beside them.
    pub fn command(
        &self,
        dir: &Path,
        setting: Setting,
        bound: &[(&Path, &str)],
    ) -> Result<Command> {
        for name in ["upper", "work", "root"] {
            fs::create_dir_all(dir.join(name)).with_context(|| dir.display().to_string())?;
        }
        let lower: Vec<String> = self
            .layers
            .iter()
            .rev()
            .map(|layer| layer.display().to_string())
            .collect();
        let mut command = private();
        if setting.offline {
            command.arg("--net");
        }
        command.arg("sh").arg(enter()).arg(dir).arg(lower.join(":"));
        for (from, to) in bound {
            command.arg(format!("--bind={}={to}", from.display()));
        }
        if let Some((path, size)) = setting.small {
            command.arg(format!("--small={path}={size}m"));
        }
        command.arg("--");
        command
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        Ok(command)
    }
}
