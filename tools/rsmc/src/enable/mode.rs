// SPDX-License-Identifier: GPL-2.0
//! `net.smc.tcp2smc`: its value now, and that which `/etc/sysctl.d` gives it at boot.

use super::files::{self, MARK};
use crate::error::{Error, Result};
use crate::module::TCP2SMC;
use crate::settings;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that `rsmc enable` makes.
pub const FILE: &str = "/etc/sysctl.d/50-rsmc.conf";
/// Value for the sockets that rules allow.
pub const RULES: i32 = 2;
/// Value for all sockets.
pub const ALL: i32 = 1;

/// A value that a file gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The value.
    pub value: i32,
    /// The file.
    pub file: PathBuf,
}

impl Configured {
    /// True if `rsmc enable` made the file.
    pub fn is_ours(&self) -> bool {
        self.file.ends_with(FILE.trim_start_matches('/'))
            && matches!(files::look(&self.file), Ok(files::Found::Ours(_)))
    }
}

/// The value that the files below `root` give it; see [`settings::configured`].
pub fn configured(root: &Path) -> Option<Configured> {
    let mut all = settings::configured(root).into_iter();
    let found = all.find(|setting| setting.name == "tcp2smc")?;
    let value = found.value.parse().ok()?;
    Some(Configured {
        value,
        file: found.file,
    })
}

/// The contents of [`FILE`].
pub fn contents(value: i32) -> String {
    format!("{MARK}\n-net.smc.tcp2smc = {value}\n")
}

/// Its value in this network namespace; `None` without the module.
pub fn live() -> Option<i32> {
    fs::read_to_string(TCP2SMC).ok()?.trim().parse().ok()
}

/// Gives it a value in this network namespace.
///
/// # Errors
/// The kernel's: it cannot convert sockets, for instance.
pub fn set(value: i32) -> Result<()> {
    use rustix::io::Errno;
    fs::write(TCP2SMC, value.to_string()).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::BUSY) => {
            Error::Io(std::io::Error::other(format!(
                "net.smc.tcp2smc cannot be {value}: {error}; the kernel's log says what is missing"
            )))
        }
        _ => Error::at(Path::new(TCP2SMC), error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_it_is() {
        let root = std::env::temp_dir().join(format!("rsmc-mode-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let value = || configured(&root).map(|found| (found.value, found.is_ours()));
        assert_eq!(value(), None);
        write("usr/lib/sysctl.d/90-site.conf", "net.smc.tcp2smc=1\n");
        assert_eq!(value(), Some((1, false)));
        write("etc/sysctl.d/90-site.conf", "net.smc.wmem=1\n");
        assert_eq!(value(), None);
        write("etc/sysctl.d/50-rsmc.conf", &contents(2));
        assert_eq!(value(), Some((2, true)));
        write("etc/sysctl.d/50-rsmc.conf", "net.smc.tcp2smc=2\n");
        assert_eq!(value(), Some((2, false)));
        write("etc/sysctl.conf", "net.smc.tcp2smc=3\nnet.smc.tcp2smc=0\n");
        assert_eq!(value(), Some((0, false)));
        write("etc/sysctl.conf", "net.smc.tcp2smc=x\n");
        assert_eq!(value(), None);
        fs::remove_dir_all(root).unwrap();
    }
}
