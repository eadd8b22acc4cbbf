// SPDX-License-Identifier: GPL-2.0
//! TCP options with an effect: TCP_INFO, TCP_CORK, TCP_ULP, MD5, repair, fast open.

use crate::ctx::T;
use st::family::Ip;
use st::sys;

crate::scenarios!(
    tcp_info_states,
    tcp_info_counts,
    tcp_cork_holds,
    tcp_nodelay_flushes,
    tcp_md5_key,
    tcp_user_timeout,
    tcp_fastopen_connect,
    tcp_fastopen_listen,
    tcp_quickack_and_maxseg,
    tcp_zerocopy_receive,
    tcp_congestion,
    tcp_saved_syn,
    tcp_keepalive,
    tcp_keepalive_silent,
);

const TCP: i32 = libc::IPPROTO_TCP;

/// `tcpi_state` and a few counters that do not depend on time.
fn info(fd: i32) -> String {
    match sys::getopt_raw(fd, TCP, libc::TCP_INFO, 104) {
        Ok(v) => format!("state {} ca {} length {}", v[0], v[1], v.len()),
        Err(e) => e.to_string(),
    }
}

fn word64(fd: i32, at: usize) -> String {
    match sys::getopt_raw(fd, TCP, libc::TCP_INFO, at + 8) {
        Ok(v) if v.len() >= at + 8 => {
            u64::from_ne_bytes(v[at..at + 8].try_into().unwrap_or_default()).to_string()
        }
        Ok(v) => format!("short {}", v.len()),
        Err(e) => e.to_string(),
    }
}

fn tcp_info_states(t: &mut T) {
    let s = t.socket();
    t.rec("fresh", info(s.raw()));
    let (l, a) = t.listener();
    t.rec("listen", info(l.raw()));
    let (c, s) = t.pair_on(&l, &a);
    t.rec("client", info(c.raw()));
    t.rec("server", info(s.raw()));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(150); // longer than a delayed ACK
    t.rec("client half closed", info(c.raw()));
    t.rec("server half closed", info(s.raw()));
    sys::shutdown(s.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(150);
    t.rec("client closed", info(c.raw()));
    t.rec("server closed", info(s.raw()));
    let b = t.black_hole();
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    let _ = sys::connect(c.raw(), &b);
    t.rec("connecting", info(c.raw()));
}

fn tcp_info_counts(t: &mut T) {
    // In fallback the handshake's bytes are on the same stream: only the growth is comparable.
    let (c, s) = t.pair();
    let word = |fd: i32, at| word64(fd, at).parse::<u64>().unwrap_or(0);
    // tcpi_bytes_sent, tcpi_bytes_acked, tcpi_bytes_received
    let all = || [word(c.raw(), 200), word(c.raw(), 120), word(s.raw(), 128)];
    let before = all();
    sys::send_all(c.raw(), &[1; 5000]).unwrap();
    sys::recv_all(s.raw(), 5000).unwrap();
    sys::sleep_ms(100); // longer than a delayed ACK
    let after = all();
    t.rec("bytes sent", after[0] - before[0]);
    t.rec("bytes acknowledged", after[1] - before[1]);
    t.rec("bytes received", after[2] - before[2]);
}

fn tcp_cork_holds(t: &mut T) {
    // Held for 200 ms: a busy machine may take longer to look, and has to look again.
    let (c, s) = loop {
        let (c, s) = t.pair();
        let t0 = std::time::Instant::now();
        let cork = sys::setopt(c.raw(), TCP, libc::TCP_CORK, 1);
        sys::send(c.raw(), b"ab", 0).unwrap();
        sys::send(c.raw(), b"cd", 0).unwrap();
        sys::sleep_ms(30);
        let held = sys::poll1(s.raw(), sys::POLL_ALL, 0).unwrap_or(-1);
        if t0.elapsed().as_millis() < 150 {
            t.res("cork", &cork);
            t.rec("held", sys::events(i32::from(held)));
            break (c, s);
        }
    };
    t.res("uncork", &sys::setopt(c.raw(), TCP, libc::TCP_CORK, 0));
    t.poll_for("sent", s.raw(), libc::POLLIN);
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
    t.res("cork", &sys::setopt(c.raw(), TCP, libc::TCP_CORK, 1));
    sys::send(c.raw(), b"ef", 0).unwrap();
    t.res("shutdown sends", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.bytes("recv", &sys::recv_all(s.raw(), 16));
}

fn tcp_nodelay_flushes(t: &mut T) {
    let (c, s) = t.pair();
    t.res("cork", &sys::setopt(c.raw(), TCP, libc::TCP_CORK, 1));
    sys::send(c.raw(), b"xy", 0).unwrap();
    t.res("nodelay", &sys::setopt(c.raw(), TCP, libc::TCP_NODELAY, 1));
    t.poll_for("sent", s.raw(), libc::POLLIN);
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
}

fn tcp_md5_key(t: &mut T) {
    // The same key on both sides works, a missing one does not.
    let (l, a) = t.listener();
    let key = |a: &std::net::SocketAddr| {
        let mut v = st::addr::encode(a);
        v[2] = 0;
        v[3] = 0;
        v.resize(128, 0);
        v.extend([0, 0]); // flags, prefix length
        v.extend(6u16.to_ne_bytes());
        v.extend(0i32.to_ne_bytes());
        v.extend(b"secret");
        v.resize(216, 0);
        v
    };
    let k = key(&a);
    let r = sys::setopt_raw(l.raw(), TCP, libc::TCP_MD5SIG, &k);
    t.res("listener's key", &r);
    if r.is_err() {
        return;
    }
    let c = t.socket();
    t.res(
        "client's key",
        &sys::setopt_raw(c.raw(), TCP, libc::TCP_MD5SIG, &k),
    );
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    t.res("send", &sys::send(c.raw(), b"signed", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
    t.prove("client", &c);
    t.prove("server", &s);
    let d = t.socket();
    sys::set_timeo(d.raw(), libc::SO_SNDTIMEO, 300).unwrap();
    t.res("without a key", &sys::connect(d.raw(), &a));
}

fn tcp_user_timeout(t: &mut T) {
    let a = t.black_hole();
    let c = t.socket();
    t.res(
        "set",
        &sys::setopt(c.raw(), TCP, libc::TCP_USER_TIMEOUT, 1500),
    );
    let t0 = std::time::Instant::now();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.took("time", t0, 1400);
}

fn tcp_fastopen_connect(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    t.res(
        "FASTOPEN_CONNECT",
        &sys::setopt(c.raw(), TCP, libc::TCP_FASTOPEN_CONNECT, 1),
    );
    t.res("connect", &sys::connect(c.raw(), &a));
    t.res("send", &sys::send(c.raw(), b"hi", 0));
    let s = sys::accept(l.raw()).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.res("back", &sys::send(s.raw(), b"yo", 0));
    t.bytes("recv back", &sys::recv_vec(c.raw(), 8, 0));
    t.prove("client", &c);
    t.prove("server", &s);
}

fn tcp_fastopen_listen(t: &mut T) {
    let _ = st::net::sysctl("net.ipv4.tcp_fastopen", "3");
    let (l, a) = t.listener();
    t.res(
        "FASTOPEN",
        &sys::setopt(l.raw(), TCP, libc::TCP_FASTOPEN, 5),
    );
    t.res("read", &sys::getopt(l.raw(), TCP, libc::TCP_FASTOPEN));
    for i in 0..2 {
        let c = t.socket();
        let n = st::addr::encode(&a);
        // SAFETY: buffers and lengths agree.
        let r = unsafe {
            let (p, len) = (n.as_ptr().cast(), n.len() as u32);
            libc::sendto(
                c.raw(),
                b"quick".as_ptr().cast(),
                5,
                libc::MSG_FASTOPEN,
                p,
                len,
            )
        };
        t.res(&format!("sendto {i}"), &st::errno::cvt(r as i64));
        let s = sys::accept(l.raw()).unwrap();
        t.bytes(&format!("recv {i}"), &sys::recv_vec(s.raw(), 8, 0));
        t.prove("client", &c);
        t.prove("server", &s);
    }
}

fn tcp_quickack_and_maxseg(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    t.res("MAXSEG", &sys::setopt(c.raw(), TCP, libc::TCP_MAXSEG, 700));
    let quick = sys::setopt(c.raw(), TCP, libc::TCP_QUICKACK, 0);
    t.res("no QUICKACK", &quick);
    sys::connect(c.raw(), &a).unwrap();
    t.prove("client", &c);
    let quick = sys::getopt(c.raw(), TCP, libc::TCP_QUICKACK);
    t.res("QUICKACK connected", &quick);
    let s = sys::accept(l.raw()).unwrap();
    t.res(
        "server's MAXSEG",
        &sys::getopt(s.raw(), TCP, libc::TCP_MAXSEG),
    );
    t.res(
        "client's MAXSEG",
        &sys::getopt(c.raw(), TCP, libc::TCP_MAXSEG),
    );
    t.res(
        "QUICKACK",
        &sys::setopt(c.raw(), TCP, libc::TCP_QUICKACK, 1),
    );
}

/// Asks to have up to `len` bytes mapped at `place`; how many were, and how many are to be read.
fn map(fd: i32, place: u64, len: usize) -> st::errno::R<(usize, usize)> {
    let mut v = [0u8; 64];
    v[..8].copy_from_slice(&place.to_ne_bytes());
    v[8..12].copy_from_slice(&(len as u32).to_ne_bytes());
    let mut size = v.len() as u32;
    // SAFETY: the kernel maps received pages at that address, which is of no other use.
    let r = unsafe {
        let to = v.as_mut_ptr().cast();
        libc::getsockopt(fd, TCP, libc::TCP_ZEROCOPY_RECEIVE, to, &mut size)
    };
    st::errno::cvt(i64::from(r))?;
    let word = |at: usize| u32::from_ne_bytes(v[at..at + 4].try_into().expect("a word")) as usize;
    Ok((word(8), word(12)))
}

/// As programs use it: what was mapped is looked at there, and the rest is read.
fn tcp_zerocopy_receive(t: &mut T) {
    const ALL: usize = 16_384;
    let (c, s) = t.pair();
    // SAFETY: asks the kernel for an address range of its own choice.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            ALL,
            libc::PROT_READ,
            libc::MAP_SHARED,
            s.raw(),
            0,
        )
    };
    t.rec("mmap", p != libc::MAP_FAILED);
    let (l, _) = t.listener();
    t.res("listener", &map(l.raw(), p as u64, ALL).map(|_| 0));
    t.res("odd address", &map(s.raw(), p as u64 + 1, ALL).map(|_| 0));
    t.res("nothing", &map(s.raw(), p as u64, ALL).map(|x| x.0 + x.1));
    let data = crate::ctx::pattern(ALL, 5);
    let (mut got, mut sent) = (Vec::new(), 0);
    while got.len() < ALL {
        sent += sys::send(c.raw(), &data[sent..], 0).unwrap() as usize;
        sys::sleep_ms(20);
        let (mapped, skip) = match map(s.raw(), p as u64, ALL) {
            Ok(told) => told,
            Err(e) => return t.rec("zerocopy receive", e),
        };
        // SAFETY: so much of the range is mapped now.
        got.extend(unsafe { std::slice::from_raw_parts(p.cast::<u8>(), mapped) });
        got.extend(sys::recv_vec(s.raw(), skip, libc::MSG_DONTWAIT).unwrap_or_default());
        if mapped + skip == 0 {
            break;
        }
    }
    t.rec("all came", got == data);
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    t.poll_for("end", s.raw(), libc::POLLRDHUP);
    t.res("at the end", &map(s.raw(), p as u64, ALL).map(|_| 0));
}

/// A listener's is that of its connections; each may have another.
fn tcp_congestion(t: &mut T) {
    let set = |fd: i32, name: &str| sys::setopt_raw(fd, TCP, libc::TCP_CONGESTION, name.as_bytes());
    let get = |fd: i32| {
        let name = sys::getopt_raw(fd, TCP, libc::TCP_CONGESTION, 16);
        name.map(|n| {
            String::from_utf8_lossy(&n)
                .trim_end_matches('\0')
                .to_owned()
        })
    };
    let (l, a) = t.listener();
    t.res("listener", &set(l.raw(), "reno"));
    let (c, s) = t.pair_on(&l, &a);
    t.res("client", &get(c.raw()));
    t.res("server", &get(s.raw()));
    t.res("client set", &set(c.raw(), "reno"));
    t.res("client", &get(c.raw()));
    t.res("unknown", &set(c.raw(), "nonesuch"));
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}

fn tcp_saved_syn(t: &mut T) {
    let (l, a) = t.listener();
    t.res(
        "SAVE_SYN",
        &sys::setopt(l.raw(), TCP, libc::TCP_SAVE_SYN, 1),
    );
    t.res("read", &sys::getopt(l.raw(), TCP, libc::TCP_SAVE_SYN));
    let (_c, s) = t.pair_on(&l, &a);
    let v = sys::getopt_raw(s.raw(), TCP, libc::TCP_SAVED_SYN, 500);
    let ver = if t.ip == Ip::V6 { 6 } else { 4 };
    t.rec("saved", v.is_ok_and(|v| v.len() >= 40 && v[0] >> 4 == ver));
    let v = sys::getopt_raw(s.raw(), TCP, libc::TCP_SAVED_SYN, 500).map(|v| v.len());
    t.res("only once", &v);
    // Without the option nothing is to be seen, even if the module saves SYNs for itself.
    let (l, a) = t.listener();
    t.res(
        "SAVE_SYN off",
        &sys::getopt(l.raw(), TCP, libc::TCP_SAVE_SYN),
    );
    let (_c, s) = t.pair_on(&l, &a);
    let v = sys::getopt_raw(s.raw(), TCP, libc::TCP_SAVED_SYN, 500).map(|v| v.len());
    t.res("nothing", &v);
}

fn tcp_keepalive(t: &mut T) {
    // The peer vanishes: its address goes away, and keepalive notices.
    let (c, s) = t.pair();
    for (o, v) in [
        (libc::TCP_KEEPIDLE, 1),
        (libc::TCP_KEEPINTVL, 1),
        (libc::TCP_KEEPCNT, 1),
    ] {
        t.res("set", &sys::setopt(c.raw(), TCP, o, v));
    }
    t.res(
        "on",
        &sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    );
    st::net::sh("ip link set lo down").unwrap();
    // TCP tells the error before it is closed.
    let e = sys::poll_until(c.raw(), libc::POLLHUP, 6000);
    t.rec("dead", sys::events(i32::from(e)));
    t.so_error("SO_ERROR", c.raw());
    drop(s);
}

fn tcp_keepalive_silent(t: &mut T) {
    // The peer's TCP is deaf, and nothing else is wrong.
    let (c, s) = t.pair();
    let drop_all = [libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let filter = libc::sock_fprog {
        len: 1,
        filter: drop_all.as_ptr().cast_mut(),
    };
    // SAFETY: plain data.
    let raw = unsafe { std::slice::from_raw_parts((&raw const filter).cast::<u8>(), 16) };
    let deaf = sys::setopt_raw(s.raw(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, raw);
    t.res("deaf", &deaf);
    for (o, v) in [
        (libc::TCP_KEEPIDLE, 1),
        (libc::TCP_KEEPINTVL, 1),
        (libc::TCP_KEEPCNT, 1),
    ] {
        t.res("set", &sys::setopt(c.raw(), TCP, o, v));
    }
    let on = sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    t.res("on", &on);
    let e = sys::poll_until(c.raw(), libc::POLLHUP, 6000);
    t.rec("dead", sys::events(i32::from(e)));
    sys::sleep_ms(50);
    t.so_error("SO_ERROR", c.raw());
    t.bytes("recv", &sys::recv_vec(c.raw(), 8, 0));
}
