// SPDX-License-Identifier: GPL-2.0
//! Units of systemd: their names, and the cgroups that go with these.

use crate::error::{Error, Result};

/// Longest name of a unit, in bytes.
const LONGEST: usize = 255;
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

pub(super) fn usage(line: String) -> Error {
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
    pub(super) fn default_slice(&self) -> String {
        match self.instance() {
            Some(_) => format!("system-{}.slice", escape(self.prefix())),
            None => "system.slice".into(),
        }
    }

    /// The cgroup in a slice; that of a template has all instances.
    pub(super) fn cgroup(&self, slice: &str) -> Result<String> {
        let path = slice_path(slice)
            .ok_or_else(|| usage(format!("{}: its slice is '{slice}'", self.name)))?;
        Ok(match self.is_template() {
            true => path,
            false => format!("{path}/{}", cgroup_name(&self.name)),
        })
    }
}

/// The path of a slice's cgroup: `a-b.slice` is in `a.slice`.
pub(super) fn slice_path(name: &str) -> Option<String> {
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

#[cfg(test)]
mod tests;
