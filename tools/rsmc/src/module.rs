// SPDX-License-Identifier: GPL-2.0
//! The module: loads it where it is missing, and gives it its settings.

use crate::diag;
use crate::error::{Error, Result};
use crate::settings;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The sysctl that this module alone has.
pub const TCP2SMC: &str = "/proc/sys/net/smc/tcp2smc";
/// Time that modprobe(8) may take: a service may be waiting to start.
const LIMIT: Duration = Duration::from_secs(20);

/// Loads the module unless it is there. One that was loaded has the settings of the files then, but for
/// `tcp2smc`.
///
/// # Errors
/// `NotThere` with the cure.
pub fn ensure() -> Result<()> {
    if Path::new(TCP2SMC).exists() {
        return Ok(());
    }
    let missing = |line| Err(Error::NotThere(line));
    if diag::has_smc_protocol() {
        return missing(
            "the in-tree module smc is loaded, which has no tcp2smc: `modprobe -r smc`".into(),
        );
    }
    let said = match modprobe() {
        Ok(None) if Path::new(TCP2SMC).exists() => {
            // What cannot be set has been said, and stands in nobody's way.
            let _ = settings::apply();
            return Ok(());
        }
        Ok(None) => "modprobe rsmc did nothing: a line in /etc/modprobe.d forbids it?".into(),
        Ok(Some(said)) => said,
        Err(error) => format!("modprobe: {error}"),
    };
    let release = rustix::system::uname();
    missing(explain(&said, &release.release().to_string_lossy()))
}

/// Loads the module before a program's first socket has the kernel look for one, where it could take the in-tree
/// module instead. Returns what to warn of.
pub fn before_first_socket() -> Option<String> {
    if Path::new("/sys/module/rsmc").exists() || diag::has_smc_protocol() {
        return None;
    }
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let list = std::fs::read_to_string(format!("/lib/modules/{release}/modules.dep")).ok()?;
    if !has_both(&list) || matches!(modprobe(), Ok(None)) {
        return None;
    }
    Some(
        "rsmc is not loaded, and cannot be by this user: the first socket may load the in-tree module smc, \
         and rsmc then waits for `modprobe -r smc`. Before: `modprobe rsmc` as root"
            .into(),
    )
}

/// Whether a list of modules (`modules.dep`) has this one and the in-tree one.
fn has_both(list: &str) -> bool {
    let has = |name: &str| {
        list.lines()
            .filter_map(|line| line.split(':').next()?.rsplit('/').next())
            .any(|file| file.split('.').next() == Some(name))
    };
    has("rsmc") && has("smc")
}

/// The line about a module that could not be loaded.
fn explain(said: &str, release: &str) -> String {
    let last = said.trim().lines().last().unwrap_or("modprobe failed");
    if last.contains("not found") {
        return format!(
            "there is no module rsmc for this kernel, {release}: build and install it \
             (make modules_install KDIR=/lib/modules/{release}/build), or boot the kernel that it was made for"
        );
    }
    format!("the module rsmc cannot be loaded into {release}: {last}")
}

/// Calls modprobe(8); returns what it said if it failed.
fn modprobe() -> io::Result<Option<String>> {
    let start = |program| {
        Command::new(program)
            .arg("rsmc")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    };
    let mut child = match start("modprobe") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => start("/sbin/modprobe")?,
        other => other?,
    };
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LIMIT {
            // It may not listen while it is in the kernel, and is left alone then.
            let _ = child.kill();
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.success() {
        return Ok(None);
    }
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut said)?;
    }
    Ok(Some(String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cure_is_named() {
        let said = "modprobe: FATAL: Module rsmc not found in directory /lib/modules/6.1\n";
        let line = explain(said, "6.1");
        assert!(line.contains("KDIR=/lib/modules/6.1/build"), "{line}");
        let said = "modprobe: ERROR: could not insert 'rsmc': Key was rejected by service\n";
        assert!(explain(said, "6.1").ends_with("Key was rejected by service"));
        assert!(explain("", "6.1").ends_with("modprobe failed"));
    }

    #[test]
    fn lists_of_modules() {
        let ours = "updates/dkms/rsmc.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz\n";
        let other = "kernel/net/smc/smc_diag.ko: kernel/net/smc/smc.ko\nkernel/net/smc/smc.ko:\n";
        assert!(!has_both(ours) && !has_both(other));
        assert!(has_both(&format!("{ours}{other}")));
    }
}
