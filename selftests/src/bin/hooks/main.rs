// SPDX-License-Identifier: GPL-2.0
//! The SYN hooks of a namespace come with its first socket that connects or listens, and go some
//! time after its last one; no SYN or SYN-ACK is sent without the option for that.
//!
//! `hooks [--family inet,smc] [--ip v4,v6] [PREFIX..]`: points `seen.` ask netfilter for its list of
//! hooks, which needs a kernel with `nfnetlink_hook`; points `sent.` look at packets.

/// A point by name.
macro_rules! point {
    ($name:literal, $run:expr) => {
        st::point::Point {
            name: $name,
            run: $run,
        }
    };
}

mod seen;
mod sent;

use st::errno::Errno;
use st::fd::Fd;
use st::point::T;
use st::rawpeer::wire_addr;
use st::{net, sys};
use std::net::SocketAddr;

/// Where the packet host listens.
const FAKE: u16 = 7700;
/// Where the module does.
const REAL: u16 = 6600;

/// Sets how long the hooks stay without need, in milliseconds.
fn idle(ms: u32) {
    net::sysctl("net.smc.hook_idle_ms", &ms.to_string()).expect("sysctl");
}

/// A socket whose SYN is on its way.
fn calling(t: &T) -> Fd {
    let fd = t.socket();
    sys::nonblock(fd.raw(), true);
    let to = SocketAddr::new(wire_addr(true, t.ip), FAKE);
    let result = sys::connect(fd.raw(), &to);
    assert_eq!(result, Err(Errno(libc::EINPROGRESS)), "connect");
    fd
}

/// A listener.
fn listening(t: &T) -> Fd {
    let fd = t.socket();
    let at = SocketAddr::new(wire_addr(false, t.ip), REAL);
    sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("SO_REUSEADDR");
    sys::bind(fd.raw(), &at).expect("bind");
    sys::listen(fd.raw(), 8).expect("listen");
    fd
}

fn main() {
    st::point::main(&[seen::LIST, sent::LIST], 1);
}
