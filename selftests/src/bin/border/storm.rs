// SPDX-License-Identifier: GPL-2.0
//! Eight threads on one connection that changes carriers every few messages, two writers and two readers
//! in each direction: send(), writev(), sendfile(), splice(), io_uring; recv(), readv(), splice(), io_uring
//! and peeks. Writers take turns, so the order is known. Readers do not: each byte says where it belongs.

use crate::cover::{Cover, Stream};
use io_uring::{opcode, types, IoUring};
use st::errno::{cvt, Errno, R};
use st::fd::Fd;
use st::rng::Rng;
use st::{net, smcinfo, sys};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest write, and the longest read.
const MOST: u64 = 40_000;

/// Tells what went wrong in which call.
type Outcome = Result<(), String>;

/// One direction.
struct Way {
    stream: Stream,
    from: i32,
    to: i32,
    /// Bytes that were sent.
    sent: Mutex<u64>,
    read: Mutex<Cover>,
    peeks: Mutex<u64>,
}

fn pipe() -> (Fd, Fd) {
    let mut p = [0; 2];
    // SAFETY: An array of two ints.
    let r = unsafe { libc::pipe2(p.as_mut_ptr(), libc::O_CLOEXEC) };
    cvt(r.into()).expect("pipe");
    (Fd::new(p[0]), Fd::new(p[1]))
}

fn splice(from: i32, to: i32, len: usize) -> R<i64> {
    let null = std::ptr::null_mut();
    // SAFETY: Null offsets are allowed.
    cvt(unsafe { libc::splice(from, null, to, null, len, 0) } as i64)
}

/// A thread's means.
struct Hand {
    random: Rng,
    ring: Option<IoUring>,
    pipe: (Fd, Fd),
}

impl Hand {
    fn new(seed: u64) -> Hand {
        Hand {
            random: Rng::new(seed),
            ring: IoUring::new(4).ok(),
            pipe: pipe(),
        }
    }

    /// Whole words, so that pieces seldom have none: mostly few, seldom more than a ring holds.
    fn size(&mut self) -> usize {
        let most = match self.random.draw() % 8 {
            0 => MOST / 8,
            1 => 2,
            _ => 64,
        };
        8 * self.random.range(1, most) as usize
    }

    fn ring(&mut self, entry: io_uring::squeue::Entry) -> Option<R<i64>> {
        let ring = self.ring.as_mut()?;
        // SAFETY: What it points to lives until it has completed, below.
        unsafe { ring.submission().push(&entry) }.expect("room in the ring");
        loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => continue,
                Err(e) => panic!("io_uring: {e}"),
            }
            if let Some(done) = ring.completion().next() {
                return Some(match done.result() {
                    n @ 0.. => Ok(n.into()),
                    e => Err(Errno(-e)),
                });
            }
        }
    }

    /// Sends some way or other.
    fn send(&mut self, fd: i32, b: &[u8]) -> R<i64> {
        match self.random.draw() % 6 {
            0 => {
                let half = b.len() / 2;
                let part = |b: &[u8]| libc::iovec {
                    iov_base: b.as_ptr().cast_mut().cast(),
                    iov_len: b.len(),
                };
                let parts = [part(&b[..half]), part(&b[half..])];
                // SAFETY: Both are alive.
                cvt(unsafe { libc::writev(fd, parts.as_ptr(), 2) } as i64)
            }
            1 => {
                // SAFETY: Buffer and length agree. A pipe holds 64 KiB.
                cvt(unsafe { libc::write(self.pipe.1.raw(), b.as_ptr().cast(), b.len()) } as i64)?;
                let mut done = 0;
                // What the pipe holds has to go: nobody else knows of it.
                while done < b.len() as i64 {
                    done += splice(self.pipe.0.raw(), fd, b.len() - done as usize)?;
                }
                Ok(done)
            }
            2 => {
                // A file of its own: TCP sends the pages themselves, whatever is in them by then.
                // SAFETY: A valid name.
                let file = unsafe { libc::memfd_create(c"storm".as_ptr(), libc::MFD_CLOEXEC) };
                let owner = Fd::new(cvt(file.into())? as i32);
                let file = owner.raw();
                // SAFETY: Buffer and length agree.
                cvt(unsafe { libc::pwrite(file, b.as_ptr().cast(), b.len(), 0) } as i64)?;
                let mut at = 0;
                // SAFETY: A valid offset.
                cvt(unsafe { libc::sendfile(fd, file, &mut at, b.len()) } as i64)
            }
            3 => {
                let e = opcode::Send::new(types::Fd(fd), b.as_ptr(), b.len() as u32).build();
                self.ring(e).unwrap_or_else(|| sys::send(fd, b, 0))
            }
            4 => match sys::send(fd, b, libc::MSG_DONTWAIT) {
                Err(Errno(libc::EAGAIN)) => sys::send(fd, b, 0),
                done => done,
            },
            _ => sys::send(fd, b, 0),
        }
    }

    /// Receives some way or other.
    fn receive(&mut self, fd: i32, len: usize) -> R<Vec<u8>> {
        match self.random.draw() % 6 {
            0 => {
                let mut b = vec![0u8; len];
                let (x, y) = b.split_at_mut(len / 2);
                let part = |b: &mut [u8]| libc::iovec {
                    iov_base: b.as_mut_ptr().cast(),
                    iov_len: b.len(),
                };
                let parts = [part(x), part(y)];
                // SAFETY: Both are alive.
                let n = cvt(unsafe { libc::readv(fd, parts.as_ptr(), 2) } as i64)?;
                b.truncate(n as usize);
                Ok(b)
            }
            1 => {
                let n = splice(fd, self.pipe.1.raw(), len)? as usize;
                let mut b = vec![0u8; n];
                let mut done = 0;
                while done < n {
                    let at = &mut b[done..];
                    // SAFETY: Buffer and length agree.
                    let got =
                        unsafe { libc::read(self.pipe.0.raw(), at.as_mut_ptr().cast(), at.len()) };
                    done += cvt(got as i64)? as usize;
                }
                Ok(b)
            }
            2 | 3 => {
                let mut b = vec![0u8; len];
                let e = opcode::Recv::new(types::Fd(fd), b.as_mut_ptr(), len as u32).build();
                match self.ring(e) {
                    Some(n) => {
                        b.truncate(n? as usize);
                        Ok(b)
                    }
                    None => sys::recv_vec(fd, len, 0),
                }
            }
            // No MSG_WAITALL: between two pieces of it the other reader may have one, as with TCP.
            _ => sys::recv_vec(fd, len, 0),
        }
    }
}

fn write(way: &Way, seed: u64, over: &AtomicBool) -> Outcome {
    let mut hand = Hand::new(seed);
    while !over.load(Relaxed) {
        let len = hand.size();
        if hand.random.draw() % 16 == 0 {
            // Without its turn, as it sends nothing.
            sys::send(way.from, &[], 0).map_err(|e| format!("send of nothing: {e}"))?;
        }
        let mut sent = way.sent.lock().expect("no panic");
        let b = way.stream.bytes(*sent, len);
        *sent += hand.send(way.from, &b).map_err(|e| format!("send: {e}"))? as u64;
    }
    Ok(())
}

fn read(way: &Way, seed: u64, peeks: bool) -> Outcome {
    let mut hand = Hand::new(seed);
    // What this thread has read before: the stream never goes back.
    let mut least = 0;
    loop {
        let len = hand.size();
        if peeks && hand.random.draw() % 2 == 0 {
            let wait = match hand.random.draw() % 4 {
                0 => 0,
                1 => libc::MSG_WAITALL | libc::MSG_DONTWAIT,
                _ => libc::MSG_DONTWAIT,
            };
            match sys::recv_vec(way.to, len, libc::MSG_PEEK | wait) {
                Ok(b) => {
                    let place = way.stream.place(&b).map_err(|e| format!("peek: {e}"))?;
                    if place.is_some_and(|at| at < least) {
                        return Err(format!("peeked at {place:?} after {least}"));
                    }
                    *way.peeks.lock().expect("no panic") += 1;
                }
                Err(Errno(libc::EAGAIN)) => {}
                Err(e) => return Err(format!("peek: {e}")),
            }
        }
        let b = hand
            .receive(way.to, len)
            .map_err(|e| format!("recv: {e}"))?;
        if b.is_empty() {
            return Ok(());
        }
        let place = way.stream.place(&b).map_err(|e| format!("recv: {e}"))?;
        if let Some(at) = place {
            if at < least {
                return Err(format!("read at {at} after {least}"));
            }
            least = at + b.len() as u64;
        }
        way.read.lock().expect("no panic").add(place, &b)?;
    }
}

/// Has the threads at it for some time, while `flip` and the sysctl `path_local` move the connection.
pub fn run(client: &Fd, server: &Fd, time: Duration, seed: u64) -> Result<String, String> {
    let way = |from: &Fd, to: &Fd, seed| Way {
        stream: Stream(seed),
        from: from.raw(),
        to: to.raw(),
        sent: Mutex::new(0),
        read: Mutex::default(),
        peeks: Mutex::new(0),
    };
    let ways = [way(client, server, seed), way(server, client, !seed)];
    let over = AtomicBool::new(false);
    let failed = AtomicBool::new(false);
    // Looks at the connection that saw it on a path of its own, and on TCP.
    let mut looks = [0u64; 2];
    let mut errors = Vec::new();
    let note = |r: Outcome| {
        if r.is_err() {
            failed.store(true, Relaxed);
            over.store(true, Relaxed);
            // Whoever sleeps is to see it.
            for way in &ways {
                let _ = sys::shutdown(way.from, libc::SHUT_RDWR);
            }
        }
        r
    };
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        let mut readers = Vec::new();
        for (i, way) in ways.iter().enumerate() {
            for n in 0..2 {
                let seed = seed ^ (4 * i as u64 + n);
                let (over, note) = (&over, &note);
                writers.push(scope.spawn(move || note(write(way, seed, over))));
                readers.push(scope.spawn(move || note(read(way, seed ^ 2, n == 1))));
            }
        }
        let end = Instant::now() + time;
        let mut turn = 0u64;
        while Instant::now() < end && !failed.load(Relaxed) {
            sys::sleep_ms(2);
            turn += 1;
            for fd in [client, server] {
                if let Ok(info) = smcinfo::info(fd.raw()) {
                    looks[usize::from(info.mode != st::path::MODE_LOCAL)] += 1;
                }
            }
            if turn % 16 == 0 {
                let on = if turn % 32 == 0 { "1" } else { "0" };
                if let Err(e) = net::sysctl("net.smc.path_local", on) {
                    errors.push(e);
                }
            }
        }
        over.store(true, Relaxed);
        for (way, pair) in ways.iter().zip(writers.chunks_mut(2)) {
            while !pair.iter().all(|w| w.is_finished()) {
                sys::sleep_ms(1);
            }
            let _ = sys::shutdown(way.from, libc::SHUT_WR);
        }
        for thread in writers.into_iter().chain(readers) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(e)) => errors.push(e),
                Err(_) => errors.push("a thread panicked".into()),
            }
        }
    });
    let _ = net::sysctl("net.smc.path_local", "1");
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    let mut said = format!("looks: {} moved, {} on TCP", looks[0], looks[1]);
    if looks.contains(&0) {
        return Err(format!("it did not change carriers: {said}"));
    }
    for way in ways {
        let sent = *way.sent.lock().expect("no panic");
        let cover = way.read.into_inner().expect("no panic");
        let (bytes, pieces) = (cover.bytes, cover.pieces);
        let short = cover.check_all(way.stream, sent)?;
        let peeks = way.peeks.lock().expect("no panic");
        said += &format!("; {bytes} bytes in {pieces} reads ({short} short), {peeks} peeks");
    }
    Ok(said)
}
