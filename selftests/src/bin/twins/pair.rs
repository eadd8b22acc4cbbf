// SPDX-License-Identifier: GPL-2.0
//! A connected pair of sockets, and the calls on it.

use crate::model::Model;
use crate::step::{Step, Way};
use st::errno::{cvt, show, show_ok, Errno, R};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Counters;
use st::{rng, smcinfo, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counted by the handler of `SIGPIPE`.
pub static PIPES: AtomicU32 = AtomicU32::new(0);

/// Lines of `/proc/net/smc_fallback` that count handshakes for which there was not enough time: link confirmations, a
/// proposal and a SYN that were not answered, and what the other end hears of it.
const LATE: [&str; 5] = [
    "reason client 0x0201",
    "reason server 0x0201",
    "reason server 0x0301",
    "reason client 0x0500",
    "reason client 0x03060107",
];

/// Answer of a call.
pub struct Answer {
    /// All of it, in words.
    pub text: String,
    /// Bytes, if it succeeded and was about bytes.
    pub count: Option<u64>,
}

/// Where connections of one family come from.
pub struct Source {
    family: Family,
    ip: Ip,
    listener: Fd,
    to: SocketAddr,
    mode: Option<u32>,
    /// Bytes have gone both ways before the connection is used.
    warm: bool,
    /// Connections change carriers by themselves.
    flips: bool,
}

impl Source {
    /// Listens on loopback; `mode`: what `RSMC_INFO` must say of each end.
    pub fn new(family: Family, ip: Ip, mode: Option<u32>, warm: bool) -> R<Source> {
        let (domain, protocol) = family.triple(ip);
        let listener = sys::socket(domain, libc::SOCK_STREAM, protocol)?;
        sys::bind(listener.raw(), &SocketAddr::new(st::addr::loopback(ip), 0))?;
        sys::listen(listener.raw(), 64)?;
        let to = sys::sockname(listener.raw())?;
        Ok(Source {
            family,
            ip,
            listener,
            to,
            mode,
            warm,
            flips: false,
        })
    }

    /// Takes note that connections change carriers by themselves.
    pub fn flipping(self, flips: bool) -> Source {
        Source { flips, ..self }
    }

    /// A connection. One over SMC-R that comes about too late on a loaded machine, as the module's own limits are over, is
    /// tried again.
    pub fn pair(&self) -> Result<Pair, String> {
        let mut tries = 0;
        loop {
            let before = Counters::now();
            let made = self.make();
            tries += 1;
            let late: u64 = LATE.iter().map(|name| before.grown(name)).sum();
            if made.is_ok() || self.mode != Some(0) || late == 0 || tries > 5 {
                return made;
            }
            // What the failed one may have left to be accepted.
            sys::nonblock(self.listener.raw(), true);
            while sys::accept(self.listener.raw()).is_ok() {}
            sys::nonblock(self.listener.raw(), false);
        }
    }

    fn make(&self) -> Result<Pair, String> {
        let (domain, protocol) = self.family.triple(self.ip);
        let fail = |what: &str| {
            let what = what.to_owned();
            move |e: Errno| format!("{what}: {e}")
        };
        let c = sys::socket(domain, libc::SOCK_STREAM, protocol).map_err(fail("socket"))?;
        sys::connect(c.raw(), &self.to).map_err(fail("connect"))?;
        let s = sys::accept(self.listener.raw()).map_err(fail("accept"))?;
        if self.warm {
            st::net::warm(c.raw(), s.raw()).map_err(fail("warming"))?;
        }
        let mut names = Vec::new();
        for fd in [&c, &s] {
            if let Some(mode) = self.mode {
                let info = smcinfo::info(fd.raw()).map_err(fail("RSMC_INFO"))?;
                // One that changes carriers is on TCP at times.
                let right = match mode {
                    // Not promoted yet.
                    4 => info.mode == 3,
                    2 => info.mode == 2 || info.mode == 3 && self.flips,
                    _ => info.mode == mode,
                };
                if !right || matches!(mode, smcinfo::MODE_TCP | 4) != (info.reason != 0) {
                    return Err(format!("wrong path: {info:?}, wanted mode {mode}"));
                }
            }
            sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, 10).map_err(fail("SO_RCVTIMEO"))?;
            sys::set_timeo(fd.raw(), libc::SO_SNDTIMEO, 10).map_err(fail("SO_SNDTIMEO"))?;
            sys::setopt(fd.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
                .map_err(fail("TCP_NODELAY"))?;
            let own = sys::sockname(fd.raw()).map_err(fail("getsockname"))?;
            let peer = sys::peername(fd.raw()).map_err(fail("getpeername"))?;
            names.push((own, peer));
        }
        Ok(Pair {
            fd: [Some(c), Some(s)],
            sets: [None, None],
            names,
            filled: [0; 2],
        })
    }
}

/// A connected pair.
pub struct Pair {
    fd: [Option<Fd>; 2],
    sets: [Option<Fd>; 2],
    names: Vec<(SocketAddr, SocketAddr)>,
    /// Bytes that each end has sent until there was no room.
    filled: [u64; 2],
}

const FILL: u64 = 0xf111;

fn sum(b: &[u8]) -> String {
    match b.len() {
        0..=12 => b
            .iter()
            .fold(String::new(), |all, b| format!("{all}{b:02x}")),
        _ => format!(
            "sum {:08x}",
            b.iter().fold(1u32, |a, b| a.rotate_left(5)
                ^ a.wrapping_mul(31)
                ^ u32::from(*b))
        ),
    }
}

/// Returns false if an answer has other bytes than those of the stream where the end reads, as far as that can
/// be said.
pub fn is_right(step: &Step, m: &Model, seed: u64, answer: &Answer) -> bool {
    const OTHER: i32 = libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_TRUNC;
    let end = match *step {
        Step::Recv {
            end, flags, way, ..
        } if flags & OTHER == 0 || matches!(way, Way::Plain | Way::Vector) => end,
        Step::SpliceOut { end, .. } => end,
        _ => return true,
    };
    let from = 1 - end;
    let Some(n @ 1..) = answer.count.filter(|_| !m.urgent && !m.ends[from].full) else {
        return true;
    };
    let mut b = vec![0; n as usize];
    let stream = seed.wrapping_mul(2) + from as u64;
    rng::fill(stream, m.ends[end].read, &mut b);
    answer.text.contains(&sum(&b))
}

fn counted(r: R<i64>) -> Answer {
    Answer {
        count: r.as_ref().ok().map(|n| *n as u64),
        text: show(&r),
    }
}

fn pieces(b: &mut [u8], way: Way) -> Vec<libc::iovec> {
    let piece = |b: &mut [u8]| libc::iovec {
        iov_base: b.as_mut_ptr().cast(),
        iov_len: b.len(),
    };
    match way {
        Way::Vector => {
            let third = b.len() / 3;
            let (x, rest) = b.split_at_mut(third);
            let (y, z) = rest.split_at_mut(third);
            vec![piece(x), piece(y), piece(z)]
        }
        Way::Fault => {
            let bad = libc::iovec {
                iov_base: 8 as *mut _,
                iov_len: 64,
            };
            vec![piece(b), bad]
        }
        _ => vec![piece(b)],
    }
}

fn header(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: An all-zero header is valid.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = iov.as_mut_ptr();
    m.msg_iovlen = iov.len() as _;
    m
}

fn pipe() -> (Fd, Fd) {
    let mut p = [0; 2];
    // SAFETY: An array of two ints.
    let r = unsafe { libc::pipe2(p.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
    cvt(r.into()).expect("pipe");
    (Fd::new(p[0]), Fd::new(p[1]))
}

fn splice(from: i32, to: i32, len: usize, flags: u32) -> R<i64> {
    let null = std::ptr::null_mut();
    // SAFETY: Null offsets are allowed.
    cvt(unsafe { libc::splice(from, null, to, null, len, flags) } as i64)
}

impl Pair {
    /// The descriptor of an end; -1 when it is closed.
    pub fn raw(&self, end: usize) -> i32 {
        self.fd[end].as_ref().map_or(-1, Fd::raw)
    }

    /// Has both ends wait longer for room: there is none while a connection goes back to TCP.
    pub fn waits_for_room(&self) {
        for end in 0..2 {
            let _ = sys::set_timeo(self.raw(end), libc::SO_SNDTIMEO, 10_000);
        }
    }

    /// Tells whether poll() says that an end may write.
    pub fn has_room(&self, end: usize) -> bool {
        sys::poll1(self.raw(end), libc::POLLOUT, 0).is_ok_and(|events| events != 0)
    }

    /// Carries out a step.
    pub fn act(&mut self, step: &Step, m: &Model, seed: u64) -> Answer {
        let before = PIPES.load(Ordering::SeqCst);
        let mut answer = self.call(step, m, seed);
        let after = PIPES.load(Ordering::SeqCst);
        if after != before {
            answer.text += &format!(" and {} SIGPIPE", after - before);
        }
        answer
    }

    fn call(&mut self, step: &Step, m: &Model, seed: u64) -> Answer {
        let fd = step.end().map_or(-1, |end| self.raw(end));
        let data = |end: usize, len: usize| {
            let mut b = vec![0; len];
            rng::fill(seed.wrapping_mul(2) + end as u64, m.ends[end].sent, &mut b);
            b
        };
        let words = |text: String| Answer { text, count: None };
        match *step {
            Step::Send {
                end,
                len,
                flags,
                way,
            } => counted(send(fd, data(end, len), flags, way)),
            Step::Recv {
                len, flags, way, ..
            } => recv(fd, len, flags, way),
            Step::SpliceIn { end, len, more } => {
                let (r, w) = pipe();
                let b = data(end, len);
                // SAFETY: Buffer and length agree.
                let put = cvt(unsafe { libc::write(w.raw(), b.as_ptr().cast(), b.len()) } as i64);
                assert_eq!(put, Ok(len as i64), "a pipe takes so much");
                let flags = if more { libc::SPLICE_F_MORE } else { 0 };
                counted(splice(r.raw(), fd, len, flags))
            }
            Step::SpliceOut { len, nonblock, .. } => {
                let (r, w) = pipe();
                let flags = if nonblock { libc::SPLICE_F_NONBLOCK } else { 0 };
                let mut answer = counted(splice(fd, w.raw(), len, flags));
                if let Some(n @ 1..) = answer.count {
                    let mut b = vec![0u8; n as usize];
                    // SAFETY: Buffer and length agree.
                    let got = unsafe { libc::read(r.raw(), b.as_mut_ptr().cast(), b.len()) };
                    answer.text += &format!(" ({got} in the pipe: {})", sum(&b));
                }
                answer
            }
            Step::SendFile { end, len, ask } => {
                let b = data(end, len);
                // SAFETY: The name ends with a zero.
                let file = unsafe { libc::memfd_create(c"twins".as_ptr(), 0) };
                let file = Fd::new(cvt(file.into()).expect("memfd_create") as i32);
                // SAFETY: Buffer and length agree; no offset is given.
                unsafe {
                    libc::pwrite(file.raw(), b.as_ptr().cast(), b.len(), 0);
                    let null = std::ptr::null_mut();
                    let sent = libc::sendfile(fd, file.raw(), null, len + ask);
                    counted(cvt(sent as i64))
                }
            }
            Step::Shutdown { how, .. } => words(show(&sys::shutdown(fd, how))),
            Step::Close { end } => {
                self.sets[end] = None;
                words(
                    self.fd[end]
                        .take()
                        .map_or("closed".into(), |fd| show(&fd.close())),
                )
            }
            Step::Linger { on, .. } => words(show(&sys::linger(fd, on.into(), 0))),
            Step::Set {
                level, name, value, ..
            } => words(show(&sys::setopt(fd, level, name, value))),
            Step::Get { level, name, .. } => words(match sys::getopt(fd, level, name) {
                Ok(e) if name == libc::SO_ERROR && e > 0 => Errno(e).to_string(),
                r => show(&r),
            }),
            Step::Names { end } => {
                let (own, peer) = (sys::sockname(fd), sys::peername(fd));
                let name = |r: R<SocketAddr>, right: SocketAddr| match r {
                    Ok(a) if a == right => "right".into(),
                    // Both pairs have ports of their own.
                    Ok(a) => format!("wrong ({})", a.ip()),
                    Err(e) => e.to_string(),
                };
                let right = self.names[end];
                words(format!(
                    "own {} peer {}",
                    name(own, right.0),
                    name(peer, right.1)
                ))
            }
            Step::NonBlock { on, .. } => {
                sys::nonblock(fd, on);
                words("set".into())
            }
            Step::Watch { end, edge } => words(self.watch(end, edge)),
            Step::Wait { end } => words(self.wait(end)),
            Step::Poll { events, .. } => words(match sys::poll1(fd, events, 0) {
                Ok(e) => sys::events(e.into()),
                Err(e) => e.to_string(),
            }),
            Step::Fill { end } => self.fill(end),
            Step::Drain { end } => self.drain(end, m.unread(end) as u64),
            Step::OutQueue => words(String::new()),
            Step::Pause => words(String::new()),
        }
    }

    fn watch(&mut self, end: usize, edge: bool) -> String {
        // SAFETY: No pointers.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let set = Fd::new(cvt(set.into()).expect("epoll_create1") as i32);
        let edge = if edge { libc::EPOLLET } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP | edge)
                as u32,
            u64: 0,
        };
        let fd = self.raw(end);
        // SAFETY: A valid pointer.
        let r =
            cvt(unsafe { libc::epoll_ctl(set.raw(), libc::EPOLL_CTL_ADD, fd, &mut event) }.into());
        self.sets[end] = Some(set);
        show_ok(&r)
    }

    fn wait(&mut self, end: usize) -> String {
        let Some(set) = &self.sets[end] else {
            return "no set".into();
        };
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: One entry.
        match unsafe { libc::epoll_wait(set.raw(), &mut event, 1, 0) } {
            1 => sys::events(event.events as i32),
            n => n.to_string(),
        }
    }

    fn fill(&mut self, end: usize) -> Answer {
        let fd = self.raw(end);
        let mut b = vec![0u8; 32 << 10];
        let mut quiet = 0;
        self.filled[end] = 0;
        let text = loop {
            rng::fill(FILL, self.filled[end], &mut b);
            match sys::send(fd, &b, libc::MSG_DONTWAIT) {
                Ok(n) => {
                    self.filled[end] += n as u64;
                    quiet = 0;
                }
                Err(Errno(libc::EAGAIN)) if quiet < 4 => {
                    quiet += 1;
                    sys::sleep_ms(1);
                }
                Err(e) => break e.to_string(),
            }
        };
        Answer { text, count: None }
    }

    /// Takes what there is, or what the other end has filled; `before`: bytes that were sent before
    /// that.
    fn drain(&mut self, end: usize, before: u64) -> Answer {
        let fd = self.raw(end);
        let filled = std::mem::take(&mut self.filled[1 - end]);
        let mut all = Vec::new();
        let until = Instant::now() + Duration::from_secs(5);
        let end = loop {
            match sys::recv_vec(fd, 64 << 10, libc::MSG_DONTWAIT) {
                Ok(b) if b.is_empty() => break "EOF".into(),
                Ok(b) => all.extend(b),
                Err(Errno(libc::EAGAIN))
                    if filled > 0
                        && (all.len() as u64) < before.min(1) + filled
                        && Instant::now() < until =>
                {
                    sys::sleep_ms(1);
                }
                Err(e) => break e.to_string(),
            }
        };
        let rest = all.len().saturating_sub(filled as usize);
        let right = match rng::check(FILL, 0, &all[rest..]) {
            _ if filled == 0 => String::new(),
            Ok(()) => " and all of the filling".into(),
            Err(at) => format!(" and {} of {filled}, wrong at {at}", all.len() - rest),
        };
        let text = format!("{rest} ({}){right} then {end}", sum(&all[..rest]));
        let count = Some(rest as u64);
        Answer { text, count }
    }
}

fn send(fd: i32, mut b: Vec<u8>, flags: i32, way: Way) -> R<i64> {
    let len = b.len();
    let mut iov = pieces(&mut b, way);
    // SAFETY: The pieces are alive, or bad on purpose: the kernel answers EFAULT.
    cvt(unsafe {
        match way {
            Way::Plain => libc::write(fd, iov[0].iov_base, len),
            Way::Vector => libc::writev(fd, iov.as_ptr(), 3),
            _ => libc::sendmsg(fd, &header(&mut iov), flags),
        }
    } as i64)
}

fn recv(fd: i32, len: usize, flags: i32, way: Way) -> Answer {
    let mut b = vec![0u8; len];
    let mut iov = pieces(&mut b, way);
    let mut told = 0;
    // SAFETY: As in `send`.
    let r = cvt(unsafe {
        match way {
            Way::Plain => libc::read(fd, iov[0].iov_base, len),
            Way::Vector => libc::readv(fd, iov.as_ptr(), 3),
            _ => {
                let mut m = header(&mut iov);
                let n = libc::recvmsg(fd, &mut m, flags);
                told = m.msg_flags & !libc::MSG_CMSG_CLOEXEC;
                n
            }
        }
    } as i64);
    let mut answer = counted(r);
    if let Some(n) = answer.count {
        // With MSG_TRUNC nothing is copied: the buffer must be as it was.
        answer.text += &format!(" ({})", sum(&b[..len.min(n as usize)]));
        if told != 0 {
            answer.text += &format!(" flags {told:#x}");
        }
    }
    answer
}
