// SPDX-License-Identifier: GPL-2.0
//! Link groups: those of others, which a peer can name, and too many of its own.

use crate::host::{llc, new_key, next_llc, Conn, Host, Role, LISTENER};
use st::errno::R;
use st::netlink::{attributes, Generic};
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{second_addr, wire_addr, Peer, Wire};
use st::rcpeer::Rc;
use st::{clc, guest, net, sys};
use std::net::SocketAddr;

crate::both!(
    names_anothers_queue_pair,
    names_anothers_group,
    begins_and_begins,
    leaves_groups_behind,
    fills_the_key_table,
    talks_and_takes_nothing,
);

/// Somebody else's queue pair as one's own, with another identity: whose it is does not notice.
fn names_anothers_queue_pair(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    // What the module says to the queue pair is not for it to hear, once it has heard all of this.
    guest::pause(200);
    h.rc.answers(false);
    let mut me = h.end();
    me.peer_id = [0x66; 8];
    let (mut tcp, fd) = h.tcp(t);
    let (mine, theirs, answer) = match h.role {
        Role::Client => (clc::proposal_v2(&me, 1), clc::ACCEPT, clc::CONFIRM),
        Role::Server => (vec![], clc::PROPOSAL, clc::ACCEPT),
    };
    if !mine.is_empty() {
        tcp.send(&mine);
    }
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    t.is("answered", clc::header(&m).map(|h| h.ty), Some(theirs));
    tcp.send(&clc::agreement_v2(answer, &me, Some((255, 1))));
    if h.role == Role::Server {
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        t.is("taken", clc::header(&m).map(|h| h.ty), Some(clc::CONFIRM));
    }
    guest::pause(200);
    tcp.send_rst();
    guest::pause(200);
    drop(fd);
    h.rc.answers(true);
    a.lives(t, &h.rc, "after");
}

/// Checks that a peer with another address that claims to be a host with a group here, to the last byte of
/// its proposal or accept, is not let in, nor the program that has called it: a member of a group can end
/// it, and what the program sends would go to the other host.
fn names_anothers_group(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    let me = h.end();
    match h.role {
        Role::Client => as_client(t, &me),
        Role::Server => as_server(t, &me),
    }
    guest::pause(200);
    a.lives(t, &h.rc, "after");
}

/// A server that is called names a host as itself, and its link for the connection.
fn as_server(t: &mut T, me: &clc::End) {
    let wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
    let (near, far) = (wire_addr(true, t.ip), second_addr(t.ip));
    let mut answer = |at| {
        let at = SocketAddr::new(at, 7701);
        let fd = t.socket();
        sys::nonblock(fd.raw(), true);
        let _ = sys::connect(fd.raw(), &at);
        let mut tcp = Peer::wait_syn_at(wire, at, 4000).expect("no SYN");
        t.check("ACK", tcp.syn_ack(&SMC_OPTION));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        t.is("asked", clc::header(&m).map(|h| h.ty), Some(clc::PROPOSAL));
        tcp.send(&clc::agreement_v2(clc::ACCEPT, me, None));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        guest::pause(100);
        tcp.send_rst();
        clc::header(&m).map(|h| h.ty)
    };
    let own = answer(near);
    let other = answer(far);
    t.is("at the same address: joins", own, Some(clc::CONFIRM));
    t.is("at another: declines", other, Some(clc::DECLINE));
}

/// A client names a host as itself.
fn as_client(t: &mut T, me: &clc::End) {
    let module = SocketAddr::new(wire_addr(false, t.ip), LISTENER);
    let wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
    let answer = |from| {
        let mut tcp = Peer::connect_from(wire, from, module, &SMC_OPTION).expect("no SYN-ACK");
        tcp.send(&clc::proposal_v2(me, 1));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        tcp.send_rst();
        m.get(7).map(|flags| (m[4], flags & 8 != 0))
    };
    let own = answer(SocketAddr::new(wire_addr(true, t.ip), 30001));
    t.is(
        "from the same address: joins",
        own,
        Some((clc::ACCEPT, false)),
    );
    let other = answer(SocketAddr::new(second_addr(t.ip), 30001));
    t.is("from another: begins", other, Some((clc::ACCEPT, true)));
}

/// First contacts without number, none of which goes on: a few are answered, the others wait for
/// those, and an honest one that comes when they have gone is served.
fn begins_and_begins(t: &mut T, h: &mut Host) {
    if h.role == Role::Server {
        // There the module's own programs decide how many there are.
        return;
    }
    const ALL: u8 = 20;
    const AT_ONCE: usize = 8;
    let mut waiting = vec![];
    for n in 0..ALL {
        let (mut tcp, _) = h.tcp(t);
        let mut me = h.end();
        me.peer_id = [n; 8];
        tcp.send(&clc::proposal_v2(&me, 1));
        waiting.push(tcp);
    }
    let mut served = 0;
    while served < usize::from(ALL) {
        guest::pause(100);
        let before = waiting.len();
        let mut answered = vec![];
        let mut silent = vec![];
        for mut tcp in waiting {
            let m = clc::read_within(&mut tcp, 20).unwrap_or_default();
            if clc::header(&m).map(|h| h.ty) == Some(clc::ACCEPT) {
                answered.push(tcp);
            } else {
                silent.push(tcp);
            }
        }
        waiting = silent;
        for mut tcp in answered {
            tcp.send_rst();
        }
        let now = before - waiting.len();
        t.check(
            &format!("{now} of {before} answered"),
            now > 0 && now <= AT_ONCE,
        );
        if now == 0 {
            return;
        }
        served += now;
    }
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "an honest one");
}

/// The module's groups that have connections, as it tells.
fn busy_groups() -> R<usize> {
    const GET_LGR_SMCR: u8 = 2;
    const CONNECTIONS: u16 = 6;
    let mut busy = 0;
    for message in Generic::open("SMC_GEN_NETLINK")?.dump(GET_LGR_SMCR)? {
        for (_, group) in attributes(&message)? {
            let has = |(kind, value): &(u16, Vec<u8>)| *kind == CONNECTIONS && *value != [0; 4];
            busy += usize::from(attributes(&group)?.iter().any(has));
        }
    }
    Ok(busy)
}

/// Ends a connection as the protocol has it; its group stays.
fn end(t: &mut T, h: &mut Host, mut c: Conn<'static>) {
    let before = busy_groups();
    c.close(&h.rc);
    let e = c.ended(3000);
    t.is("closed", e, crate::host::End::Eof);
    drop(c);
    // A worker makes the group idle.
    let wanted = before.map(|before| before.saturating_sub(1));
    let mut now = busy_groups();
    for _ in 0..300 * guest::slow() {
        if now == wanted {
            break;
        }
        sys::sleep_ms(10);
        now = busy_groups();
    }
    t.is("groups with connections", now, wanted);
}

/// One group after the other without a connection: a few are kept, the oldest end.
fn leaves_groups_behind(t: &mut T, h: &mut Host) {
    const KEPT: usize = 9;
    const MORE: usize = 3;
    let mut old = vec![];
    for _ in 0..KEPT + MORE {
        let Some(c) = h.open(t) else { return };
        end(t, h, c);
        // Each goes on listening.
        let none = Rc::new(h.ip, 0x4fff, 0);
        old.push(std::mem::replace(&mut h.rc, none));
        h.fresh();
    }
    // The last one has not been followed by another.
    for (n, rc) in old.iter().enumerate() {
        let (ends, ms) = if n < MORE {
            (true, 15_000)
        } else {
            (false, 20)
        };
        let told = next_llc(rc, 4, ms).is_some();
        t.is(&format!("group {n} ends"), told, ends);
    }
}

/// All keys of memory that a group can hold: the next connection begins another group.
fn fills_the_key_table(t: &mut T, h: &mut Host) {
    if h.role == Role::Server {
        // There this host decides what is joined.
        return;
    }
    let Some(mut first) = h.open(t) else { return };
    for i in 0..254u32 {
        h.rc.send(&new_key(i));
        let taken = h.llc(0x86, 3000).is_some_and(|a| a[3] & 0x20 == 0);
        t.check(&format!("key {i} taken"), taken);
    }
    let old = h.another();
    let Some(mut next) = h.open(t) else { return };
    next.lives(t, &h.rc, "in the next group");
    first.lives(t, &old, "in the first group");
}

/// A peer that has no buffer for what we send, and goes on talking itself, so that its link looks
/// well: it is found out all the same.
fn talks_and_takes_nothing(t: &mut T, h: &mut Host) {
    let r = net::sysctl("net.smc.smcr_testlink_time", "1");
    t.is("sysctl", r, Ok(()));
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "before");
    h.rc.never_ready();
    let r = sys::send(c.fd.raw(), b"nobody takes this", libc::MSG_NOSIGNAL);
    t.is("send", r.ok(), Some(17));
    let mut end = crate::host::End::Lives;
    for _ in 0..60 {
        // An answer that nobody has asked for: it is heard, and nothing more.
        h.rc.send(&llc(0x87, 0x80));
        end = c.ended(200);
        if end != crate::host::End::Lives {
            break;
        }
    }
    c.was_error(t, "found out", end);
}
