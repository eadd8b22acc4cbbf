// SPDX-License-Identifier: GPL-2.0
//! The states and the shutdown flags that `sock_diag` shows at both ends after each step of closing
//! a connection over SMC-R, in every order that ends the connection differently.
//!
//! The numbers are those that the C module shows; the plan has the test for both modules. State 26
//! (PEERABORTWAIT) is left out: it lasts while the end of a group is under way. A socket whose
//! program has closed it is in no dump, so an end that is closed has no state. Two differ and are left
//! out: a socket that is only bound (C lists it in state 2), and shutdown(SHUT_WR) followed by the
//! peer's abort (C says 7 though its source asks for 27, which is ours).

use crate::ends::{self, failed, same, soon, waiting};
use crate::sockets;
use st::errno::Errno;
use st::fd::Fd;
use st::guest;
use st::ktap::Ktap;
use st::sys;

/// An act of a program.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sends bytes that nobody reads.
    Send,
    ShutRead,
    ShutWrite,
    ShutBoth,
    Close,
    /// Reads the end of the stream.
    ReadEnd,
}
use Act::{Close, ReadEnd, Send, ShutBoth, ShutRead, ShutWrite};

const ACTIVE: u8 = 1;
const CLOSED: u8 = 7;
const LISTEN: u8 = 10;
const PEERCLOSE1: u8 = 20;
const PEERCLOSE2: u8 = 21;
const APPCLOSE1: u8 = 22;
const APPCLOSE2: u8 = 23;
const APPFIN: u8 = 24;
const PEERFIN: u8 = 25;
const ABORTED: u8 = 27;

/// State and shutdown flags (1 receive, 2 send), or none for an end that was closed.
type Seen = Option<(u8, u8)>;
/// A case: the ends that act, their acts, and the states of both ends then.
type Step = (usize, Act, [Seen; 2]);

const GONE: Seen = None;
const OPEN: Seen = Some((ACTIVE, 0));

const fn at(state: u8, shut: u8) -> Seen {
    Some((state, shut))
}

/// The first end (0) is the client once, and the server once.
const WAYS: &[(&str, &[Step])] = &[
    ("read_shut", &[(0, ShutRead, [at(ACTIVE, 1), OPEN])]),
    (
        "halves_then_both",
        &[
            (0, ShutWrite, [at(PEERCLOSE1, 2), at(APPCLOSE1, 1)]),
            (1, ShutWrite, [at(PEERCLOSE2, 3), at(APPCLOSE2, 3)]),
            (0, ShutBoth, [at(PEERCLOSE2, 3), at(APPCLOSE2, 3)]),
            (1, ShutBoth, [at(APPFIN, 3), at(CLOSED, 3)]),
        ],
    ),
    (
        "both_then_both",
        &[
            (0, ShutBoth, [at(PEERCLOSE1, 3), at(APPCLOSE1, 1)]),
            (1, ShutBoth, [at(APPFIN, 3), at(CLOSED, 3)]),
            (0, ShutBoth, [at(CLOSED, 3), at(CLOSED, 3)]),
        ],
    ),
    (
        "both_then_half",
        &[
            (0, ShutBoth, [at(PEERCLOSE1, 3), at(APPCLOSE1, 1)]),
            (1, ShutWrite, [at(PEERCLOSE2, 3), at(APPCLOSE2, 3)]),
            (1, Close, [at(APPFIN, 3), GONE]),
        ],
    ),
    (
        "half_then_close",
        &[
            (0, ShutWrite, [at(PEERCLOSE1, 2), at(APPCLOSE1, 1)]),
            (1, Close, [at(APPFIN, 3), GONE]),
            (0, ReadEnd, [at(APPFIN, 3), GONE]),
            (0, ShutBoth, [at(CLOSED, 3), GONE]),
        ],
    ),
    (
        "close_is_read",
        &[
            (0, Close, [GONE, at(APPCLOSE1, 1)]),
            (1, ReadEnd, [GONE, at(APPCLOSE1, 1)]),
            (1, ShutWrite, [GONE, at(APPCLOSE2, 3)]),
        ],
    ),
    (
        "half_then_both",
        &[
            (0, ShutWrite, [at(PEERCLOSE1, 2), at(APPCLOSE1, 1)]),
            (1, ShutBoth, [at(APPFIN, 3), at(PEERFIN, 3)]),
            (0, Close, [GONE, at(CLOSED, 3)]),
        ],
    ),
    (
        "halves_then_second",
        &[
            (0, ShutWrite, [at(PEERCLOSE1, 2), at(APPCLOSE1, 1)]),
            (1, ShutWrite, [at(PEERCLOSE2, 3), at(APPCLOSE2, 3)]),
            (1, ShutBoth, [at(APPFIN, 3), at(PEERFIN, 3)]),
            (1, ReadEnd, [at(APPFIN, 3), at(PEERFIN, 3)]),
        ],
    ),
    (
        "abort",
        &[(0, Send, [OPEN, OPEN]), (1, Close, [at(ABORTED, 1), GONE])],
    ),
    (
        "abort_after_both",
        &[
            (0, Send, [OPEN, OPEN]),
            (0, ShutBoth, [at(PEERCLOSE1, 3), at(APPCLOSE1, 1)]),
            (1, Close, [at(CLOSED, 3), GONE]),
        ],
    ),
    (
        "abort_after_others_half",
        &[
            (0, Send, [OPEN, OPEN]),
            (1, ShutWrite, [at(APPCLOSE1, 1), at(PEERCLOSE1, 2)]),
            (1, Close, [at(ABORTED, 1), GONE]),
        ],
    ),
    (
        "abort_after_halves",
        &[
            (0, Send, [OPEN, OPEN]),
            (1, ShutWrite, [at(APPCLOSE1, 1), at(PEERCLOSE1, 2)]),
            (0, ShutWrite, [at(APPCLOSE2, 3), at(PEERCLOSE2, 3)]),
            (1, Close, [at(CLOSED, 3), GONE]),
        ],
    ),
    (
        "abort_at_the_end",
        &[
            (0, Send, [OPEN, OPEN]),
            (1, ShutWrite, [at(APPCLOSE1, 1), at(PEERCLOSE1, 2)]),
            (0, ShutBoth, [at(PEERFIN, 3), at(APPFIN, 3)]),
            (1, Close, [at(CLOSED, 3), GONE]),
        ],
    ),
];

fn act(ends: &mut [Option<Fd>; 2], who: usize, what: Act) -> Result<(), String> {
    let fd = ends[who].as_ref().ok_or("closed already")?.raw();
    let done = match what {
        Send => {
            sys::send_all(fd, &[7; 100]).map_err(failed)?;
            return waiting(ends[1 - who].as_ref().ok_or("closed")?, 100);
        }
        ReadEnd => return same("read", sys::recv_vec(fd, 1, 0), Ok(vec![])),
        ShutRead => sys::shutdown(fd, libc::SHUT_RD),
        ShutWrite => sys::shutdown(fd, libc::SHUT_WR),
        ShutBoth => sys::shutdown(fd, libc::SHUT_RDWR),
        Close => ends[who].take().ok_or("closed already")?.close(),
    };
    match done {
        // Of TCP, which is closed before; the state tells what it did.
        Err(Errno(libc::ENOTCONN)) if matches!(what, ShutBoth) => Ok(()),
        other => other.map(drop).map_err(failed),
    }
}

/// State and flags of both ends; `swapped` if the first is the server.
fn seen(ends: &[Option<Fd>; 2], swapped: bool) -> Result<[Seen; 2], String> {
    let mut found = [GONE; 2];
    for (who, fd) in ends.iter().enumerate() {
        if let Some(fd) = fd {
            let socket = ends::listed(who ^ usize::from(swapped), fd)?;
            // SMC_DIAG_SHUTDOWN
            let flags = socket.attributes.iter().find(|a| a.0 == 3);
            same("mode", socket.fixed[2], 0)?;
            found[who] = at(socket.fixed[1], flags.ok_or("no flags")?.1[0]);
        }
    }
    Ok(found)
}

/// States and flags are told apart: either may be wrong alone.
fn way(listener: &Fd, steps: &[Step], swapped: bool) -> [Result<(), String>; 2] {
    let mut wrong: [Result<(), String>; 2] = [Ok(()), Ok(())];
    let mut go = || -> Result<(), String> {
        let [client, server] = ends::pair(listener)?;
        let mut ends = match swapped {
            false => [Some(client), Some(server)],
            true => [Some(server), Some(client)],
        };
        same("at first", seen(&ends, swapped)?, [OPEN, OPEN])?;
        for (n, (who, what, wanted)) in steps.iter().enumerate() {
            let step = |e| format!("step {n}, {what:?} of {who}: {e}");
            act(&mut ends, *who, *what).map_err(step)?;
            let only =
                |all: [Seen; 2], flags: bool| all.map(|s| s.map(|s| if flags { s.1 } else { s.0 }));
            for (flags, wrong) in [false, true].into_iter().zip(&mut wrong) {
                if wrong.is_err() {
                    continue;
                }
                let look = || {
                    same(
                        "shown",
                        only(seen(&ends, swapped)?, flags),
                        only(*wanted, flags),
                    )
                };
                // Once it is reached it stays; the flags are no later than the state.
                let reached = if flags { look() } else { soon(look) };
                let stays = reached.and_then(|()| {
                    sys::sleep_ms(20);
                    look()
                });
                *wrong = stays.map_err(step);
            }
        }
        Ok(())
    };
    if let Err(e) = go() {
        wrong[0] = wrong[0].clone().and(Err(e));
    }
    wrong
}

/// A socket that listens, in its own namespace's dump alone.
fn listening(listener: &Fd) -> Result<(), String> {
    same("listens", ends::listed(1, listener)?.fixed[1], LISTEN)?;
    let elsewhere = ends::within(0, || sockets::all(0)).map_err(failed)?;
    let inode = sockets::inode(listener);
    same("elsewhere", elsewhere.iter().any(|s| s.0 == inode), false)
}

/// All of it.
pub fn run(k: &mut Ktap) {
    if !guest::has_netns() {
        return k.outcome("netns", Err("there are none".into()));
    }
    ends::prepare().expect("prepare");
    let listener = ends::listener().expect("listener");
    k.outcome("listening", listening(&listener));
    for (name, steps) in WAYS {
        for (swapped, first) in [(false, "client"), (true, "server")] {
            let [states, flags] = way(&listener, steps, swapped);
            k.outcome(&format!("state.{name}.{first}"), states);
            k.outcome(&format!("shutdown.{name}.{first}"), flags);
        }
    }
}
