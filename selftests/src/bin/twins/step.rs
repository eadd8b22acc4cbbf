// SPDX-License-Identifier: GPL-2.0
//! The calls that a sequence is made of, and how they are drawn.

use crate::model::Model;
use st::rng::Rng;

/// Call that hands bytes to the kernel, or takes them from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `sendmsg` or `recvmsg` with one piece.
    Msg,
    /// `write` or `read`: no flags.
    Plain,
    /// `writev` or `readv` with three pieces: no flags.
    Vector,
    /// `sendmsg` or `recvmsg` with one good piece and one that cannot be touched.
    Fault,
}

/// One call, on one end of both pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends `len` bytes.
    Send {
        end: usize,
        len: usize,
        flags: i32,
        way: Way,
    },
    /// Receives up to `len` bytes.
    Recv {
        end: usize,
        len: usize,
        flags: i32,
        way: Way,
    },
    /// `splice` out of a pipe that holds `len` bytes.
    SpliceIn { end: usize, len: usize, more: bool },
    /// `splice` of up to `len` bytes into an empty pipe.
    SpliceOut {
        end: usize,
        len: usize,
        nonblock: bool,
    },
    /// `sendfile` of a file of `len` bytes; `ask` more are asked for.
    SendFile { end: usize, len: usize, ask: usize },
    /// `shutdown`.
    Shutdown { end: usize, how: i32 },
    /// `close`.
    Close { end: usize },
    /// `SO_LINGER` with time zero, or off.
    Linger { end: usize, on: bool },
    /// `setsockopt` of an int.
    Set {
        end: usize,
        level: i32,
        name: i32,
        value: i32,
    },
    /// `getsockopt` of an int.
    Get { end: usize, level: i32, name: i32 },
    /// `SIOCOUTQ` and `SIOCOUTQNSD`, once they are the same.
    OutQueue,
    /// `getpeername` and `getsockname`.
    Names { end: usize },
    /// `O_NONBLOCK`.
    NonBlock { end: usize, on: bool },
    /// Puts the end into an epoll set of its own.
    Watch { end: usize, edge: bool },
    /// `epoll_wait` on that set.
    Wait { end: usize },
    /// `poll` for some events.
    Poll { end: usize, events: i16 },
    /// Sends until there is no room.
    Fill { end: usize },
    /// Receives until there is nothing.
    Drain { end: usize },
    /// A while in which nothing is called: longer than bytes may be held back.
    Pause,
}

impl Step {
    /// The end that the step is for.
    pub fn end(&self) -> Option<usize> {
        match *self {
            Step::Send { end, .. }
            | Step::Recv { end, .. }
            | Step::SpliceIn { end, .. }
            | Step::SpliceOut { end, .. }
            | Step::SendFile { end, .. }
            | Step::Shutdown { end, .. }
            | Step::Close { end }
            | Step::Linger { end, .. }
            | Step::Set { end, .. }
            | Step::Get { end, .. }
            | Step::Names { end }
            | Step::NonBlock { end, .. }
            | Step::Watch { end, .. }
            | Step::Wait { end }
            | Step::Poll { end, .. }
            | Step::Fill { end }
            | Step::Drain { end } => Some(end),
            Step::OutQueue | Step::Pause => None,
        }
    }

    /// Tells whether the step takes bytes in, or asks whether there are some.
    pub fn receives(&self) -> bool {
        matches!(
            self,
            Step::Recv { .. }
                | Step::SpliceOut { .. }
                | Step::Drain { .. }
                | Step::Poll { .. }
                | Step::Wait { .. }
        )
    }

    /// Tells whether the step sends bytes.
    pub fn sends(&self) -> bool {
        matches!(
            self,
            Step::Send { .. } | Step::SpliceIn { .. } | Step::SendFile { .. } | Step::Fill { .. }
        )
    }
}

fn pick<T: Copy>(r: &mut Rng, all: &[T]) -> T {
    all[(r.draw() % all.len() as u64) as usize]
}

fn chance(r: &mut Rng, percent: u64) -> bool {
    r.draw() % 100 < percent
}

fn length(r: &mut Rng, most: usize) -> usize {
    match r.draw() % 16 {
        0 => 0,
        1..=7 => r.range(1, 16) as usize,
        _ => r.size(most.max(1) as u64),
    }
}

fn send(r: &mut Rng, m: &Model, end: usize) -> Step {
    let most = m.room(end).min(m.longest());
    let len = length(r, most).min(most);
    match r.draw() % 16 {
        0 => Step::SpliceIn {
            end,
            len: len.max(1),
            more: chance(r, 25),
        },
        1 => Step::SendFile {
            end,
            len: len.max(1),
            ask: pick(r, &[0, 0, 1, 70_000]),
        },
        n => {
            let way = match n {
                2 => Way::Plain,
                3 => Way::Vector,
                4 => Way::Fault,
                _ => Way::Msg,
            };
            // How much of more TCP takes depends on how it cuts that into packets.
            let len = match way {
                Way::Fault => len.min(3000),
                _ => len,
            };
            let mut flags = 0;
            if matches!(way, Way::Msg | Way::Fault) {
                for (f, percent) in [
                    (libc::MSG_DONTWAIT, 40),
                    (libc::MSG_NOSIGNAL, 60),
                    (libc::MSG_MORE, 6),
                    (libc::MSG_EOR, 4),
                    (libc::MSG_OOB, if m.urgent { 25 } else { 0 }),
                ] {
                    flags |= if chance(r, percent) { f } else { 0 };
                }
            }
            Step::Send {
                end,
                len,
                flags,
                way,
            }
        }
    }
}

fn recv(r: &mut Rng, m: &Model, end: usize) -> Step {
    let there = m.unread(end);
    let len = match r.draw() % 4 {
        0 => there,
        1 => there + 1,
        _ => length(r, 4000),
    };
    let way = match r.draw() % 16 {
        0 => {
            return Step::SpliceOut {
                end,
                len: len.max(1),
                nonblock: chance(r, 50),
            }
        }
        1 => Way::Plain,
        2 => Way::Vector,
        3 => Way::Fault,
        _ => Way::Msg,
    };
    let mut flags = 0;
    if matches!(way, Way::Msg | Way::Fault) {
        for (f, percent) in [
            (libc::MSG_DONTWAIT, if there == 0 { 95 } else { 70 }),
            (libc::MSG_PEEK, 20),
            (libc::MSG_WAITALL, 12),
            (libc::MSG_TRUNC, 10),
            (libc::MSG_OOB, if m.urgent { 25 } else { 0 }),
        ] {
            flags |= if chance(r, percent) { f } else { 0 };
        }
    }
    Step::Recv {
        end,
        len,
        flags,
        way,
    }
}

fn set(r: &mut Rng, m: &Model, end: usize) -> Step {
    let s = libc::SOL_SOCKET;
    let t = libc::IPPROTO_TCP;
    let (level, name, values): (i32, i32, &[i32]) = match r.draw() % 8 {
        0..=2 => (s, libc::SO_RCVLOWAT, &[0, 1, 2, 5, 10, 100, 1000]),
        3 => (s, libc::SO_PEEK_OFF, &[-1, 0, 0, 3, 50]),
        4 => (t, libc::TCP_NODELAY, &[1]),
        5 => (t, libc::TCP_CORK, &[0, 0, 1]),
        6 if m.urgent => (s, libc::SO_OOBINLINE, &[0, 1]),
        6 => (s, libc::SO_KEEPALIVE, &[0, 1]),
        _ => (s, libc::SO_RCVLOWAT, &[-1, 1, i32::MAX]),
    };
    Step::Set {
        end,
        level,
        name,
        value: pick(r, values),
    }
}

fn get(r: &mut Rng, end: usize) -> Step {
    let s = libc::SOL_SOCKET;
    let (level, name) = pick(
        r,
        &[
            (s, libc::SO_ERROR),
            (s, libc::SO_ERROR),
            (s, libc::SO_ERROR),
            (s, libc::SO_RCVLOWAT),
            (s, libc::SO_PEEK_OFF),
            (s, libc::SO_TYPE),
            (s, libc::SO_ACCEPTCONN),
            (s, libc::SO_OOBINLINE),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_TCP, libc::TCP_CORK),
        ],
    );
    Step::Get { end, level, name }
}

/// The next step, on an end that is open.
pub fn draw(r: &mut Rng, m: &Model) -> Step {
    let end = match (m.ends[0].open, m.ends[1].open) {
        (true, true) => (r.draw() % 2) as usize,
        (true, false) => 0,
        _ => 1,
    };
    if let Some(end) = m.ends.iter().position(|e| e.full) {
        let end = 1 - end;
        return match chance(r, 60) {
            true => Step::Drain { end },
            false => Step::Poll {
                end,
                events: libc::POLLIN,
            },
        };
    }
    match r.draw() % 100 {
        0..=29 if m.may_send(end, r) => send(r, m, end),
        30..=65 => recv(r, m, end),
        66..=70 => Step::Shutdown {
            end,
            how: pick(
                r,
                &[libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RDWR],
            ),
        },
        71..=74 if m.may_close() => Step::Close { end },
        75..=76 => Step::Linger {
            end,
            on: chance(r, 80),
        },
        77..=82 => set(r, m, end),
        83..=87 => get(r, end),
        88 => Step::OutQueue,
        89..=90 => Step::Names { end },
        91 => Step::NonBlock {
            end,
            on: chance(r, 60),
        },
        92 => Step::Watch {
            end,
            edge: chance(r, 60),
        },
        93..=95 => Step::Wait { end },
        96 => Step::Poll {
            end,
            events: pick(r, &[libc::POLLIN, libc::POLLOUT, libc::POLLPRI, 0, 0x2000]),
        },
        97 if m.may_fill(end) && chance(r, 30) => Step::Fill { end },
        98 => Step::Drain { end },
        99 if chance(r, 5) => Step::Pause,
        _ => Step::Poll {
            end,
            events: st::sys::POLL_ALL,
        },
    }
}
