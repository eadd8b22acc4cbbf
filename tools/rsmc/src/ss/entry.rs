// SPDX-License-Identifier: GPL-2.0
//! A socket for people and programs.

use crate::diag::began::Began;
use crate::diag::{End, Mode, Socket};
use crate::procs::Process;
use crate::reason::Told;
use crate::table;
use crate::tcp::Tcp;
use serde::Serialize;
use smc_proto::wire::promotion::RECORD_LEN;
use std::collections::HashMap;

/// A socket as `--json` prints it. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// State, in capitals.
    pub state: String,
    /// `null` while undecided.
    pub mode: Option<String>,
    family: &'static str,
    /// Local end.
    pub local: Address,
    /// `null` for sockets without a peer.
    pub remote: Option<Address>,
    uid: u32,
    user: Option<String>,
    inode: u64,
    /// Seconds since the program got the socket; `null` where the kernel does not tell (the in-tree
    /// module).
    pub age: Option<u64>,
    /// The kernel's number, never reused.
    pub cookie: u64,
    /// Interface number the socket is bound to, `null` for none.
    interface: Option<u32>,
    shutdown: Shutdown,
    /// `null` unless it began as TCP, and where the kernel does not tell (the in-tree module).
    pub began_as_tcp: Option<BeganAsTcp>,
    /// `null` unless the mode is TCP.
    pub fallback: Option<Reasons>,
    /// `null` where the kernel does not tell.
    pub bytes: Option<Bytes>,
    /// `null` unless the mode is SMC-R or SMC-D.
    buffers: Option<Buffers>,
    /// `null` unless the mode is SMC-R.
    link: Option<Link>,
    processes: Vec<Process>,
}

/// An end of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Address {
    /// `null` for any, and where the kernel does not tell (the in-tree module, of `IPPROTO_SMC`
    /// sockets).
    address: Option<String>,
    port: u16,
    /// Both as text.
    #[serde(skip)]
    pub shown: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Shutdown {
    receive: bool,
    send: bool,
}

/// Why a connection is TCP.
#[derive(Clone, Debug, Serialize)]
pub struct Reasons {
    /// This side's reason.
    #[serde(flatten)]
    pub own: Told,
    /// The peer's diagnosis, `null` if it sent none.
    pub peer: Option<Told>,
}

/// Bytes that have gone over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Where `received` and `sent` start again from 0, `null` if never.
    received_wraps_at: Option<u64>,
    sent_wraps_at: Option<u64>,
    /// Bytes received and not read yet.
    pub receive_queue: u64,
    /// Bytes written that the peer does not have yet.
    pub send_queue: u64,
}

/// What became of a connection that began as TCP.
#[derive(Clone, Debug, Serialize)]
pub struct BeganAsTcp {
    /// How far it is from TCP to SMC-R: `tcp`, `joining`, `offered`, `bound`, `due`, `turned`, `smc`; `null` for what
    /// this program does not know.
    pub step: Option<&'static str>,
    /// An attempt is under way.
    pub promoting: bool,
    role: &'static str,
    /// The other end is on another host.
    remote: bool,
    attempts: u32,
    failures: u32,
    /// Times that it was promoted and has gone back to TCP.
    returns: u32,
    /// Why it is TCP, or why the last attempt has failed; `null` for none.
    reason: Option<Told>,
    ring_sent: u64,
    ring_received: u64,
}

impl BeganAsTcp {
    fn new(began: Began) -> Self {
        Self {
            step: began.step.name(),
            promoting: began.step.is_between(),
            role: if began.is_server { "server" } else { "client" },
            remote: began.is_remote,
            attempts: began.attempts,
            failures: began.failures,
            returns: began.returns,
            reason: (began.reason != 0).then(|| Told::new(began.reason)),
            ring_sent: began.ring_sent,
            ring_received: began.ring_received,
        }
    }

    fn words(&self) -> String {
        let mut words = "began as TCP".to_string();
        if self.remote {
            let step = match self.step {
                Some("tcp") | None => String::new(),
                Some(step) => format!(", now {step}"),
            };
            let failed = match (self.failures, &self.reason) {
                (0, _) | (_, None) => String::new(),
                (failures, Some(told)) => format!(", {failures} failed ({})", told.name),
            };
            words.push_str(&format!("{step}: {} attempts{failed}", self.attempts));
            if self.returns != 0 {
                words.push_str(&format!(", back to TCP {} times", self.returns));
            }
        }
        words.push_str(&format!(
            ", by the ring {} received, {} sent",
            self.ring_received, self.ring_sent
        ));
        words
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Buffers {
    send: u32,
    receive: u32,
    peer: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Link {
    id: u8,
    device: String,
    port: u8,
    gid: String,
    peer_gid: String,
    role: &'static str,
}

impl Bytes {
    /// Bytes received and sent since an earlier look.
    pub fn since(&self, before: &Bytes) -> (u64, u64) {
        let more = |now: u64, before: u64, modulus: Option<u64>| match modulus {
            Some(modulus) if now < before => now + modulus.saturating_sub(before),
            _ => now.saturating_sub(before),
        };
        (
            more(self.received, before.received, self.received_wraps_at),
            more(self.sent, before.sent, self.sent_wraps_at),
        )
    }
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
    /// The socket with what else is known of it: its processes, the names of users, and its TCP
    /// connection.
    pub fn new(
        socket: &Socket,
        processes: Vec<Process>,
        users: &HashMap<u32, String>,
        tcp: Option<Tcp>,
    ) -> Self {
        Self {
            state: socket.state.to_string(),
            mode: match socket.mode {
                Mode::Undecided => None,
                Mode::SmcR => Some("SMC-R".into()),
                Mode::SmcD => Some("SMC-D".into()),
                Mode::Tcp => Some("TCP".into()),
                Mode::TcpFirst => Some("TCP first".into()),
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
            age: socket.age,
            cookie: socket.cookie,
            interface: (socket.interface != 0).then_some(socket.interface),
            shutdown: Shutdown {
                receive: socket.no_receive,
                send: socket.no_send,
            },
            began_as_tcp: socket.began.map(BeganAsTcp::new),
            fallback: socket.fallback.map(|fallback| Reasons {
                own: Told::new(fallback.reason),
                peer: (fallback.peer != 0).then(|| Told::new(fallback.peer)),
            }),
            bytes: bytes(socket, tcp),
            buffers: socket.connection.map(|connection| Buffers {
                send: connection.send_buffer,
                receive: connection.receive_buffer,
                peer: connection.peer_buffer,
            }),
            link: socket.link.as_ref().map(|link| Link {
                id: link.id,
                device: link.device.clone(),
                port: link.port,
                gid: link.gid.clone(),
                peer_gid: link.peer_gid.clone(),
                role: if link.is_server { "server" } else { "client" },
            }),
            processes,
        }
    }

    /// Why the connection is TCP, in words or in numbers; empty if it is not.
    pub fn why(&self, numeric: bool) -> String {
        let words = |told: &Told| match numeric {
            true => told.code.clone(),
            false => told.text.clone(),
        };
        match &self.fallback {
            Some(Reasons { own, peer: None }) => words(own),
            Some(Reasons {
                own,
                peer: Some(peer),
            }) => format!("{} (peer: {})", words(own), words(peer)),
            None => String::new(),
        }
    }

    /// The programs that hold the socket, each once.
    pub fn holders(&self) -> String {
        let mut holders: Vec<String> = Vec::new();
        for process in &self.processes {
            let holder = format!("{}[{}]", process.comm, process.pid);
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        match holders.is_empty() {
            true => "-".into(),
            false => holders.join(","),
        }
    }

    /// The cells of the table.
    pub fn row(&self, numeric: bool) -> Vec<String> {
        let amount = |value: fn(&Bytes) -> u64| match &self.bytes {
            Some(bytes) if numeric => value(bytes).to_string(),
            Some(bytes) => table::size(value(bytes)),
            None => "-".into(),
        };
        let inode = match self.inode {
            0 => "-".into(),
            inode => inode.to_string(),
        };
        vec![
            self.state.clone(),
            self.local.shown.clone(),
            self.peer(),
            self.carrier(),
            amount(|bytes| bytes.received),
            amount(|bytes| bytes.sent),
            self.user.clone().unwrap_or_else(|| self.uid.to_string()),
            inode,
            self.holders(),
            self.why(numeric),
        ]
    }

    /// The mode, or that it is about to change; `-` while undecided.
    pub fn carrier(&self) -> String {
        let promoting = |began: &BeganAsTcp| began.promoting;
        match &self.mode {
            _ if self.began_as_tcp.as_ref().is_some_and(promoting) => "promoting".into(),
            Some(mode) => mode.clone(),
            None => "-".into(),
        }
    }

    /// The peer's end, `-` without one.
    pub fn peer(&self) -> String {
        let shown = self.remote.as_ref().map(|remote| remote.shown.clone());
        shown.unwrap_or_else(|| "-".into())
    }

    /// The line below the table's, if there is more to say.
    pub fn more(&self) -> Option<String> {
        let bytes = self.bytes?;
        let mut parts = vec![format!(
            "queued: {} to read, {} to send",
            bytes.receive_queue, bytes.send_queue
        )];
        if let Some(age) = self.age {
            parts.insert(0, format!("age: {age} s"));
        }
        if let Some(began) = &self.began_as_tcp {
            parts.push(began.words());
        }
        if let Some(buffers) = self.buffers {
            parts.push(format!(
                "buffers: send {}, receive {}, peer {}",
                buffers.send, buffers.receive, buffers.peer
            ));
        }
        if let Some(link) = &self.link {
            parts.push(format!(
                "link {} ({}): {}/{} {} to {}",
                link.id,
                link.role,
                link.device,
                link.port,
                crate::link::address(&link.gid),
                crate::link::address(&link.peer_gid)
            ));
        }
        if self.shutdown.receive || self.shutdown.send {
            let what = match (self.shutdown.receive, self.shutdown.send) {
                (true, true) => "receiving and sending",
                (true, false) => "receiving",
                _ => "sending",
            };
            parts.push(format!("shut down: {what}"));
        }
        Some(parts.join("; "))
    }
}

fn bytes(socket: &Socket, tcp: Option<Tcp>) -> Option<Bytes> {
    if let (Some(began), Some(tcp)) = (socket.began, tcp) {
        // By both carriers.
        let rings = socket.connection.map_or((0, 0), |connection| {
            (connection.receive_queue(), connection.send_queue())
        });
        // What the two kernels have said on TCP when rings were left is not the program's.
        let records = u64::from(began.returns).saturating_mul(RECORD_LEN as u64);
        let by_both = |tcp: u64, ring| tcp.saturating_sub(records).saturating_add(ring);
        return Some(Bytes {
            received: by_both(tcp.received, began.ring_received),
            sent: by_both(tcp.sent, began.ring_sent),
            received_wraps_at: None,
            sent_wraps_at: None,
            receive_queue: tcp.receive_queue.saturating_add(rings.0),
            send_queue: tcp.send_queue.saturating_add(rings.1),
        });
    }
    if let Some(connection) = socket.connection {
        let modulus = crate::diag::connection::modulus;
        return Some(Bytes {
            received: connection.received_bytes(),
            sent: connection.sent_bytes(),
            received_wraps_at: Some(modulus(connection.receive_buffer)),
            sent_wraps_at: Some(modulus(connection.peer_buffer)),
            receive_queue: connection.receive_queue(),
            send_queue: connection.send_queue(),
        });
    }
    let tcp = tcp.filter(|_| socket.mode == Mode::Tcp)?;
    Some(Bytes {
        received: tcp.received,
        sent: tcp.sent,
        received_wraps_at: None,
        sent_wraps_at: None,
        receive_queue: tcp.receive_queue,
        send_queue: tcp.send_queue,
    })
}
