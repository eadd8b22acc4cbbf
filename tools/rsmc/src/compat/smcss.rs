// SPDX-License-Identifier: GPL-2.0
//! `smcss`: sockets, in that tool's columns.

use super::columns::{self, left, right, Column};
use super::socket::{row, ADDRESS};
use super::{finish, parse};
use crate::diag::{self, Mode, Socket, State};
use crate::error::Result;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::io::Write;

/// Show SMC sockets (rsmc ss with the options and columns of smcss)
#[derive(Debug, Default, Parser)]
#[command(name = "smcss", version, disable_version_flag = true)]
#[command(args_override_self = true, infer_long_args = true)]
pub struct Options {
    /// All sockets, also listening and unconnected ones
    #[arg(short, long)]
    pub(super) all: bool,
    /// Listening sockets only
    #[arg(short, long, conflicts_with_all = ["all", "debug", "smcd", "smcr"])]
    pub(super) listening: bool,
    /// Buffers, cursors and flags as well
    #[arg(short, long)]
    pub(super) debug: bool,
    /// Do not cut addresses
    #[arg(short = 'W', long)]
    pub(super) wide: bool,
    /// SMC-D sockets only, with what is particular to them
    #[arg(short = 'D', long, conflicts_with = "smcr")]
    pub(super) smcd: bool,
    /// SMC-R sockets only, with what is particular to them
    #[arg(short = 'R', long)]
    pub(super) smcr: bool,
    /// Show the version
    #[arg(short, long, action = clap::ArgAction::Version)]
    pub(super) version: Option<bool>,
}

/// The options, for the manual.
pub fn command() -> Command {
    Options::command()
}

/// `smcss`.
pub fn main(arguments: &[OsString], out: &mut dyn Write) -> u8 {
    match parse::<Options>(arguments, 1) {
        Ok(options) => finish("smcss", show(&options, out), 1),
        Err(code) => code,
    }
}

fn show(options: &Options, out: &mut dyn Write) -> Result<()> {
    list(options, &diag::dump()?, out)
}

const HEAD: [Column; 7] = [
    left("State", 14, 1),
    left("UID", 5, 1),
    left("Inode", 7, 1),
    left("Local Address", ADDRESS, 1),
    left("Peer Address", ADDRESS, 1),
    left("Intf", 4, 1),
    left("Mode", 4, 1),
];
const DEBUG: [Column; 14] = [
    left("Shutd", 5, 1),
    left("Token", 8, 1),
    left("Sndbuf", 8, 1),
    left("Rcvbuf", 8, 1),
    left("Peerbuf", 8, 1),
    left("rxprod-Cursor", 13, 1),
    left("rxcons-Cursor", 13, 1),
    left("rxFlags", 5, 3),
    left("txprod-Cursor", 13, 1),
    left("txcons-Cursor", 13, 1),
    left("txFlags", 5, 3),
    left("txprep-Cursor", 13, 1),
    left("txsent-Cursor", 13, 1),
    left("txfin-Cursor", 13, 1),
];
const SMCR: [Column; 6] = [
    right("Role", 4, 1),
    left("IB-device", 15, 1),
    left("Port", 2, 3),
    left("Linkid", 2, 5),
    left("GID", 40, 1),
    left("Peer-GID", 0, 0),
];
const SMCD: [Column; 5] = [
    left("GID", 16, 1),
    left("Token", 16, 1),
    left("Peer-GID", 16, 1),
    left("Peer-Token", 16, 1),
    left("Linkid", 8, 0),
];

fn list(options: &Options, sockets: &[Socket], out: &mut dyn Write) -> Result<()> {
    let mut columns = HEAD.to_vec();
    if options.debug {
        columns.extend(DEBUG);
    }
    if options.smcr {
        columns.extend(SMCR);
    }
    if options.smcd {
        columns.extend(SMCD);
    }
    let shown = sockets.iter().filter(|socket| wanted(options, socket));
    let rows: Vec<Vec<String>> = shown.map(|socket| row(options, socket)).collect();
    Ok(columns::print(out, &columns, &rows)?)
}

fn wanted(options: &Options, socket: &Socket) -> bool {
    if options.listening {
        return socket.state == State::LISTEN;
    }
    let is_open = matches!(socket.state, State::LISTEN | State::INIT);
    // The kernel calls what is not settled SMC-R, and so does that tool.
    let is_smcr = matches!(socket.mode, Mode::SmcR | Mode::Undecided);
    (options.all || !is_open)
        && (!options.smcr || is_smcr)
        && (!options.smcd || socket.mode == Mode::SmcD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::sockets;

    fn shown(line: &str) -> Vec<String> {
        let options = Options::try_parse_from(line.split_whitespace()).unwrap();
        let mut out = Vec::new();
        list(&options, &sockets(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    #[test]
    fn columns() {
        let lines = shown("smcss");
        assert_eq!(
            lines[0],
            "State UID Inode Local Address Peer Address Intf Mode"
        );
        assert_eq!(
            lines[1],
            "ACTIVE 00000 0000000 10.0.0.1:6379 10.0.0.2:40000 0000 TCP 0x05000000/0x03030000"
        );
        assert_eq!(lines.len(), 4);
        assert_eq!(shown("smcss -l")[1], "LISTEN 00000 0000000 0.0.0.0:6379");
        assert_eq!(shown("smcss -a").len(), 6);
        assert!(shown("smcss -a").contains(&"INIT 00000 0000000".to_string()));
        assert_eq!(shown("smcss --deb -W -W").len(), 4);
        assert_eq!(shown("smcss -D").len(), 2);
        let debug = shown("smcss -d -R");
        assert_eq!(debug.len(), 2);
        assert!(
            debug[1].contains("SMCR <-> 00001234 00004000 00010000 00010000 0001:00000004"),
            "{debug:?}"
        );
    }

    #[test]
    fn options_that_exclude_each_other() {
        for line in ["smcss -l -a", "smcss -D -R", "smcss -l -d", "smcss x"] {
            assert!(
                Options::try_parse_from(line.split_whitespace()).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn places_of_columns() {
        let options = Options {
            all: true,
            debug: true,
            smcr: true,
            ..Options::default()
        };
        let mut out = Vec::new();
        list(&options, &sockets(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let head = text.lines().next().unwrap();
        for (word, place) in [
            ("UID", 15),
            ("Inode", 21),
            ("Local", 29),
            ("Peer A", 53),
            ("Intf", 77),
            ("Mode", 82),
            ("Shutd", 87),
            ("Token", 93),
            ("rxFlags", 157),
            ("txprep", 201),
            ("Role", 243),
            ("GID", 276),
            ("Peer-GID", 317),
        ] {
            assert_eq!(head.find(word), Some(place), "{word}: {head}");
        }
        let row = text.lines().find(|line| line.contains("40001")).unwrap();
        assert_eq!(row.find("SMCR"), Some(82), "{row}");
        assert_eq!(row.find("00001234"), Some(93), "{row}");
    }
}
