// SPDX-License-Identifier: GPL-2.0
//! State of a sequence, as far as the next step and the known differences depend on it.

use crate::step::{Step, Way};
use st::rng::Rng;

/// One end.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Not closed.
    pub open: bool,
    /// Its way out is shut.
    pub shut_write: bool,
    /// Its way in is shut.
    pub shut_read: bool,
    /// The next close resets.
    pub linger_zero: bool,
    /// `SO_OOBINLINE`.
    pub inline: bool,
    /// `O_NONBLOCK`.
    pub nonblock: bool,
    /// Bytes that it has sent.
    pub sent: u64,
    /// Position up to which it has read the other end's stream.
    pub read: u64,
    /// Position of the last urgent byte that it has sent.
    pub mark: Option<u64>,
    /// It has sent an urgent byte behind another one that is unread.
    pub overtaken: bool,
    /// It has sent until there was no room, and not all of that has been read.
    pub full: bool,
    /// Something that it has sent may be held back: `MSG_MORE`, or `TCP_CORK`.
    pub held: bool,
    /// `TCP_CORK`.
    pub corked: bool,
    /// Its epoll set is edge triggered.
    pub edge: bool,
}

/// A sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Model {
    /// Both ends.
    pub ends: [End; 2],
    /// Urgent data is sent, too.
    pub urgent: bool,
    /// What is compared with TCP is a local path.
    pub local: bool,
    /// Its bytes may go by TCP: such a path, and a fallback.
    pub by_tcp: bool,
    /// It begins as TCP, and turns to SMC-R and back.
    pub turns: bool,
    /// A connection was reset.
    pub reset: bool,
    /// What is compared with TCP has lost a link, and gone back to TCP with what it held back.
    pub lost: bool,
    /// Most bytes that may be under way, so that every buffer has room for them.
    pub most: usize,
}

/// The other end.
pub fn other(end: usize) -> usize {
    1 - end
}

impl Model {
    /// A fresh connection.
    pub fn new(urgent: bool, local: bool, by_tcp: bool, most: usize) -> Model {
        let end = End {
            open: true,
            ..End::default()
        };
        Model {
            ends: [end; 2],
            urgent,
            local,
            by_tcp,
            turns: false,
            reset: false,
            lost: false,
            most,
        }
    }

    /// Bytes sent to `end` that it has not read.
    pub fn unread(&self, end: usize) -> usize {
        self.ends[other(end)]
            .sent
            .saturating_sub(self.ends[end].read) as usize
    }

    /// Returns the length of the longest step.
    pub fn longest(&self) -> usize {
        match self.most {
            0..=0x2000 => 3000,
            most => most / 4,
        }
    }

    /// Returns the number of bytes that `end` may send without filling a buffer.
    pub fn room(&self, end: usize) -> usize {
        self.most.saturating_sub(self.unread(other(end)))
    }

    /// Tells whether the other end is closed or shut down both ways. TCP learns of it only when it sends.
    pub fn is_deserted(&self, end: usize) -> bool {
        let e = &self.ends[other(end)];
        !e.open || e.shut_read && e.shut_write
    }

    /// Tells whether an urgent byte of `end` waits to be read.
    pub fn is_urgent_waiting(&self, end: usize) -> bool {
        let reader = &self.ends[other(end)];
        self.ends[end]
            .mark
            .is_some_and(|mark| reader.read < mark + u64::from(reader.inline))
    }

    /// Tells whether the next byte that `end` reads is an urgent one.
    pub fn stands_at_mark(&self, end: usize) -> bool {
        self.ends[other(end)].mark == Some(self.ends[end].read)
    }

    /// Tells whether sending is worth a step: what is known to differ is tried seldom, since it ends the
    /// sequence.
    pub fn may_send(&self, end: usize, r: &mut Rng) -> bool {
        let e = &self.ends[end];
        let doubtful = self.is_deserted(end) && !e.shut_write && !self.reset;
        (!doubtful || r.draw() % 8 == 0) && !e.full
    }

    /// Tells whether an end may be closed: both are open.
    pub fn may_close(&self) -> bool {
        self.ends[0].open && self.ends[1].open
    }

    /// Tells whether `end` may send until there is no room.
    pub fn may_fill(&self, end: usize) -> bool {
        let (e, o) = (&self.ends[end], &self.ends[other(end)]);
        !self.urgent && e.open && o.open && !e.shut_write && !o.shut_read && !self.reset && !e.full
    }

    /// Takes note of what both pairs have answered to a step; `count`: of bytes, if it succeeded.
    pub fn did(&mut self, step: &Step, count: Option<u64>) {
        let n = count.unwrap_or(0);
        match *step {
            Step::Send { end, flags, .. } => {
                let waiting = self.is_urgent_waiting(end);
                if flags & libc::MSG_OOB != 0 && n > 0 && self.stands_at_mark(other(end)) {
                    // TCP takes the urgent byte before out of the stream.
                    let reader = &mut self.ends[other(end)];
                    reader.read += u64::from(!reader.inline);
                }
                let e = &mut self.ends[end];
                e.sent += n;
                e.held = n > 0 && (e.corked || flags & libc::MSG_MORE != 0) || n == 0 && e.held;
                if flags & libc::MSG_OOB != 0 && n > 0 {
                    e.overtaken |= waiting;
                    e.mark = Some(e.sent - 1);
                }
            }
            Step::SpliceIn { end, .. } | Step::SendFile { end, .. } => {
                self.ends[end].sent += n;
                self.ends[end].held = true;
            }
            Step::Set {
                end,
                name: libc::TCP_CORK,
                level: libc::IPPROTO_TCP,
                value,
            } => {
                self.ends[end].corked = value != 0;
            }
            Step::Fill { end } => self.ends[end].full = true,
            Step::Recv {
                end,
                len,
                flags,
                way,
            } => {
                let flags = if matches!(way, Way::Msg | Way::Fault) {
                    flags
                } else {
                    0
                };
                // Of bad memory alone MSG_TRUNC takes bytes, too.
                if flags & (libc::MSG_PEEK | libc::MSG_OOB) == 0 && (len > 0 || n > 0) {
                    self.took(end, n, true);
                }
            }
            Step::SpliceOut { end, .. } => self.took(end, n, false),
            Step::Drain { end } => {
                let from = &mut self.ends[other(end)];
                from.full = false;
                let (all, held) = (from.sent, from.held);
                match held {
                    true => self.took(end, n, true),
                    false => self.ends[end].read = all,
                }
            }
            Step::Shutdown { end, how } => {
                let e = &mut self.ends[end];
                e.shut_read |= how != libc::SHUT_WR;
                e.shut_write |= how != libc::SHUT_RD;
            }
            Step::Close { end } => {
                let e = self.ends[end];
                self.reset |= self.unread(end) > 0 || e.linger_zero;
                self.ends[end].open = false;
            }
            Step::Linger { end, on } => self.ends[end].linger_zero = on,
            Step::NonBlock { end, on } => self.ends[end].nonblock = on,
            Step::Set {
                end,
                name: libc::SO_OOBINLINE,
                value,
                ..
            } => {
                self.ends[end].inline = value != 0;
            }
            Step::Watch { end, edge } => self.ends[end].edge = edge,
            _ => {}
        }
    }

    /// `end` has read `n` bytes; a call that may step over the urgent byte does so when it stands
    /// before it.
    fn took(&mut self, end: usize, n: u64, steps: bool) {
        let mark = self.ends[other(end)].mark;
        let there = self.ends[other(end)].sent;
        let e = &mut self.ends[end];
        if steps && !e.inline && mark == Some(e.read) && e.read < there {
            e.read += 1;
        }
        e.read = (e.read + n).min(there);
    }
}
