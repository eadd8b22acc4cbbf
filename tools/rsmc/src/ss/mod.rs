// SPDX-License-Identifier: GPL-2.0
//! `rsmc ss`: SMC sockets for people and programs.

pub mod entry;
pub mod filter;

use crate::cli::SsArgs;
use crate::diag::{self, Mode, Socket, State};
use crate::error::Result;
use crate::table::{self, Colour};
use crate::{procs, tcp, watch};
use entry::Entry;
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Lists the sockets the arguments ask for.
///
/// # Errors
/// See [`diag::dump`].
pub fn run(args: &SsArgs, out: &mut dyn Write) -> Result<()> {
    watch::repeat(args.repeat, args.json, out, |out| {
        show(args, &collect(args)?, out)
    })
}

/// The sockets the arguments ask for: listeners first, then by port and age.
///
/// # Errors
/// See [`diag::dump`].
pub fn collect(args: &SsArgs) -> Result<Vec<Entry>> {
    let mut sockets = diag::dump()?;
    sockets.retain(|socket| filter::wanted(args, socket));
    sockets.sort_by_key(|socket| {
        (
            socket.state != State::LISTEN,
            socket.local.port,
            socket.cookie,
        )
    });
    let inodes: HashSet<u64> = sockets
        .iter()
        .map(|socket| socket.inode)
        .filter(|inode| *inode != 0)
        .collect();
    let mut holders = procs::holders(&inodes);
    let users = match args.numeric {
        true => HashMap::new(),
        false => user_names(),
    };
    let mut tcp = HashMap::new();
    let by_tcp = |socket: &Socket| socket.mode == Mode::Tcp || socket.began.is_some();
    if sockets.iter().any(by_tcp) {
        tcp = tcp::connections();
    }
    let mut entries = Vec::new();
    for socket in &sockets {
        let holders = holders.remove(&socket.inode).unwrap_or_default();
        if !filter::held(args, &holders) {
            continue;
        }
        let ends = (tcp::plain(socket.local), tcp::plain(socket.remote));
        entries.push(Entry::new(socket, holders, &users, tcp.get(&ends).copied()));
    }
    Ok(entries)
}

const HEAD: [&str; 10] = [
    "State", "Local", "Peer", "Mode", "Received", "Sent", "User", "Inode", "Process", "Why TCP",
];
const MODE: usize = 3;

/// Shows sockets as the arguments say.
///
/// # Errors
/// Errors of writing to `out`.
pub fn show(args: &SsArgs, entries: &[Entry], out: &mut dyn Write) -> Result<()> {
    if args.json {
        match args.repeat.watch {
            Some(_) => serde_json::to_writer(&mut *out, entries)?,
            None => serde_json::to_writer_pretty(&mut *out, entries)?,
        }
        writeln!(out)?;
        return Ok(());
    }
    let mut table = table::Table::new(&HEAD).coloured(|column, cell| match (column, cell) {
        (MODE, "SMC-R" | "SMC-D") => Some(Colour::Green),
        (MODE, "TCP" | "TCP first" | "promoting") => Some(Colour::Yellow),
        _ => None,
    });
    for entry in entries {
        table.row(entry.row(args.numeric));
        if let Some(more) = entry.more().filter(|_| args.extended) {
            table.note(more);
        }
    }
    Ok(table.print(out)?)
}

/// Names of local users; a user from elsewhere (LDAP, …) is shown by number.
fn user_names() -> HashMap<u32, String> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(uid))) = (fields.next(), fields.nth(1).map(str::parse)) {
            names.entry(uid).or_insert_with(|| name.to_string());
        }
    }
    names
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::diag::connection::{tests::bytes, SMC_DIAG_CONNINFO};
    use crate::diag::messages::Message;
    use crate::procs::Process;
    use crate::tcp::Tcp;
    use clap::Parser;

    pub(crate) fn args(line: &str) -> SsArgs {
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Ss(args) => args,
            _ => panic!("not ss"),
        }
    }

    /// A listener; TCP, SMC-R and SMC-D connections; a socket that is not connected.
    pub(crate) fn sockets() -> Vec<Socket> {
        let (a, b) = (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]);
        let cursors = [(1, 4), (0, 0), (0, 9), (1, 0), (0, 20), (0, 15), (0, 9)];
        let rings = bytes([16384, 65536, 65536], cursors);
        let messages = [
            Message::new(43, 10, 0).ends((&[], 6379), (&[], 0)),
            Message::new(43, 1, 1)
                .ends((a, 6379), (b, 40000))
                .fallback(0x0500_0000, 0x0303_0000),
            Message::new(2, 1, 0)
                .ends((a, 6379), (b, 40001))
                .attribute(SMC_DIAG_CONNINFO, &rings),
            Message::new(43, 2, 0),
            Message::new(43, 22, 2).ends((a, 5000), (b, 80)),
        ];
        messages
            .iter()
            .map(|message| diag::parse(&message.0).unwrap())
            .collect()
    }

    fn shown(line: &str) -> String {
        let args = args(line);
        let users = HashMap::from([(0, "root".to_string())]);
        let holder = Process {
            pid: 42,
            comm: "redis-server".into(),
            fd: 7,
        };
        let tcp = Tcp {
            received: 3 << 20,
            sent: 10,
            receive_queue: 1,
            send_queue: 2,
        };
        let entries: Vec<Entry> = sockets()
            .iter()
            .map(|socket| {
                Entry::new(
                    socket,
                    vec![holder.clone(), holder.clone()],
                    &users,
                    Some(tcp),
                )
            })
            .collect();
        let mut out = Vec::new();
        show(&args, &entries, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn table_says_why() {
        let text = shown("rsmc ss");
        let line = text.lines().find(|line| line.contains("40000")).unwrap();
        assert!(
            line.contains("10.0.0.1:6379") && line.contains("redis-server[42] "),
            "{line}"
        );
        assert!(line.contains("TCP    3.0M      10 "), "{line}");
        assert!(line.contains("The peer declined SMC"), "{line}");
        assert!(line.contains("(peer: No device for SMC"), "{line}");
        let listener = text
            .lines()
            .find(|line| line.starts_with("LISTEN"))
            .unwrap();
        assert!(
            listener.contains("*:6379") && !listener.contains("SMC-R"),
            "{listener}"
        );
        let numeric = shown("rsmc ss -n");
        assert!(
            numeric.contains("0x05000000 (peer: 0x03030000)") && numeric.contains(" 3145728 "),
            "{numeric}"
        );
        let extended = shown("rsmc ss -e");
        assert!(
            extended.contains("    queued: 4 to read, 11 to send; buffers: send 16384"),
            "{extended}"
        );
    }

    #[test]
    fn json_keys_are_stable() {
        let value: serde_json::Value = serde_json::from_str(&shown("rsmc ss --json")).unwrap();
        let keys: Vec<&String> = value[1].as_object().unwrap().keys().collect();
        let expected = [
            "age",
            "began_as_tcp",
            "buffers",
            "bytes",
            "cookie",
            "fallback",
            "family",
            "inode",
            "interface",
            "link",
            "local",
            "mode",
            "processes",
            "remote",
            "shutdown",
            "state",
            "uid",
            "user",
        ];
        assert_eq!(keys, expected);
        assert_eq!(value[1]["fallback"]["code"], "0x05000000");
        assert_eq!(value[1]["fallback"]["name"], "PEERDECL");
        assert_eq!(value[1]["fallback"]["peer"]["name"], "NOSMCDEV");
        assert_eq!(value[1]["local"]["port"], 6379);
        assert_eq!(value[1]["local"]["address"], "10.0.0.1");
        assert_eq!(value[1]["bytes"]["received"], 3 << 20);
        assert_eq!(
            value[1]["bytes"]["received_wraps_at"],
            serde_json::Value::Null
        );
        assert_eq!(value[0]["local"]["address"], serde_json::Value::Null);
        assert_eq!(value[0]["bytes"], serde_json::Value::Null);
        assert_eq!(value[2]["family"], "inet");
        assert_eq!(value[2]["fallback"], serde_json::Value::Null);
        assert_eq!(value[2]["bytes"]["received"], 65540);
        assert_eq!(value[2]["bytes"]["sent"], 9);
        assert_eq!(value[2]["bytes"]["sent_wraps_at"], 1u64 << 32);
        assert_eq!(value[2]["buffers"]["send"], 16384);
        assert_eq!(value[0]["mode"], serde_json::Value::Null);
        assert_eq!(value[0]["remote"], serde_json::Value::Null);
        assert_eq!(value[4]["mode"], "SMC-D");
    }

    #[test]
    fn a_connection_on_its_way() {
        use crate::diag::began::tests::bytes as told;
        let (a, b) = (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]);
        let tcp = Tcp {
            received: 100,
            sent: 10,
            ..Tcp::default()
        };
        let entry = |mode, step, numbers| {
            let message = Message::new(2, 1, mode)
                .ends((a, 80), (b, 40000))
                .attribute(9, &told(step, numbers, [5, 7]))
                .fallback(numbers[2], 0);
            let socket = diag::parse(&message.0).unwrap();
            Entry::new(&socket, Vec::new(), &HashMap::new(), Some(tcp))
        };
        let refused = 0x0306_010c;
        let waits = entry(3, 0, [2, 2, refused]);
        assert_eq!(waits.row(false)[MODE], "TCP first");
        let more = waits.more().unwrap();
        let words =
            "began as TCP: 2 attempts, 2 failed (PATHREFUSED), by the ring 7 received, 5 sent";
        assert!(more.contains(words), "{more}");
        let between = entry(3, 3, [3, 2, refused]);
        assert_eq!(between.row(false)[MODE], "promoting");
        assert!(between.why(false).contains("did not agree"));
        let done = entry(0, 6, [3, 2, refused]);
        assert_eq!(done.row(false)[MODE], "SMC-R");
        assert_eq!(
            (done.why(false), done.row(false)[4].as_str()),
            (String::new(), "107")
        );
        let value = serde_json::to_value([waits, between, done]).unwrap();
        let began = &value[0]["began_as_tcp"];
        assert_eq!(
            (&began["step"], &began["attempts"]),
            (&"tcp".into(), &2.into())
        );
        assert_eq!(began["reason"]["name"], "PATHREFUSED");
        assert_eq!(value[1]["began_as_tcp"]["promoting"], true);
        assert_eq!(
            (&value[1]["mode"], &value[2]["mode"]),
            (&"TCP first".into(), &"SMC-R".into())
        );
        assert_eq!(value[2]["bytes"]["sent"], 15);
        assert_eq!(value[2]["began_as_tcp"]["ring_received"], 7);
    }

    #[test]
    fn watching_json_gives_a_line_each_time() {
        assert_eq!(shown("rsmc ss --json --watch=1").lines().count(), 1);
    }
}
