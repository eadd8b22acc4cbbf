// SPDX-License-Identifier: GPL-2.0
//! Units of systemd: their names, and the cgroups that they have.

use super::files;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest name of a unit, in bytes.
const LONGEST: usize = 255;
/// Directories with units, those that count most first.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// So many links from one name to the next.
const ALIASES: usize = 8;
/// Kinds of units besides those that have processes.
const OTHERS: [&str; 8] = [
    "target",
    "device",
    "mount",
    "automount",
    "swap",
    "timer",
    "path",
    "socket",
];

/// Kind of a unit with processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A service.
    Service,
    /// A slice: the units in it.
    Slice,
}

/// A unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name, with the kind.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The place of a unit in the system.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The cgroup.
    pub cgroup: String,
    /// The units whose sockets are passed to it.
    pub sockets: Vec<String>,
    /// It runs.
    pub active: bool,
}

fn usage(line: String) -> Error {
    Error::Usage(line)
}

/// Reads a unit's name as systemctl(1) does: what names no kind is a service.
///
/// # Errors
/// `Usage` for what is no name, or names a unit without processes.
pub fn parse(given: &str) -> Result<Unit> {
    let known = given.rsplit_once('.').map(|(_, kind)| kind);
    let kind = match known {
        Some("service") => Some(Kind::Service),
        Some("slice") => Some(Kind::Slice),
        Some("scope") => {
            return Err(usage(format!(
                "{given}: a scope belongs to the program that made it; enable its slice, or start \
                 the command by `rsmc run --scope`"
            )));
        }
        Some(kind) if OTHERS.contains(&kind) => {
            return Err(usage(format!(
                "{given}: a {kind} has no processes; enable the service"
            )));
        }
        _ => None,
    };
    let name = match kind {
        Some(_) => given.to_string(),
        None => format!("{given}.service"),
    };
    let unit = Unit {
        name,
        kind: kind.unwrap_or(Kind::Service),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let prefix = unit.prefix();
    if prefix.is_empty()
        || prefix.chars().all(|c| c == '.')
        || unit.name.len() > LONGEST
        || !unit.name.chars().all(good)
        || (unit.kind == Kind::Slice && slice_path(&unit.name).is_none())
    {
        return Err(usage(format!("'{given}' is no name of a unit")));
    }
    Ok(unit)
}

impl Unit {
    /// The name up to its instance or kind.
    fn prefix(&self) -> &str {
        let stem = self.name.rsplit_once('.').map_or("", |(stem, _)| stem);
        stem.split_once('@').map_or(stem, |(prefix, _)| prefix)
    }

    /// The instance; empty of a template, `None` of what is neither.
    fn instance(&self) -> Option<&str> {
        let stem = self.name.rsplit_once('.')?.0;
        stem.split_once('@').map(|(_, instance)| instance)
    }

    /// True of a template, which has instances and no processes itself.
    pub fn is_template(&self) -> bool {
        self.instance() == Some("")
    }

    /// The template of an instance.
    pub fn template(&self) -> Option<String> {
        let instance = self.instance()?;
        (!instance.is_empty()).then(|| format!("{}@.service", self.prefix()))
    }

    /// The slice that it has if it names none.
    fn default_slice(&self) -> String {
        match self.instance() {
            Some(_) => format!("system-{}.slice", escape(self.prefix())),
            None => "system.slice".into(),
        }
    }

    /// The cgroup in a slice; that of a template has all instances.
    fn cgroup(&self, slice: &str) -> Result<String> {
        let path = slice_path(slice)
            .ok_or_else(|| usage(format!("{}: its slice is '{slice}'", self.name)))?;
        Ok(match self.is_template() {
            true => path,
            false => format!("{path}/{}", cgroup_name(&self.name)),
        })
    }
}

/// The path of a slice's cgroup: `a-b.slice` is in `a.slice`.
fn slice_path(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".slice")?;
    if stem == "-" {
        return Some(String::new());
    }
    let mut path = String::new();
    let mut above = String::new();
    for part in stem.split('-') {
        if part.is_empty() || part.contains('/') {
            return None;
        }
        let dash = if above.is_empty() { "" } else { "-" };
        above = format!("{above}{dash}{part}");
        path = format!("{path}/{}", cgroup_name(&format!("{above}.slice")));
    }
    Some(path)
}

/// Name of a unit's cgroup: one that would be a file of the kernel begins with `_`.
fn cgroup_name(unit: &str) -> String {
    const FILES: [&str; 16] = [
        "cgroup",
        "cpu",
        "cpuacct",
        "cpuset",
        "io",
        "blkio",
        "memory",
        "devices",
        "pids",
        "hugetlb",
        "misc",
        "rdma",
        "freezer",
        "perf_event",
        "net_cls",
        "net_prio",
    ];
    let first = unit.split('.').next().unwrap_or("");
    let taken = unit.starts_with(['_', '.']) || FILES.contains(&first);
    format!("{}{unit}", if taken { "_" } else { "" })
}

/// A text as a part of a unit's name.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for (at, byte) in text.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_') || (byte == b'.' && at > 0);
        match plain {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("\\x{byte:02x}")),
        }
    }
    escaped
}

/// Asks the running systemd about a unit. The unit's name becomes its own where it was an alias.
///
/// # Errors
/// `Usage` when there is no such unit.
pub fn ask(unit: &mut Unit) -> Result<Place> {
    if unit.is_template() {
        return find(Path::new("/"), unit);
    }
    let properties = "Id,LoadState,ActiveState,Slice,ControlGroup,TriggeredBy";
    let answer = Command::new("systemctl")
        .args(["show", "--property", properties, "--", &unit.name])
        .output()?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr);
        return Err(usage(format!("{}: {}", unit.name, said.trim())));
    }
    answered(unit, &String::from_utf8_lossy(&answer.stdout))
}

/// Understands the answer of `systemctl show`.
fn answered(unit: &mut Unit, text: &str) -> Result<Place> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(at, _)| *at == key)
            .map_or("", |(_, value)| value)
    };
    match value("LoadState") {
        "not-found" => return Err(missing(unit)),
        "masked" => return Err(masked(unit)),
        "bad-setting" | "error" => {
            return Err(usage(format!("{}: systemd cannot read it", unit.name)));
        }
        _ => {}
    }
    let id = value("Id");
    if !id.is_empty() && id != unit.name {
        *unit = parse(id)?;
    }
    let cgroup = match (value("ControlGroup"), unit.kind, value("Slice")) {
        ("", Kind::Slice, _) => slice_path(&unit.name).unwrap_or_default(),
        ("", _, "") => unit.cgroup(&unit.default_slice())?,
        ("", _, slice) => unit.cgroup(slice)?,
        (cgroup, ..) => cgroup.to_string(),
    };
    let triggers = value("TriggeredBy").split_whitespace();
    Ok(Place {
        cgroup: whole(cgroup),
        sockets: triggers
            .filter(|name| name.ends_with(".socket"))
            .map(String::from)
            .collect(),
        active: matches!(value("ActiveState"), "active" | "reloading" | "activating"),
    })
}

/// The root's path is `/`.
fn whole(cgroup: String) -> String {
    match cgroup.is_empty() {
        true => "/".into(),
        false => cgroup,
    }
}

fn missing(unit: &Unit) -> Error {
    usage(format!("there is no unit {}", unit.name))
}

fn masked(unit: &Unit) -> Error {
    usage(format!("{} is masked: it never starts", unit.name))
}

/// Finds a unit in the files below `root`. The unit's name becomes its own where it was an alias.
///
/// # Errors
/// `Usage` when there is no such unit; errors of reading its files.
pub fn find(root: &Path, unit: &mut Unit) -> Result<Place> {
    if unit.kind == Kind::Slice {
        let cgroup = whole(slice_path(&unit.name).unwrap_or_default());
        return Ok(Place {
            cgroup,
            ..Place::default()
        });
    }
    let fragment = own_fragment(root, unit)?;
    let mut slice = None;
    for path in std::iter::once(fragment).chain(drop_ins(root, unit)?) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for line in text.lines() {
            if let Some(("Slice", value)) = line.split_once('=').map(|(k, v)| (k.trim(), v.trim()))
            {
                slice = (!value.is_empty()).then(|| value.to_string());
            }
        }
    }
    let slice = slice.unwrap_or_else(|| unit.default_slice());
    if slice.contains('%') {
        return Err(usage(format!(
            "{}: its slice is '{slice}', which only systemd itself understands; enable it where it runs",
            unit.name
        )));
    }
    let slice = match slice.ends_with(".slice") {
        true => slice,
        false => format!("{slice}.slice"),
    };
    Ok(Place {
        cgroup: whole(unit.cgroup(&slice)?),
        ..Place::default()
    })
}

/// The file that defines a unit, which gets its own name where it was an alias.
fn own_fragment(root: &Path, unit: &mut Unit) -> Result<PathBuf> {
    for _ in 0..ALIASES {
        let path = match (fragment(root, &unit.name)?, unit.template()) {
            (Some(path), _) => Some(path),
            (None, Some(template)) => fragment(root, &template)?,
            (None, None) => None,
        };
        let path = path.ok_or_else(|| missing(unit))?;
        let Ok(target) = fs::read_link(&path) else {
            return Ok(path);
        };
        if target == Path::new("/dev/null") {
            return Err(masked(unit));
        }
        let own = file_name(&target);
        // The link of a template says nothing about the name of an instance.
        if own == unit.name || own.contains('@') {
            return Ok(match target.is_absolute() {
                true => root.join(target.strip_prefix("/").unwrap_or(&target)),
                false => path,
            });
        }
        *unit = parse(&own)?;
    }
    Err(usage(format!(
        "{}: its links lead round in a circle",
        unit.name
    )))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The file that defines a unit.
fn fragment(root: &Path, name: &str) -> Result<Option<PathBuf>> {
    for directory in DIRECTORIES {
        let path = files::below(root, directory)?.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The drop-ins of a unit, those that count least first.
fn drop_ins(root: &Path, unit: &Unit) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    let names = unit.template().into_iter().chain([unit.name.clone()]);
    for name in names {
        for directory in DIRECTORIES.iter().rev() {
            let at = files::below(root, directory)?.join(format!("{name}.d"));
            let entries = fs::read_dir(at).ok().into_iter().flatten().flatten();
            found.extend(entries.map(|entry| entry.path()));
        }
    }
    found.retain(|path| path.extension().is_some_and(|kind| kind == "conf"));
    found.sort_by_key(|path| file_name(path));
    Ok(found)
}

#[cfg(test)]
mod tests;
