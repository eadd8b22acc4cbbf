// SPDX-License-Identifier: GPL-2.0
//! `smcss`: sockets, in that tool's columns.

use super::{finish, parse};
use crate::diag::connection::Cursor;
use crate::diag::{self, Mode, Socket, State};
use crate::error::Result;
use crate::table::Table;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::io::Write;

/// Show SMC sockets (rsmc ss with the options and columns of smcss)
#[derive(Debug, Default, Parser)]
#[command(name = "smcss", version, disable_version_flag = true)]
struct Options {
    /// All sockets, also listening and unconnected ones
    #[arg(short, long)]
    all: bool,
    /// Listening sockets only
    #[arg(short, long, conflicts_with_all = ["all", "debug", "smcd", "smcr"])]
    listening: bool,
    /// Buffers, cursors and flags as well
    #[arg(short, long)]
    debug: bool,
    /// Do not cut addresses
    #[arg(short = 'W', long)]
    wide: bool,
    /// SMC-D sockets only, with what is particular to them
    #[arg(short = 'D', long, conflicts_with = "smcr")]
    smcd: bool,
    /// SMC-R sockets only, with what is particular to them
    #[arg(short = 'R', long)]
    smcr: bool,
    /// Show the version
    #[arg(short, long, action = clap::ArgAction::Version)]
    version: Option<bool>,
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

fn list(options: &Options, sockets: &[Socket], out: &mut dyn Write) -> Result<()> {
    let mut head = vec![
        "State",
        "UID",
        "Inode",
        "Local Address",
        "Peer Address",
        "Intf",
        "Mode",
    ];
    if options.debug {
        head.extend([
            "Shutd",
            "Token",
            "Sndbuf",
            "Rcvbuf",
            "Peerbuf",
            "rxprod-Cursor",
            "rxcons-Cursor",
            "rxFlags",
            "txprod-Cursor",
            "txcons-Cursor",
            "txFlags",
            "txprep-Cursor",
            "txsent-Cursor",
            "txfin-Cursor",
        ]);
    }
    if options.smcr {
        head.extend(["Role", "IB-device", "Port", "Linkid", "GID", "Peer-GID"]);
    }
    if options.smcd {
        head.extend(["GID", "Token", "Peer-GID", "Peer-Token", "Linkid"]);
    }
    let mut table = Table::new(&head);
    for socket in sockets.iter().filter(|socket| wanted(options, socket)) {
        table.row(row(options, socket));
    }
    Ok(table.print(out)?)
}

fn wanted(options: &Options, socket: &Socket) -> bool {
    if options.listening {
        return socket.state == State::LISTEN;
    }
    let is_open = matches!(socket.state, State::LISTEN | State::INIT);
    (options.all || !is_open)
        && (!options.smcr || socket.mode == Mode::SmcR)
        && (!options.smcd || socket.mode == Mode::SmcD)
}

fn row(options: &Options, socket: &Socket) -> Vec<String> {
    let cut = |text: String| match text.char_indices().nth(21) {
        Some((at, _)) if !options.wide && text.chars().count() > 23 => {
            format!("{}..", text.get(..at).unwrap_or(""))
        }
        _ => text,
    };
    let mut cells = vec![
        socket.state.to_string(),
        format!("{:05}", socket.uid),
        format!("{:07}", socket.inode),
        cut(end(socket.local)),
    ];
    if matches!(socket.state, State::LISTEN | State::INIT) {
        return cells;
    }
    cells.push(cut(end(socket.remote)));
    cells.push(format!("{:04}", socket.interface));
    cells.push(mode(socket));
    if options.debug {
        cells.push(
            match (socket.no_receive, socket.no_send) {
                (false, false) => "<->",
                (true, false) => "R->",
                (false, true) => "<-W",
                (true, true) => "R-W",
            }
            .into(),
        );
        cells.extend(debug(socket));
    }
    if let Some(link) = socket.link.as_ref().filter(|_| options.smcr) {
        cells.extend([
            if link.is_server { "SERV" } else { "CLNT" }.into(),
            link.device.clone(),
            format!("{:02x}", link.port),
            format!("{:02x}", link.id),
            link.gid.clone(),
            link.peer_gid.clone(),
        ]);
    }
    if let Some(dmb) = socket.dmb.filter(|_| options.smcd) {
        let [peer_gid, gid, token, peer_token] = dmb.numbers;
        cells.extend([
            format!("{gid:016x}"),
            format!("{token:016x}"),
            format!("{peer_gid:016x}"),
            format!("{peer_token:016x}"),
            format!("{:08x}", dmb.link_id),
        ]);
    }
    cells
}

/// An end without brackets, as the tool prints it.
fn end(end: diag::End) -> String {
    format!("{}:{}", end.address, end.port)
}

fn mode(socket: &Socket) -> String {
    match (socket.mode, socket.fallback) {
        (Mode::SmcR | Mode::Undecided, _) => "SMCR".into(),
        (Mode::SmcD, _) => "SMCD".into(),
        (Mode::Tcp, Some(reasons)) if reasons.peer != 0 => {
            format!("TCP 0x{:08x}/0x{:08x}", reasons.reason, reasons.peer)
        }
        (Mode::Tcp, Some(reasons)) => format!("TCP 0x{:08x}", reasons.reason),
        (Mode::Tcp, None) => "TCP".into(),
        (Mode::Other(number), _) => format!("{number}"),
    }
}

fn debug(socket: &Socket) -> Vec<String> {
    let Some(connection) = socket.connection else {
        return vec!["-".into(); 13];
    };
    let cursor = |cursor: Cursor| format!("{:04x}:{:08x}", cursor.wrap, cursor.count);
    let [rx, rx_state, tx, tx_state] = connection.flags;
    vec![
        format!("{:08x}", connection.token),
        format!("{:08x}", connection.send_buffer),
        format!("{:08x}", connection.receive_buffer),
        format!("{:08x}", connection.peer_buffer),
        cursor(connection.rx_produced),
        cursor(connection.rx_consumed),
        format!("{rx:02x}:{rx_state:02x}"),
        cursor(connection.tx_produced),
        cursor(connection.tx_consumed),
        format!("{tx:02x}:{tx_state:02x}"),
        cursor(connection.prepared),
        cursor(connection.sent),
        cursor(connection.finished),
    ]
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
    fn long_addresses_are_cut() {
        let mut socket = sockets().remove(1);
        socket.local.address = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        let cells = row(&Options::default(), &socket);
        assert_eq!(cells[3], "2001:db8:1111:2222:33..");
        let wide = Options {
            wide: true,
            ..Options::default()
        };
        assert!(row(&wide, &socket)[3].ends_with(":6666:6379"));
    }
}
