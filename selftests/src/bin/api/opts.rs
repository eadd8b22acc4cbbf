// SPDX-License-Identifier: GPL-2.0
//! Socket options at every level: what is set is read back at once, before and after connecting.

use crate::ctx::T;
use st::sys;

crate::scenarios!(
    opts_identity,
    opts_socket_level,
    opts_socket_level_connected,
    opts_tcp_level,
    opts_tcp_level_connected,
    opts_ip_level,
    opts_ipv6_level,
    opts_sweep_get,
    opts_lengths,
    opts_unknown_levels,
    opts_bindtodevice,
    opts_buffers_at_once,
    opts_survive_connect,
);

fn hex(v: &[u8]) -> String {
    v.iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

fn opts_identity(t: &mut T) {
    let s = t.socket();
    let l = libc::SOL_SOCKET;
    for (n, o) in [
        ("SO_DOMAIN", libc::SO_DOMAIN),
        ("SO_TYPE", libc::SO_TYPE),
        ("SO_PROTOCOL", libc::SO_PROTOCOL),
        ("SO_ACCEPTCONN", libc::SO_ACCEPTCONN),
        ("SO_ERROR", libc::SO_ERROR),
    ] {
        t.res(n, &sys::getopt(s.raw(), l, o));
    }
    let (c, k) = t.pair();
    for (w, f) in [("client", &c), ("server", &k)] {
        t.res(
            &format!("{w} SO_DOMAIN"),
            &sys::getopt(f.raw(), l, libc::SO_DOMAIN),
        );
        t.res(
            &format!("{w} SO_PROTOCOL"),
            &sys::getopt(f.raw(), l, libc::SO_PROTOCOL),
        );
    }
    // SAFETY: an all-zero stat is valid.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: valid pointer.
    unsafe { libc::fstat(s.raw(), &mut st) };
    t.rec("fstat mode", format!("{:o}", st.st_mode));
    let l = std::fs::read_link(format!("/proc/self/fd/{}", s.raw())).unwrap();
    t.rec("link", l.to_string_lossy().starts_with("socket:["));
}

/// Option and a value other than its default.
type Opt = (&'static str, i32, i32);

fn set_and_get(t: &mut T, fd: i32, level: i32, list: &[Opt]) {
    for &(n, o, v) in list {
        t.res(&format!("{n} before"), &sys::getopt(fd, level, o));
        t.res(&format!("{n} set"), &sys::setopt(fd, level, o, v));
        t.res(&format!("{n} read"), &sys::getopt(fd, level, o));
    }
}

const SOCKET: &[Opt] = &[
    ("DEBUG", libc::SO_DEBUG, 1),
    ("REUSEADDR", libc::SO_REUSEADDR, 1),
    ("REUSEPORT", libc::SO_REUSEPORT, 1),
    ("DONTROUTE", libc::SO_DONTROUTE, 1),
    ("BROADCAST", libc::SO_BROADCAST, 1),
    ("SNDBUF", libc::SO_SNDBUF, 50_000),
    ("RCVBUF", libc::SO_RCVBUF, 60_000),
    ("SNDBUFFORCE", libc::SO_SNDBUFFORCE, 9_000_000),
    ("RCVBUFFORCE", libc::SO_RCVBUFFORCE, 9_000_000),
    ("KEEPALIVE", libc::SO_KEEPALIVE, 1),
    ("OOBINLINE", libc::SO_OOBINLINE, 1),
    ("NO_CHECK", libc::SO_NO_CHECK, 1),
    ("PRIORITY", libc::SO_PRIORITY, 5),
    ("PASSCRED", libc::SO_PASSCRED, 1),
    ("RCVLOWAT", libc::SO_RCVLOWAT, 33),
    ("SNDLOWAT", libc::SO_SNDLOWAT, 33),
    ("TIMESTAMP", libc::SO_TIMESTAMP, 1),
    ("TIMESTAMPNS", libc::SO_TIMESTAMPNS, 1),
    ("TIMESTAMPING", libc::SO_TIMESTAMPING, 0x10),
    ("MARK", libc::SO_MARK, 17),
    ("RXQ_OVFL", libc::SO_RXQ_OVFL, 1),
    ("WIFI_STATUS", 41, 1),
    ("PEEK_OFF", libc::SO_PEEK_OFF, 3),
    ("NOFCS", 43, 1),
    ("LOCK_FILTER", libc::SO_LOCK_FILTER, 1),
    ("SELECT_ERR_QUEUE", libc::SO_SELECT_ERR_QUEUE, 1),
    ("BUSY_POLL", libc::SO_BUSY_POLL, 10),
    ("MAX_PACING_RATE", 47, 1 << 20),
    ("ZEROCOPY", libc::SO_ZEROCOPY, 1),
    ("PREFER_BUSY_POLL", 69, 1),
    ("BUF_LOCK", 72, 3),
    ("RESERVE_MEM", 73, 0),
    ("TXREHASH", 74, 0),
    ("RCVMARK", 75, 1),
    ("RCVPRIORITY", 82, 1),
];

fn opts_socket_level(t: &mut T) {
    let s = t.socket();
    set_and_get(t, s.raw(), libc::SOL_SOCKET, SOCKET);
    for n in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        t.res("timeout", &sys::set_timeo(s.raw(), n, 1230));
        t.rec(
            "read",
            hex(&sys::getopt_raw(s.raw(), libc::SOL_SOCKET, n, 16).unwrap()),
        );
    }
    t.res("LINGER", &sys::linger(s.raw(), 1, 7));
    let g = sys::getopt_raw(s.raw(), libc::SOL_SOCKET, libc::SO_LINGER, 8).unwrap();
    t.rec("LINGER read", hex(&g));
    let g = sys::getopt_raw(s.raw(), libc::SOL_SOCKET, libc::SO_MEMINFO, 36);
    t.rec("MEMINFO length", g.map_or(0, |g| g.len()));
    let g = sys::getopt_raw(s.raw(), libc::SOL_SOCKET, libc::SO_COOKIE, 8);
    t.rec("COOKIE length", g.map_or(0, |g| g.len()));
    let g = sys::getopt_raw(s.raw(), libc::SOL_SOCKET, 71, 8); // SO_NETNS_COOKIE
    t.rec("NETNS_COOKIE length", g.map_or(0, |g| g.len()));
    // A classic filter that accepts everything.
    let f = [libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 0xffff_ffff,
    }];
    let p = libc::sock_fprog {
        len: 1,
        filter: f.as_ptr().cast_mut(),
    };
    // SAFETY: plain data.
    let raw = unsafe { std::slice::from_raw_parts((&raw const p).cast::<u8>(), 16) };
    let s = t.socket();
    t.res(
        "ATTACH_FILTER",
        &sys::setopt_raw(s.raw(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, raw),
    );
    t.res(
        "DETACH_FILTER",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0),
    );
    t.res(
        "DETACH again",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0),
    );
}

fn opts_socket_level_connected(t: &mut T) {
    let (c, s) = t.pair();
    set_and_get(t, c.raw(), libc::SOL_SOCKET, SOCKET);
    set_and_get(t, s.raw(), libc::SOL_SOCKET, SOCKET);
}

const TCP: &[Opt] = &[
    ("NODELAY", libc::TCP_NODELAY, 1),
    ("MAXSEG", libc::TCP_MAXSEG, 1000),
    ("CORK", libc::TCP_CORK, 1),
    ("KEEPIDLE", libc::TCP_KEEPIDLE, 111),
    ("KEEPINTVL", libc::TCP_KEEPINTVL, 22),
    ("KEEPCNT", libc::TCP_KEEPCNT, 4),
    ("SYNCNT", libc::TCP_SYNCNT, 3),
    ("LINGER2", libc::TCP_LINGER2, 9),
    ("DEFER_ACCEPT", libc::TCP_DEFER_ACCEPT, 3),
    ("WINDOW_CLAMP", libc::TCP_WINDOW_CLAMP, 40_000),
    ("QUICKACK", libc::TCP_QUICKACK, 0),
    ("THIN_LINEAR_TIMEOUTS", libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
    ("THIN_DUPACK", libc::TCP_THIN_DUPACK, 1),
    ("USER_TIMEOUT", libc::TCP_USER_TIMEOUT, 12_345),
    ("NOTSENT_LOWAT", libc::TCP_NOTSENT_LOWAT, 777),
    ("SAVE_SYN", libc::TCP_SAVE_SYN, 1),
    ("INQ", 36, 1),
    ("TX_DELAY", 37, 100),
    ("REPAIR_QUEUE", libc::TCP_REPAIR_QUEUE, 1),
];

fn opts_tcp_level(t: &mut T) {
    let s = t.socket();
    set_and_get(t, s.raw(), libc::IPPROTO_TCP, TCP);
    let mut cc = b"reno".to_vec();
    t.res(
        "CONGESTION",
        &sys::setopt_raw(s.raw(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, &cc),
    );
    cc = sys::getopt_raw(s.raw(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, 16).unwrap();
    t.rec(
        "CONGESTION read",
        String::from_utf8_lossy(&cc).trim_end_matches('\0'),
    );
    let r = sys::setopt_raw(
        s.raw(),
        libc::IPPROTO_TCP,
        libc::TCP_CONGESTION,
        b"nonesuch",
    );
    t.res("CONGESTION unknown", &r);
}

fn opts_tcp_level_connected(t: &mut T) {
    let (c, s) = t.pair();
    // What MAXSEG says once connected follows the window, which any byte received moves, those of
    // the handshake too.
    let rest: Vec<Opt> = TCP.iter().filter(|o| o.0 != "MAXSEG").copied().collect();
    set_and_get(t, c.raw(), libc::IPPROTO_TCP, &rest);
    set_and_get(t, s.raw(), libc::IPPROTO_TCP, &rest);
}

const IP: &[Opt] = &[
    ("TOS", libc::IP_TOS, 0x20),
    ("TTL", libc::IP_TTL, 33),
    ("HDRINCL", libc::IP_HDRINCL, 1),
    ("RECVOPTS", libc::IP_RECVOPTS, 1),
    ("PKTINFO", libc::IP_PKTINFO, 1),
    ("MTU_DISCOVER", libc::IP_MTU_DISCOVER, 1),
    ("RECVERR", libc::IP_RECVERR, 1),
    ("RECVTTL", libc::IP_RECVTTL, 1),
    ("RECVTOS", libc::IP_RECVTOS, 1),
    ("FREEBIND", libc::IP_FREEBIND, 1),
    ("TRANSPARENT", libc::IP_TRANSPARENT, 1),
    ("MINTTL", libc::IP_MINTTL, 2),
    ("BIND_ADDRESS_NO_PORT", libc::IP_BIND_ADDRESS_NO_PORT, 1),
    ("MULTICAST_TTL", libc::IP_MULTICAST_TTL, 3),
    ("LOCAL_PORT_RANGE", 51, 0),
];

fn opts_ip_level(t: &mut T) {
    let s = t.socket();
    set_and_get(t, s.raw(), libc::IPPROTO_IP, IP);
    let (c, _s) = t.pair();
    set_and_get(t, c.raw(), libc::IPPROTO_IP, IP);
    t.res("MTU", &sys::getopt(c.raw(), libc::IPPROTO_IP, libc::IP_MTU));
}

const IP6: &[Opt] = &[
    ("V6ONLY", libc::IPV6_V6ONLY, 1),
    ("UNICAST_HOPS", libc::IPV6_UNICAST_HOPS, 33),
    ("MTU_DISCOVER", libc::IPV6_MTU_DISCOVER, 1),
    ("RECVERR", libc::IPV6_RECVERR, 1),
    ("RECVPKTINFO", libc::IPV6_RECVPKTINFO, 1),
    ("RECVHOPLIMIT", libc::IPV6_RECVHOPLIMIT, 1),
    ("RECVTCLASS", libc::IPV6_RECVTCLASS, 1),
    ("TCLASS", libc::IPV6_TCLASS, 0x20),
    ("FREEBIND", 78, 1),
    ("TRANSPARENT", 75, 1),
    ("MINHOPCOUNT", 73, 2),
    ("AUTOFLOWLABEL", 70, 1),
    ("ADDR_PREFERENCES", 72, 2),
    ("MULTICAST_HOPS", libc::IPV6_MULTICAST_HOPS, 3),
];

fn opts_ipv6_level(t: &mut T) {
    let s = t.socket();
    set_and_get(t, s.raw(), libc::IPPROTO_IPV6, IP6);
    let (c, _s) = t.pair();
    set_and_get(t, c.raw(), libc::IPPROTO_IPV6, IP6);
    t.res(
        "MTU",
        &sys::getopt(c.raw(), libc::IPPROTO_IPV6, libc::IPV6_MTU),
    );
    // IPV6_ADDRFORM turns a v4-mapped connection's socket into an IPv4 one.
    t.res(
        "ADDRFORM",
        &sys::setopt(c.raw(), libc::IPPROTO_IPV6, 1, libc::AF_INET),
    );
    t.res(
        "SO_DOMAIN",
        &sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_DOMAIN),
    );
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(_s.raw(), 4, 0));
}

fn opts_sweep_get(t: &mut T) {
    // Which options exist at all, by number: errno and length only, values differ by nature.
    let (c, s) = t.pair();
    let f = t.socket();
    for level in [
        libc::SOL_SOCKET,
        libc::IPPROTO_TCP,
        libc::IPPROTO_IP,
        libc::IPPROTO_IPV6,
    ] {
        for (w, fd) in [("fresh", f.raw()), ("client", c.raw()), ("server", s.raw())] {
            let mut line = String::new();
            for o in 0..90 {
                let r = sys::getopt_raw(fd, level, o, 64).map(|v| v.len());
                line += &format!(" {o}:{}", st::errno::show(&r));
            }
            t.rec(&format!("{w} level {level}"), line);
        }
    }
}

fn opts_lengths(t: &mut T) {
    let s = t.socket();
    for level_opt in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    ] {
        let (l, o) = level_opt;
        for n in [0usize, 1, 2, 3, 4, 5, 8] {
            t.res(
                &format!("set {n}"),
                &sys::setopt_raw(s.raw(), l, o, &vec![1; n]),
            );
            let r = sys::getopt_raw(s.raw(), l, o, n).map(|v| v.len());
            t.res(&format!("get {n}"), &r);
        }
        // SAFETY: bad pointers on purpose.
        let r = unsafe { libc::setsockopt(s.raw(), l, o, 8 as *const _, 4) };
        t.res("bad pointer", &st::errno::cvt(i64::from(r)));
        let mut len = u32::MAX;
        let mut b = [0u8; 4];
        // SAFETY: the kernel refuses a negative length.
        let r = unsafe { libc::getsockopt(s.raw(), l, o, b.as_mut_ptr().cast(), &mut len) };
        t.res("negative length", &st::errno::cvt(i64::from(r)));
    }
}

fn opts_unknown_levels(t: &mut T) {
    let (c, _s) = t.pair();
    for l in [2, 17, 132, 255, 263, 270, 279, 282, 284, 9999, -1] {
        t.res(&format!("set {l}"), &sys::setopt(c.raw(), l, 1, 1));
        t.res(&format!("get {l}"), &sys::getopt(c.raw(), l, 1));
    }
    for o in [200, 1000, -1] {
        for l in [
            libc::SOL_SOCKET,
            libc::IPPROTO_TCP,
            libc::IPPROTO_IP,
            libc::IPPROTO_IPV6,
        ] {
            t.res(&format!("set {l}/{o}"), &sys::setopt(c.raw(), l, o, 1));
            t.res(&format!("get {l}/{o}"), &sys::getopt(c.raw(), l, o));
        }
    }
}

fn opts_bindtodevice(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    let o = libc::SO_BINDTODEVICE;
    t.res(
        "set",
        &sys::setopt_raw(c.raw(), libc::SOL_SOCKET, o, b"lo\0"),
    );
    t.rec(
        "read",
        hex(&sys::getopt_raw(c.raw(), libc::SOL_SOCKET, o, 16).unwrap()),
    );
    t.res(
        "unknown",
        &sys::setopt_raw(c.raw(), libc::SOL_SOCKET, o, b"nodev0\0"),
    );
    t.res(
        "BINDTOIFINDEX",
        &sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX),
    );
    t.res("connect", &sys::connect(c.raw(), &a));
    t.prove("client", &c);
    drop(l);
}

fn opts_buffers_at_once(t: &mut T) {
    // A small receive buffer, set on an established connection, limits what is in flight.
    let (c, s) = t.pair();
    t.res(
        "RCVBUF",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4096),
    );
    t.res(
        "SNDBUF",
        &sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_SNDBUF, 4096),
    );
    let b = vec![1u8; 4096];
    let mut n = 0;
    for _ in 0..10 {
        while let Ok(k) = sys::send(c.raw(), &b, libc::MSG_DONTWAIT) {
            n += k;
            if n > 8 << 20 {
                break;
            }
        }
        sys::sleep_ms(10);
    }
    t.rec("in flight is bounded", n < 1 << 20);
}

fn opts_survive_connect(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    let all = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::SOL_SOCKET, libc::SO_SNDBUF, 70_000),
        (libc::SOL_SOCKET, libc::SO_RCVBUF, 70_000),
        (libc::SOL_SOCKET, libc::SO_MARK, 3),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 99),
        (libc::IPPROTO_IP, libc::IP_TTL, 44),
    ];
    for (lv, o, v) in all {
        let _ = sys::setopt(c.raw(), lv, o, v);
    }
    t.res("connect", &sys::connect(c.raw(), &a));
    t.prove("client", &c);
    let _s = sys::accept(l.raw()).unwrap();
    for (lv, o, _) in all {
        t.res(&format!("{lv}/{o}"), &sys::getopt(c.raw(), lv, o));
    }
    t.res("disconnect", &sys::connect_unspec(c.raw()));
    for (lv, o, _) in all {
        t.res(&format!("after {lv}/{o}"), &sys::getopt(c.raw(), lv, o));
    }
}
