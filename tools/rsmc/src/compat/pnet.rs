// SPDX-License-Identifier: GPL-2.0
//! `smc_pnet`: the PNET table.

use super::{finish, or_na, parse};
use crate::cli::{PnetAction, PnetArgs};
use crate::error::Result;
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
    #[arg(short, long, value_name = "ID", requires = "what")]
    add: Option<String>,
    /// Show the entries of this id
    #[arg(short, long, value_name = "ID")]
    show: Option<String>,
    /// Delete the entries of this id
    #[arg(short, long, value_name = "ID")]
    delete: Option<String>,
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
    let action = if let Some(id) = options.add {
        PnetAction::Add {
            id,
            interface: options.interface,
            ibdevice: options.ibdevice,
            ibport: options.ibport,
        }
    } else if let Some(id) = options.delete {
        PnetAction::Del { id }
    } else if options.flush {
        PnetAction::Flush
    } else {
        for entry in pnet::collect(options.show.as_deref())? {
            writeln!(out, "{}", line(&entry))?;
        }
        return Ok(());
    };
    let args = PnetArgs {
        action: Some(action),
    };
    pnet::run(&args, out)
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
