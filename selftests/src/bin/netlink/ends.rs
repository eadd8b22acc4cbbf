// SPDX-License-Identifier: GPL-2.0
//! Both ends of connections in one guest: namespace `a` connects, `b` accepts. And what answers say,
//! as numbers and texts.

use crate::sockets::{self, Socket};
use st::errno::{Errno, R};
use st::family::{Ip, AF_SMC};
use st::fd::Fd;
use st::netlink::{attributes, word, Attribute, Generic};
use st::{guest, net, sys};
use std::time::{Duration, Instant};

/// The client's namespace and the server's.
pub const SPACES: [&str; 2] = ["a", "b"];
/// `SMC_DIAG_LGRINFO`, which only a connection over SMC-R has.
pub const GROUP: u16 = 2;
const PORT: u16 = 7110;
/// `SIOCINQ`.
const WAITING: u64 = 0x541b;

/// Does something in the namespace of an end.
pub fn within<T>(end: usize, what: impl FnOnce() -> T) -> T {
    guest::enter(SPACES[end]).expect("namespace");
    what()
}

/// As [`within`], in a thread of its own, so that the caller stays where it is.
pub fn outside<T: Send>(end: usize, what: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|s| s.spawn(|| within(end, what)).join());
    done.expect("thread")
}

/// A text for an error.
pub fn failed(e: Errno) -> String {
    e.to_string()
}

/// Retries for half a minute; the last error.
pub fn soon<T>(mut what: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Instant::now() + Duration::from_secs(30 * guest::slow());
    loop {
        match what() {
            Err(_) if Instant::now() < end => sys::sleep_ms(10),
            other => return other,
        }
    }
}

/// Sets up what both modules need: an EID, and one link to a group, since the C module would take the
/// other end's device for a second one.
pub fn prepare() -> Result<(), String> {
    let _ = crate::commands::add_eid("RSMC-DEFAULT");
    for end in 0..2 {
        outside(end, || net::sysctl("net.smc.smcr_max_links_per_lgr", "1"))?;
    }
    Ok(())
}

/// An address of the server.
pub fn server(port: u16) -> std::net::SocketAddr {
    guest::sockaddr(true, Ip::V4, port)
}

/// A listener of the family at the server.
pub fn listener() -> R<Fd> {
    listener_at(PORT)
}

/// As [`listener`], at another port.
pub fn listener_at(port: u16) -> R<Fd> {
    within(1, || {
        let fd = sys::socket(AF_SMC, libc::SOCK_STREAM, 0)?;
        sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        sys::bind(fd.raw(), &server(port))?;
        sys::listen(fd.raw(), 64)?;
        Ok(fd)
    })
}

/// Finds a socket in an end's list.
pub fn listed(end: usize, fd: &Fd) -> Result<Socket, String> {
    let all = within(end, || sockets::all(0x1f)).map_err(failed)?;
    let inode = sockets::inode(fd);
    let found = all.into_iter().find(|s| s.0 == inode);
    found.map(|s| s.1).ok_or("not listed".into())
}

/// The number at this place of a connection's SMC_DIAG_CONNINFO.
pub fn connection(end: usize, fd: &Fd, at: usize) -> Result<u32, String> {
    let listed = listed(end, fd)?;
    let it = listed.attributes.iter().find(|a| a.0 == 1);
    word(&it.ok_or("no connection")?.1, at).map_err(failed)
}

/// A connection, client and server, that is one over SMC-R.
pub fn pair(listener: &Fd) -> Result<[Fd; 2], String> {
    let client = within(0, || {
        let fd = sys::socket(AF_SMC, libc::SOCK_STREAM, 0)?;
        sys::connect(fd.raw(), &sys::sockname(listener.raw())?)?;
        Ok(fd)
    });
    let client = client.map_err(|e: Errno| format!("connect: {e}"))?;
    let both = [client, sys::accept(listener.raw()).map_err(failed)?];
    for (end, fd) in both.iter().enumerate() {
        // What does not come fails, and does not hang.
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            sys::set_timeo(fd.raw(), name, 10_000).map_err(failed)?;
        }
        let socket = listed(end, fd)?;
        if socket.fixed[2] != 0 || !socket.attributes.iter().any(|a| a.0 == GROUP) {
            return Err(format!("not over SMC-R: {:02x?}", socket.attributes));
        }
    }
    Ok(both)
}

/// Waits until `bytes` bytes can be read.
pub fn waiting(fd: &Fd, bytes: usize) -> Result<(), String> {
    soon(|| match sys::ioctl_get(fd.raw(), WAITING) {
        Ok(n) if n as usize == bytes => Ok(()),
        other => Err(format!("{other:?} bytes of {bytes} have arrived")),
    })
}

/// Attributes of a message or a nest.
#[derive(Debug)]
pub struct Tree(Vec<Attribute>);

impl Tree {
    /// Reads bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        attributes(bytes).map(Self).map_err(failed)
    }

    /// The bytes of an attribute.
    pub fn bytes(&self, kind: u16) -> Result<&[u8], String> {
        let found = self.0.iter().find(|a| a.0 == kind);
        Ok(&found.ok_or(format!("no attribute {kind}"))?.1)
    }

    /// Returns the attributes in a nest.
    pub fn nest(&self, kind: u16) -> Result<Self, String> {
        Self::new(self.bytes(kind)?)
    }

    /// A number of any width.
    pub fn number(&self, kind: u16) -> Result<u64, String> {
        let mut wide = [0; 8];
        let bytes = self.bytes(kind)?;
        wide.get_mut(..bytes.len())
            .ok_or(format!("{kind}: {bytes:02x?}"))?
            .copy_from_slice(bytes);
        Ok(u64::from_ne_bytes(wide))
    }

    /// A text, without blanks and NULs behind it.
    pub fn text(&self, kind: u16) -> Result<String, String> {
        let text = String::from_utf8_lossy(self.bytes(kind)?).into_owned();
        Ok(text.trim_end_matches(['\0', ' ']).into())
    }
}

/// The messages of a dump at an end: what is in the attribute `nest` of each that has it, and the
/// number of the attribute.
pub fn dump(end: usize, command: u8) -> Result<Vec<(u16, Tree)>, String> {
    let messages = within(end, || Generic::open("SMC_GEN_NETLINK")?.dump(command));
    let mut found = vec![];
    for message in messages.map_err(failed)? {
        for (kind, value) in attributes(&message).map_err(failed)? {
            found.push((kind, Tree::new(&value)?));
        }
    }
    Ok(found)
}

/// Compares, and says what is wrong.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    match got == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {got:x?}, not {wanted:x?}")),
    }
}
