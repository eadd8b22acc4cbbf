// SPDX-License-Identifier: GPL-2.0
//! The command lines of `smcr` and `smcd` as shells complete them. They are read by hand, as they
//! may be abbreviated.

use super::smc::Technology;
use clap::{Arg, ArgAction, Command};

/// The command line of a tool.
pub fn command(technology: Technology) -> Command {
    let is_r = technology == Technology::R;
    let mut command = Command::new(technology.tool())
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .arg(flag(
            "absolute",
            Some('a'),
            "Values of stats whatever was reset",
        ))
        .arg(flag("details", Some('d'), "Show details"))
        .arg(flag("version", Some('v'), "Show the version"))
        .arg(flag(
            "help",
            Some('h'),
            "Show objects, commands and options",
        ));
    if is_r {
        // Its short form has two letters, which shells are not told.
        command = command.arg(flag("ddetails", None, "Show more details"));
    }
    let groups = object("linkgroup", "Show link groups")
        .subcommand(show("Show link groups").arg(filter(technology)));
    let groups = match is_r {
        true => groups.subcommand(object("link-show", "Show their links").arg(filter(technology))),
        false => groups,
    };
    let devices =
        object("device", "Show devices").subcommand(show("Show devices").arg(filter(technology)));
    let stats = object("stats", "Show statistics")
        .subcommand(show("Show statistics"))
        .subcommand(object("reset", "Show statistics and count from 0"))
        .subcommand(object("json", "Print statistics as JSON"));
    let ueid = object("ueid", "Show or change enterprise ids")
        .subcommand(show("List them"))
        .subcommand(object("add", "Add one").arg(Arg::new("EID")))
        .subcommand(object("del", "Remove one").arg(Arg::new("EID")))
        .subcommand(object("flush", "Remove all"));
    command = command
        .subcommand(object("help", "Show objects, commands and options"))
        .subcommand(
            object("info", "Show what kernel and hardware can do").subcommand(show("Show it")),
        )
        .subcommands([groups, devices, stats, ueid]);
    if is_r {
        return command;
    }
    command.subcommand(
        object("seid", "Show or switch the system EID")
            .subcommand(show("Show it"))
            .subcommand(object("enable", "Offer it to peers"))
            .subcommand(object("disable", "Do not offer it to peers")),
    )
}

fn flag(name: &'static str, short: Option<char>, help: &'static str) -> Arg {
    let flag = Arg::new(name).long(name).help(help);
    let flag = flag.action(ArgAction::SetTrue);
    match short {
        Some(short) => flag.short(short),
        None => flag,
    }
}

/// An object or a command: words without options.
fn object(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
}

fn show(about: &'static str) -> Command {
    object("show", about)
}

/// Which groups or devices: words of which some are known.
fn filter(technology: Technology) -> Arg {
    let words: &[&'static str] = match technology {
        Technology::R => &["all", "netdev", "ibdev"],
        Technology::D => &["all"],
    };
    Arg::new("WHICH")
        .num_args(0..=2)
        .value_parser(clap::builder::PossibleValuesParser::new(words))
}

#[cfg(test)]
mod tests {
    use super::super::smc;
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn what_is_offered_is_understood() {
        for technology in [Technology::R, Technology::D] {
            let command = command(technology);
            command.clone().debug_assert();
            // Wrong usage is told before the kernel is asked for anything.
            for object in command.get_subcommands() {
                for inner in object.get_subcommands() {
                    if matches!(inner.get_name(), "flush" | "reset" | "enable" | "disable") {
                        continue;
                    }
                    let mut words = vec![technology.tool(), object.get_name(), inner.get_name()];
                    if matches!(inner.get_name(), "add" | "del") {
                        words.push("a_b");
                    }
                    let words: Vec<OsString> = words.iter().map(Into::into).collect();
                    let code = match technology {
                        Technology::R => smc::smcr(&words, &mut Vec::new()),
                        Technology::D => smc::smcd(&words, &mut Vec::new()),
                    };
                    assert!(code != 255 || words.len() == 4, "{words:?}");
                }
            }
        }
    }
}
