// SPDX-License-Identifier: GPL-2.0
//! An SMC socket, as sock_diag describes it.

use super::began::Began;
use super::connection::{Connection, DmbInfo, LinkInfo};
use std::fmt;
use std::net::IpAddr;

/// State of an SMC socket, with RFC 7609's names and the numbers of the kernel interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u8);

const STATES: [(u8, &str); 12] = [
    (1, "ACTIVE"),
    (2, "INIT"),
    (7, "CLOSED"),
    (10, "LISTEN"),
    (20, "PEERCLOSEWAIT1"),
    (21, "PEERCLOSEWAIT2"),
    (22, "APPCLOSEWAIT1"),
    (23, "APPCLOSEWAIT2"),
    (24, "APPFINCLOSEWAIT"),
    (25, "PEERFINCLOSEWAIT"),
    (26, "PEERABORTWAIT"),
    (27, "PROCESSABORT"),
];

impl State {
    /// Connected.
    pub const ACTIVE: State = State(1);
    /// Not connected yet.
    pub const INIT: State = State(2);
    /// Both ways are shut down, and it is not freed yet.
    pub const CLOSED: State = State(7);
    /// Listening.
    pub const LISTEN: State = State(10);

    /// The state of this name, in any case.
    ///
    /// # Errors
    /// A line that lists the names.
    pub fn from_name(name: &str) -> std::result::Result<State, String> {
        let found = STATES
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(number, _)| State(*number)).ok_or_else(|| {
            let names: Vec<&str> = STATES.iter().map(|(_, name)| *name).collect();
            format!("no such state; there are {}", names.join(", "))
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match STATES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.pad(name),
            None => f.pad(&format!("STATE{}", self.0)),
        }
    }
}

/// Transport of a socket's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not settled: listening or not connected. (The kernel says SMC-R then.)
    Undecided,
    /// SMC-R, over RDMA.
    SmcR,
    /// SMC-D, shared memory.
    SmcD,
    /// Fallback to TCP.
    Tcp,
    /// A connection that began as TCP, and may leave it.
    TcpFirst,
    /// A number this program does not know.
    Other(u8),
}

/// Why a socket fell back to TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// This side's reason code.
    pub reason: u32,
    /// The code the peer gave when it declined, 0 if it gave none.
    pub peer: u32,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// Address; unspecified for "any".
    pub address: IpAddr,
    /// Port, 0 for none.
    pub port: u16,
}

impl End {
    /// True if neither address nor port is set.
    pub fn is_none(&self) -> bool {
        self.address.is_unspecified() && self.port == 0
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port: &dyn fmt::Display = if self.port == 0 { &"*" } else { &self.port };
        match self.address {
            address if address.is_unspecified() => write!(f, "*:{port}"),
            IpAddr::V4(address) => write!(f, "{address}:{port}"),
            IpAddr::V6(address) => write!(f, "[{address}]:{port}"),
        }
    }
}

/// One SMC socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Address family of the socket: 43, or 2 or 10 for `IPPROTO_SMC` sockets.
    pub family: u8,
    /// State.
    pub state: State,
    /// Transport.
    pub mode: Mode,
    /// Receiving was shut down.
    pub no_receive: bool,
    /// Sending was shut down.
    pub no_send: bool,
    /// Local end.
    pub local: End,
    /// Peer's end.
    pub remote: End,
    /// Interface number the socket is bound to, 0 for none.
    pub interface: u32,
    /// The kernel's number for the socket, never reused.
    pub cookie: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Inode, 0 for a connection that was not accepted yet.
    pub inode: u64,
    /// Seconds since the program got it, if the kernel tells.
    pub age: Option<u64>,
    /// What became of it, if it began as TCP and the kernel tells.
    pub began: Option<Began>,
    /// Reasons, if the mode is TCP and the kernel gave them.
    pub fallback: Option<Fallback>,
    /// Buffers and cursors, of an SMC connection.
    pub connection: Option<Connection>,
    /// The RDMA link, of an SMC-R connection.
    pub link: Option<LinkInfo>,
    /// The shared memory, of an SMC-D connection.
    pub dmb: Option<DmbInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_names_both_ways() {
        for (number, name) in STATES {
            assert_eq!(State::from_name(&name.to_lowercase()), Ok(State(number)));
            assert_eq!(State(number).to_string(), name);
        }
        assert!(State::from_name("SLEEPY")
            .unwrap_err()
            .contains("APPCLOSEWAIT1"));
    }
}
