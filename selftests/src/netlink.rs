// SPDX-License-Identifier: GPL-2.0
//! A netlink client. Lengths, headers and padding of messages and attributes are those of
//! `netlink-packet-core`; numbers and meanings come from `linux/netlink.h` and `linux/genetlink.h`.

use crate::errno::{Errno, R};
use crate::fd::Fd;
use crate::sys;
use netlink_packet_core::{DefaultNla, Emitable, NetlinkBuffer, NlasIterator, NLA_TYPE_MASK};
use std::cell::Cell;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct genlmsghdr`.
const GENERIC: usize = 4;

/// An attribute: its number and what it carries.
pub type Attribute = (u16, Vec<u8>);

/// A netlink socket.
pub struct Netlink {
    socket: Fd,
    /// The answer to the last request has been read.
    ended: Cell<bool>,
}

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
    let attribute = DefaultNla::new(kind, value.to_vec());
    let mut b = vec![0; attribute.buffer_len()];
    attribute.emit(&mut b);
    b
}

/// The attributes that bytes are made of, all of them.
///
/// # Errors
///
/// `EBADMSG` if they are not.
pub fn attributes(b: &[u8]) -> R<Vec<Attribute>> {
    let one = NlasIterator::new(b).map(|a| a.map(|a| (a.kind(), a.value().to_vec())));
    one.collect::<Result<_, _>>()
        .map_err(|_| Errno(libc::EBADMSG))
}

/// Flags of a request that is a dump, or else acknowledged.
fn mode(dump: bool) -> i32 {
    match dump {
        true => libc::NLM_F_DUMP,
        false => libc::NLM_F_ACK,
    }
}

impl Netlink {
    /// A socket of a protocol.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open(protocol: i32) -> R<Self> {
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        let ended = Cell::new(true);
        Ok(Self { socket, ended })
    }

    /// Asks, with an acknowledgment or for a dump, and returns what comes behind the headers of the
    /// answers.
    ///
    /// # Errors
    ///
    /// The kernel's answer, or `EBADMSG` for one that makes no sense.
    pub fn ask(&self, kind: u16, dump: bool, body: &[u8]) -> R<Vec<Vec<u8>>> {
        self.ask_so(kind, mode(dump), 1 << 16, body)
    }

    /// As [`Netlink::ask`], with these flags besides `NLM_F_REQUEST`, and a buffer of `room` bytes,
    /// by which the kernel measures the pieces of a dump.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn ask_so(&self, kind: u16, flags: i32, room: usize, body: &[u8]) -> R<Vec<Vec<u8>>> {
        self.request(kind, flags, body)?;
        let mut answers = vec![];
        while let Some(more) = self.piece(room)? {
            answers.extend(more);
        }
        Ok(answers)
    }

    /// Sends a request with these flags besides `NLM_F_REQUEST`.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn request(&self, kind: u16, flags: i32, body: &[u8]) -> R<()> {
        let mut m = vec![0; HEADER];
        m.extend(body);
        let len = m.len() as u32;
        let mut header = NetlinkBuffer::new(&mut m);
        header.set_length(len);
        header.set_message_type(kind);
        header.set_flags((libc::NLM_F_REQUEST | flags) as u16);
        sys::send(self.socket.raw(), &m, 0)?;
        self.ended.set(false);
        Ok(())
    }

    /// Returns what is behind the headers of one piece of the answer; `None` after the last.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn piece(&self, room: usize) -> R<Option<Vec<Vec<u8>>>> {
        if self.ended.get() {
            return Ok(None);
        }
        let data = sys::recv_vec(self.socket.raw(), room, 0)?;
        let (mut rest, mut answers) = (&data[..], vec![]);
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(|_| Errno(libc::EBADMSG))?;
            let (len, kind) = (message.length() as usize, message.message_type());
            let body = message.payload();
            match i32::from(kind) {
                libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                    self.ended.set(true);
                    // Both begin with a result, 0 or a negative errno. But what ends the C module's
                    // answer to a `do` of PNET_GET is empty.
                    let empty = body.is_empty() && i32::from(kind) == libc::NLMSG_DONE;
                    return match if empty { 0 } else { word(body, 0)? as i32 } {
                        0 => Ok(Some(answers)),
                        error => Err(Errno(-error)),
                    };
                }
                _ => answers.push(body.to_vec()),
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(Some(answers))
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
        // A short buffer: the longest there was on a socket is the measure of later dumps' pieces.
        let answers = netlink.ask_so(CONTROL, libc::NLM_F_ACK, 4096, &body)?;
        let answer = answers.first().ok_or(Errno(libc::EBADMSG))?;
        let known = attributes(answer.get(GENERIC..).unwrap_or_default())?;
        let id = known.iter().find(|a| a.0 == FAMILY_ID);
        let id = half(&id.ok_or(Errno(libc::EBADMSG))?.1, 0)?;
        Ok(Self { netlink, id })
    }

    fn ask(&self, command: u8, dump: bool, attributes: &[u8]) -> R<Vec<Vec<u8>>> {
        self.ask_so(command, mode(dump), 1 << 16, attributes)
    }

    /// As [`Netlink::ask_so`]: the attributes of each message.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn ask_so(&self, command: u8, flags: i32, room: usize, body: &[u8]) -> R<Vec<Vec<u8>>> {
        self.request(command, flags, body)?;
        let mut answers = vec![];
        while let Some(more) = self.piece(command, room)? {
            answers.extend(more);
        }
        Ok(answers)
    }

    /// As [`Netlink::request`].
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn request(&self, command: u8, flags: i32, attributes: &[u8]) -> R<()> {
        let body = [&[command, 1, 0, 0], attributes].concat();
        self.netlink.request(self.id, flags, &body)
    }

    /// As [`Netlink::piece`]: the attributes of each message.
    ///
    /// # Errors
    ///
    /// As [`Netlink::ask`].
    pub fn piece(&self, command: u8, room: usize) -> R<Option<Vec<Vec<u8>>>> {
        let Some(answers) = self.netlink.piece(room)? else {
            return Ok(None);
        };
        let behind = |m: Vec<u8>| match m.get(..GENERIC) {
            Some([said, 1, 0, 0]) if *said == answered(command, &m) => Ok(m[GENERIC..].to_vec()),
            _ => Err(Errno(libc::EBADMSG)),
        };
        answers.into_iter().map(behind).collect::<R<_>>().map(Some)
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
    let group =
        half(message, GENERIC + 2).is_ok_and(|a| a & NLA_TYPE_MASK == u16::from(GET_LGR_SMCR));
    if asked == GET_LINK_SMCR && group {
        GET_LGR_SMCR
    } else {
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_read_back() {
        let b = [attribute(1, b"five\0"), attribute(0x8000 | 7, &[])].concat();
        assert_eq!(b, b"\x09\0\x01\0five\0\0\0\0\x04\0\x07\x80");
        assert_eq!(
            attributes(&b),
            Ok(vec![(1, b"five\0".to_vec()), (7, vec![])])
        );
    }

    #[test]
    fn what_is_no_attribute_is_an_error() {
        for b in [&b"\x09\0\x01\0five"[..], b"\x03\0\x01\0", b"\x04\0\x01"] {
            assert_eq!(attributes(b), Err(Errno(libc::EBADMSG)), "{b:02x?}");
        }
    }
}
