// SPDX-License-Identifier: GPL-2.0
//! Things that one namespace or program must not notice of another.
//!
//! The device goes while programs hold connections that they neither use nor close, and while
//! peers are half way into a handshake: it must not wait for any of them. And two namespaces with
//! the same addresses, MACs and queue pair numbers do not get into each other's link groups.

use crate::honest::Honest;
use crate::host::{Host, Role};
use st::point::{Point, T};
use st::{clc, net, sys};

/// The points of this file.
pub const LIST: &[Point] = &[
    Point {
        name: "client.device_goes",
        run: |t| device_goes(t, Role::Client),
    },
    Point {
        name: "server.device_goes",
        run: |t| device_goes(t, Role::Server),
    },
    Point {
        name: "equal_namespaces",
        run: equal_namespaces,
    },
];

fn equal_namespaces(t: &mut T) {
    let here = Honest::start(t);
    let there = std::thread::scope(|s| {
        let t = &*t;
        let there = s.spawn(move || {
            net::private().map_err(|e| e.to_string())?;
            net::wire()?;
            Honest::start(t)
        });
        there.join().unwrap_or_else(|_| Err("panicked".into()))
    });
    match (here, there) {
        (Ok(here), Ok(there)) => {
            sys::sleep_ms(100);
            here.finish(t);
            there.finish(t);
        }
        (here, there) => {
            t.check(&format!("{:?} {:?}", here.err(), there.err()), false);
        }
    }
}

fn device_goes(t: &mut T, role: Role) {
    let honest = match Honest::start(t) {
        Ok(h) => h,
        Err(e) => return t.check(&e, false),
    };
    let mut h = Host::new(t, role);
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    let Some(b) = h.open(t) else { return };
    // Unread data, an aborted connection, and two handshakes that stand still.
    a.write(&h.rc, b"unread");
    let Some(mut c) = h.open(t) else { return };
    let mut m = c.cdc();
    m[25] = 0x20;
    h.rc.send(&m);
    c.dead(t, "aborted");
    let (mut tcp, fd) = h.tcp(t);
    h.fresh();
    let me = h.end();
    if role == Role::Client {
        tcp.send(&clc::proposal_v2(&me, 1));
        let m = clc::read(&mut tcp, 3000).unwrap_or_default();
        t.is("accept", clc::header(&m).map(|h| h.ty), Some(clc::ACCEPT));
    } else {
        let _ = clc::read(&mut tcp, 3000);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1))));
        let m = clc::read(&mut tcp, 3000).unwrap_or_default();
        t.is("confirm", clc::header(&m).map(|h| h.ty), Some(clc::CONFIRM));
    }
    honest.lose_device(t);
    let got = sys::recv_vec(a.fd.raw(), 64, libc::MSG_DONTWAIT);
    t.check(
        &format!("unread data or the error: {got:?}"),
        got.map_or_else(|e| e.0 == libc::ECONNABORTED, |v| v == b"unread"),
    );
    b.dead(t, "idle connection");
    drop(fd);
}
