// SPDX-License-Identifier: GPL-2.0
//! The place of a unit in the system, as systemd knows it, or as its files say.

use super::files;
use super::unit::{parse, slice_path, usage, Kind, Unit};
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
