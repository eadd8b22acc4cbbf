// SPDX-License-Identifier: GPL-2.0
//! Calls with arguments that are right and rare, on SMC connections. Where the C module does as it
//! likes (it refuses `MSG_ERRQUEUE` and `AF_UNSPEC`, and returns EFAULT for what it has copied) it is
//! not asked.

use crate::cases::{ask, e, Outcome};
use crate::server;
use crate::Context;
use st::errno::{cvt, Errno};
use st::family::Family;
use st::{guest, rng, sys};

/// `MSG_ERRQUEUE` is not the stream.
pub fn error_queue(c: &Context) -> Outcome {
    if !c.proof.is_ours() {
        return Ok(());
    }
    let s = ask(c, server::ECHO)?;
    sys::send_all(s.raw(), b"stream").map_err(e("send"))?;
    if sys::poll_until(s.raw(), libc::POLLIN, 3000 * guest::slow()) & libc::POLLIN == 0 {
        return Err("nothing came back".into());
    }
    match sys::recv_vec(s.raw(), 6, libc::MSG_ERRQUEUE) {
        Err(Errno(libc::EAGAIN)) => {}
        other => return Err(format!("error queue: {other:?}")),
    }
    match sys::recv_all(s.raw(), 6) {
        Ok(b) if b == b"stream" => Ok(()),
        other => Err(format!("stream: {other:?}")),
    }
}

/// `MSG_ZEROCOPY`: the program is told when it may use its buffer again, and that it was copied.
pub fn zero_copy(c: &Context) -> Outcome {
    const ZEROCOPY: i32 = 0x400_0000;
    const COPIED: u8 = 1;
    const ORIGIN: u8 = 5; // SO_EE_ORIGIN_ZEROCOPY
    if !c.proof.is_ours() {
        return Ok(());
    }
    let s = ask(c, server::ECHO)?;
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).map_err(e("SO_ZEROCOPY"))?;
    for _ in 0..3 {
        match sys::send(s.raw(), b"stream", ZEROCOPY) {
            Ok(6) => {}
            other => return Err(format!("send: {other:?}")),
        }
    }
    if sys::poll_until(s.raw(), 0, 3000 * guest::slow()) & libc::POLLERR == 0 {
        return Err("no notification".into());
    }
    let mut control = [0u64; 16];
    let mut told = Vec::new();
    while told.last() != Some(&2) {
        // SAFETY: all zeroes is a valid header; the control buffer is ours and aligned.
        let (r, error) = unsafe {
            let mut m: libc::msghdr = std::mem::zeroed();
            m.msg_control = control.as_mut_ptr().cast();
            m.msg_controllen = size_of_val(&control);
            let r =
                cvt(libc::recvmsg(s.raw(), &mut m, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) as i64);
            let h = libc::CMSG_FIRSTHDR(&m);
            let error = (!h.is_null()).then(|| {
                libc::CMSG_DATA(h)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned()
            });
            (r, error)
        };
        match error {
            Some(x) if r.is_ok() && x.ee_origin == ORIGIN => {
                if x.ee_code != COPIED || x.ee_errno != 0 {
                    return Err(format!(
                        "notification: code {} errno {}",
                        x.ee_code, x.ee_errno
                    ));
                }
                told.extend(x.ee_info..=x.ee_data);
            }
            _ => return Err(format!("error queue: {r:?} after {told:?}")),
        }
    }
    match sys::recv_all(s.raw(), 18) {
        Ok(b) if b == b"streamstreamstream" && told == [0, 1, 2] => Ok(()),
        other => Err(format!("stream: {other:?}, told {told:?}")),
    }
}

/// `SO_PEEK_OFF`: a peek begins where the one before ended, and reading moves it back.
pub fn peek_offset(c: &Context) -> Outcome {
    if !c.proof.is_ours() {
        return Ok(());
    }
    let s = ask(c, server::ECHO)?;
    let peek = |flags: i32| sys::recv_vec(s.raw(), 3, libc::MSG_PEEK | flags);
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, 2).map_err(e("SO_PEEK_OFF"))?;
    sys::send_all(s.raw(), b"0123456789").map_err(e("send"))?;
    let mut seen = Vec::new();
    while seen.len() < 8 {
        seen.extend(peek(0).map_err(e("peek"))?);
    }
    if seen != b"23456789" {
        return Err(format!("peeked at {seen:?}"));
    }
    match peek(libc::MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => {}
        other => return Err(format!("peek behind the end: {other:?}")),
    }
    let read = sys::recv_all(s.raw(), 7).map_err(e("recv"))?;
    let at = sys::getopt(s.raw(), libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    if read != b"0123456" || at != Ok(3) {
        return Err(format!("read {read:?}, and the offset is {at:?}"));
    }
    sys::send_all(s.raw(), b"abc").map_err(e("send"))?;
    match peek(0) {
        Ok(b) if !b.is_empty() && b"abc".starts_with(&b) => Ok(()),
        other => Err(format!("peek at what came later: {other:?}")),
    }
}

/// A buffer whose second half is no memory: what was copied is told, what was not is not lost.
pub fn bad_memory(c: &Context) -> Outcome {
    if !c.proof.is_ours() {
        return Ok(());
    }
    let (page, n) = (4096usize, 10_000usize);
    // SAFETY: a new mapping, of which the first page stays.
    let p = unsafe {
        let (rw, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let p = libc::mmap(std::ptr::null_mut(), 2 * page, rw, private, -1, 0);
        libc::mprotect(p.add(page), page, libc::PROT_NONE);
        p
    };
    let s = ask(c, server::ECHO)?;
    let mut sent = vec![0; n];
    rng::fill(9, 0, &mut sent);
    sys::send_all(s.raw(), &sent).map_err(e("send"))?;
    let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, n as i32);
    if sys::poll_until(s.raw(), libc::POLLIN, 3000 * guest::slow()) & libc::POLLIN == 0 {
        return Err("nothing came back".into());
    }
    // SAFETY: the kernel finds out what of the memory is good.
    let got = cvt(unsafe { libc::recv(s.raw(), p, 2 * page, 0) } as i64);
    let copied = match got {
        Ok(k) if (1..=page as i64).contains(&k) => k as usize,
        other => return Err(format!("recv: {other:?}")),
    };
    // SAFETY: the first page is ours, and the kernel has written so much of it.
    let mut b = unsafe { std::slice::from_raw_parts(p as *const u8, copied) }.to_vec();
    let rest = n - b.len();
    b.extend(sys::recv_all(s.raw(), rest).map_err(e("rest"))?);
    if b != sent {
        return Err("other bytes came back".into());
    }
    Ok(())
}

/// `SO_RCVLOWAT` beyond what the ring holds.
pub fn low_water(c: &Context) -> Outcome {
    let s = ask(c, server::GENERATE)?;
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 900_000).map_err(e("SO_RCVLOWAT"))?;
    sys::send_all(s.raw(), &3_000_000u64.to_le_bytes()).map_err(e("send"))?;
    if sys::poll_until(s.raw(), libc::POLLIN, 5000 * guest::slow()) & libc::POLLIN == 0 {
        return Err("not readable, and the peer can send no more".into());
    }
    sys::recv_all(s.raw(), 3_000_000)
        .map(drop)
        .map_err(e("recv"))
}

/// connect(`AF_UNSPEC`) ends the connection at both ends, and the socket can be used for another.
pub fn disconnects(c: &Context) -> Outcome {
    if !c.proof.is_ours() {
        return Ok(());
    }
    let s = ask(c, server::ECHO)?;
    sys::send_all(s.raw(), b"before").map_err(e("send"))?;
    sys::recv_all(s.raw(), 6).map_err(e("recv"))?;
    sys::connect_unspec(s.raw()).map_err(e("disconnect"))?;
    match sys::send(s.raw(), b"x", libc::MSG_NOSIGNAL) {
        // As TCP says, which keeps the error of what it has ended.
        Err(Errno(libc::ECONNRESET)) => {}
        other => return Err(format!("send without a connection: {other:?}")),
    }
    let (d, p) = Family::Tcp.triple(c.ip);
    let l = sys::socket(d, libc::SOCK_STREAM, p).map_err(e("socket"))?;
    let own = if c.to.ip().is_loopback() {
        std::net::SocketAddr::new(c.to.ip(), 0)
    } else {
        guest::sockaddr(false, c.ip, 0)
    };
    sys::bind(l.raw(), &own).map_err(e("bind"))?;
    sys::listen(l.raw(), 1).map_err(e("listen"))?;
    let to = sys::sockname(l.raw()).map_err(e("getsockname"))?;
    sys::connect(s.raw(), &to).map_err(e("connect again"))?;
    let a = sys::accept(l.raw()).map_err(e("accept"))?;
    sys::send_all(s.raw(), b"after").map_err(e("send again"))?;
    match sys::recv_all(a.raw(), 5) {
        Ok(b) if b == b"after" => Ok(()),
        other => Err(format!("the other listener: {other:?}")),
    }
}
