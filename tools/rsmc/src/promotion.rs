// SPDX-License-Identifier: GPL-2.0
//! Counters of connections that began as TCP: lines of `/proc/net/smc_fallback` (of rsmc).
//!
//! `tcp_first_ROLE N` and `local_ROLE N`, with ROLE `client` or `server`; `promotion_KIND ROLE N` of promotions to
//! SMC-R, with KIND `begun`, `done`, `failed`, `refused`, `ns` or `longest_ns`; `promotion_time ROLE BOUND N`: those that
//! took less than BOUND microseconds and not less than half of it (0: the longest); `promotion_returned ROLE CAUSE N`:
//! those that have gone back to TCP, with CAUSE `lost`, `idle`, `pressure`, `command` or `peer`; `promotion_reason ROLE CODE N`;
//! `promotion_peer ADDR CODE N ORDER`; `given_back N`.

use crate::error::{Error, Result};
use crate::fallback::{code, number, plain, Role};
use crate::reason::Told;
use crate::stats::tree::Flat;
use crate::table;
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;

/// Counters of a role, as `--json` prints them. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// Connections that began as TCP.
    pub connections: u64,
    /// Ends of these that have left it for memory.
    pub local: u64,
    /// Attempts to promote one to SMC-R.
    pub begun: u64,
    /// Of these, those whose end has turned.
    pub done: u64,
    /// Of these, those that have ended otherwise.
    pub failed: u64,
    /// Times that a connection was worth promoting and no attempt has begun.
    pub refused: u64,
    /// Sum of the times from the beginning of an attempt to the turn of this end, in nanoseconds.
    pub ns: u64,
    /// The longest of them, since the module was loaded.
    pub longest_ns: u64,
    /// The same times by size.
    pub times: Vec<Times>,
    /// Promoted connections that have gone back to TCP, by cause.
    pub returned: Returned,
}

/// Promoted connections that have gone back to TCP. The names are an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// The link was lost.
    pub lost: u64,
    /// They were idle.
    pub idle: u64,
    /// They were idle, and memory was short.
    pub pressure: u64,
    /// `rsmc demote`.
    pub command: u64,
    /// The peer had one of these causes.
    pub peer: u64,
    /// The link was worse than TCP.
    pub worse: u64,
}

impl Returned {
    /// The counters with their names.
    pub fn counts(&mut self) -> [(&'static str, &mut u64); 6] {
        [
            ("lost", &mut self.lost),
            ("idle", &mut self.idle),
            ("pressure", &mut self.pressure),
            ("command", &mut self.command),
            ("peer", &mut self.peer),
            ("worse", &mut self.worse),
        ]
    }
}

/// Number of promotions that took so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Less than this number of microseconds, and not less than half of it but for the first; `null`: more than the
    /// others.
    pub below_us: Option<u64>,
    /// How many.
    pub count: u64,
}

/// What became of attempts with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer.
    pub address: IpAddr,
    /// Code of the reason why not; 0 for promotions.
    pub code: u32,
    /// How often.
    pub count: u64,
    /// Larger for what was later.
    pub order: u64,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotions {
    /// As client.
    pub client: Ends,
    /// As server.
    pub server: Ends,
    /// Connections that were left to TCP for good as their programs wanted it; `None` if the module does not know
    /// promotions.
    pub given_back: Option<u64>,
    /// By role and reason code.
    pub reasons: Vec<(Role, u32, u64)>,
    /// By peer.
    pub peers: Vec<Peer>,
}

impl Promotions {
    fn of(&mut self, role: &str) -> Result<&mut Ends> {
        match role {
            "client" => Ok(&mut self.client),
            "server" => Ok(&mut self.server),
            _ => Err(Error::Malformed("the role of a promotion")),
        }
    }

    /// Takes a line, if it is one of these.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn take(&mut self, fields: &[&str]) -> Result<()> {
        match *fields {
            ["given_back", count] => self.given_back = Some(number(count)?),
            ["tcp_first_client", count] => self.client.connections = number(count)?,
            ["tcp_first_server", count] => self.server.connections = number(count)?,
            ["local_client", count] => self.client.local = number(count)?,
            ["local_server", count] => self.server.local = number(count)?,
            ["promotion_begun", role, count] => self.of(role)?.begun = number(count)?,
            ["promotion_done", role, count] => self.of(role)?.done = number(count)?,
            ["promotion_failed", role, count] => self.of(role)?.failed = number(count)?,
            ["promotion_refused", role, count] => self.of(role)?.refused = number(count)?,
            ["promotion_ns", role, count] => self.of(role)?.ns = number(count)?,
            ["promotion_longest_ns", role, count] => self.of(role)?.longest_ns = number(count)?,
            ["promotion_time", role, bound, count] => {
                let below_us = Some(number(bound)?).filter(|bound| *bound != 0);
                let count = number(count)?;
                self.of(role)?.times.push(Times { below_us, count });
            }
            ["promotion_returned", role, cause, count] => {
                let count = number(count)?;
                for (name, counter) in self.of(role)?.returned.counts() {
                    if name == cause {
                        *counter = count;
                    }
                }
            }
            ["promotion_reason", role, reason, count] => {
                let role = Role::from_name(role)?;
                self.reasons.push((role, code(reason)?, number(count)?));
            }
            ["promotion_peer", address, reason, count, order] => {
                let address = address.parse();
                let address = address.map_err(|_| Error::Malformed("a peer's address"))?;
                self.peers.push(Peer {
                    address: plain(address),
                    code: code(reason)?,
                    count: number(count)?,
                    order: number(order)?,
                });
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bound of the first class of times in microseconds, and the number of those with a bound.
const FIRST_BOUND: u64 = 128;
const BOUNDS: u32 = 16;

/// The bounds of all classes in microseconds; the last one has none.
pub fn bounds() -> impl Iterator<Item = Option<u64>> {
    let bounds = (0..BOUNDS).map(|at| Some(FIRST_BOUND << at));
    bounds.chain([None])
}

/// What `rsmc stats` shows of them. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// As client.
    pub client: Ends,
    /// As server.
    pub server: Ends,
    /// Connections that were left to TCP for good as their programs wanted it.
    pub given_back: u64,
    /// Reasons why connections were not promoted, by side.
    pub reasons: Vec<Reason>,
}

/// A reason why a side's connections were not promoted.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// `client` or `server`.
    pub role: &'static str,
    /// The reason.
    #[serde(flatten)]
    pub reason: Told,
    /// How often.
    pub count: u64,
}

/// Beginning of the counters' names.
const PATH: &str = "began_as_tcp";

impl Ends {
    /// The counters with their names.
    fn counts(&mut self) -> [(&'static str, &mut u64); 7] {
        [
            ("connections", &mut self.connections),
            ("local", &mut self.local),
            ("begun", &mut self.begun),
            ("done", &mut self.done),
            ("failed", &mut self.failed),
            ("refused", &mut self.refused),
            ("ns", &mut self.ns),
        ]
    }

    fn tell(&self, role: &str, out: &mut dyn Write) -> io::Result<()> {
        if self.connections != 0 {
            let local = match self.local {
                0 => String::new(),
                local => format!(", {local} by memory"),
            };
            writeln!(out, "began as TCP as {role}: {}{local}", self.connections)?;
        }
        if self.begun | self.refused != 0 {
            writeln!(
                out,
                "promotions as {role}: {} begun, {} done, {} failed; {} times not begun",
                self.begun, self.done, self.failed, self.refused
            )?;
        }
        if let Some(mean) = self.ns.checked_div(self.done).filter(|mean| *mean != 0) {
            writeln!(
                out,
                "  time to the turn: {} on average, {} at most",
                table::time(mean),
                table::time(self.longest_ns)
            )?;
            let times: Vec<String> = self.times.iter().map(Times::words).collect();
            writeln!(out, "  times: {}", times.join(", "))?;
        }
        let mut returned = self.returned;
        let returned: Vec<String> = returned
            .counts()
            .into_iter()
            .filter(|(_, count)| **count != 0)
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        if !returned.is_empty() {
            writeln!(out, "  gone back to TCP: {}", returned.join(", "))?;
        }
        Ok(())
    }
}

impl Times {
    fn words(&self) -> String {
        match self.below_us {
            Some(below) => format!("< {} {}", table::time(below * 1000), self.count),
            None => format!("longer {}", self.count),
        }
    }
}

impl Shown {
    /// What is shown of the counters; `None` if the module does not know promotions.
    pub fn new(counters: &Promotions) -> Option<Self> {
        let reasons = counters.reasons.iter();
        Some(Self {
            given_back: counters.given_back?,
            client: counters.client.clone(),
            server: counters.server.clone(),
            reasons: reasons
                .map(|(role, code, count)| Reason {
                    role: role.name(),
                    reason: Told::new(*code),
                    count: *count,
                })
                .collect(),
        })
    }

    fn ends(&mut self) -> [(&'static str, &mut Ends); 2] {
        [("client", &mut self.client), ("server", &mut self.server)]
    }

    /// Calls `each` for every counter, with its names joined by points.
    fn each(&mut self, mut each: impl FnMut(String, &mut u64)) {
        each(format!("{PATH}.given_back"), &mut self.given_back);
        for (role, ends) in self.ends() {
            for (name, count) in ends.counts() {
                each(format!("{PATH}.{role}.{name}"), count);
            }
            for times in &mut ends.times {
                let below = times.below_us.unwrap_or(0);
                each(format!("{PATH}.{role}.times.{below}"), &mut times.count);
            }
            for (cause, count) in ends.returned.counts() {
                each(format!("{PATH}.{role}.returned.{cause}"), count);
            }
        }
        for reason in &mut self.reasons {
            let path = format!("{PATH}.reasons.{}.{}", reason.role, reason.reason.code);
            each(path, &mut reason.count);
        }
    }

    /// Adds all counters by their names joined by points.
    pub fn add_to(&self, flat: &mut Flat) {
        self.clone().each(|path, count| {
            flat.insert(path, *count);
        });
    }

    /// Returns the increase of the counters over `before`.
    #[must_use]
    pub fn since(mut self, before: &Flat) -> Self {
        self.each(|path, count| {
            let before = before.get(&path).copied().unwrap_or(0);
            *count = count.saturating_sub(before);
        });
        self.reasons.retain(|reason| reason.count > 0);
        for (_, ends) in self.ends() {
            ends.times.retain(|times| times.count > 0);
        }
        self
    }

    /// Prints what is not zero.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        self.client.tell("client", out)?;
        self.server.tell("server", out)?;
        if self.given_back != 0 {
            writeln!(out, "left to TCP for good: {}", self.given_back)?;
        }
        for entry in &self.reasons {
            let Reason {
                role,
                reason,
                count,
            } = entry;
            writeln!(
                out,
                "  not promoted, {count} as {role}: {} {}",
                reason.name, reason.text
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fallback;

    /// Lines of the kernel.
    pub(crate) const LINES: &str = "given_back 1\ntcp_first_client 9\nlocal_client 2\ntcp_first_server 4\n\
        local_server 0\npromotion_begun client 5\npromotion_done client 3\npromotion_failed client 2\n\
        promotion_refused client 1\npromotion_ns client 9000000\npromotion_longest_ns client 7000000\n\
        promotion_returned client idle 2\npromotion_returned client lost 1\n\
        promotion_time client 1024 2\npromotion_time client 0 1\npromotion_begun server 0\n\
        promotion_reason client 0x0306010c 2\npromotion_reason client 0x0306010e 1\n\
        promotion_peer 10.0.0.2 0x00000000 3 5\npromotion_peer ::ffff:10.0.0.2 0x0306010c 2 6\n\
        promotion_peer 10.0.0.3 0x0306010e 1 4\n";

    pub(crate) fn sample() -> Shown {
        let counters = fallback::parse(LINES).unwrap();
        Shown::new(&counters.promotions).unwrap()
    }

    #[test]
    fn lines() {
        let counters = fallback::parse(LINES).unwrap().promotions;
        assert_eq!((counters.client.begun, counters.client.done), (5, 3));
        let times = [(Some(1024), 2), (None, 1)];
        let times = times.map(|(below_us, count)| Times { below_us, count });
        assert_eq!(counters.client.times, times);
        assert_eq!(counters.server.connections, 4);
        assert_eq!(counters.reasons.len(), 2);
        assert_eq!(counters.peers[1].address, counters.peers[0].address);
        // The in-tree module, and an older one of ours.
        let other = fallback::parse("smc_connections 3\ntcp_first_client 1\n").unwrap();
        assert!(Shown::new(&other.promotions).is_none());
        for broken in [
            "promotion_begun nobody 1",
            "promotion_begun client -1",
            "promotion_returned client idle x",
            "promotion_time client x 1",
            "promotion_reason server 0xg 1",
            "promotion_peer 10.0.0 0x0 1 1",
            "promotion_peer 10.0.0.1 0x0 1 x",
        ] {
            assert!(fallback::parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn in_words() {
        let mut out = Vec::new();
        sample().tell(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "began as TCP as client: 9, 2 by memory\n\
             promotions as client: 5 begun, 3 done, 2 failed; 1 times not begun\n  \
             time to the turn: 3.0 ms on average, 7.0 ms at most\n  \
             times: < 1.0 ms 2, longer 1\n  \
             gone back to TCP: lost 1, idle 2\n\
             began as TCP as server: 4\nleft to TCP for good: 1\n  \
             not promoted, 2 as client: PATHREFUSED The connection was to be promoted to SMC-R, and the other host did \
             not agree\n  \
             not promoted, 1 as client: PATHSOFTWARE The RDMA device is software, over which connections are not \
             promoted: path_software\n"
        );
    }

    #[test]
    fn since_a_reset() {
        let mut before = Flat::new();
        sample().add_to(&mut before);
        assert_eq!(before["began_as_tcp.client.times.1024"], 2);
        assert_eq!(before["began_as_tcp.reasons.client.0x0306010c"], 2);
        let nothing = sample().since(&before);
        assert!(nothing.reasons.is_empty() && nothing.client.times.is_empty());
        assert_eq!((nothing.client.done, nothing.client.ns), (0, 0));
        before.insert("began_as_tcp.client.done".into(), 1);
        let some = sample().since(&before);
        assert_eq!(some.client.done, 2);
        // Not a count.
        assert_eq!(some.client.longest_ns, 7_000_000);
    }

    #[test]
    fn classes() {
        let all: Vec<_> = bounds().collect();
        assert_eq!(all[0], Some(128));
        assert_eq!((all[15], all[16], all.len()), (Some(1 << 22), None, 17));
    }
}
