// SPDX-License-Identifier: GPL-2.0
//! Programs of the same machine that have nothing to do with the hostile peer, and the longest that
//! each of them has had to wait.

use st::errno::R;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::netlink::{Generic, Netlink};
use st::point::T;
use st::rawpeer::wire_addr;
use st::{guest, net, smcinfo, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two turns of a program.
const PAUSE_MS: u64 = 20;
/// A module that nothing needs.
const MODULE: &str = "tcp_bbr";

/// What a program does again and again.
type Turn = Box<dyn FnMut() -> Result<(), String> + Send>;

/// How often one of them came through, and the longest wait.
type Waited = Result<(u32, Duration), String>;

/// The programs, while they run.
pub struct Bystanders {
    stop: Arc<AtomicBool>,
    all: Vec<(&'static str, JoinHandle<Waited>)>,
}

/// A connection with somebody who listens at `port` of the kernel's end of the wire, and a byte over it.
fn client(family: Family, ip: Ip, port: u16, smc: bool) -> R<Turn> {
    let listener = socket(family, ip)?;
    let at = SocketAddr::new(wire_addr(false, ip), port);
    sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    sys::bind(listener.raw(), &at)?;
    sys::listen(listener.raw(), 16)?;
    Ok(Box::new(move || {
        let turn = || -> R<bool> {
            let here = socket(family, ip)?;
            sys::connect(here.raw(), &at)?;
            let there = sys::accept(listener.raw())?;
            sys::send_all(here.raw(), b"x")?;
            sys::recv_all(there.raw(), 1)?;
            Ok(!smc || smcinfo::info(here.raw()).is_ok_and(|info| info.mode == 0))
        };
        match turn() {
            Ok(true) => Ok(()),
            Ok(false) => Err("not SMC-R".into()),
            Err(error) => Err(error.to_string()),
        }
    }))
}

fn socket(family: Family, ip: Ip) -> R<Fd> {
    let (domain, protocol) = family.triple(ip);
    let socket = sys::socket(domain, libc::SOCK_STREAM, protocol)?;
    sys::set_timeo(socket.raw(), libc::SO_RCVTIMEO, 5000)?;
    Ok(socket)
}

/// The link groups and links, as `rsmc link` asks for them.
fn links() -> Turn {
    const LINKS: u8 = 3;
    Box::new(|| {
        let dump = Generic::open("SMC_GEN_NETLINK").and_then(|family| family.dump(LINKS));
        dump.map(drop).map_err(|error| error.to_string())
    })
}

/// The families of generic netlink, as `genl ctrl list` asks for them.
fn families() -> Turn {
    const CONTROL: u16 = 16;
    const GET_FAMILY: u8 = 3;
    Box::new(|| {
        let open = Netlink::open(libc::NETLINK_GENERIC);
        let dump = open.and_then(|netlink| netlink.ask(CONTROL, true, &[GET_FAMILY, 1, 0, 0]));
        dump.map(drop).map_err(|error| error.to_string())
    })
}

/// A module that comes and goes.
fn module() -> Turn {
    let mut there = false;
    Box::new(move || {
        there = !there;
        net::sh(&format!(
            "modprobe {} {MODULE}",
            if there { "" } else { "-r" }
        ))
    })
}

/// Asks for links and for families, in turn, for the given number of milliseconds. Returns how long the longest
/// answer took.
pub fn longest_dump(ms: u64) -> Result<Duration, String> {
    let (mut links, mut families) = (links(), families());
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_millis(ms) {
        for turn in [&mut links, &mut families] {
            let asked = Instant::now();
            turn()?;
            longest = longest.max(asked.elapsed());
        }
        sys::sleep_ms(PAUSE_MS);
    }
    Ok(longest)
}

impl Bystanders {
    /// Starts them. Each has had its first turn, which nobody measures, when this returns.
    pub fn start(t: &T) -> Result<Self, String> {
        let failed = |error: st::errno::Errno| error.to_string();
        let tcp = client(Family::Tcp, t.ip, 9701, false).map_err(failed)?;
        let smc = client(t.family, t.ip, 9702, true).map_err(failed)?;
        let turns: [(&'static str, Turn); 5] = [
            ("a TCP client", tcp),
            ("an SMC client", smc),
            ("a dump of links", links()),
            ("a dump of families", families()),
            ("modprobe", module()),
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let mut all = vec![];
        for (name, mut turn) in turns {
            turn().map_err(|error| format!("{name}: {error}"))?;
            let stop = stop.clone();
            let thread = std::thread::spawn(move || {
                let (mut turns, mut longest) = (0, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let done = turn();
                    longest = longest.max(begun.elapsed());
                    turns += 1;
                    done.map_err(|error| format!("{error}, after {longest:?}"))?;
                    sys::sleep_ms(PAUSE_MS);
                }
                Ok((turns, longest))
            });
            all.push((name, thread));
        }
        Ok(Self { stop, all })
    }

    /// Ends them. None has waited for the hostile peer.
    pub fn finish(self, t: &mut T) {
        let most = Duration::from_millis(guest::noticed());
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in self.all {
            match thread.join().unwrap_or_else(|_| Err("panic".into())) {
                Ok((turns, longest)) => {
                    t.say(&format!("{name}: {turns} turns, {longest:.1?} at most"));
                    t.check(
                        &format!("{name} has waited for {longest:?}"),
                        longest < most,
                    );
                }
                Err(error) => t.check(&format!("{name}: {error}"), false),
            }
        }
        // It may be there or not.
        let _ = net::sh(&format!("modprobe -r {MODULE}"));
    }
}
