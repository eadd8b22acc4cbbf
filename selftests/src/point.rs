// SPDX-License-Identifier: GPL-2.0
//! Test points that run in a child of their own with a fresh namespace and a fresh wire
//! ([`crate::net::wire`]), for programs that work with packets.

use crate::args::Args;
use crate::child::{self, End};
use crate::family::{Family, Ip};
use crate::fd::Fd;
use crate::ktap::Ktap;
use crate::packet::{self, Seg};
use crate::rawpeer::Wire;
use crate::{net, sys};
use std::io::Write;
use std::time::{Duration, Instant};

/// Holds the state of a point; it runs in a child with a fresh namespace and wire.
pub struct T<'a> {
    /// Family under test.
    pub family: Family,
    /// Kind of address.
    pub ip: Ip,
    /// A packet socket on `vb`.
    pub wire: Wire,
    out: &'a mut std::fs::File,
    bad: bool,
}

impl T<'_> {
    /// Notes a condition; false fails the point.
    pub fn check(&mut self, what: &str, good: bool) {
        if !good {
            self.bad = true;
            let _ = writeln!(self.out, "wrong: {what}");
        }
    }

    /// Notes a condition with what was seen.
    pub fn is<V: PartialEq + std::fmt::Debug>(&mut self, what: &str, got: V, want: V) {
        if got != want {
            self.bad = true;
            let _ = writeln!(self.out, "wrong: {what}: got {got:x?}, wanted {want:x?}");
        }
    }

    /// A comment.
    pub fn say(&mut self, s: &str) {
        let _ = writeln!(self.out, "{s}");
    }

    /// A socket of the family under test.
    pub fn socket(&self) -> Fd {
        let (d, p) = self.family.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM, p).expect("socket");
        if self.ip == Ip::Mapped {
            let _ = sys::setopt(s.raw(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
        }
        let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 30_000);
        s
    }

    /// Returns how often the option must be in a SYN or SYN-ACK of the family: never for plain TCP.
    pub fn wanted(&self) -> usize {
        usize::from(self.family != Family::Tcp)
    }

    /// Checks a SYN or SYN-ACK: the option `n` times, byte-exact, options well formed and sums right.
    pub fn syn(&mut self, what: &str, s: &Seg, n: usize) {
        self.is(
            &format!("{what}: option count in {:02x?}", s.opts),
            packet::smc_options(&s.opts),
            n,
        );
        self.check(
            &format!("{what}: sums {:?}", s.sums),
            s.sums != packet::Sums::Bad,
        );
        match packet::options(&s.opts) {
            None => self.check(&format!("{what}: malformed options {:02x?}", s.opts), false),
            Some(v) => {
                let smc = v.iter().filter(|o| o.0 == 254).count();
                self.is(&format!("{what}: options of kind 254"), smc, n);
            }
        }
        self.check(&format!("{what}: at most 40 bytes"), s.opts.len() <= 40);
        self.check(&format!("{what}: no payload"), s.data.is_empty());
    }
}

/// A point of the test.
pub struct Point {
    /// Its name.
    pub name: &'static str,
    /// The function to run.
    pub run: fn(&mut T),
}

/// A list of points from function names.
#[macro_export]
macro_rules! points {
    ($($f:ident),* $(,)?) => {
        /// The points of this file.
        pub const LIST: &[$crate::point::Point] =
            &[$($crate::point::Point { name: stringify!($f), run: $f }),*];
    };
}

/// Milliseconds after which a point is stopped: some are hundreds of connections, and share the
/// machine with other guests.
const LIMIT_MS: u64 = 90_000;
/// A point that takes longer says so.
const REMARKABLE: Duration = Duration::from_secs(5);

/// Runs the picked points for every family and kind of address, and ends the process.
pub fn main(lists: &[&'static [Point]], jobs: u64) -> ! {
    let a = Args::get();
    let picked: Vec<&Point> = lists
        .iter()
        .flat_map(|l| l.iter())
        .filter(|p| a.words.is_empty() || a.words.iter().any(|w| p.name.starts_with(w.as_str())))
        .collect();
    let (fams, ips) = (a.families(), a.ips());
    let total = picked.len() * fams.len() * ips.len();
    let part = crate::parts::part(&a, jobs, total);
    let picked: Vec<&Point> = picked
        .into_iter()
        .enumerate()
        .filter(|x| part.has(x.0))
        .map(|x| x.1)
        .collect();
    let mut k = Ktap::plan(picked.len() * fams.len() * ips.len());
    for p in &picked {
        for &family in &fams {
            for &ip in &ips {
                let start = Instant::now();
                let (text, end) = child::run(LIMIT_MS * crate::guest::slow(), |out| {
                    net::private().expect("private namespace (root needed)");
                    net::wire().expect("wire");
                    let wire = Wire::open("vb").expect("packet socket");
                    let mut t = T {
                        family,
                        ip,
                        wire,
                        out,
                        bad: false,
                    };
                    (p.run)(&mut t);
                    if t.bad {
                        crate::child::fail();
                    }
                });
                let name = format!("{}.{}.{}", p.name, family.name(), ip.name());
                if let Some(why) = text.lines().find_map(|l| l.strip_prefix("skip: ")) {
                    k.skip(&name, why);
                    continue;
                }
                k.diag(&text);
                if start.elapsed() > REMARKABLE {
                    k.diag(&format!("{name}: {} s", start.elapsed().as_secs()));
                }
                let r = if end == End::Exit(0) {
                    Ok(())
                } else {
                    Err(format!("ended with {end:?}"))
                };
                k.outcome(&name, r);
            }
        }
    }
    std::process::exit(k.finish());
}
