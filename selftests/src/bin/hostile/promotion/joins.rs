// SPDX-License-Identifier: GPL-2.0
//! Side connections to a listener of the module's that no correct host makes, while a connection waits there to be
//! promoted. Each ends soon, joins nothing, and keeps nobody waiting; then the right one promotes the connection.

use super::{flags, identity, join, Real, ANSWER, FIRST, JOINS, STRICT};
use crate::host::{Host, LISTENER};
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{second_addr, wire_addr, Peer, Wire};
use st::{clc, guest, net, smcinfo, sys};
use std::net::{IpAddr, SocketAddr};

crate::promotion_points!(
    "joins",
    Client,
    garbage,
    in_pieces,
    half_of_it,
    wrong_numbers,
    of_another_address,
    shared_address,
    twice_at_once,
    again_and_too_late,
    not_yet_waiting,
    broken_off,
    silent_ones,
    thousands,
    nobody_accepts,
    other_settings,
    echoed_options,
);

/// Side connections that say nothing are ended after this; so much longer than a pause.
const PATIENCE_MS: u64 = 2000;
const PORT: u16 = LISTENER + 300;

fn wire() -> &'static Wire {
    Box::leak(Box::new(Wire::open("vb").expect("packet socket")))
}

/// Opens a side connection from this address to that port; `None` if its SYN is not answered as one.
fn side_from(h: &mut Host, from: IpAddr, port: u16) -> Option<Peer<'static>> {
    let from = SocketAddr::new(from, h.port());
    let to = SocketAddr::new(wire_addr(false, h.ip), port);
    let mut side = Peer::connect_from(wire(), from, to, &identity(JOINS))?;
    if flags(&side.syn.opts) != Some(ANSWER | JOINS) {
        side.send_rst();
        return None;
    }
    Some(side)
}

/// Opens a side connection as a correct host does.
fn side(t: &mut T, h: &mut Host) -> Option<Peer<'static>> {
    let from = wire_addr(true, h.ip);
    let side = side_from(h, from, LISTENER);
    t.check("a side connection", side.is_some());
    side
}

/// A connection that waits to be promoted.
fn waiting(t: &mut T, h: &mut Host) -> Option<Real> {
    let mut real = Real::begin(t, h)?;
    real.talk(t, "at first", 6);
    Some(real)
}

/// The module ends a side connection, and hands nobody a connection meanwhile.
fn is_ended(t: &mut T, h: &Host, side: &mut Peer<'_>, what: &str) {
    let ends = side.pump(PATIENCE_MS + 7000 * guest::slow(), |p| p.rst || p.fin);
    t.check(&format!("{what}: is ended"), ends);
    t.check(&format!("{what}: is told nothing"), side.buf.is_empty());
    nobody_comes(t, h, what);
}

/// No program gets a side connection.
fn nobody_comes(t: &mut T, h: &Host, what: &str) {
    let Some(listener) = &h.listener else { return };
    sys::nonblock(listener.raw(), true);
    let more = sys::accept(listener.raw()).map(|fd| sys::peername(fd.raw()));
    t.check(&format!("{what}: nobody comes, {more:?}"), more.is_err());
}

/// After all of that, the right side connection promotes it.
fn promotes(t: &mut T, h: &mut Host, mut real: Real) {
    real.goes_on(t, "before the right one");
    let Some(mut right) = side(t, h) else { return };
    right.send(&real.join());
    real.promote(t, h, right);
    real.end();
}

/// Waits until the listener has room for a side connection again: what fills it is ended by a worker.
fn has_room(t: &mut T, h: &mut Host) {
    for _ in 0..40 * guest::slow() {
        if let Some(mut side) = side_from(h, wire_addr(true, h.ip), LISTENER) {
            return side.send_rst();
        }
        guest::pause(250);
    }
    t.check("the listener has room again", false);
}

/// What the module has counted of connections, without the bytes that they have carried.
fn counters() -> Vec<(String, u64)> {
    let all = smcinfo::counters().unwrap_or_default();
    all.into_iter()
        .filter(|line| !line.0.ends_with("_bytes"))
        .collect()
}

fn garbage(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let mut version = real.join();
    version[8] = 2;
    let mut eye = real.join();
    eye[7] = b'M';
    let before = counters();
    for (what, bytes) in [
        ("zeros", &[0; 24][..]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        (
            "TLS",
            &[
                22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ),
        ("another version", &version),
        ("another eyecatcher", &eye),
        ("a proposal", &clc::proposal_v2(&h.me, 1)),
        ("much", &[0x55; 1400]),
    ] {
        let Some(mut side) = side(t, h) else { return };
        side.send(bytes);
        is_ended(t, h, &mut side, what);
        real.goes_on(t, what);
    }
    for way in 0..3 {
        let Some(mut side) = side(t, h) else { return };
        match way {
            0 => side.send_fin(),
            1 => side.send_rst(),
            _ => {
                side.send(&real.join()[..23]);
                side.send_fin();
            }
        }
        if way != 1 {
            is_ended(t, h, &mut side, &format!("ends, {way}"));
        }
        real.goes_on(t, "an end");
    }
    t.is("counters", counters(), before);
    promotes(t, h, real);
}

fn in_pieces(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let Some(mut side) = side(t, h) else { return };
    side.send_cut(&real.join(), &[1]);
    real.promote(t, h, side);
    real.end();
}

/// A half and then silence: whoever comes meanwhile does not wait.
fn half_of_it(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let mut held = vec![];
    for part in [0, 1, 12, 23] {
        let Some(mut side) = side(t, h) else { return };
        side.send(&real.join()[..part]);
        held.push(side);
    }
    for options in [&[][..], &SMC_OPTION] {
        let from = h.port();
        let mut tcp = Peer::connect(wire(), h.ip, from, LISTENER, options).expect("no SYN-ACK");
        if !options.is_empty() {
            tcp.send(&clc::decline(0x0303_0000, 2));
        }
        let fd = h.accept(&tcp);
        t.check("an ordinary one comes", fd.is_some());
        tcp.send_rst();
    }
    real.goes_on(t, "meanwhile");
    let over = held.iter_mut().all(|side| {
        side.pump(1, |_| false);
        side.rst || side.fin
    });
    t.say(&format!("while they were held: {}", !over));
    for side in &mut held {
        is_ended(t, h, side, "half of it");
    }
    promotes(t, h, real);
}

fn wrong_numbers(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let (client, server) = (real.client, real.server);
    for (what, client, server) in [
        ("the client's", client ^ 1, server),
        ("the server's", client, server ^ 0x8000_0000),
        ("exchanged", server, client),
        ("none", 0, 0),
        ("the next", client.wrapping_add(1), server.wrapping_add(1)),
        ("what TCP is at", real.tcp.snd, real.tcp.rcv),
    ] {
        let Some(mut side) = side(t, h) else { return };
        side.send(&join(client, server));
        // Who would be believed is answered.
        side.send(&clc::proposal_v2(&h.me, 1));
        is_ended(t, h, &mut side, what);
        real.goes_on(t, what);
    }
    promotes(t, h, real);
}

/// A third host knows the numbers, and is not the one at the other end.
fn of_another_address(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    for _ in 0..3 {
        let Some(mut side) = side_from(h, second_addr(h.ip), LISTENER) else {
            return t.check("a side connection", false);
        };
        side.send(&real.join());
        side.send(&clc::proposal_v2(&h.me, 1));
        is_ended(t, h, &mut side, "another address");
        real.goes_on(t, "another address");
    }
    promotes(t, h, real);
}

/// Two hosts behind one address, as SNAT makes them: each has its own connection promoted, and nobody half of each.
fn shared_address(t: &mut T, h: &mut Host) {
    let (Some(mut one), Some(mut two)) = (waiting(t, h), waiting(t, h)) else {
        return;
    };
    for (client, server) in [(one.client, two.server), (two.client, one.server)] {
        let Some(mut side) = side(t, h) else { return };
        side.send(&join(client, server));
        side.send(&clc::proposal_v2(&h.me, 1));
        is_ended(t, h, &mut side, "half of each");
    }
    one.goes_on(t, "one");
    two.goes_on(t, "the other one");
    let Some(mut right) = side(t, h) else { return };
    right.send(&two.join());
    two.promote(t, h, right);
    one.goes_on(t, "one, not the other one");
    // The other host.
    let first = h.another();
    h.me.peer_id[2] ^= 1;
    let Some(mut right) = side(t, h) else { return };
    right.send(&one.join());
    one.promote(t, h, right);
    one.end();
    two.end();
    drop(first);
}

/// One of two is taken, and the other one is nobody's.
fn twice_at_once(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let (Some(mut one), Some(mut other)) = (side(t, h), side(t, h)) else {
        return;
    };
    one.send(&real.join());
    other.send(&real.join());
    is_ended(t, h, &mut other, "the second");
    real.goes_on(t, "both");
    real.promote(t, h, one);
    let Some(mut third) = side(t, h) else { return };
    third.send(&real.join());
    is_ended(t, h, &mut third, "once promoted");
    real.end();
}

/// The message again when the handshake has begun, when the connection is promoted, and when it has ended.
fn again_and_too_late(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let Some(mut right) = side(t, h) else { return };
    right.send(&real.join());
    let me = h.end();
    right.send(&clc::proposal_v2(&me, 1)[..40]);
    let Some(mut again) = side(t, h) else { return };
    again.send(&real.join());
    is_ended(t, h, &mut again, "while it is promoted");
    real.goes_on(t, "while it is promoted");
    right.send_fin();
    let ends = right.pump(7000 * guest::slow(), |p| p.rst || p.fin);
    t.check("is broken off", ends);
    right.send_rst();
    h.fresh();
    let join = real.join();
    promotes(t, h, real);
    let Some(mut late) = side(t, h) else { return };
    late.send(&join);
    is_ended(t, h, &mut late, "after its end");
    // One that its program has closed while it waited.
    let Some(real) = waiting(t, h) else { return };
    let join = real.join();
    drop(real.fd);
    let Some(mut late) = side(t, h) else { return };
    late.send(&join);
    is_ended(t, h, &mut late, "closed by its program");
}

/// It has carried nothing, so its end does not wait; and one whose handshake of TCP is not over.
fn not_yet_waiting(t: &mut T, h: &mut Host) {
    let Some(mut real) = Real::begin(t, h) else {
        return;
    };
    let Some(mut side_conn) = side(t, h) else {
        return;
    };
    side_conn.send(&real.join());
    is_ended(t, h, &mut side_conn, "too early");
    real.talk(t, "then", 6);
    promotes(t, h, real);
}

/// The handshake for the connection breaks off in every way; another one may follow.
fn broken_off(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    for way in 0..9 {
        h.fresh();
        let Some(mut side) = side(t, h) else { return };
        side.send(&real.join());
        let me = h.end();
        let proposal = clc::proposal_v2(&me, 1);
        match way {
            0 => side.send(&[0x55; 100]),
            1 => side.send(&clc::decline(0x0303_0000, 2)),
            2 => side.send_fin(),
            3 => side.send_rst(),
            4 => {
                side.send(&proposal[..40]);
                side.send_fin();
            }
            _ => {
                side.send(&proposal);
                let m = clc::read(&mut side, 4000).unwrap_or_default();
                let accepted = clc::header(&m).map(|h| h.ty) == Some(clc::ACCEPT);
                t.check(&format!("{way}: no accept: {m:02x?}"), accepted);
                if !accepted {
                    return;
                }
                match way {
                    5 => side.send(&clc::decline(0x0303_0000, 2)),
                    6 => side.send(&[0x55; 200]),
                    7 => side.send(&clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1)))),
                    _ => side.send_rst(),
                }
            }
        }
        if way == 3 || way == 8 {
            guest::pause(200);
        } else {
            let ends = side.pump(7000 * guest::slow(), |p| p.rst || p.fin);
            t.check(&format!("{way}: is ended"), ends);
            side.send_rst();
        }
        nobody_comes(t, h, &format!("{way}"));
        real.goes_on(t, &format!("{way}"));
    }
    h.fresh();
    promotes(t, h, real);
}

/// An address whose side connections say nothing is refused them, as one whose handshakes lie; others are not.
fn silent_ones(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let other = second_addr(h.ip);
    let mut all = vec![];
    for _ in 0..20 {
        let Some(side) = side_from(h, other, LISTENER) else {
            break;
        };
        all.push(side);
    }
    t.check("taken at first", all.len() > 8);
    for side in &mut all {
        is_ended(t, h, side, "a silent one");
    }
    t.check(
        "not taken any more",
        side_from(h, other, LISTENER).is_none(),
    );
    real.goes_on(t, "beside them");
    empty(h);
    promotes(t, h, real);
}

/// Closes what lies in the accept queue.
fn empty(h: &Host) {
    let Some(listener) = &h.listener else { return };
    sys::nonblock(listener.raw(), true);
    while sys::accept(listener.raw()).is_ok() {}
}

/// Thousands of another address that say nothing: a listener holds so many and no more, and ordinary clients come
/// through all the while.
fn thousands(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let number = 2000 / guest::less().min(4) as u16;
    let (wire, to) = (wire(), SocketAddr::new(wire_addr(false, h.ip), LISTENER));
    let mut all = vec![];
    for n in 0..number {
        let from = SocketAddr::new(second_addr(h.ip), 30_000 + n);
        match Peer::connect_from(wire, from, to, &identity(JOINS)) {
            Some(side) => all.push(side),
            None => t.check("a SYN-ACK", false),
        }
        // Those that are not taken lie in the program's queue, which has room for 65.
        if n % 40 == 20 {
            let from = h.port();
            let mut tcp = Peer::connect(wire, h.ip, from, LISTENER, &[]).expect("no SYN-ACK");
            t.check("an ordinary one comes", h.accept(&tcp).is_some());
            tcp.send_rst();
            real.goes_on(t, "beside them");
        }
    }
    let taken = |side: &&Peer<'_>| flags(&side.syn.opts) == Some(ANSWER | JOINS);
    let taken = all.iter().filter(taken).count();
    t.say(&format!("{taken} of {number} were taken"));
    // As many as a listener holds at a time, again and again until the address counts as silent.
    t.check(
        "some, not all",
        (8..usize::from(number) / 2).contains(&taken),
    );
    for side in &mut all {
        side.send_rst();
    }
    drop(all);
    has_room(t, h);
    empty(h);
    promotes(t, h, real);
}

/// A program that does not accept, with one connection more than TCP's queue has room for, as side connections take none
/// for long: the connection that it has accepted before is promoted all the same, and it gets the ordinary ones alone.
fn nobody_accepts(t: &mut T, h: &mut Host) {
    let Some(real) = waiting(t, h) else { return };
    let Some(listener) = &h.listener else { return };
    let listener = listener.raw();
    t.is("backlog", sys::listen(listener, 2).ok(), Some(0));
    let mut ordinary = vec![];
    let mut two = |h: &mut Host| {
        for _ in 0..2 {
            let from = h.port();
            ordinary.push(Peer::connect(wire(), h.ip, from, LISTENER, &[]).expect("no SYN-ACK"));
        }
    };
    two(h);
    let Some(mut garbage) = side(t, h) else {
        return;
    };
    garbage.send(&[0x55; 24]);
    two(h);
    let mut real = real;
    real.goes_on(t, "meanwhile");
    let Some(mut right) = side(t, h) else { return };
    right.send(&real.join());
    real.promote(t, h, right);
    real.end();
    let ends = garbage.pump(9000 * guest::slow(), |p| p.rst || p.fin);
    t.check("garbage: is ended", ends);
    let mut ports = vec![];
    while let Ok(fd) = sys::accept(listener) {
        ports.extend(sys::peername(fd.raw()).map(|peer| peer.port()));
    }
    ports.sort_unstable();
    let due: Vec<_> = ordinary.iter().map(|tcp| tcp.me.port()).collect();
    t.is("accepted", ports, due);
    for mut tcp in ordinary {
        tcp.send_rst();
    }
}

/// Servers that promote nothing: the SYN is answered as any TCP's, and what follows is the program's.
fn other_settings(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    for (n, path, strict) in [(0, 0, 0), (1, 1, 0), (2, 1, 1), (3, 2, 1)] {
        let what = format!("path {path}, strict {strict}");
        t.is(
            &what,
            net::sysctl("net.smc.path", &path.to_string()),
            Ok(()),
        );
        let done = net::sysctl("net.smc.strict", &strict.to_string());
        t.is(&what, done, Ok(()));
        let listener = t.socket();
        let port = PORT + n;
        let to = SocketAddr::new(wire_addr(false, h.ip), port);
        sys::bind(listener.raw(), &to).expect("bind");
        sys::listen(listener.raw(), 4).expect("listen");
        let from = SocketAddr::new(wire_addr(true, h.ip), h.port());
        let side = Peer::connect_from(wire(), from, to, &identity(JOINS));
        let mut side = side.expect("no SYN-ACK");
        let own = st::packet::options(&side.syn.opts).unwrap_or_default();
        let own = own.iter().filter(|option| option.0 >= 253).count();
        t.is(&format!("{what}: options"), own, 0);
        side.send(&real.join());
        let comes = sys::poll_until(listener.raw(), libc::POLLIN, 3000 * guest::slow());
        // Strict programs get no TCP.
        if strict == 0 {
            t.check(&format!("{what}: comes"), comes & libc::POLLIN != 0);
            let fd = sys::accept(listener.raw());
            let got = fd.and_then(|fd| sys::recv_all(fd.raw(), 24));
            t.is(&format!("{what}: bytes"), got, Ok(real.join().to_vec()));
        }
        side.send_rst();
        real.goes_on(t, &what);
    }
    t.is("path", net::sysctl("net.smc.path", "2"), Ok(()));
    t.is("strict", net::sysctl("net.smc.strict", "0"), Ok(()));
    promotes(t, h, real);
}

/// SYNs with more or less than a correct host's.
fn echoed_options(t: &mut T, h: &mut Host) {
    let Some(mut real) = waiting(t, h) else {
        return;
    };
    let smc = [&SMC_OPTION[..], &identity(JOINS)].concat();
    let to = SocketAddr::new(wire_addr(false, h.ip), LISTENER);
    for (what, options, taken) in [
        ("an answer", identity(JOINS | ANSWER), false),
        ("TCP at first as well", identity(JOINS | FIRST), false),
        ("strict", identity(JOINS | STRICT), true),
        ("SMC's as well", smc, true),
        ("twice", identity(JOINS).repeat(2), true),
    ] {
        let from = SocketAddr::new(wire_addr(true, h.ip), h.port());
        let mut side = Peer::connect_from(wire(), from, to, &options).expect("no SYN-ACK");
        let answer = flags(&side.syn.opts);
        t.is(what, answer == Some(ANSWER | JOINS), taken);
        side.send(&[0x55; 24]);
        match taken {
            true => is_ended(t, h, &mut side, what),
            false => {
                let fd = h.accept(&side);
                t.check(&format!("{what}: comes"), fd.is_some());
                side.send_rst();
            }
        }
        real.goes_on(t, what);
    }
    promotes(t, h, real);
}
