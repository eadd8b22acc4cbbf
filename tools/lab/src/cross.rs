// SPDX-License-Identifier: GPL-2.0

//! Other architectures than this machine's: compilers and QEMU over the sysroot, programs built
//! with them, and the root of their guests. Made when a kernel of theirs is first asked for.

use crate::cache::{self, Key, Restart};
use crate::data::{Cross, Data};
use crate::kernel::Arch;
use crate::progress;
use crate::root::{mmdebstrap, Root};
use crate::sysroot::{self, Sysroot};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// What is special about an architecture; none of this machine's own.
pub fn find(arch: Arch) -> Result<Option<(&'static str, &'static Cross)>> {
    let Some(name) = arch.foreign() else {
        return Ok(None);
    };
    let cross = Data::get().cross.get(name);
    let cross = cross.with_context(|| format!("lab.toml has no [cross.{name}]"))?;
    Ok(Some((name, cross)))
}

/// The sysroot with the compilers for an architecture.
pub fn sysroot(arch: Arch) -> Result<Sysroot> {
    let plain = sysroot::get()?;
    let Some((name, cross)) = find(arch)? else {
        return Ok(plain);
    };
    let script = format!(
        "dpkg --add-architecture {name}
        apt-get -q -o APT::Update::Error-Mode=any update
        apt-get -qy install --no-install-recommends {}
        cd /var/tmp
        apt-get -q -o APT::Sandbox::User=root download libstd-rust-dev:{name}
        dpkg-deb -x libstd-rust-dev_*.deb /
        rm libstd-rust-dev_*.deb
        apt-get clean",
        cross.tools.join(" ")
    );
    let what = format!("tools-{name}");
    let layer = Root::of(plain.path.clone()).with(&what, &script)?;
    Ok(Sysroot {
        layer: Some(layer.highest().to_owned()),
        ..plain
    })
}

/// A tool of GNU's for an architecture, as `strip`.
pub fn tool(arch: Arch, name: &str) -> Result<Command> {
    let name = match find(arch)? {
        Some((_, cross)) => format!("{}-{name}", cross.gnu),
        None => name.to_owned(),
    };
    Ok(sysroot(arch)?.command(name))
}

/// The guests' root: for this machine's architecture the sysroot.
pub fn root(arch: Arch) -> Result<PathBuf> {
    let Some((name, cross)) = find(arch)? else {
        return Ok(sysroot::get()?.path);
    };
    let suite = &Data::get().sysroot.suite;
    let packages = cross.guest.join(",");
    let mut key = Key::new();
    key.add("recipe", FINISH.as_bytes())
        .add("besides", b"essential")
        .add("suite", suite.as_bytes())
        .add("packages", packages.as_bytes());
    let what = format!("a Debian for {name}");
    let dir = cache::entry(
        "root",
        &format!("guest-{name}"),
        &key,
        Restart::Clean,
        |dir| {
            let (log, archive) = (dir.join("log"), dir.join("root.tar"));
            let mut command = mmdebstrap();
            // Nothing of it can run here, so its scripts do not.
            command.args(["--variant=extract", "--format=tar"]);
            command.arg(format!("--architectures={name}"));
            command.arg("--include=?essential");
            command.arg(format!("--include={packages}"));
            command
                .arg(suite)
                .arg(&archive)
                .args(std::env::var("RSMC_MIRROR").ok());
            progress::run(&what, &mut command, &log)?;
            let mut finish = sysroot::get()?.command("sh");
            finish.args(["-ec", FINISH, "sh"]).arg(&archive);
            finish.arg(dir.join("tree"));
            progress::run(&format!("{what}: unpacking"), &mut finish, &log)?;
            cache::remove_file(&archive)
        },
    )?;
    Ok(dir.join("tree"))
}

/// Unpacks an archive of packages' files, and does what matters of what their scripts would do.
const FINISH: &str = r#"
mkdir -p "$2"
cd "$2"
tar --numeric-owner --exclude='./dev/*' -xf "$1"
for name in bin sbin lib; do
	[ -e $name ] || ln -s usr/$name $name
done
mkdir -p boot dev home media mnt opt proc root run srv sys tmp
chmod 1777 tmp
for name in passwd group; do
	[ -e etc/$name ] || cp usr/share/base-passwd/$name.master etc/$name
done
echo "redis:x:100:100::/var/lib/redis:/usr/sbin/nologin" >>etc/passwd
echo "redis:x:100:" >>etc/group
: >etc/resolv.conf
echo guest >etc/hostname
# Names that are chosen among several packages.
link() { [ -e "$2" ] || ln -s "$1" "$2"; }
link gawk usr/bin/awk
link nc.openbsd usr/bin/nc
link iptables-nft usr/sbin/iptables
link ip6tables-nft usr/sbin/ip6tables
ldconfig -r .
"#;

/// cargo for an architecture, with its products in `target`.
pub fn cargo(arch: Arch, target: &std::path::Path) -> Result<Command> {
    let mut command = sysroot(arch)?.command("cargo");
    command.env("CARGO_TARGET_DIR", target);
    if let Some((_, cross)) = find(arch)? {
        command.env("CARGO_BUILD_TARGET", &cross.target);
        let name = cross.target.to_uppercase().replace('-', "_");
        let linker = format!("{}-gcc", cross.gnu);
        command.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    }
    Ok(command)
}

/// Where the products of [`cargo`] are, below its `target`.
pub fn products(arch: Arch, target: &std::path::Path, profile: &str) -> Result<PathBuf> {
    Ok(match find(arch)? {
        Some((_, cross)) => target.join(&cross.target).join(profile),
        None => target.join(profile),
    })
}

/// The static program that is process 1 of an architecture's guests; this machine's is built beside
/// the one that runs.
pub fn init(arch: Arch) -> Result<PathBuf> {
    let Some((name, _)) = find(arch)? else {
        let own = std::env::current_exe().context("own path")?;
        let path = own.with_file_name("lab-init");
        if !path.exists() {
            anyhow::bail!("{} is missing; build tools/lab again", path.display());
        }
        return Ok(path);
    };
    let target = cache::work().join(format!("lab-{name}"));
    let mut command = cargo(arch, &target)?;
    command.current_dir(cache::top().join("tools"));
    command.args(["build", "--locked", "--quiet", "--profile", "lab"]);
    command.args(["--package", "lab", "--bin", "lab-init"]);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let log = cache::work().join(format!("lab-{name}.log"));
    progress::run(
        &format!("lab-init for {name}: building"),
        &mut command,
        &log,
    )?;
    Ok(products(arch, &target, "lab")?.join("lab-init"))
}
