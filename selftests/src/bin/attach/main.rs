// SPDX-License-Identifier: GPL-2.0
//! What becomes of a connection on a local path when something is attached to it, or stands in its way: the
//! table "What a local path passes by, and what ends it" of Documentation/operator.md has a row for each
//! prefix here, and `make check` compares the two.
//!
//! `attach [--family inet,smc] [--ip v4,v6,mapped] [PREFIX..]`

mod lsm;
mod options;
mod owner;
mod passed;

use st::args::Args;
use st::errno::Errno;
use st::fd::Fd;
use st::path::MODE_LOCAL;
use st::point::{Point, T};
use st::{addr, net, path, smcinfo, sys};
use std::net::SocketAddr;

/// `mode` of a connection that begins as TCP.
pub const MODE_FIRST: u32 = 3;
/// The reason of one that has something attached.
pub const ATTACHED: u32 = 0x0306_0101;

macro_rules! point {
    ($name:literal, $run:expr) => {
        Point {
            name: $name,
            run: $run,
        }
    };
}

const LIST: &[Point] = &[
    point!("nft", passed::nft),
    point!("tc", passed::tc),
    point!("conntrack", passed::conntrack),
    point!("interface", passed::interface),
    point!("destroy", passed::destroy),
    point!("capture", passed::capture),
    point!("filter.before", options::filter_before),
    point!("filter.after", options::filter_after),
    point!("cgroup", options::cgroup),
    point!("timestamping.before", options::stamps_before),
    point!("timestamping.received", options::stamps_received),
    point!("timestamping.sent", options::stamps_sent),
    point!("signature.md5", options::md5),
    point!("signature.ao", options::ao),
    point!("signature.after", options::md5_after),
    point!("repair", options::repair),
    point!("addrform", options::addrform),
    point!("label.before", lsm::label_before),
    point!("label.after", lsm::label_after),
    point!("lsm", lsm::refusal),
    point!("ktls.cold", owner::ktls_cold),
    point!("ktls.warm", owner::ktls_warm),
    point!("ktls.unread", owner::ktls_unread),
    point!("ktls.unknown", owner::ktls_unknown),
    point!("ktls.gone", owner::ktls_gone),
    point!("ktls.threads", owner::ktls_threads),
    point!("sockmap", owner::sockmap),
    point!("kcm", owner::kcm),
];

fn main() {
    net::local_paths(&Args::get());
    st::point::main(&[LIST], 1);
}

/// A listener on the loopback device, which has local paths.
pub fn listener(t: &T) -> (Fd, SocketAddr) {
    path::local(1).expect("local paths");
    let l = t.socket();
    sys::bind(l.raw(), &SocketAddr::new(addr::loopback(t.ip), 0)).expect("bind");
    sys::listen(l.raw(), 8).expect("listen");
    let at = sys::sockname(l.raw()).expect("name");
    (l, at)
}

/// A connection of whose ends `prepare` has made something before they were connected.
pub fn prepared(t: &T, prepare: impl Fn(&Fd, &SocketAddr)) -> (Fd, Fd) {
    let (l, at) = listener(t);
    prepare(&l, &at);
    let c = t.socket();
    prepare(&c, &at);
    sys::connect(c.raw(), &at).expect("connect");
    let s = sys::accept(l.raw()).expect("accept");
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 5000);
    (c, s)
}

/// A connection that has carried nothing.
pub fn cold(t: &T) -> (Fd, Fd) {
    prepared(t, |_, _| {})
}

/// A connection whose bytes go through memory.
pub fn warm(t: &mut T) -> (Fd, Fd) {
    let (c, s) = cold(t);
    net::warm(c.raw(), s.raw()).expect("warm");
    for (from, to) in [(&c, &s), (&s, &c)] {
        t.is("in memory", moves(from, to), Ok(false));
    }
    for fd in [&c, &s] {
        t.is("mode", mode(fd), Ok((MODE_LOCAL, 0)));
    }
    (c, s)
}

/// Mode and reason.
pub fn mode(fd: &Fd) -> Result<(u32, u32), Errno> {
    smcinfo::info(fd.raw()).map(|info| (info.mode, info.reason))
}

/// Checks that a connection stays TCP for what is attached to it.
pub fn stays(t: &mut T, c: &Fd, s: &Fd) {
    talks(t, c, s);
    for (from, to) in [(c, s), (s, c)] {
        t.is("by TCP", moves(from, to), Ok(true));
    }
}

/// `tcpi_data_segs_in`: the packets with data that TCP has received.
fn received(fd: &Fd) -> u32 {
    let info = sys::getopt_raw(fd.raw(), libc::IPPROTO_TCP, libc::TCP_INFO, 156).expect("TCP_INFO");
    info[152..156].try_into().map_or(0, u32::from_ne_bytes)
}

/// Sends some bytes and takes them; whether they have come by TCP.
pub fn moves(from: &Fd, to: &Fd) -> Result<bool, Errno> {
    let before = received(to);
    sys::send(from.raw(), b"some", 0)?;
    let got = sys::recv_all(to.raw(), 4)?;
    if got != b"some" {
        return Err(Errno(libc::EBADMSG));
    }
    Ok(received(to) != before)
}

/// Checks that bytes go both ways.
pub fn talks(t: &mut T, c: &Fd, s: &Fd) {
    for (from, to) in [(c, s), (s, c)] {
        for _ in 0..3 {
            t.check("bytes arrive", moves(from, to).is_ok());
        }
    }
}

/// Whether bytes are kept away from `to`; they are not taken when what keeps them has gone.
pub fn blocked(from: &Fd, to: &Fd) -> bool {
    sys::send(from.raw(), b"lost", 0) == Ok(4)
        && sys::poll_until(to.raw(), libc::POLLIN, 700) & libc::POLLIN == 0
}
