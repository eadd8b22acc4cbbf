// SPDX-License-Identifier: GPL-2.0
//! Room to write: what poll() says of it is what a call finds, and what TCP says.

use st::errno::Errno;
use st::fd::Fd;
use st::rng;
use st::slow_page::SlowPage;
use st::sys;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Messages that both ends write before either reads: a name, their size, and how many.
pub const SIZES: &[(&str, usize, usize)] = &[
    ("many", 8192, 10),
    ("few", 50_000, 3),
    ("tiny", 100, 800),
    ("growing", 30_000, 5),
];

fn e(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| format!("{what}: {e}")
}

/// Writes as a program does that polls before each call and does not wait in it; returns the bytes that went, all
/// if there was always room.
fn write(fd: i32, bytes: &[u8], size: usize) -> Result<usize, String> {
    let mut sent = 0;
    for message in bytes.chunks(size) {
        let mut done = 0;
        while done < message.len() {
            let events = sys::poll1(fd, libc::POLLOUT, 0).map_err(e("poll"))?;
            if events & libc::POLLOUT == 0 {
                return Ok(sent);
            }
            match sys::send(fd, &message[done..], libc::MSG_DONTWAIT) {
                Ok(n) => done += n as usize,
                Err(Errno(libc::EAGAIN)) => {
                    return Err(format!(
                        "poll() says OUT, send() EAGAIN, after {sent} bytes"
                    ));
                }
                Err(e) => return Err(format!("send: {e}")),
            }
            sent += done;
        }
    }
    Ok(sent)
}

fn both(a: i32, b: i32, size: usize, count: usize) -> Result<[usize; 2], String> {
    let mut sent = [0; 2];
    for (i, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
        // Bytes that have moved the connection, and gone.
        let small = size.min(16);
        sys::send_all(from, &vec![0; small]).map_err(e("send"))?;
        sys::recv_all(to, small).map_err(e("recv"))?;
        sent[i] = 0;
    }
    for (i, from) in [a, b].into_iter().enumerate() {
        let mut bytes = vec![0; size * count];
        rng::fill(i as u64, 0, &mut bytes);
        sent[i] = write(from, &bytes, size)?;
    }
    Ok(sent)
}

/// Both ends write, each message after a poll(), and none reads before both have done.
pub fn polled(
    size: usize,
    count: usize,
    pair: impl Fn() -> Result<(Fd, Fd), String>,
) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let to = listener.local_addr().map_err(|e| e.to_string())?;
    let tcp = TcpStream::connect(to).map_err(|e| e.to_string())?;
    let (other, _) = listener.accept().map_err(|e| e.to_string())?;
    let wanted = both(tcp.as_raw_fd(), other.as_raw_fd(), size, count)?;
    let (c, s) = pair()?;
    let got = both(c.raw(), s.raw(), size, count)?;
    let all = size * count;
    if got.iter().zip(&wanted).any(|(got, wanted)| got < wanted) {
        return Err(format!(
            "of {all} bytes each way TCP takes {wanted:?}, a local path {got:?}"
        ));
    }
    for (i, fd) in [s.raw(), c.raw()].into_iter().enumerate() {
        let mut bytes = vec![0; got[i]];
        rng::fill(i as u64, 0, &mut bytes);
        let mut read = vec![0; got[i]];
        // SAFETY: The descriptor stays the pair's.
        let mut file = std::mem::ManuallyDrop::new(unsafe {
            <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        });
        file.read_exact(&mut read).map_err(|e| e.to_string())?;
        if read != bytes {
            return Err("other bytes than were sent".into());
        }
    }
    Ok(format!("TCP {wanted:?}, local path {got:?}"))
}

/// A writer whose ring cannot grow, since the reader sleeps with it in a peek: poll() says no room while send() says
/// so, and there is room as soon as the peek is over, though nothing was taken.
pub fn peeked(c: &Fd, s: &Fd) -> Result<(), String> {
    st::path::prove_local(c, s)?;
    let page = SlowPage::new(&[])?;
    sys::send_all(c.raw(), &[1; 64]).map_err(e("send"))?;
    let raw = s.raw();
    // SAFETY: The pages live until the thread is joined; its call alone touches them.
    let place = unsafe { std::slice::from_raw_parts_mut(page.at(0), 64) };
    std::thread::scope(|scope| {
        let peek = scope.spawn(move || sys::recv(raw, place, libc::MSG_PEEK));
        let result = page.wait_for_sleeper().and_then(|()| beside_peek(c, &page));
        page.let_go();
        let peeked = peek.join().map_err(|_| "panic")?;
        result?;
        if peeked != Ok(64) {
            return Err(format!("the peek: {peeked:?}"));
        }
        if sys::poll1(c.raw(), libc::POLLOUT, 2000) != Ok(libc::POLLOUT) {
            return Err("no room after the peek".into());
        }
        match sys::send(c.raw(), &[3; 4096], libc::MSG_DONTWAIT) {
            Ok(4096) => Ok(()),
            other => Err(format!("after the peek: {other:?}")),
        }
    })
}

fn beside_peek(c: &Fd, page: &SlowPage) -> Result<(), String> {
    let mut sent = 0;
    while let Ok(n) = sys::send(c.raw(), &[2; 1024], libc::MSG_DONTWAIT) {
        sent += n;
        if sent > 64 << 20 {
            return Err("send() takes all".into());
        }
    }
    let events = sys::poll1(c.raw(), libc::POLLOUT, 0).map_err(e("poll"))?;
    if events & libc::POLLOUT != 0 {
        let again = sys::send(c.raw(), &[2; 1024], libc::MSG_DONTWAIT);
        return Err(format!("poll() says OUT, send() {again:?}"));
    }
    // A waiter is woken by the end of the peek.
    std::thread::scope(|scope| {
        let raw = c.raw();
        let poller = scope.spawn(move || sys::poll1(raw, libc::POLLOUT, 3000));
        sys::sleep_ms(100);
        page.let_go();
        match poller.join().map_err(|_| "panic")? {
            Ok(events) if events & libc::POLLOUT != 0 => Ok(()),
            other => Err(format!("a poller that waits is not woken: {other:?}")),
        }
    })
}
