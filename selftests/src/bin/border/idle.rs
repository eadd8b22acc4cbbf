// SPDX-License-Identifier: GPL-2.0
//! Rings that nobody uses are given back: after a while, and at once when memory is short.
//!
//! Both ends say by `RSMC_INFO` whether they are on TCP, and the control group of the test what their rings take.

use st::fd::Fd;
use st::memory::Memory;
use st::{path, smcinfo, sys};
use std::time::{Duration, Instant};

/// Connections.
const MANY: usize = 48;
/// Bytes of a message, to which a ring grows.
const MESSAGE: usize = 128 << 10;
/// What the rings of a connection take, in KiB: one in each direction.
const RINGS: i64 = 2 * (MESSAGE >> 10) as i64;
/// Time in which a silent direction keeps its ring at least: four looks, a second apart.
const KEPT: Duration = Duration::from_secs(3);
/// Rounds in which a slow machine may use all connections within that time.
const ROUNDS: usize = 20;

/// A connection, and when its last use began.
struct Connection {
    ends: [Fd; 2],
    used: Instant,
}

impl Connection {
    /// Sends as much each way as makes the rings grow.
    fn talk(&mut self) -> Result<(), String> {
        self.used = Instant::now();
        let [c, s] = &self.ends;
        path::prove_local(c, s)?;
        let text = vec![7; MESSAGE];
        for (from, to) in [(c, s), (s, c)] {
            let mut sent = 0;
            while sent < MESSAGE {
                let n = sys::send(from.raw(), &text[sent..], libc::MSG_DONTWAIT)
                    .map_err(|e| format!("send: {e}"))?;
                sys::recv_all(to.raw(), n as usize).map_err(|e| format!("recv: {e}"))?;
                sent += n as usize;
            }
        }
        Ok(())
    }

    /// Tells whether an end is not on TCP.
    fn has_rings(&self) -> Result<bool, String> {
        for end in &self.ends {
            let seen = smcinfo::info(end.raw()).map_err(|e| format!("RSMC_INFO: {e}"))?;
            if seen.mode == path::MODE_LOCAL {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// All connections, and what memory they took before their first rings.
struct All {
    connections: Vec<Connection>,
    memory: Memory,
    cold: i64,
}

impl All {
    /// Returns how many have rings. Those that have none must have had them for long enough, if `early` is not allowed.
    fn with_rings(&self, early: bool) -> Result<usize, String> {
        let mut count = 0;
        for connection in &self.connections {
            if connection.has_rings()? {
                count += 1;
                continue;
            }
            let after = connection.used.elapsed();
            if !early && after < KEPT {
                return Err(format!("rings went {after:?} after they were used"));
            }
        }
        Ok(count)
    }

    fn taken(&self) -> i64 {
        self.memory.taken() - self.cold
    }

    /// Uses all of them, and compares their memory with the rings that they have; returns both. When the machine is so slow
    /// that the first are idle again before the last are used, once more.
    fn talk(&mut self, which: &str) -> Result<(usize, i64), String> {
        let mut seen = (0, 0);
        for _ in 0..ROUNDS {
            for connection in &mut self.connections {
                connection.talk()?;
            }
            let taken = self.taken();
            // Those had theirs before, too.
            let count = self.with_rings(false)?;
            seen = (count, taken);
            if count >= MANY / 2 && taken > count as i64 * RINGS * 3 / 4 {
                return Ok(seen);
            }
        }
        let (count, taken) = seen;
        Err(format!(
            "{which}: {count} with rings, which take {taken} KiB"
        ))
    }

    /// Tells whether the rings are gone, and their memory.
    fn are_idle(&self, early: bool) -> Result<bool, String> {
        Ok(self.with_rings(early)? == 0 && self.taken() < MANY as i64 * RINGS / 4)
    }

    /// Waits for that, as long as it takes on a slow machine.
    fn wait(&self, early: bool, seconds: u64) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(seconds * st::guest::slow());
        while !self.are_idle(early)? {
            if Instant::now() > end {
                let (count, taken) = (self.with_rings(true)?, self.taken());
                return Err(format!("{count} still have rings; {taken} KiB are left"));
            }
            sys::sleep_ms(20);
        }
        Ok(())
    }
}

/// Uses many connections, leaves them alone, and uses them again.
pub fn run(pair: impl Fn() -> Result<(Fd, Fd), String>) -> Result<String, String> {
    let memory = Memory::open()?;
    let mut connections = Vec::new();
    for _ in 0..MANY {
        let (c, s) = pair()?;
        // Bytes by TCP, in one direction: cold connections that have been looked at.
        sys::send_all(c.raw(), b"cold").map_err(|e| format!("send: {e}"))?;
        sys::recv_all(s.raw(), 4).map_err(|e| format!("recv: {e}"))?;
        let (ends, used) = ([c, s], Instant::now());
        connections.push(Connection { ends, used });
    }
    let cold = memory.taken();
    let mut all = All {
        connections,
        memory,
        cold,
    };
    let (count, used) = all.talk("at first")?;
    let begin = Instant::now();
    all.wait(false, 30)?;
    let (after, idle) = (begin.elapsed().as_millis(), all.taken());

    let mut short = None;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        all.talk("again")?;
        std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|e| format!("drop_caches: {e}"))?;
        let left = all.with_rings(true)?;
        // Else it may have been their time.
        if begin.elapsed() < KEPT {
            if left != 0 {
                return Err(format!("{left} have rings although memory is short"));
            }
            all.wait(true, 5)?;
            short = Some(all.taken());
            break;
        }
    }
    let (_, last) = all.talk("at last")?;
    Ok(format!(
        "KiB more than {MANY} cold connections: used {used} by {count}, idle {idle} after {after} ms, drop_caches {short:?}, \
         used {last}"
    ))
}

/// Sends large messages on connections whose client cannot leave TCP: it has asked for `TCP_INQ` itself, after the
/// ends have met. No ring is left behind.
pub fn kept(pair: impl Fn() -> Result<(Fd, Fd), String>) -> Result<String, String> {
    const CONNECTIONS: usize = 32;
    const MESSAGE: usize = 256 << 10;
    let e = |what: &'static str| move |e: st::errno::Errno| format!("{what}: {e}");
    let memory = Memory::open()?;
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let (c, s) = pair()?;
        sys::send_all(s.raw(), b"meet").map_err(e("send"))?;
        sys::recv_all(c.raw(), 4).map_err(e("recv"))?;
        sys::setopt(c.raw(), libc::IPPROTO_TCP, 36 /* TCP_INQ */, 1).map_err(e("TCP_INQ"))?;
        all.push((c, s));
    }
    let before = memory.taken();
    for (c, s) in &all {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| sys::recv_all(s.raw(), MESSAGE));
            let sent = sys::send_all(c.raw(), &vec![1; MESSAGE]).map_err(e("send"));
            sent.and(reader.join().map_err(|_| "panic")?.map_err(e("recv")))
        })?;
    }
    std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|e| format!("drop_caches: {e}"))?;
    let rings = (CONNECTIONS * MESSAGE) as i64 / 1024;
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let left = memory.taken() - before;
        if left < rings / 4 {
            return Ok(format!(
                "{left} KiB left of {CONNECTIONS} connections, rings would be {rings}"
            ));
        }
        if Instant::now() > end {
            return Err(format!(
                "{left} KiB left of {CONNECTIONS} connections that have no ring"
            ));
        }
        sys::sleep_ms(20);
    }
}

/// Moves connections as long as the user's limit allows: not one more, the others work by TCP, a ring that has to grow
/// beyond it goes on by TCP, too, and what is given back can be had again.
pub fn limit(pair: impl Fn() -> Result<(Fd, Fd), String>) -> Result<(), String> {
    const PAGES: usize = 32;
    /// Rings of 16 KiB that are as many pages.
    const RINGS: usize = PAGES / 4;
    let e = |what: &'static str| move |e: st::errno::Errno| format!("{what}: {e}");
    st::net::sysctl("net.smc.path_user_pages", &PAGES.to_string())?;
    let mut all = Vec::new();
    let moved = |all: &[(Fd, Fd)]| {
        let info = |fd: &Fd| st::smcinfo::info(fd.raw()).is_ok_and(|i| i.mode == path::MODE_LOCAL);
        all.iter().filter(|(c, _)| info(c)).count()
    };
    let message = |(c, s): &(Fd, Fd), bytes: usize| {
        sys::send_all(c.raw(), &vec![5; bytes]).map_err(e("send"))?;
        let got = sys::recv_all(s.raw(), bytes).map_err(e("recv"))?;
        match got == vec![5; bytes] {
            true => Ok(()),
            false => Err("other bytes".to_owned()),
        }
    };
    for _ in 0..2 * RINGS {
        let (c, s) = pair()?;
        sys::send_all(s.raw(), b"meet").map_err(e("send"))?;
        sys::recv_all(c.raw(), 4).map_err(e("recv"))?;
        all.push((c, s));
        for _ in 0..3 {
            message(all.last().ok_or("none")?, 100)?;
        }
    }
    if moved(&all) != RINGS {
        return Err(format!(
            "{} connections have a ring, wanted {RINGS}",
            moved(&all)
        ));
    }
    // One that is full, and may not be larger: the rest goes by TCP.
    let (c, s) = &all[0];
    let mut sent = 0;
    while sent < 48 << 10 {
        if sys::poll1(c.raw(), libc::POLLOUT, 0) != Ok(libc::POLLOUT) {
            return Err(format!("no room after {sent} bytes, where TCP has some"));
        }
        sent += sys::send(c.raw(), &[6; 4096], libc::MSG_DONTWAIT).map_err(e("send"))? as usize;
    }
    let got = sys::recv_all(s.raw(), sent).map_err(e("recv"))?;
    if got != vec![6; sent] {
        return Err("other bytes".into());
    }
    all.truncate(RINGS / 2);
    for _ in 0..RINGS / 2 {
        all.push(pair()?);
        for _ in 0..3 {
            message(all.last().ok_or("none")?, 100)?;
        }
    }
    let others = moved(&all[RINGS / 2..]);
    st::net::sysctl("net.smc.path_user_pages", "0")?;
    match others {
        0 => Err("no ring after some were given back".into()),
        _ => Ok(()),
    }
}
