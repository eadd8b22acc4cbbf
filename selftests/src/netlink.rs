// SPDX-License-Identifier: GPL-2.0
//! A netlink client, from `linux/netlink.h` and `linux/genetlink.h` alone.

use crate::errno::{Errno, R};
use crate::fd::Fd;
use crate::sys;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct genlmsghdr`.
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
/// What is left of an attribute's type without the flags for nesting and byte order.
const TYPE: u16 = 0x3fff;

/// An attribute: its number and what it carries.
pub type Attribute = (u16, Vec<u8>);

/// A netlink socket.
pub struct Netlink(Fd);

/// A family of generic netlink.
pub struct Generic {
    netlink: Netlink,
    id: u16,
}

fn half(b: &[u8], at: usize) -> R<u16> {
    let bytes = b.get(at..at + 2).ok_or(Errno(libc::EBADMSG))?;
    Ok(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// 32 bits of a message.
///
/// # Errors
///
/// `EBADMSG` beyond its end.
pub fn word(b: &[u8], at: usize) -> R<u32> {
    let bytes = b.get(at..at + 4).ok_or(Errno(libc::EBADMSG))?;
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// An attribute as bytes.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut b = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
    b.extend(kind.to_ne_bytes());
    b.extend(value);
    b.resize(b.len().next_multiple_of(4), 0);
    b
}

/// The attributes that bytes are made of, all of them.
///
/// # Errors
///
/// `EBADMSG` if they are not.
pub fn attributes(mut b: &[u8]) -> R<Vec<Attribute>> {
    let mut found = vec![];
    while !b.is_empty() {
        let (len, kind) = (usize::from(half(b, 0)?), half(b, 2)?);
        let value = b.get(ATTRIBUTE..len).ok_or(Errno(libc::EBADMSG))?;
        found.push((kind & TYPE, value.to_vec()));
        b = b.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

impl Netlink {
    /// A socket of a protocol.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open(protocol: i32) -> R<Self> {
        sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol).map(Self)
    }

    /// Asks, with an acknowledgment or for a dump, and returns what comes behind the headers of the
    /// answers.
    ///
    /// # Errors
    ///
    /// The kernel's answer, or `EBADMSG` for one that makes no sense.
    pub fn ask(&self, kind: u16, dump: bool, body: &[u8]) -> R<Vec<Vec<u8>>> {
        let mode = if dump {
            libc::NLM_F_DUMP
        } else {
            libc::NLM_F_ACK
        };
        let mut m = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        m.extend(kind.to_ne_bytes());
        m.extend(((libc::NLM_F_REQUEST | mode) as u16).to_ne_bytes());
        m.extend([0; 8]);
        m.extend(body);
        sys::send(self.0.raw(), &m, 0)?;
        let mut answers = vec![];
        loop {
            let data = sys::recv_vec(self.0.raw(), 1 << 16, 0)?;
            let mut rest = &data[..];
            while !rest.is_empty() {
                let (len, kind) = (word(rest, 0)? as usize, half(rest, 4)?);
                let body = rest.get(HEADER..len).ok_or(Errno(libc::EBADMSG))?;
                match i32::from(kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                        // Both begin with a result: 0 or a negative errno.
                        return match word(body, 0)? as i32 {
                            0 => Ok(answers),
                            error => Err(Errno(-error)),
                        };
                    }
                    _ => answers.push(body.to_vec()),
                }
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

impl Generic {
    /// The family of this name.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none.
    pub fn open(name: &str) -> R<Self> {
        const CONTROL: u16 = 16;
        const GET_FAMILY: u8 = 3;
        const FAMILY_ID: u16 = 1;
        const FAMILY_NAME: u16 = 2;
        let netlink = Netlink::open(libc::NETLINK_GENERIC)?;
        let mut body = vec![GET_FAMILY, 1, 0, 0];
        body.extend(attribute(FAMILY_NAME, format!("{name}\0").as_bytes()));
        let answers = netlink.ask(CONTROL, false, &body)?;
        let answer = answers.first().ok_or(Errno(libc::EBADMSG))?;
        let known = attributes(answer.get(GENERIC..).unwrap_or_default())?;
        let id = known.iter().find(|a| a.0 == FAMILY_ID);
        let id = half(&id.ok_or(Errno(libc::EBADMSG))?.1, 0)?;
        Ok(Self { netlink, id })
    }

    fn ask(&self, command: u8, dump: bool, attributes: &[u8]) -> R<Vec<Vec<u8>>> {
        let body = [&[command, 1, 0, 0], attributes].concat();
        let answers = self.netlink.ask(self.id, dump, &body)?;
        let behind = |m: Vec<u8>| match m.get(..GENERIC) {
            Some([said, 1, 0, 0]) if *said == answered(command, &m) => Ok(m[GENERIC..].to_vec()),
            _ => Err(Errno(libc::EBADMSG)),
        };
        answers.into_iter().map(behind).collect()
    }

    /// The attributes of each message of a dump.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn dump(&self, command: u8) -> R<Vec<Vec<u8>>> {
        self.ask(command, true, &[])
    }

    /// Has something done.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn act(&self, command: u8, attributes: &[u8]) -> R<()> {
        self.ask(command, false, attributes).map(drop)
    }
}

/// The command that an answer names: that of the question, but for the groups which are told among
/// links; those are answers of `GET_LGR_SMCR`, and their attribute has the same number.
fn answered(asked: u8, message: &[u8]) -> u8 {
    const GET_LGR_SMCR: u8 = 2;
    const GET_LINK_SMCR: u8 = 3;
    let group = half(message, GENERIC + 2).is_ok_and(|a| a & TYPE == u16::from(GET_LGR_SMCR));
    if asked == GET_LINK_SMCR && group {
        GET_LGR_SMCR
    } else {
        asked
    }
}
