// SPDX-License-Identifier: GPL-2.0
//! BPF programs of a control group that look at packets: no byte goes past them. Attached before the
//! connection they keep it on TCP, attached later they bring it back there.

use st::bpf::{self, Counter};
use st::cgroup::Hierarchy;
use st::errno::Errno;
use st::fd::Fd;
use st::{path, smcinfo, sys};
use std::os::fd::AsRawFd;

/// `PATHATTACHED`.
const REASON: u32 = 0x0306_0101;
const MESSAGE: usize = 1000;
const MESSAGES: u64 = 100;

/// Sends a number of messages from one end to the other.
fn send(from: &Fd, to: &Fd) -> Result<(), String> {
    let e = |e: Errno| format!("data: {e}");
    for _ in 0..MESSAGES {
        sys::send_all(from.raw(), &[7; MESSAGE]).map_err(e)?;
        sys::recv_all(to.raw(), MESSAGE).map_err(e)?;
    }
    Ok(())
}

/// Checks that a counter that looks at `way` sees all that goes from one end to the other, if `all`; if not,
/// that it sees less than that.
fn counts(counter: &Counter, from: &Fd, to: &Fd, all: bool) -> Result<(), String> {
    let e = |e: Errno| format!("the map: {e}");
    let before = counter.bytes().map_err(e)?;
    send(from, to)?;
    let seen = counter.bytes().map_err(e)? - before;
    let sent = MESSAGES * MESSAGE as u64;
    match (seen >= sent) == all {
        true => Ok(()),
        false => Err(format!("it has seen {seen} of {sent} bytes")),
    }
}

/// A cgroup that this process is in while it lives.
pub struct Group(Hierarchy);

impl Group {
    pub fn new() -> Result<Group, String> {
        let all = Hierarchy::new()?;
        all.enter().map_err(|e| e.to_string())?;
        Ok(Group(all))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// With the program that looks at `way` (0 what arrives, 1 what leaves).
pub fn run(
    group: &Group,
    way: u32,
    pair: impl Fn() -> Result<(Fd, Fd), String>,
) -> Result<(), String> {
    let e = |what: &'static str| move |e: Errno| format!("{what}: {e}");
    let cgroup = std::fs::File::open(group.0.inside()).map_err(|e| e.to_string())?;
    let counter = Counter::new(way).map_err(e("BPF_PROG_LOAD"))?;
    // A connection that has moved already.
    let (c, s) = pair()?;
    path::prove_local(&c, &s)?;
    path::prove_local(&c, &s)?;
    counts(&counter, &c, &s, false)?;
    bpf::attach(cgroup.as_raw_fd(), &counter.program, way).map_err(e("BPF_PROG_ATTACH"))?;
    let attached = counts(&counter, &c, &s, true).and_then(|()| counts(&counter, &s, &c, true));
    // One that begins now.
    let later = pair().and_then(|(c, s)| {
        send(&c, &s)?;
        counts(&counter, &c, &s, true)?;
        counts(&counter, &s, &c, true)?;
        let info = smcinfo::info(c.raw()).map_err(e("RSMC_INFO"))?;
        match (info.mode, info.reason) {
            (smcinfo::MODE_TCP | 3, REASON) => Ok(()),
            other => Err(format!("mode and reason {other:x?}")),
        }
    });
    bpf::detach(cgroup.as_raw_fd(), &counter.program, way).map_err(e("BPF_PROG_DETACH"))?;
    attached.map_err(|e| format!("attached later: {e}"))?;
    later.map_err(|e| format!("attached before: {e}"))?;
    // Nobody looks any more.
    path::prove_local(&c, &s)?;
    path::prove_local(&c, &s)
}
