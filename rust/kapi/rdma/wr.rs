// SPDX-License-Identifier: GPL-2.0

//! Requests to a send queue, and messages from a receive queue.

use super::{
    mr::Mr,
    region::Region, //
};
use kernel::prelude::*;

/// Whether the device tells of the end of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// It does.
    Always,
    /// Only now and then, when it would of one that was posted later. [`Channel::expect_ends`] sees to that.
    ///
    /// [`Channel::expect_ends`]: super::channel::Channel::expect_ends
    Seldom,
}

/// Number of bytes of a message that are at hand without a further copy.
pub const HEAD: usize = 64;

/// Destination of an RDMA WRITE: as the peer told us, so checked by the peer's device only.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// The address of the first byte.
    pub addr: u64,
    /// The peer's memory key.
    pub rkey: u32,
}

/// Source of an RDMA WRITE.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Pages by their DMA addresses: ready at once, one element per contiguous piece.
    Region(&'a Region),
    /// A registered memory region: one element whatever the length.
    Mr(&'a Mr),
}

/// An RDMA WRITE.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The memory.
    pub from: Source<'a>,
    /// The beginning in it, in bytes.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
    /// The destination.
    pub to: Remote,
}

/// A chain that was not posted, with its token.
pub struct Unsent<T> {
    /// The token, given back.
    pub token: T,
    /// `EAGAIN`: no room now, try again after a completion. `ENOTCONN`: the queue pair cannot
    /// send (any more). `ENODEV`: memory was revoked. `EINVAL`: a range outside the memory, too
    /// many pieces, two source regions, or nothing to do. Else the driver's error.
    pub error: Error,
}

/// A received message, valid during the callback.
///
/// The bytes are copies: the peer cannot change them any more. What is beyond [`HEAD`] is still
/// in the receive buffer, whose tail all receives share; a second long message may overwrite it.
pub struct Received<'a> {
    pub(super) head: [u8; HEAD],
    pub(super) head_len: usize,
    pub(super) len: usize,
    pub(super) slot: usize,
    pub(super) first: usize,
    pub(super) spill: usize,
    pub(super) region: &'a Region,
}

impl Received<'_> {
    /// Returns the length of the whole message in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the beginning of the message: all of it, or the configured number of bytes of a
    /// longer one.
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.head_len).unwrap_or(&[])
    }

    /// Copies the message from `offset` on to `out`; returns how many bytes.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let mut done = 0usize;
        while done < out.len() {
            let Some(at) = offset.checked_add(done).filter(|at| *at < self.len) else {
                break;
            };
            let (from, room) = if at < self.first {
                (self.slot.wrapping_add(at), self.first.wrapping_sub(at))
            } else {
                let tail = at.wrapping_sub(self.first);
                (self.spill.wrapping_add(tail), self.len.wrapping_sub(at))
            };
            let room = room.min(self.len.wrapping_sub(at));
            let end = done.saturating_add(room).min(out.len());
            let Some(part) = out.get_mut(done..end) else {
                break;
            };
            let n = self.region.read_slice(from, part);
            if n == 0 {
                break;
            }
            done = done.wrapping_add(n);
        }
        done
    }
}
