// SPDX-License-Identifier: GPL-2.0
//! Measures a request when there are many connections: 64 bytes there and back, on one after
//! the other, or on all of them at a time; the server waits for all of them with epoll.

use crate::counts::Counts;
use crate::ends::{beside, pipes, Duplex, Waited};
use crate::meter::{show, Meter};
use crate::place::{End, Place};
use st::fd::Fd;

/// An epoll set in which all ends are, by their places.
fn set_of<E: Waited>(ends: &[E]) -> Fd {
    // SAFETY: no pointers.
    let e = Fd::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    for (i, end) in ends.iter().enumerate() {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: i as u64,
        };
        let fd = end.readable();
        // SAFETY: the event is ours for the call.
        unsafe { libc::epoll_ctl(e.raw(), libc::EPOLL_CTL_ADD, fd, &mut event) };
    }
    e
}

/// Waits until some are readable: their places.
fn readable(e: &Fd) -> impl Iterator<Item = usize> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    // SAFETY: room for as many events as are told.
    let n = unsafe { libc::epoll_wait(e.raw(), events.as_mut_ptr(), 64, -1) };
    let some = events.into_iter().take(usize::try_from(n).unwrap_or(0));
    some.map(|event| event.u64 as usize)
}

/// Serves until every connection is closed.
fn serve<E: Waited>(ends: &[E]) {
    let e = set_of(ends);
    let mut open = ends.len();
    let mut b = [0u8; 64];
    while open > 0 {
        for i in readable(&e) {
            let end = &ends[i];
            match end.take(&mut b) {
                Ok(64) => drop(end.put(&b)),
                _ => {
                    let none = std::ptr::null_mut();
                    let fd = end.readable();
                    // SAFETY: deleting takes no event.
                    unsafe { libc::epoll_ctl(e.raw(), libc::EPOLL_CTL_DEL, fd, none) };
                    open -= 1;
                }
            }
        }
    }
}

/// With that many connections. Memory that is shared has nothing to wait for with epoll.
pub fn requests(p: &Place, m: &Meter, connections: u64) {
    let metric = format!("request_{connections:04}");
    if !m.wants(&metric) || p.client == End::Shared {
        return;
    }
    if p.client == End::Pipe {
        return ask(p, m, &metric, (0..connections).map(|_| pipes()).unzip());
    }
    if !p.is_net() {
        return ask(p, m, &metric, (0..connections).map(|_| p.pair()).unzip());
    }
    let (l, a) = p.listen();
    let all: (Vec<Fd>, Vec<Fd>) = (0..connections).map(|_| p.connect(&l, &a)).unzip();
    for (c, s) in all.0.iter().zip(&all.1) {
        p.prove(c, s);
    }
    ask(p, m, &metric, all);
}

fn ask<E: Waited>(p: &Place, m: &Meter, metric: &str, pairs: (Vec<E>, Vec<E>)) {
    let connections = pairs.0.len() as u64;
    let (clients, far) = beside(p.apart, pairs, move |servers| {
        serve(&servers);
        true
    });
    let mut b = [0x5a; 64];
    let mut ask = |n: u64| {
        for c in clients.iter().cycle().take(n as usize) {
            c.put(&b).expect("send");
            assert_eq!(c.take(&mut b), Ok(64));
        }
    };
    ask(connections.max(100));
    let n = m.amount(2000).max(connections);
    let t = m.start();
    ask(n);
    show(metric, t.stop(n) / n as f64, "ns");
    drop(clients);
    assert!(far.join(), "server");
}

/// A request on each of that many connections at a time: an answer is followed by the next request. Only if it is named,
/// with what the cards have counted.
pub fn in_flight(p: &Place, m: &Meter, connections: u64) {
    let metric = format!("flight_{connections:04}");
    if m.only.is_empty() || !m.wants(&metric) || !p.is_net() {
        return;
    }
    let (l, a) = p.listen();
    let all: (Vec<Fd>, Vec<Fd>) = (0..connections).map(|_| p.connect(&l, &a)).unzip();
    for (c, s) in all.0.iter().zip(&all.1) {
        p.prove(c, s);
    }
    let (clients, far) = beside(p.apart, all, move |servers| {
        serve(&servers);
        true
    });
    let e = set_of(&clients);
    let mut b = [0x5a; 64];
    let mut ask = |n: u64| {
        for c in &clients {
            c.put(&b).expect("send");
        }
        let (mut asked, mut answered) = (connections, 0);
        while answered < n {
            for i in readable(&e) {
                assert_eq!(clients[i].take(&mut b), Ok(64));
                answered += 1;
                if asked < n {
                    clients[i].put(&b).expect("send");
                    asked += 1;
                }
            }
        }
    };
    ask(connections.max(500));
    let n = m.amount(20_000).max(connections);
    let before = Counts::now();
    let t = m.start();
    ask(n);
    show(&metric, t.stop(n) / n as f64, "ns");
    println!("counts {metric} {n}{}", Counts::now().since(&before));
    drop(e);
    drop(clients);
    assert!(far.join(), "server");
}
