// SPDX-License-Identifier: GPL-2.0
//! `rsmc ss`: SMC sockets for people and programs.

use crate::cli::{ModeFilter, SsArgs};
use crate::diag::{self, End, Mode, Socket, State};
use crate::error::Result;
use crate::procs::{self, Process};
use crate::reason::Told;
use crate::table;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Lists the sockets the arguments ask for.
///
/// # Errors
/// See [`diag::dump`].
pub fn run(args: &SsArgs, out: &mut dyn Write) -> Result<()> {
    let mut sockets = diag::dump()?;
    sockets.retain(|socket| wanted(args, socket));
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
    let users = if args.numeric {
        HashMap::new()
    } else {
        user_names()
    };
    let entries: Vec<Entry> = sockets
        .iter()
        .map(|socket| {
            Entry::new(
                socket,
                holders.remove(&socket.inode).unwrap_or_default(),
                &users,
            )
        })
        .collect();
    show(args, &entries, out)
}

fn wanted(args: &SsArgs, socket: &Socket) -> bool {
    let state = if !args.state.is_empty() {
        args.state.contains(&socket.state)
    } else if args.all {
        true
    } else if args.listening {
        socket.state == State::LISTEN
    } else {
        !matches!(socket.state, State::LISTEN | State::INIT)
    };
    let mode = args.mode.is_empty()
        || args.mode.iter().any(|mode| match mode {
            ModeFilter::Smcr => socket.mode == Mode::SmcR,
            ModeFilter::Smcd => socket.mode == Mode::SmcD,
            ModeFilter::Tcp => socket.mode == Mode::Tcp,
        });
    let is = |port: Option<u16>, any: &[u16]| port.is_none_or(|port| any.contains(&port));
    state
        && mode
        && is(args.port, &[socket.local.port, socket.remote.port])
        && is(args.sport, &[socket.local.port])
        && is(args.dport, &[socket.remote.port])
}

/// A socket as `--json` prints it. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
struct Entry {
    state: String,
    /// `null` while undecided.
    mode: Option<String>,
    family: &'static str,
    local: Address,
    /// `null` for sockets without a peer.
    remote: Option<Address>,
    uid: u32,
    user: Option<String>,
    inode: u64,
    cookie: u64,
    /// Interface number the socket is bound to, `null` for none.
    interface: Option<u32>,
    shutdown: Shutdown,
    /// `null` unless the mode is TCP.
    fallback: Option<Reasons>,
    processes: Vec<Process>,
}

#[derive(Clone, Debug, Serialize)]
struct Address {
    /// `null` for any, and where the kernel does not tell (the in-tree module, of `IPPROTO_SMC`
    /// sockets).
    address: Option<String>,
    port: u16,
    #[serde(skip)]
    shown: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Shutdown {
    receive: bool,
    send: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Reasons {
    #[serde(flatten)]
    own: Told,
    /// The peer's diagnosis, `null` if it sent none.
    peer: Option<Told>,
}

impl Address {
    fn new(end: End) -> Self {
        Self {
            address: (!end.address.is_unspecified()).then(|| end.address.to_string()),
            port: end.port,
            shown: end.to_string(),
        }
    }
}

impl Entry {
    fn new(socket: &Socket, processes: Vec<Process>, users: &HashMap<u32, String>) -> Self {
        Self {
            state: socket.state.to_string(),
            mode: match socket.mode {
                Mode::Undecided => None,
                Mode::SmcR => Some("SMC-R".into()),
                Mode::SmcD => Some("SMC-D".into()),
                Mode::Tcp => Some("TCP".into()),
                Mode::Other(number) => Some(format!("mode {number}")),
            },
            family: match socket.family {
                2 => "inet",
                10 => "inet6",
                43 => "smc",
                _ => "other",
            },
            local: Address::new(socket.local),
            remote: (!socket.remote.is_none()).then(|| Address::new(socket.remote)),
            uid: socket.uid,
            user: users.get(&socket.uid).cloned(),
            inode: socket.inode,
            cookie: socket.cookie,
            interface: (socket.interface != 0).then_some(socket.interface),
            shutdown: Shutdown {
                receive: socket.no_receive,
                send: socket.no_send,
            },
            fallback: socket.fallback.map(|fallback| Reasons {
                own: Told::new(fallback.reason),
                peer: (fallback.peer != 0).then(|| Told::new(fallback.peer)),
            }),
            processes,
        }
    }

    fn row(&self, numeric: bool) -> Vec<String> {
        let why = self.fallback.as_ref().map(|reasons| {
            let words = |told: &Told| {
                if numeric {
                    told.code.clone()
                } else {
                    told.text.clone()
                }
            };
            match &reasons.peer {
                Some(peer) => format!("{} (peer: {})", words(&reasons.own), words(peer)),
                None => words(&reasons.own),
            }
        });
        let mut holders: Vec<String> = Vec::new();
        for process in &self.processes {
            let holder = format!("{}[{}]", process.comm, process.pid);
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        vec![
            self.state.clone(),
            self.local.shown.clone(),
            self.remote
                .as_ref()
                .map_or_else(|| "-".into(), |remote| remote.shown.clone()),
            self.mode.clone().unwrap_or_else(|| "-".into()),
            self.user.clone().unwrap_or_else(|| self.uid.to_string()),
            if holders.is_empty() {
                "-".into()
            } else {
                holders.join(",")
            },
            why.unwrap_or_default(),
        ]
    }
}

fn show(args: &SsArgs, entries: &[Entry], out: &mut dyn Write) -> Result<()> {
    if args.json {
        serde_json::to_writer_pretty(&mut *out, entries)?;
        writeln!(out)?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| entry.row(args.numeric))
        .collect();
    let head = [
        "State", "Local", "Peer", "Mode", "User", "Process", "Why TCP",
    ];
    table::print(out, &head, &rows)?;
    Ok(())
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
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::diag::tests::Message;
    use clap::Parser;

    fn args(line: &str) -> SsArgs {
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Ss(args) => args,
            _ => panic!("not ss"),
        }
    }

    fn sockets() -> Vec<Socket> {
        let (a, b) = (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]);
        let messages = [
            Message::new(43, 10, 0).ends((&[], 6379), (&[], 0)),
            Message::new(43, 1, 1)
                .ends((a, 6379), (b, 40000))
                .fallback(0x0500_0000, 0x0303_0000),
            Message::new(2, 1, 0).ends((a, 6379), (b, 40001)),
            Message::new(43, 2, 0),
            Message::new(43, 22, 2).ends((a, 5000), (b, 80)),
        ];
        messages
            .iter()
            .map(|message| diag::parse(&message.0).unwrap())
            .collect()
    }

    fn chosen(line: &str) -> Vec<usize> {
        let args = args(line);
        let all = sockets();
        (0..all.len())
            .filter(|index| wanted(&args, &all[*index]))
            .collect()
    }

    #[test]
    fn filters() {
        assert_eq!(chosen("rsmc ss"), [1, 2, 4]);
        assert_eq!(chosen("rsmc ss -a"), [0, 1, 2, 3, 4]);
        assert_eq!(chosen("rsmc ss -l"), [0]);
        assert_eq!(chosen("rsmc ss --mode tcp"), [1]);
        assert_eq!(chosen("rsmc ss --mode smcr --mode smcd"), [2, 4]);
        assert_eq!(chosen("rsmc ss -a --port 6379"), [0, 1, 2]);
        assert_eq!(chosen("rsmc ss --dport 80"), [4]);
        assert_eq!(chosen("rsmc ss --sport 80"), [0usize; 0]);
        assert_eq!(chosen("rsmc ss --state listen --state init"), [0, 3]);
    }

    fn shown(line: &str) -> String {
        let args = args(line);
        let users = HashMap::from([(0, "root".to_string())]);
        let holder = Process {
            pid: 42,
            comm: "redis-server".into(),
            fd: 7,
        };
        let entries: Vec<Entry> = sockets()
            .iter()
            .map(|socket| Entry::new(socket, vec![holder.clone(), holder.clone()], &users))
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
            numeric.contains("0x05000000 (peer: 0x03030000)"),
            "{numeric}"
        );
    }

    #[test]
    fn json_keys_are_stable() {
        let value: serde_json::Value = serde_json::from_str(&shown("rsmc ss --json")).unwrap();
        let keys: Vec<&String> = value[1].as_object().unwrap().keys().collect();
        let expected = [
            "cookie",
            "fallback",
            "family",
            "inode",
            "interface",
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
        assert_eq!(value[0]["local"]["address"], serde_json::Value::Null);
        assert_eq!(value[2]["family"], "inet");
        assert_eq!(value[2]["fallback"], serde_json::Value::Null);
        assert_eq!(value[0]["mode"], serde_json::Value::Null);
        assert_eq!(value[0]["remote"], serde_json::Value::Null);
        assert_eq!(value[4]["mode"], "SMC-D");
    }
}
