// SPDX-License-Identifier: GPL-2.0
//! `smc_pnet`: the PNET table.

use super::{finish, or_na, parse};
use crate::cli::{PnetAction, PnetArgs};
use crate::error::{Error, Result};
use crate::pnet::{self, Entry};
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::io::Write;

/// Show and change the PNET table (rsmc pnet with the options and columns of smc_pnet)
#[derive(Debug, Parser)]
#[command(name = "smc_pnet", version, disable_version_flag = true)]
#[command(group = clap::ArgGroup::new("action").args(["add", "show", "delete", "flush"]))]
#[command(group = clap::ArgGroup::new("what").multiple(true).args(["interface", "ibdevice"]))]
struct Options {
    /// Add an entry to this id
    #[arg(short, long, value_name = "ID", num_args = 0..=1, requires = "what")]
    add: Option<Option<String>>,
    /// Show the entries of this id
    #[arg(short, long, value_name = "ID", num_args = 0..=1)]
    show: Option<Option<String>>,
    /// Delete the entries of this id
    #[arg(short, long, value_name = "ID", num_args = 0..=1)]
    delete: Option<Option<String>>,
    /// Delete all entries
    #[arg(short, long)]
    flush: bool,
    /// Network interface to add
    #[arg(short = 'I', long, value_name = "NAME", requires = "add")]
    interface: Option<String>,
    /// RDMA or ISM device to add
    #[arg(short = 'D', long, value_name = "NAME", requires = "add")]
    ibdevice: Option<String>,
    /// Its port
    #[arg(short = 'P', long, value_name = "1|2", requires = "ibdevice", value_parser = clap::value_parser!(u8).range(1..=2))]
    ibport: Option<u8>,
    /// The id, where it does not follow what is to be done with it
    #[arg(value_name = "ID", requires = "action")]
    id: Option<String>,
    /// Show the version
    #[arg(short, long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// The options, for the manual.
pub fn command() -> Command {
    Options::command()
}

/// `smc_pnet`.
pub fn main(arguments: &[OsString], out: &mut dyn Write) -> u8 {
    match parse::<Options>(arguments, 1) {
        Ok(options) => finish("smc_pnet", act(options, out), 1),
        Err(code) => code,
    }
}

fn act(options: Options, out: &mut dyn Write) -> Result<()> {
    let Some(action) = action(&options)? else {
        let id = options.show.flatten().or(options.id);
        for entry in pnet::collect(id.as_deref())? {
            writeln!(out, "{}", line(&entry))?;
        }
        return Ok(());
    };
    let args = PnetArgs {
        action: Some(action),
    };
    pnet::run(&args, out)
}

/// The change that is asked for; `None` if something is to be shown.
fn action(options: &Options) -> Result<Option<PnetAction>> {
    let given = [&options.add, &options.show, &options.delete];
    let ids: Vec<&String> = given
        .into_iter()
        .flatten()
        .flatten()
        .chain(&options.id)
        .collect();
    let id = match (&ids[..], options.flush) {
        ([_, second, ..], _) | ([second], true) => {
            return Err(Error::Usage(format!("what is {second}?")));
        }
        ([id], false) => Some((*id).clone()),
        ([], _) => None,
    };
    let needed = |id: Option<String>| id.ok_or_else(|| Error::Usage("which id?".into()));
    if options.add.is_some() {
        return Ok(Some(PnetAction::Add {
            id: needed(id)?,
            interface: options.interface.clone(),
            ibdevice: options.ibdevice.clone(),
            ibport: options.ibport,
        }));
    }
    if options.delete.is_some() {
        return Ok(Some(PnetAction::Del { id: needed(id)? }));
    }
    Ok(options.flush.then_some(PnetAction::Flush))
}

fn line(entry: &Entry) -> String {
    let text = |side: &Option<String>| or_na(side.as_deref().unwrap_or(""));
    format!(
        "{} {} {} {}",
        entry.id,
        text(&entry.interface),
        text(&entry.ibdevice),
        entry.ibport.unwrap_or(255)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let entry = Entry {
            id: "NET1".into(),
            interface: Some("eth0".into()),
            ibdevice: None,
            ibport: None,
        };
        assert_eq!(line(&entry), "NET1 eth0 n/a 255");
    }

    #[test]
    fn ids_behind_their_option_and_at_the_end() {
        let asked = |line: &str| {
            let options = Options::try_parse_from(line.split_whitespace()).ok()?;
            action(&options).ok().map(|action| format!("{action:?}"))
        };
        let added = asked("smc_pnet -a NET1 -I eth0");
        assert!(added.as_ref().is_some_and(|text| text.contains("NET1")));
        for line in [
            "smc_pnet -a -I eth0 NET1",
            "smc_pnet -I eth0 -a NET1",
            "smc_pnet NET1 --add -I eth0",
        ] {
            assert_eq!(asked(line), added, "{line}");
        }
        assert_eq!(asked("smc_pnet NET1 -d"), asked("smc_pnet -d NET1"));
        assert_eq!(asked("smc_pnet -s NET1"), Some("None".into()));
        assert_eq!(asked("smc_pnet -f"), Some("Some(Flush)".into()));
        for wrong in [
            "smc_pnet NET1",
            "smc_pnet -d",
            "smc_pnet -a -I eth0",
            "smc_pnet -a NET1 -I eth0 NET2",
            "smc_pnet -f NET1",
        ] {
            assert_eq!(asked(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn arguments() {
        let parsed = |line: &str| Options::try_parse_from(line.split_whitespace());
        assert!(parsed("smc_pnet").is_ok());
        assert!(parsed("smc_pnet -a NET1 -I eth0").is_ok());
        assert!(parsed("smc_pnet -a NET1 -I eth0 -D mlx5_0").is_ok());
        assert!(parsed("smc_pnet --add NET1 -D mlx5_0 -P 2").is_ok());
        for wrong in [
            "smc_pnet -a NET1",
            "smc_pnet -a NET1 -P 1",
            "smc_pnet -a NET1 -D mlx5_0 -P 3",
            "smc_pnet -s NET1 -f",
            "smc_pnet -I eth0",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
