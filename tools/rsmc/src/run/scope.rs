// SPDX-License-Identifier: GPL-2.0
//! `rsmc run --scope`: a command whose TCP sockets become SMC sockets by a rule for its cgroup.
//!
//! The cgroup is made below that of the caller, so that its limits, its accounting and its end hold for the command as
//! for any other; a scope of systemd would take it out of there, and is not everywhere. This process joins it and
//! executes the command in place of itself. Another one, out of the command's sight, waits until nobody is in the
//! cgroup any more, and removes rules and cgroup.

use super::{own, start_failure, which, Failure};
use crate::cgroup::{self, Mount};
use crate::cli::{PolicyTest, RunArgs, ScopeEndArgs};
use crate::enable::mode;
use crate::error::{Error, Result};
use crate::module;
use crate::policy::rule::Rule;
use crate::policy::{self, live};
use crate::visible::{self, complain};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use smc_proto::policy::Verdict;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Names of the cgroups begin with it; a process id follows.
const PREFIX: &str = "rsmc-run-";

/// Executes the command in place of this process. Returns only if that was not possible.
pub fn run(args: &RunArgs) -> Failure {
    let Some((program, rest)) = args.command.split_first() else {
        return own("no command given".into());
    };
    if let Err(failure) = which(program, std::env::var_os("PATH").as_deref()) {
        return failure;
    }
    let scope = match Scope::begin() {
        Ok(scope) => scope,
        Err(error) => return own(format!("--scope: {error}")),
    };
    let error = Command::new(program).args(rest).exec();
    scope.leave();
    start_failure(&program.to_string_lossy(), &error)
}

/// The cgroup that this process is in.
struct Scope {
    directory: PathBuf,
    home: PathBuf,
    cgroup: String,
}

impl Scope {
    /// Makes it, joins it, adds the rules, and starts the process that removes all that.
    fn begin() -> Result<Self> {
        module::ensure()?;
        // It is for administrators; better before anything is made.
        let others = policy::collect()?;
        let mount = Mount::find()?;
        let above = cgroup::own()?;
        let home = mount.directory(&above).ok_or_else(|| {
            Error::NotThere(format!(
                "the cgroup of this process, {above}, is not mounted here"
            ))
        })?;
        prune_all(&mount)?;
        let name = format!("{PREFIX}{}", std::process::id());
        let scope = Self {
            directory: home.join(&name),
            cgroup: format!("{}/{name}", above.trim_end_matches('/')),
            home,
        };
        if scope.cgroup.len() > 255 {
            return Err(Error::Usage(format!(
                "{}: too long for a rule",
                scope.cgroup
            )));
        }
        let unused = !others.iter().any(|listed| !is_ours(&listed.rule));
        let restore = match mode::live() {
            Some(0) if unused => true,
            Some(0) => {
                return Err(Error::Usage(
                    "net.smc.tcp2smc is 0, and there are rules that would count if it were 2: \
                     set it (sysctl net.smc.tcp2smc=2), or remove them (rsmc policy flush)"
                        .into(),
                ));
            }
            _ => false,
        };
        fs::create_dir(&scope.directory).map_err(|error| Error::at(&scope.directory, error))?;
        match scope.fill(restore) {
            Ok(()) => Ok(scope),
            Err(error) => {
                scope.leave();
                let _ = clean(&scope.directory, &scope.cgroup, restore);
                Err(error)
            }
        }
    }

    fn fill(&self, restore: bool) -> Result<()> {
        join(&self.directory)?;
        for rule in self.rules() {
            live::add(&rule, None)?;
        }
        if restore {
            mode::set(mode::RULES)?;
        }
        let answer = policy::test::ask(&PolicyTest {
            cgroup: Some(self.cgroup.clone()),
            uid: Some(rustix::process::geteuid().as_raw().to_string()),
            ..PolicyTest::default()
        })?;
        if !answer.smc {
            complain("rsmc: warning: another rule comes first", &answer.text);
        }
        let mut watcher = Command::new(std::env::current_exe()?);
        watcher.args(["scope-end", "--detach"]);
        if restore {
            watcher.arg("--restore");
        }
        watcher.args(["--".as_ref(), self.directory.as_os_str()]);
        watcher.args([self.cgroup.as_ref(), self.home.as_os_str()]);
        match watcher.stdin(Stdio::null()).status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("the process that cleans up did not start").into()),
        }
    }

    /// The rules: one for TCP and one for MPTCP, which Go's listeners ask for.
    fn rules(&self) -> [Rule; 2] {
        [false, true].map(|mptcp| Rule {
            cgroup: Some(self.cgroup.clone()),
            mptcp,
            ..Rule::new(Verdict::Allow)
        })
    }

    /// Goes back to where this process was before.
    fn leave(&self) {
        let _ = join(&self.home);
    }
}

/// Moves this process into the cgroup of a directory.
fn join(directory: &Path) -> Result<()> {
    let file = directory.join("cgroup.procs");
    fs::write(&file, "0").map_err(|error| Error::at(&file, error))
}

/// True of a rule of [`Scope::rules`].
fn is_ours(rule: &Rule) -> bool {
    let cgroup = rule.cgroup.as_deref().unwrap_or_default();
    let name = cgroup
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_prefix(PREFIX));
    let by_id = name.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
    let alone = Rule {
        cgroup: rule.cgroup.clone(),
        mptcp: rule.mptcp,
        ..Rule::new(Verdict::Allow)
    };
    by_id && *rule == alone
}

/// Removes the rules of a cgroup, and the cgroup, which nobody is in any more.
fn clean(directory: &Path, cgroup: &str, restore: bool) -> Result<()> {
    let left = live::remove(|rule| is_ours(rule) && rule.cgroup.as_deref() == Some(cgroup));
    match cgroup::remove(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::at(directory, error));
        }
        _ => {}
    }
    if left? == 0 && restore && mode::live() == Some(mode::RULES) {
        mode::set(0)?;
    }
    Ok(())
}

/// Waits until nobody is in the cgroup, then removes it and its rules.
///
/// # Errors
/// Errors of that.
pub fn end(args: &ScopeEndArgs) -> Result<()> {
    if args.detach {
        join(&args.home)?;
        // Nobody's child, so that the command finds none that it has not made.
        let mut next = Command::new(std::env::current_exe()?);
        next.arg("scope-end");
        if args.restore {
            next.arg("--restore");
        }
        next.args(["--".as_ref(), args.directory.as_os_str()]);
        next.args([args.cgroup.as_ref(), args.home.as_os_str()]);
        next.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        next.current_dir("/").spawn()?;
        return Ok(());
    }
    let _ = rustix::process::setsid();
    // A signal for everybody, as at the end of a service, reaches the command, too, whose end this waits for.
    for signal in [
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    wait(&args.directory)?;
    clean(&args.directory, &args.cgroup, args.restore)
}

/// Waits until nobody is in the cgroup of a directory, or that is gone.
fn wait(directory: &Path) -> Result<()> {
    let Ok(events) = File::open(directory.join("cgroup.events")) else {
        return Ok(());
    };
    loop {
        // What has been read is what poll() waits for a change of.
        let mut text = [0; 256];
        let Ok(length) = events.read_at(&mut text, 0) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or(&[])).into_owned();
        if !text.lines().any(|line| line == "populated 1") {
            return Ok(());
        }
        let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::PRI)];
        let second = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
}

/// Removes what commands have left behind whose watching process was killed.
///
/// # Errors
/// `NotThere` without netlink family or cgroups, or the kernel's.
pub fn prune(out: &mut dyn Write) -> Result<()> {
    // It is for administrators, with cgroups and without.
    policy::collect()?;
    let ended = prune_all(&Mount::find()?)?;
    for cgroup in &ended {
        writeln!(
            out,
            "{}: the command has ended, its rules are removed",
            visible::text(cgroup)
        )?;
    }
    Ok(())
}

fn prune_all(mount: &Mount) -> Result<Vec<String>> {
    let mut ended: Vec<String> = Vec::new();
    for listed in policy::collect()? {
        let Some(cgroup) = listed.rule.cgroup.clone() else {
            continue;
        };
        let Some(directory) = mount.directory(&cgroup) else {
            continue;
        };
        if !is_ours(&listed.rule)
            || ended.contains(&cgroup)
            || cgroup::populated(&directory) == Some(true)
        {
            continue;
        }
        clean(&directory, &cgroup, false)?;
        ended.push(cgroup);
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_scopes_are_known() {
        let scope = Scope {
            directory: PathBuf::new(),
            home: PathBuf::new(),
            cgroup: "/user.slice/rsmc-run-77".into(),
        };
        assert!(scope.rules().iter().all(is_ours));
        let rule = |cgroup: &str| Rule {
            cgroup: Some(cgroup.into()),
            ..Rule::new(Verdict::Allow)
        };
        assert!(is_ours(&rule("/rsmc-run-1")));
        for other in [
            "/rsmc-run-",
            "/rsmc-run-1/a",
            "/rsmc-run-x",
            "/a.service",
            "/",
        ] {
            assert!(!is_ours(&rule(other)), "{other}");
        }
        let mut more = rule("/rsmc-run-1");
        more.uid = Some(1);
        assert!(!is_ours(&more));
        assert!(!is_ours(&Rule::new(Verdict::Allow)));
    }
}
