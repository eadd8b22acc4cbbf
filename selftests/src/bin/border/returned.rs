// SPDX-License-Identifier: GPL-2.0
//! A writer that leaves TCP with its first message and comes back with the next: it does not wait for the reader's
//! TCP, which acknowledges the first data at once, as ever.

use st::fd::Fd;
use st::{net, path, sys};
use std::time::{Duration, Instant};

/// Counts delayed acknowledgements while `s` sends two small messages, and `c` reads neither.
pub fn run(c: &Fd, s: &Fd) -> Result<String, String> {
    path::prove_local(c, s)?;
    // What `s` writes from now on goes by TCP, whose first data in this direction it is.
    sys::setopt(c.raw(), libc::IPPROTO_TCP, 36 /* TCP_INQ */, 1).map_err(|e| format!("{e}"))?;
    let before = net::tcp_ext("DelayedACKs");
    let begin = Instant::now();
    for byte in [b"a", b"b"] {
        sys::send_all(s.raw(), byte).map_err(|e| format!("send: {e}"))?;
    }
    let there = || sys::ioctl_get(c.raw(), libc::FIONREAD);
    while there() != Ok(2) {
        if begin.elapsed() > Duration::from_secs(20 * st::guest::slow()) {
            return Err(format!("{:?} bytes are there", there()));
        }
        sys::sleep_ms(1);
    }
    let took = begin.elapsed();
    match net::tcp_ext("DelayedACKs") - before {
        0 => Ok(format!("both after {} us", took.as_micros())),
        n => Err(format!(
            "{n} delayed ACKs, both after {} ms",
            took.as_millis()
        )),
    }
}
