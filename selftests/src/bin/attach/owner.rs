// SPDX-License-Identifier: GPL-2.0
//! Parts of the kernel that want the stream for themselves: kernel TLS, sockmap, KCM.

use crate::{blocked, cold, mode, stays, talks, warm, ATTACHED, MODE_FIRST};
use st::bpf::{self, Sockhash};
use st::errno::{Errno, R};
use st::fd::Fd;
use st::memory::Memory;
use st::point::T;
use st::{smcinfo, sys};

const TCP: i32 = libc::IPPROTO_TCP;
const TCP_ULP: i32 = 31;
const SOL_TLS: i32 = 282;
const TLS_TX: i32 = 1;
const TLS_RX: i32 = 2;

fn ulp(fd: &Fd, name: &str) -> R<i64> {
    sys::setopt_raw(fd.raw(), TCP, TCP_ULP, name.as_bytes())
}

/// Gives a direction its key: TLS 1.2, AES-GCM 128, the same for all.
fn key(fd: &Fd, direction: i32) -> R<i64> {
    let mut value = [7u8; 40];
    value[..2].copy_from_slice(&0x0303u16.to_ne_bytes());
    value[2..4].copy_from_slice(&51u16.to_ne_bytes());
    // The number of the first record.
    value[32..].fill(0);
    sys::setopt_raw(fd.raw(), SOL_TLS, direction, &value)
}

/// Turns both directions of a connection over to kernel TLS and checks that they carry bytes; `false`
/// where the kernel has none.
fn encrypt(t: &mut T, c: &Fd, s: &Fd) -> bool {
    for fd in [c, s] {
        match ulp(fd, "tls") {
            Err(Errno(libc::ENOENT)) => {
                t.say("skip: no kernel TLS");
                return false;
            }
            set => t.is("TCP_ULP", set, Ok(0)),
        }
        let name = sys::getopt_raw(fd.raw(), TCP, TCP_ULP, 16);
        t.check(
            &format!("{name:?}"),
            name.is_ok_and(|n| n.starts_with(b"tls")),
        );
        t.check("not ours any more", mode(fd).is_err());
        t.is("once", ulp(fd, "tls"), Err(Errno(libc::EEXIST)));
    }
    for fd in [c, s] {
        for direction in [TLS_TX, TLS_RX] {
            t.is("key", key(fd, direction), Ok(0));
        }
    }
    for round in 0..4u8 {
        for (from, to) in [(c, s), (s, c)] {
            let text = vec![round; 5000];
            t.is("send", sys::send(from.raw(), &text, 0), Ok(5000));
            t.is("arrives", sys::recv_all(to.raw(), 5000), Ok(text));
        }
    }
    true
}

/// Has the ends closed, and the module let go.
fn ends(t: &mut T, before: Option<i64>, c: Fd, s: Fd) {
    drop(c);
    t.is("end", sys::recv_vec(s.raw(), 4, 0), Ok(vec![]));
    drop(s);
    let left = smcinfo::settled(before, 15_000 * st::guest::slow());
    t.is("references", left, Ok(()));
}

/// Before the first byte.
pub fn ktls_cold(t: &mut T) {
    let before = smcinfo::references();
    let (c, s) = cold(t);
    if encrypt(t, &c, &s) {
        ends(t, before, c, s);
    }
}

/// After bytes have gone through memory.
pub fn ktls_warm(t: &mut T) {
    let before = smcinfo::references();
    let (c, s) = warm(t);
    if encrypt(t, &c, &s) {
        ends(t, before, c, s);
    }
}

/// Bytes in memory that the program has not read cannot be decrypted by TLS there.
pub fn ktls_unread(t: &mut T) {
    let (c, s) = warm(t);
    sys::send_all(c.raw(), b"unread").expect("send");
    t.is("busy", ulp(&s, "tls"), Err(Errno(libc::EBUSY)));
    let got = sys::recv_all(s.raw(), 6);
    t.is("they are there", got, Ok(b"unread".to_vec()));
    // The end that has bytes under way need not wait.
    sys::send_all(c.raw(), b"behind").expect("send");
    if encrypt_after(t, &c, &s) {
        talks(t, &c, &s);
    }
}

/// `c` goes first; its bytes before are for `s` to read as they are.
fn encrypt_after(t: &mut T, c: &Fd, s: &Fd) -> bool {
    if ulp(c, "tls") == Err(Errno(libc::ENOENT)) {
        t.say("skip: no kernel TLS");
        return false;
    }
    let got = sys::recv_all(s.raw(), 6);
    t.is("before", got, Ok(b"behind".to_vec()));
    t.is("then", ulp(s, "tls"), Ok(0));
    for fd in [c, s] {
        for direction in [TLS_TX, TLS_RX] {
            t.is("key", key(fd, direction), Ok(0));
        }
    }
    true
}

/// A protocol that there is not: the connection is TCP's, and goes on.
pub fn ktls_unknown(t: &mut T) {
    let before = smcinfo::references();
    let (c, s) = warm(t);
    t.is("unknown", ulp(&c, "nothing"), Err(Errno(libc::ENOENT)));
    stays_plain(t, &c, &s);
    ends(t, before, c, s);
}

fn stays_plain(t: &mut T, c: &Fd, s: &Fd) {
    talks(t, c, s);
    stays(t, c, s);
}

/// Connections that were given back end with their files: nothing of them is left in the kernel, neither by the module's
/// count nor, where that tells, in memory.
pub fn ktls_gone(t: &mut T) {
    let count = 96 / st::guest::less().clamp(1, 2) as usize;
    // Two socks of more than 2 KiB for each connection, at least.
    let leak = 4 * count as i64;
    let memory = Memory::open().expect("memory");
    let many = |t: &mut T| {
        let before = smcinfo::references();
        for at in 0..count {
            let (c, s) = warm(t);
            // Either end goes first, alone or not.
            let (one, other) = if at % 2 == 0 { (c, s) } else { (s, c) };
            assert_eq!(ulp(&one, "nothing"), Err(Errno(libc::ENOENT)));
            if at % 4 < 2 {
                assert_eq!(ulp(&other, "nothing"), Err(Errno(libc::ENOENT)));
            }
            // As does the first to be closed.
            drop(if at % 8 < 4 {
                (one, other)
            } else {
                (other, one)
            });
        }
        let left = smcinfo::settled(before, 15_000 * st::guest::slow());
        t.is("references", left, Ok(()));
    };
    many(t);
    let before = memory.taken();
    many(t);
    if st::guest::keeps_freed() {
        return t.say("memory: left to kmemleak, where there is one");
    }
    let mut more = 0;
    for _ in 0..100 {
        more = memory.taken() - before;
        if more < leak / 2 {
            break;
        }
        sys::sleep_ms(50);
    }
    t.check(
        &format!("{more} KiB after {count} connections"),
        more < leak / 2,
    );
}

/// Threads that read, write, poll and set options while the socket is given back, again and again.
pub fn ktls_threads(t: &mut T) {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let before = smcinfo::references();
    for _ in 0..if st::guest::less() > 1 { 8 } else { 60 } {
        let (c, s) = warm(t);
        let silence = 20_000 * st::guest::slow() as i64;
        let _ = sys::set_timeo(c.raw(), libc::SO_RCVTIMEO, silence);
        let (c, s) = (&c, &s);
        let done = &AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut sent = 0u64;
                while !done.load(Relaxed) {
                    match sys::send(s.raw(), &[sent as u8; 100], libc::MSG_DONTWAIT) {
                        Ok(n) => sent += n as u64,
                        Err(_) => std::thread::yield_now(),
                    }
                }
                let _ = sys::shutdown(s.raw(), libc::SHUT_WR);
                sent
            });
            let reader = scope.spawn(move || {
                let mut got = 0u64;
                loop {
                    match sys::recv_vec(c.raw(), 777, 0) {
                        Ok(b) if b.is_empty() => return got,
                        Ok(b) => got += b.len() as u64,
                        // Nothing for so long: nobody has woken it.
                        Err(Errno(libc::EAGAIN)) => return u64::MAX,
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let _ = sys::poll1(c.raw(), libc::POLLIN, 0);
                    let _ = smcinfo::info(c.raw());
                    let _ = sys::setopt(c.raw(), TCP, libc::TCP_NODELAY, 1);
                }
            });
            let tries = scope.spawn(move || {
                // Unread bytes come and go.
                for _ in 0..2000 {
                    match ulp(c, "nothing") {
                        Err(Errno(libc::EBUSY)) => std::thread::yield_now(),
                        Err(Errno(libc::ENOENT)) => return true,
                        _ => return false,
                    }
                }
                true
            });
            let second = ulp(c, "nothing");
            let fine = tries.join().unwrap_or(false);
            sys::sleep_ms(5);
            done.store(true, Relaxed);
            let (sent, got) = (writer.join().unwrap_or(1), reader.join().unwrap_or(0));
            (fine, second, sent == got, sent > 0)
        });
        t.check(&format!("{sent:?}"), sent.0 && sent.1.is_err() && sent.2);
    }
    let left = smcinfo::settled(before, 15_000 * st::guest::slow());
    t.is("references", left, Ok(()));
}

/// The path has the stream, unless the sockmap came first.
pub fn sockmap(t: &mut T) {
    let map = Sockhash::new().expect("sockhash");
    let (c, s) = warm(t);
    for (number, fd) in [(1, &c), (2, &s)] {
        t.is("taken", map.put(number, fd), Err(Errno(libc::EBUSY)));
    }
    talks(t, &c, &s);
    let (c, s) = cold(t);
    for (number, fd) in [(3, &c), (4, &s)] {
        t.is("free", map.put(number, fd), Ok(0));
    }
    stays(t, &c, &s);
    t.is("mode", mode(&c), Ok((MODE_FIRST, ATTACHED)));
    // Its program decides from the first byte on, before a call of the reader.
    let mut map = Sockhash::empty(4, 8).expect("sockhash");
    // "return SK_DROP"
    map.run(14, 5, &[0x0000_0000_0000_00b7, 0x95])
        .expect("a program");
    let (c, s) = cold(t);
    t.is("free", map.put(1, &s), Ok(0));
    t.check("dropped", blocked(&c, &s));
}

/// The same for KCM.
pub fn kcm(t: &mut T) {
    const AF_KCM: i32 = 41;
    const SIOCKCMATTACH: libc::c_ulong = 0x89e0;
    let Ok(kcm) = sys::socket(AF_KCM, libc::SOCK_DGRAM, 0) else {
        return t.say("skip: no KCM");
    };
    // Messages of four bytes.
    let parser = bpf::load(1, 0, &[0x0000_0004_0000_00b7, 0x95]).expect("a program");
    let attach = |fd: &Fd| {
        let words = [fd.raw(), parser.raw()];
        // SAFETY: The kernel reads two ints.
        st::errno::cvt(i64::from(unsafe {
            libc::ioctl(kcm.raw(), SIOCKCMATTACH as _, words.as_ptr())
        }))
    };
    let (c, s) = warm(t);
    t.is("taken", attach(&s), Err(Errno(libc::EALREADY)));
    talks(t, &c, &s);
    let (c, s) = cold(t);
    t.is("free", attach(&s), Ok(0));
    sys::send_all(c.raw(), b"some").expect("send");
    sys::poll_until(kcm.raw(), libc::POLLIN, 2000);
    let got = sys::recv_vec(kcm.raw(), 64, libc::MSG_DONTWAIT);
    t.is("by KCM", got, Ok(b"some".to_vec()));
}
