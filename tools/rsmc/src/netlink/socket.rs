// SPDX-License-Identifier: GPL-2.0
//! A netlink socket: one request, all its replies.

use super::wire::{self, Request};
use crate::error::{Error, Result};
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

/// Length of requests for which the buffers need more room than they have, in bytes.
const LARGE: usize = 64 * 1024;
/// Largest datagram taken, in bytes; the kernel fills at most 32 KiB of a dump at a time.
const BUFFER: usize = 128 * 1024;
/// A dump that was disturbed is asked again this often.
const ATTEMPTS: u32 = 5;

/// A connected netlink socket.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

/// One reply: message type and what follows the header.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Message type.
    pub kind: u16,
    /// Bytes after the netlink header.
    pub payload: Vec<u8>,
}

enum Answer {
    Whole(Vec<Reply>),
    Disturbed(Vec<Reply>),
}

impl Netlink {
    /// Opens a socket of a netlink protocol (`rustix::net::netlink::SOCK_DIAG`, …); `None` is that
    /// of routes.
    ///
    /// # Errors
    /// The kernel's, as it is.
    pub fn open(protocol: impl Into<Option<Protocol>>) -> io::Result<Self> {
        let fd = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol.into(),
        )?;
        net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends a request and returns the replies: of a dump all messages, of anything else those
    /// before its acknowledgement (which is asked for).
    ///
    /// # Errors
    /// `Refused(what, errno)` if the kernel answers with an error.
    pub fn ask(&mut self, what: &'static str, request: &Request) -> Result<Vec<Reply>> {
        let mut last = Vec::new();
        for _ in 0..ATTEMPTS {
            match self.ask_once(what, request)? {
                Answer::Whole(replies) => return Ok(replies),
                Answer::Disturbed(replies) => last = replies,
            }
        }
        // A list that never holds still: what came is as good as any other look.
        Ok(last)
    }

    fn ask_once(&mut self, what: &'static str, request: &Request) -> Result<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        if bytes.len() > LARGE {
            let room = 2 * bytes.len();
            // Beyond the system's limit only for root.
            net::sockopt::set_socket_send_buffer_size_force(&self.fd, room)
                .or_else(|_| net::sockopt::set_socket_send_buffer_size(&self.fd, room))
                .map_err(io::Error::from)?;
        }
        net::sendto(&self.fd, &bytes, SendFlags::empty(), &kernel).map_err(io::Error::from)?;

        // An error comes with the request.
        let mut buffer = vec![0u8; BUFFER + bytes.len()];
        let mut replies = Vec::new();
        let mut disturbed = false;
        loop {
            let received = net::recvfrom(&self.fd, &mut buffer[..], RecvFlags::TRUNC);
            let (_, length, from) = match received {
                Err(Errno::INTR) => continue,
                other => other.map_err(io::Error::from)?,
            };
            // Other processes can send to this socket too; only the kernel has port 0.
            let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
            if from.is_none_or(|from| from.pid() != 0) {
                continue;
            }
            let datagram = buffer
                .get(..length)
                .ok_or(Error::Malformed("a message too long"))?;
            for message in wire::messages(datagram) {
                let message = message.map_err(|_| Error::Malformed("a message's length"))?;
                if message.sequence != self.sequence {
                    continue;
                }
                disturbed |= message.flags & wire::NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        // NLMSG_DONE of old kernels has no value: the dump went well.
                        let code = match wire::u32_at(message.payload, 0) {
                            Some(code) => code as i32,
                            None if message.kind == NLMSG_DONE => 0,
                            None => return Err(Error::Malformed("an error without a number")),
                        };
                        if code < 0 {
                            return Err(Error::Refused(
                                what,
                                Errno::from_raw_os_error(code.saturating_neg()),
                            ));
                        }
                        return Ok(if disturbed {
                            Answer::Disturbed(replies)
                        } else {
                            Answer::Whole(replies)
                        });
                    }
                    kind => replies.push(Reply {
                        kind,
                        payload: message.payload.to_vec(),
                    }),
                }
            }
        }
    }
}
