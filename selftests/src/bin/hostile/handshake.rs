// SPDX-License-Identifier: GPL-2.0
//! Handshakes with the hostile peer that stop where its next message is due.

use crate::host::{Host, Role};
use st::fd::Fd;
use st::point::T;
use st::rawpeer::Peer;
use st::{clc, sys};

/// Part of the handshake that goes as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing has been said.
    Begin,
    /// Our first message has been answered (as a client only).
    Middle,
}

/// Steps at which a message of the peer is due.
pub fn steps(role: Role) -> &'static [Step] {
    match role {
        Role::Client => &[Step::Begin, Step::Middle],
        Role::Server => &[Step::Begin],
    }
}

/// A handshake under way, and the message that is due.
pub struct Under {
    /// The peer's end of its TCP connection.
    pub tcp: Peer<'static>,
    /// The program's socket, where it connects.
    pub fd: Option<Fd>,
    /// The message.
    pub due: Vec<u8>,
}

/// Begins a handshake and goes up to a step; notes if the module does not answer.
pub fn begin(t: &mut T, h: &mut Host, step: Step) -> Option<Under> {
    let under = begun(t, h, step);
    t.check("no answer", under.is_some());
    under
}

fn begun(t: &mut T, h: &mut Host, step: Step) -> Option<Under> {
    // Each handshake is a first contact.
    h.fresh();
    let (mut tcp, fd) = h.tcp(t);
    let me = h.end();
    if h.role == Role::Server {
        let m = clc::read(&mut tcp, 4000)?;
        t.is(
            "proposal",
            clc::header(&m).map(|h| h.ty),
            Some(clc::PROPOSAL),
        );
        let due = clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1)));
        return Some(Under { tcp, fd, due });
    }
    let mut due = clc::proposal_v2(&me, 1);
    if step == Step::Middle {
        tcp.send(&due);
        let m = clc::read(&mut tcp, 4000)?;
        t.is("accept", clc::header(&m).map(|h| h.ty), Some(clc::ACCEPT));
        let they = clc::End::parse(&m)?;
        h.rc.connect(they.qpn, they.psn);
        due = clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1)));
    }
    Some(Under { tcp, fd, due })
}

/// The connecting program has its answer in time, and closing is possible. A listener's program
/// may never hear of it.
pub fn over(t: &mut T, h: &mut Host, u: Under, what: &str) {
    if let Some(fd) = u.fd {
        let e = sys::poll1(fd.raw(), libc::POLLOUT, 15_000 * st::guest::slow() as i32);
        t.check(&format!("{what}: connect() ends"), e.is_ok_and(|e| e != 0));
        t.is(&format!("{what}: close"), fd.close().ok(), Some(0));
    }
    drop(u.tcp);
    empty(h);
}

/// Closes what lies in the accept queue, so that it never fills up.
fn empty(h: &Host) {
    if let Some(l) = &h.listener {
        sys::nonblock(l.raw(), true);
        while sys::accept(l.raw()).is_ok() {}
    }
}

/// After everything, an ordinary handshake works.
pub fn works(t: &mut T, h: &mut Host) {
    empty(h);
    h.fresh();
    if let Some(mut c) = h.open(t) {
        c.lives(t, &h.rc, "afterwards");
    }
}

/// Brings a handshake to the point where the link is to be confirmed.
pub fn unconfirmed(t: &mut T, h: &mut Host) -> Option<Under> {
    let role = h.role;
    let mut u = begin(
        t,
        h,
        if role == Role::Client {
            Step::Middle
        } else {
            Step::Begin
        },
    )?;
    let due = u.due.clone();
    u.tcp.send(&due);
    if role == Role::Client {
        t.check("CONFIRM_LINK asked", h.llc(1, 3000).is_some());
    } else {
        let m = clc::read(&mut u.tcp, 4000)?;
        t.is("confirm", clc::header(&m).map(|h| h.ty), Some(clc::CONFIRM));
        let they = clc::End::parse(&m)?;
        h.rc.connect(they.qpn, they.psn);
    }
    Some(u)
}
