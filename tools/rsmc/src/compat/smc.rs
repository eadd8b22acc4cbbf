// SPDX-License-Identifier: GPL-2.0
//! `smcr` and `smcd`: their command line, and the object `ueid`.

use super::{devices, finish, groups, info, stats};
use crate::cli::{UeidAction, UeidArgs};
use crate::error::{Error, Result};
use crate::ueid;
use crate::visible::complain;
use std::ffi::OsString;
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
            complain(technology.tool(), &line);
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
        if word == "--" {
            break;
        }
        match option(word) {
            Some("absolute") => options.absolute = true,
            Some("details") => options.details = true,
            Some("both") => (options.absolute, options.details) = (true, true),
            Some("ddetails") if technology == Technology::R => {
                (options.details, options.more_details) = (true, true);
            }
            Some("version") => {
                let (tool, version) = (technology.tool(), env!("CARGO_PKG_VERSION"));
                return Ok(writeln!(out, "{tool} of rsmc {version}")?);
            }
            Some("help") => return usage(technology, out),
            _ => return Err(Error::Usage(format!("there is no option {word}"))),
        }
    }
    let Some((object, rest)) = rest.split_first() else {
        #[expect(clippy::disallowed_methods, reason = "a text of ours")]
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
            info::info(out)
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
            info::seid(command, out)
        }
    }
}

/// The option that a word with one dash or two is the beginning of, the first that fits.
fn option(word: &str) -> Option<&'static str> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    if matches!(name, "ad" | "da") {
        return Some("both");
    }
    let names = ["absolute", "version", "details", "ddetails", "help"];
    let mut names = names.into_iter().filter(|_| !name.is_empty());
    names.find(|known| known.starts_with(name))
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
/// Errors of writing to `out`.
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
    fn options_by_their_beginning() {
        for (word, name) in [
            ("-a", Some("absolute")),
            ("--abs", Some("absolute")),
            ("-d", Some("details")),
            ("-details", Some("details")),
            ("-dd", Some("ddetails")),
            ("--ddet", Some("ddetails")),
            ("-da", Some("both")),
            ("-x", None),
            ("-ax", None),
            ("-", None),
            ("show", None),
        ] {
            assert_eq!(option(word), name, "{word}");
        }
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
