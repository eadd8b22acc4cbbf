// SPDX-License-Identifier: GPL-2.0
//! `smcr` and `smcd`: their command line, and the objects `info`, `ueid`, `seid`.

use super::{devices, finish, groups, or_na, smcd::smcd_devices, stats};
use crate::cli::{UeidAction, UeidArgs};
use crate::error::{Error, Result};
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::{dev, gid, system, ueid};
use std::ffi::OsString;
use std::fs;
use std::io::Write;

/// Exit code for wrong usage.
const WRONG: u8 = 255;
/// Exit code for anything else.
const FAILED: u8 = 1;

/// Which of the two tools this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// `smcr`
    R,
    /// `smcd`
    D,
}

impl Technology {
    /// `smcr` or `smcd`.
    pub fn tool(self) -> &'static str {
        match self {
            Technology::R => "smcr",
            Technology::D => "smcd",
        }
    }
}

/// The options before the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-a`
    pub absolute: bool,
    /// `-d`
    pub details: bool,
    /// `-dd`
    pub more_details: bool,
}

/// `smcr`.
pub fn smcr(arguments: &[OsString], out: &mut dyn Write) -> u8 {
    main(Technology::R, arguments, out)
}

/// `smcd`.
pub fn smcd(arguments: &[OsString], out: &mut dyn Write) -> u8 {
    main(Technology::D, arguments, out)
}

fn main(technology: Technology, arguments: &[OsString], out: &mut dyn Write) -> u8 {
    let words: Vec<String> = arguments
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match run(technology, &words, out) {
        Err(Error::Usage(line)) => {
            eprintln!("{}: {line}", technology.tool());
            WRONG
        }
        done => finish(technology.tool(), done, FAILED),
    }
}

fn run(technology: Technology, words: &[String], out: &mut dyn Write) -> Result<()> {
    let mut options = Options::default();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        rest = after;
        match word.as_str() {
            "-a" | "--absolute" => options.absolute = true,
            "-d" | "--details" => options.details = true,
            "-ad" | "-da" => (options.absolute, options.details) = (true, true),
            "-dd" | "--ddetails" if technology == Technology::R => {
                (options.details, options.more_details) = (true, true);
            }
            "-v" | "--version" => {
                let (tool, version) = (technology.tool(), env!("CARGO_PKG_VERSION"));
                return Ok(writeln!(out, "{tool} of rsmc {version}")?);
            }
            "-h" | "--help" => return usage(technology, out),
            "--" => break,
            other => return Err(Error::Usage(format!("there is no option {other}"))),
        }
    }
    let Some((object, rest)) = rest.split_first() else {
        usage(technology, &mut std::io::stderr())?;
        return Err(Error::Usage("no object given".into()));
    };
    if technology == Technology::R && object == "seid" {
        return Err(Error::Usage("the system EID is of SMC-D: smcd seid".into()));
    }
    let mut objects = vec!["help", "info", "linkgroup", "device", "stats", "ueid"];
    if technology == Technology::D {
        objects.push("seid");
    }
    let object = stem(object, &objects, "object")?;
    if options.absolute && object != "stats" {
        return Err(Error::Usage("-a is for stats only".into()));
    }
    match object {
        "help" => usage(technology, out),
        "info" => {
            command(rest, &["show"])?;
            info(out)
        }
        "linkgroup" => groups::groups(technology, options, rest, out),
        "device" => devices::devices(technology, options, rest, out),
        "stats" => {
            let command = command(rest, &["show", "reset", "json"])?;
            stats::run(technology, options, command, out)
        }
        "ueid" => ueids(rest, out),
        _ => {
            let command = command(rest, &["show", "enable", "disable"])?;
            seid(command, out)
        }
    }
}

/// The name that a word is the beginning of; it must be clear which.
pub fn stem(word: &str, names: &[&'static str], what: &str) -> Result<&'static str> {
    let mut fitting = names.iter().filter(|name| name.starts_with(word));
    match (names.iter().find(|name| **name == word), fitting.next()) {
        (Some(name), _) => Ok(name),
        (None, Some(name)) if fitting.next().is_none() && !word.is_empty() => Ok(name),
        _ => Err(Error::Usage(format!(
            "there is no {what} {word}, but {}",
            names.join(", ")
        ))),
    }
}

/// The only command in `words`, the first of `names` by default; nothing may follow it.
fn command(words: &[String], names: &[&'static str]) -> Result<&'static str> {
    match words {
        [] => names.first().copied().ok_or(Error::Malformed("no names")),
        [word] => stem(word, names, "command"),
        [_, word, ..] => Err(Error::Usage(format!("what is {word}?"))),
    }
}

/// Prints objects, commands and options.
///
/// # Errors
/// Those of writing.
pub fn usage(technology: Technology, out: &mut dyn Write) -> Result<()> {
    let tool = technology.tool();
    writeln!(
        out,
        "Usage: {tool} [OPTIONS] OBJECT [COMMAND]\n\n\
         info       [show]\n\
         linkgroup  [show{}] [all | ID{}]\n\
         device     [show] [all{}]\n\
         stats      [show | reset | json]\n\
         ueid       [show | add EID | del EID | flush]",
        if technology == Technology::R {
            " | link-show"
        } else {
            ""
        },
        if technology == Technology::R {
            " | netdev NAME | ibdev NAME"
        } else {
            ""
        },
        if technology == Technology::R {
            " | netdev NAME | ibdev NAME"
        } else {
            ""
        },
    )?;
    if technology == Technology::D {
        writeln!(out, "seid       [show | enable | disable]")?;
    }
    writeln!(
        out,
        "\nOptions: -a absolute values of stats, -d details{}, -v version, -h help.\n\
         Objects and commands may be abbreviated. rsmc has more: rsmc --help.",
        if technology == Technology::R {
            ", -dd more details"
        } else {
            ""
        }
    )?;
    Ok(())
}

fn info(out: &mut dyn Write) -> Result<()> {
    let system = system::collect()?;
    let roce = match dev::collect()?.is_empty() {
        true => "n/a",
        false if has_roce_v2() => "v1 v2",
        false => "v1",
    };
    let versions = |second: bool| if second { "v1 v2" } else { "v1" };
    writeln!(out, "Kernel Capabilities")?;
    writeln!(
        out,
        "SMC Version:     {}.{}",
        system.version, system.release
    )?;
    writeln!(out, "SMC Hostname:    {}", or_na(&system.host))?;
    writeln!(out, "SMC-D Features:  {}", versions(system.smcd_v2))?;
    writeln!(out, "SMC-R Features:  {}", versions(system.smcr_v2))?;
    writeln!(out, "\nHardware Capabilities")?;
    writeln!(out, "SEID:            {}", or_na(&system.seid))?;
    let ism = match smcd_devices()?.is_empty() {
        true => "n/a",
        false => versions(system.smcd_v2),
    };
    writeln!(out, "ISM:             {ism}")?;
    writeln!(out, "RoCE:            {roce}")?;
    Ok(())
}

/// True if a port of an RDMA device has an address for version 2.
fn has_roce_v2() -> bool {
    let inside = |path: &str| fs::read_dir(path).ok().into_iter().flatten().flatten();
    inside("/sys/class/infiniband").any(|device| {
        let ports = device.path().join("ports");
        inside(&ports.to_string_lossy()).any(|port| {
            let gids = gid::of_port(&port.path());
            gids.iter().any(gid::Gid::is_roce_v2)
        })
    })
}

fn ueids(words: &[String], out: &mut dyn Write) -> Result<()> {
    let name = words.first().map_or("show", String::as_str);
    let name = stem(name, &["show", "add", "del", "flush"], "command")?;
    let action = match (name, words.get(1..).unwrap_or(&[])) {
        ("add", [eid]) => UeidAction::Add { eid: eid.clone() },
        ("del", [eid]) => UeidAction::Del { eid: eid.clone() },
        ("add" | "del", []) => return Err(Error::Usage("which EID?".into())),
        ("show", []) => UeidAction::Show { json: false },
        ("flush", []) => UeidAction::Flush,
        (_, [.., word]) => return Err(Error::Usage(format!("what is {word}?"))),
        _ => return Err(Error::Malformed("a command")),
    };
    let args = UeidArgs {
        action: Some(action),
    };
    ueid::run(&args, out)
}

const DUMP_SEID: u8 = 13;
const ENABLE_SEID: u8 = 14;
const DISABLE_SEID: u8 = 15;
/// Attributes `SMC_NLA_SEID_ENTRY` and `SMC_NLA_SEID_ENABLED`.
const SEID_ENTRY: u16 = 1;
const SEID_ENABLED: u16 = 2;

fn seid(command: &str, out: &mut dyn Write) -> Result<()> {
    let mut family = crate::stats::family()?;
    let number = match command {
        "enable" => ENABLE_SEID,
        "disable" => DISABLE_SEID,
        _ => DUMP_SEID,
    };
    if number != DUMP_SEID {
        let request = family.command(number, NLM_F_ACK);
        let done = family.ask("changing the system EID", &request);
        return done.map(|_| ()).map_err(crate::stats::not_yet);
    }
    let request = family.command(number, NLM_F_DUMP);
    let (mut eid, mut enabled) = (String::new(), false);
    for body in family.ask("asking for the system EID", &request)? {
        for attribute in body.attributes()? {
            match attribute.kind {
                SEID_ENTRY => eid = attribute.text().trim_end().to_string(),
                SEID_ENABLED => enabled = attribute.number() == Some(1),
                _ => {}
            }
        }
    }
    match (eid.as_str(), enabled) {
        ("", _) => writeln!(out, "n/a")?,
        (eid, true) => writeln!(out, "{eid} [enabled]")?,
        (eid, false) => writeln!(out, "{eid} [disabled]")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations() {
        let names = ["show", "seid", "stats", "link", "link-show"];
        let found = |word: &str| stem(word, &names, "thing").ok();
        assert_eq!(found("sh"), Some("show"));
        assert_eq!(found("s"), None);
        assert_eq!(found("link"), Some("link"));
        assert_eq!(found("link-"), Some("link-show"));
        assert_eq!((found("x"), found("")), (None, None));
    }

    #[test]
    fn usage_needs_no_kernel() {
        let code = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let mut out = Vec::new();
            let code = match line.starts_with("smcr") {
                true => smcr(&words, &mut out),
                false => smcd(&words, &mut out),
            };
            (code, String::from_utf8(out).unwrap())
        };
        assert!(code("smcr --version").1.starts_with("smcr of rsmc "));
        assert_eq!(code("smcr -v").0, 0);
        assert!(code("smcr help").1.contains("link-show"));
        assert!(!code("smcd --help").1.contains("link-show"));
        for wrong in [
            "smcr",
            "smcr -x",
            "smcr nothing",
            "smcr seid",
            "smcd s",
            "smcd -dd device",
            "smcr -a device",
            "smcr stats show more",
            "smcr ueid add",
            "smcr ueid flush all",
        ] {
            assert_eq!(code(wrong).0, WRONG, "{wrong}");
        }
    }
}
