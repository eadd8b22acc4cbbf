// SPDX-License-Identifier: GPL-2.0
//! Connections made by a task whose allocations are made to fail (`/proc/self/make-it-fail`, or one
//! by one with `/proc/self/fail-nth`). Exits 0 if every call ended in success or in an errno
//! that means "no memory" or its consequence, and a last connection without faults works.
//!
//! `faulty --family F [--rounds N] [--nth] [--rdma|--local] [--next]`: with `--rdma` over the device of
//! namespace `a`, to its own address; with `--local` over the path within the kernel. With `--next` the
//! allocations of a connect() that does not wait fail one by one; then its socket connects to a plain TCP server, which must hear nothing but the program.

use st::args::{bail, Args};
use st::errno::{Errno, R};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::{addr, guest, net, path, smcinfo, sys};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Errors that a call may return when memory was short at this or at the other end.
const ALLOWED: [i32; 13] = [
    libc::ENOMEM,
    // bind() without memory for the port's entry.
    libc::EADDRINUSE,
    libc::ENOBUFS,
    libc::EAGAIN,
    libc::ENFILE,
    libc::EMFILE,
    libc::ECONNRESET,
    libc::ECONNREFUSED,
    libc::ECONNABORTED,
    libc::EPIPE,
    libc::ENOTCONN,
    libc::ETIMEDOUT,
    libc::EINPROGRESS,
];

fn put(file: &str, v: &str) -> bool {
    std::fs::write(format!("/proc/thread-self/{file}"), v).is_ok()
}

/// By which carrier the connections are to go where memory does not keep them from it.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Tcp,
    Rdma,
    Local,
}

impl Over {
    fn own(self) -> IpAddr {
        match self {
            Over::Rdma => guest::addr(false, Ip::V4),
            Over::Tcp | Over::Local => addr::loopback(Ip::V4),
        }
    }

    /// Whether the connection of this end goes by it, where that is to be proved.
    fn taken(self, end: &Fd) -> bool {
        let mode = match self {
            Over::Tcp => return false,
            Over::Rdma => 0,
            Over::Local => path::MODE_LOCAL,
        };
        matches!(smcinfo::info(end.raw()), Ok(i) if i.mode == mode)
    }
}

/// One connection to and from itself; every result is counted.
fn one(f: Family, over: Over, seen: &mut BTreeMap<String, u64>) -> R<()> {
    let (d, p) = f.triple(Ip::V4);
    let mut note = |what: &str, e: Option<Errno>| {
        let r = e.map_or("ok".into(), |e| e.to_string());
        *seen.entry(format!("{what} {r}")).or_default() += 1;
        match e {
            Some(e) => Err(e),
            None => Ok(()),
        }
    };
    let mk = || -> R<Fd> {
        let s = sys::socket(d, libc::SOCK_STREAM, p)?;
        sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 3000)?;
        sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 3000)?;
        Ok(s)
    };
    let l = mk();
    note("socket", l.as_ref().err().copied())?;
    let l = l?;
    let r = sys::bind(l.raw(), &SocketAddr::new(over.own(), 0));
    note("bind", r.err())?;
    note("listen", sys::listen(l.raw(), 4).err())?;
    let a = sys::sockname(l.raw())?;
    let c = mk();
    note("socket", c.as_ref().err().copied())?;
    let c = c?;
    note("connect", sys::connect(c.raw(), &a).err())?;
    let s = sys::accept(l.raw());
    note("accept", s.as_ref().err().copied())?;
    let s = s?;
    let mut pass = |from: &Fd, to: &Fd| {
        note("send", sys::send(from.raw(), b"abcd", 0).err())?;
        match sys::recv_all(to.raw(), 4) {
            Ok(b) if b == b"abcd" || b.is_empty() => note("recv", None),
            Ok(b) => bail(&format!("received {b:?}: bytes were lost or made up")),
            Err(e) => note("recv", Some(e)),
        }
    };
    pass(&c, &s)?;
    if over == Over::Local {
        // Each direction leaves TCP by itself, and each may find no memory for that.
        for _ in 0..2 {
            pass(&s, &c)?;
            pass(&c, &s)?;
        }
    }
    if over.taken(&c) {
        let _ = note("taken", None);
    }
    Ok(())
}

/// A listener of this kind on the loopback device.
fn listener(domain: i32, protocol: i32) -> R<(Fd, SocketAddr)> {
    let s = sys::socket(domain, libc::SOCK_STREAM, protocol)?;
    sys::bind(s.raw(), &SocketAddr::new(addr::loopback(Ip::V4), 0))?;
    sys::listen(s.raw(), 4)?;
    let at = sys::sockname(s.raw())?;
    Ok((s, at))
}

/// A connect() to a server that answers the offer of SMC, whose `n`th allocation fails, then one to a
/// server that does not. Whether an allocation has failed, and whether that one was of the attempt's own:
/// the SYN was out, and the connection ended for want of memory.
fn next(f: Family, n: u32) -> R<(bool, bool)> {
    let (d, p) = f.triple(Ip::V4);
    let (_smc, smc_at) = listener(d, p)?;
    let (plain, plain_at) = listener(d, 0)?;
    let c = sys::socket(d, libc::SOCK_STREAM, p)?;
    sys::nonblock(c.raw(), true);
    put("fail-nth", &n.to_string());
    let first = sys::connect(c.raw(), &smc_at);
    let left = std::fs::read_to_string("/proc/thread-self/fail-nth").unwrap_or_default();
    put("fail-nth", "0");
    let failed = left.trim() == "0";
    let error = sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_ERROR)?;
    let out = first == Err(Errno(libc::EINPROGRESS)) && error == libc::ENOMEM;
    if !out {
        return Ok((failed, false));
    }
    // TCP says once more that the first one has failed.
    let again = (0..3).any(|_| sys::connect(c.raw(), &plain_at) == Err(Errno(libc::EINPROGRESS)));
    if !again {
        bail(&format!("{n}: the socket does not connect again"));
    }
    let s = sys::accept(plain.raw())?;
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 1000)?;
    if sys::poll_until(c.raw(), libc::POLLOUT, 1000) & libc::POLLOUT != 0 {
        sys::send(c.raw(), b"abcd", libc::MSG_NOSIGNAL)?;
    }
    let heard = sys::recv_vec(s.raw(), 512, 0);
    if heard.as_deref() != Ok(b"abcd") {
        bail(&format!("{n}: the plain server heard {heard:02x?}"));
    }
    Ok((failed, true))
}

/// Every allocation of a connect() fails, a few times: how many there are before one of them changes with
/// what the kernel has kept from the last time.
fn next_after_each(f: Family, over: Over) {
    const ROUNDS: u32 = 5;
    const MOST: u32 = 40;
    let (mut all, mut after) = (0, 0);
    for n in (0..ROUNDS).flat_map(|_| 1..=MOST) {
        match next(f, n) {
            Ok((failed, tried)) => {
                all += u32::from(failed);
                after += u32::from(tried);
            }
            Err(e) => bail(&format!("{n}: {e}")),
        }
    }
    println!("# {all} allocations failed, {after} of them after the SYN");
    // With the path within the kernel a connect() to a peer that answers at once takes no memory by then.
    if after == 0 && over != Over::Local {
        bail("no allocation failed after the SYN");
    }
}

fn main() {
    let a = Args::get();
    let f = a.families()[0];
    let over = match (a.opt("rdma"), a.opt("local")) {
        (Some(_), _) => Over::Rdma,
        (None, Some(_)) => Over::Local,
        (None, None) => Over::Tcp,
    };
    match over {
        Over::Rdma => {
            guest::enter("a").expect("namespace a");
            path::off().expect("sysctl path");
        }
        Over::Tcp | Over::Local => net::private().expect("private network namespace (root needed)"),
    }
    if over == Over::Local && !path::local(1).expect("sysctl path_local") {
        bail("the module has no local path");
    }
    if a.opt("next").is_some() {
        return next_after_each(f, over);
    }
    let mut seen = BTreeMap::new();
    let mut bad = Vec::new();
    let mut judge = |r: R<()>| {
        if let Err(e) = r {
            if !ALLOWED.contains(&e.0) {
                bad.push(e.to_string());
            }
        }
    };
    if a.opt("nth").is_some() {
        // The first allocation fails, then the second, ... until a round has none left to fail.
        for n in 1..4000 {
            if !put("fail-nth", &n.to_string()) {
                bail("kernel without fail-nth");
            }
            let r = one(f, over, &mut seen);
            let left = std::fs::read_to_string("/proc/thread-self/fail-nth").unwrap_or_default();
            put("fail-nth", "0");
            judge(r);
            if left.trim() != "0" {
                println!("# {} allocations failed one by one", n - 1);
                break;
            }
        }
    } else {
        if !put("make-it-fail", "1") {
            bail("kernel without make-it-fail");
        }
        for _ in 0..a.num("rounds", 300) {
            judge(one(f, over, &mut seen));
        }
        // This, too, needs memory.
        while !put("make-it-fail", "0") {}
    }
    for (k, n) in &seen {
        println!("# {k}: {n}");
    }
    if over != Over::Tcp {
        // What memory has broken may take the first of these with it.
        let mut after = BTreeMap::new();
        for _ in 0..10 {
            let _ = one(f, over, &mut after);
        }
        if !after.contains_key("taken ok") {
            bail(&format!(
                "no connection takes the path afterwards: {after:?}"
            ));
        }
    }
    if let Err(e) = one(f, over, &mut BTreeMap::new()) {
        bail(&format!("without faults: {e}"));
    }
    if !bad.is_empty() {
        bail(&format!("errnos that memory does not explain: {bad:?}"));
    }
}
