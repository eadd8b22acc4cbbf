// SPDX-License-Identifier: GPL-2.0
//! All TCP sockets of a host: `rsmc enable --all-on-this-host`.

use super::files::{below, look, Change, Found, MARK};
use super::{mode, System};
use crate::error::{Error, Result};
use crate::policy::kept;
use crate::{diag, module, procs};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, IsTerminal};

/// The file that has the module loaded at boot.
const MODULES: &str = "/etc/modules-load.d/rsmc.conf";
/// State of a listener in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Turns it on.
///
/// # Errors
/// `Usage` when nobody has agreed, `Table` when a file of somebody else says another value; errors of files, or the
/// kernel's.
pub(super) fn enable(system: &mut System<'_>, yes: bool) -> Result<()> {
    if let Some(found) = system.configured() {
        if !found.is_ours() && found.value != mode::ALL {
            return Err(Error::Table(format!(
                "{} has net.smc.tcp2smc = {}: somebody has chosen that; change or remove it there",
                found.file.display(),
                found.value
            )));
        }
    }
    let changes = changes(system)?;
    let now = mode::live();
    if changes.is_empty() && (!system.live || now == Some(mode::ALL)) {
        return system.say("it is on already");
    }
    system.say(
        "TCP sockets that programs of this network namespace make from now on are to become SMC sockets:",
    )?;
    for Change { path, contents } in &changes {
        let text = contents.as_deref().unwrap_or_default();
        let text = text.strip_prefix(MARK).unwrap_or(text).trim();
        system.say(&format!("  {}: {text}", path.display()))?;
    }
    if system.live {
        let now = now.map_or("the module is not loaded".into(), |now| now.to_string());
        system.say(&format!(
            "  net.smc.tcp2smc, now: {} (is: {now})",
            mode::ALL
        ))?;
        listeners_are_said(system)?;
    }
    if system.dry {
        return Ok(());
    }
    agreed(system, yes)?;
    if !system.live {
        return system.change(&changes);
    }
    // First what may fail for a cause that files know nothing of.
    module::ensure()?;
    let before = mode::live().unwrap_or(0);
    mode::set(mode::ALL)?;
    if let Err(error) = system.change(&changes) {
        let _ = mode::set(before);
        return Err(error);
    }
    system.say("net.smc.tcp2smc is 1")
}

/// Turns it off.
///
/// # Errors
/// `Table` when it is not on; errors of files, or the kernel's.
pub(super) fn disable(system: &mut System<'_>) -> Result<()> {
    let ours = system
        .configured()
        .is_some_and(|found| found.is_ours() && found.value == mode::ALL);
    let mut changes = Vec::new();
    // Units that are enabled need what the rules say.
    let rules = !kept::files(&system.root)?.is_empty();
    let value = if rules { mode::RULES } else { 0 };
    if ours {
        changes.extend(system.file(mode::FILE, rules.then(|| mode::contents(mode::RULES)))?);
    }
    let modules = below(&system.root, MODULES)?;
    if matches!(look(&modules)?, Found::Ours(_)) {
        changes.extend(system.file(MODULES, None)?);
    }
    if changes.is_empty() {
        return Err(Error::Table(
            "`rsmc enable --all-on-this-host` has not turned it on (sysctl net.smc.tcp2smc=0 turns off what others did)"
                .into(),
        ));
    }
    system.change(&changes)?;
    if system.live && !system.dry && mode::live() == Some(mode::ALL) {
        mode::set(value)?;
        system.say(&format!(
            "net.smc.tcp2smc is {value} (it was 1); sockets that exist stay what they are"
        ))?;
    }
    Ok(())
}

/// The files that are missing.
fn changes(system: &System<'_>) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    // One that somebody has made by hand does the same.
    if look(&below(&system.root, MODULES)?)? != Found::Foreign {
        changes.extend(system.file(MODULES, Some(format!("{MARK}\nrsmc\n")))?);
    }
    match system.configured() {
        Some(found) if found.value == mode::ALL => {}
        _ => changes.extend(system.file(mode::FILE, Some(mode::contents(mode::ALL)))?),
    }
    Ok(changes)
}

/// Asks whether to go on.
fn agreed(system: &mut System<'_>, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Error::Usage(
            "nothing is done without --yes, where there is no terminal to ask".into(),
        ));
    }
    write!(system.out, "Go on? [y/N] ")?;
    system.out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Error::Usage("nothing is done".into())),
    }
}

/// A program with listeners.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    unit: Option<String>,
    pid: u32,
    comm: String,
}

/// Names the programs that have to be restarted.
fn listeners_are_said(system: &mut System<'_>) -> Result<()> {
    let mut ports = listeners();
    // Those are SMC's already.
    for socket in diag::dump().unwrap_or_default() {
        ports.remove(&socket.inode);
    }
    let inodes: HashSet<u64> = ports.keys().copied().collect();
    let mut programs: BTreeMap<Program, BTreeSet<u16>> = BTreeMap::new();
    for (inode, holders) in procs::holders(&inodes) {
        for holder in holders {
            let program = Program {
                unit: procs::unit(holder.pid),
                pid: holder.pid,
                comm: holder.comm,
            };
            programs
                .entry(program)
                .or_default()
                .extend(ports.get(&inode));
        }
    }
    if programs.is_empty() {
        return system.say("No program listens on TCP now.");
    }
    system.say("Listeners that exist stay TCP until their program is restarted:")?;
    for (program, ports) in programs {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        system.say(&format!(
            "  {}: {}[{}], port {}",
            program.unit.as_deref().unwrap_or("(no service)"),
            program.comm,
            program.pid,
            ports.join(", ")
        ))?;
    }
    Ok(())
}

/// The TCP listeners of this network namespace: inode and port.
fn listeners() -> HashMap<u64, u16> {
    let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let mut found = HashMap::new();
    for text in [read("tcp"), read("tcp6")] {
        found.extend(text.lines().filter_map(listener));
    }
    found
}

/// The inode and port of a listener in a line of `/proc/net/tcp`.
fn listener(line: &str) -> Option<(u64, u16)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    let inode = fields.get(9)?.parse().ok()?;
    Some((inode, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn lines_of_listeners() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 x";
        assert_eq!(listener(line), Some((4711, 8080)));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        for bad in ["", "sl local_address rem_address st", "0: x y 0A"] {
            assert_eq!(listener(bad), None);
        }
    }

    #[test]
    fn a_listener_of_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = listeners();
        let inodes = found
            .iter()
            .filter(|(_, at)| **at == port)
            .map(|(inode, _)| *inode);
        let holders = procs::holders(&inodes.collect());
        let mut all = holders.values().flatten();
        assert!(all.any(|holder| holder.pid == std::process::id()));
    }
}
