// SPDX-License-Identifier: GPL-2.0
//! Units and hosts below a directory: what is there afterwards.

use super::units::lines;
use super::*;
use crate::cli::{Cli, Command as Asked};
use crate::policy::kept;
use clap::Parser;
use std::fs;

/// A system below a directory.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let at = std::env::temp_dir().join(format!("rsmc-enable-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        let this = Self(at);
        for unit in [
            "redis-server.service",
            r"odd\x2dname.service",
            "app@.service",
        ] {
            this.write(&format!("usr/lib/systemd/system/{unit}"), "[Service]\n");
        }
        this
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// All files below etc.
    fn files(&self) -> Vec<String> {
        fn walk(at: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(at).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => walk(&entry.path(), found),
                    false => found.push(entry.path()),
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.0.join("etc"), &mut found);
        let name = |path: &PathBuf| path.strip_prefix(&self.0).unwrap().display().to_string();
        let mut names: Vec<String> = found.iter().map(name).collect();
        names.sort();
        names
    }

    /// Runs a command line.
    fn rsmc(&self, line: &str) -> Result<String> {
        let root = self.0.display().to_string();
        let words = ["rsmc"].into_iter().chain(line.split_whitespace());
        let words = words.chain(["--root", &root]);
        let mut out = Vec::new();
        match Cli::try_parse_from(words).unwrap().command {
            Asked::Enable(args) => enable(&args, &mut out)?,
            Asked::Disable(args) => disable(&args, &mut out)?,
            other => panic!("{other:?}"),
        }
        Ok(String::from_utf8(out).unwrap())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RULES: &str = "etc/rsmc/policy.d/redis-server.service.conf";
const DROP_IN: &str = "etc/systemd/system/redis-server.service.d/50-rsmc.conf";
const SYSCTL: &str = "etc/sysctl.d/50-rsmc.conf";
const MODULES: &str = "etc/modules-load.d/rsmc.conf";

#[test]
fn a_unit_and_back() {
    let root = Root::new("unit");
    let before = root.files();
    let said = root.rsmc("enable redis-server").unwrap();
    assert!(said.contains(RULES) && said.contains(DROP_IN), "{said}");
    assert_eq!(root.files(), [RULES, SYSCTL, DROP_IN]);
    let rules = kept::all(&root.0).unwrap().unwrap();
    assert_eq!(
        lines(&rules),
        "allow cgroup=/system.slice/redis-server.service\n"
    );
    assert!(root.read(SYSCTL).contains("\n-net.smc.tcp2smc = 2\n"));
    assert!(root
        .read(DROP_IN)
        .contains("\n[Service]\nExecStartPre=-+/usr/local/bin/rsmc up --unit %n\n"));
    // Once more changes nothing; with another wish the rules.
    assert_eq!(root.rsmc("enable redis-server").unwrap(), "");
    root.rsmc("enable redis-server --mptcp").unwrap();
    assert!(root.read(RULES).ends_with(
        "allow cgroup=/system.slice/redis-server.service\nallow cgroup=/system.slice/redis-server.service mptcp\n"
    ));
    root.rsmc("disable redis-server").unwrap();
    assert_eq!(root.files(), before);
    assert!(!root.0.join("etc/rsmc").exists());
    assert!(!root
        .0
        .join("etc/systemd/system/redis-server.service.d")
        .exists());
    assert!(matches!(
        root.rsmc("disable redis-server"),
        Err(Error::Table(_))
    ));
}

#[test]
fn what_others_can_change_is_not_for_root_to_run() {
    let root = Root::new("owner");
    root.write("usr/bin/rsmc", "");
    let file = root.0.join("usr/bin/rsmc");
    // Whoever runs this test, the directory of temporary files is everybody's.
    assert!(units::only_roots(&file).unwrap().is_some());
    assert_eq!(units::only_roots(Path::new("/usr/bin/env")).unwrap(), None);
    assert!(units::only_roots(&root.0.join("usr/bin/none")).is_err());
}

#[test]
fn a_dry_run_changes_nothing() {
    let root = Root::new("dry");
    let before = root.files();
    let said = root.rsmc("enable redis-server --dry-run").unwrap();
    assert!(said.contains("would be written"), "{said}");
    assert!(
        said.contains("allow cgroup=/system.slice/redis-server.service"),
        "{said}"
    );
    let said = root.rsmc("enable --all-on-this-host --dry-run").unwrap();
    assert!(said.contains("net.smc.tcp2smc = 1"), "{said}");
    assert_eq!(root.files(), before);
}

#[test]
fn several_units_share_the_sysctl() {
    let root = Root::new("several");
    root.rsmc(r"enable redis-server odd\x2dname app@1 web.slice")
        .unwrap();
    let rules = kept::all(&root.0).unwrap().unwrap();
    assert_eq!(rules.len(), 4);
    let cgroups: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule.cgroup.as_deref())
        .collect();
    assert!(
        cgroups.contains(&r"/system.slice/odd\x2dname.service"),
        "{cgroups:?}"
    );
    assert!(cgroups.contains(&"/system.slice/system-app.slice/app@1.service"));
    assert!(!root.0.join("etc/systemd/system/web.slice.d").exists());
    root.rsmc(r"disable redis-server odd\x2dname").unwrap();
    assert!(root.0.join(SYSCTL).exists());
    root.rsmc("disable app@1 web.slice").unwrap();
    assert_eq!(root.files(), [""; 0]);
}

#[test]
fn what_somebody_has_chosen_stays() {
    let root = Root::new("chosen");
    for (value, says) in [(0, "no socket changes"), (1, "stays"), (3, "stays")] {
        root.write(
            "etc/sysctl.d/99-site.conf",
            &format!("net.smc.tcp2smc={value}\n"),
        );
        let said = root.rsmc("enable redis-server").unwrap();
        assert!(said.contains(says), "{said}");
        assert!(!root.0.join(SYSCTL).exists());
        root.rsmc("disable redis-server").unwrap();
        assert_eq!(root.files(), ["etc/sysctl.d/99-site.conf"]);
    }
    let error = root.rsmc("enable --all-on-this-host --yes").unwrap_err();
    assert!(error
        .to_string()
        .contains("99-site.conf has net.smc.tcp2smc = 3"));
    // Rules of others need the value that is there.
    root.write("etc/sysctl.d/99-site.conf", "");
    root.write("etc/rsmc/policy.conf", "allow exe=/x\n");
    root.rsmc("enable redis-server").unwrap();
    root.rsmc("disable redis-server").unwrap();
    assert!(root.0.join(SYSCTL).exists());
}

#[test]
fn files_of_others_are_left_alone() {
    let root = Root::new("others");
    for path in [RULES, DROP_IN, SYSCTL] {
        root.write(path, "# mine\n");
        let before = root.files();
        let error = root.rsmc("enable redis-server").unwrap_err();
        assert!(matches!(error, Error::Table(_)), "{error}");
        assert_eq!((root.files(), root.read(path)), (before, "# mine\n".into()));
        fs::remove_file(root.0.join(path)).unwrap();
    }
    root.write(MODULES, "rsmc\n");
    root.rsmc("enable --all-on-this-host --yes").unwrap();
    root.rsmc("disable --all-on-this-host").unwrap();
    assert_eq!(root.files(), [MODULES]);
}

#[test]
fn one_bad_name_and_nothing_is_done() {
    let root = Root::new("bad");
    let before = root.files();
    for line in [
        "enable redis-server ../../../etc/passwd",
        "enable redis-server nowhere",
        "enable redis-server ssh.socket",
        "disable redis-server",
        "disable --all-on-this-host",
    ] {
        assert!(root.rsmc(line).is_err(), "{line}");
        assert_eq!(root.files(), before, "{line}");
    }
    // A directory that is a file: no unit's rule stays behind.
    root.write("etc/sysctl.d", "");
    let before = root.files();
    assert!(root.rsmc("enable redis-server").is_err());
    assert_eq!(root.files(), before);
}

#[test]
fn a_host_and_back() {
    let root = Root::new("host");
    let before = root.files();
    root.rsmc("enable --all-on-this-host --yes").unwrap();
    assert_eq!(root.files(), [MODULES, SYSCTL]);
    assert!(root.read(SYSCTL).contains("\n-net.smc.tcp2smc = 1\n"));
    assert!(root.read(MODULES).ends_with("\nrsmc\n"));
    assert!(root
        .rsmc("enable --all-on-this-host --yes")
        .unwrap()
        .contains("already"));
    // A unit in between is not what turns it off, and keeps what it needs.
    root.rsmc("enable redis-server").unwrap();
    assert!(root.read(SYSCTL).contains("= 1"));
    root.rsmc("disable --all-on-this-host").unwrap();
    assert!(root.read(SYSCTL).contains("= 2"));
    root.rsmc("disable redis-server").unwrap();
    assert_eq!(root.files(), before);
}
