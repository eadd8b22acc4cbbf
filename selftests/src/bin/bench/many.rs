// SPDX-License-Identifier: GPL-2.0
//! Measures a request when there are many connections: 64 bytes there and back, on one after
//! the other; the server waits for all of them with epoll.

use crate::meter::{show, Meter};
use crate::place::Place;
use st::fd::Fd;
use st::sys;

/// Serves until every connection is closed.
fn serve(ends: &[Fd]) {
    // SAFETY: no pointers.
    let e = Fd::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    for f in ends {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: f.raw() as u64,
        };
        // SAFETY: the event is ours for the call.
        unsafe { libc::epoll_ctl(e.raw(), libc::EPOLL_CTL_ADD, f.raw(), &mut event) };
    }
    let mut open = ends.len();
    let mut b = [0u8; 64];
    while open > 0 {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for as many events as are told.
        let n = unsafe { libc::epoll_wait(e.raw(), events.as_mut_ptr(), 64, -1) };
        for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
            let fd = event.u64 as i32;
            match sys::recv(fd, &mut b, 0) {
                Ok(64) => drop(sys::send(fd, &b, libc::MSG_NOSIGNAL)),
                _ => {
                    let none = std::ptr::null_mut();
                    // SAFETY: deleting takes no event.
                    unsafe { libc::epoll_ctl(e.raw(), libc::EPOLL_CTL_DEL, fd, none) };
                    open -= 1;
                }
            }
        }
    }
}

/// With that many connections.
pub fn requests(p: &Place, m: &Meter, connections: u64) {
    let metric = format!("request_{connections:04}");
    if !m.wants(&metric) {
        return;
    }
    let (clients, servers): (Vec<Fd>, Vec<Fd>) = if p.is_net() {
        let (l, a) = p.listen();
        (0..connections).map(|_| p.connect(&l, &a)).unzip()
    } else {
        (0..connections).map(|_| p.pair()).unzip()
    };
    for (c, s) in clients.iter().zip(&servers) {
        if p.is_net() {
            p.prove(c, s);
        }
    }
    let h = std::thread::spawn(move || serve(&servers));
    let mut b = [0x5a; 64];
    let mut ask = |n: u64| {
        for c in clients.iter().cycle().take(n as usize) {
            sys::send(c.raw(), &b, 0).expect("send");
            assert_eq!(sys::recv(c.raw(), &mut b, 0), Ok(64));
        }
    };
    ask(connections.max(100));
    let n = m.amount(2000).max(connections);
    let t = m.start();
    ask(n);
    show(&metric, t.stop(n) / n as f64, "ns");
    drop(clients);
    let _ = h.join();
}
