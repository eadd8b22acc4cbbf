// SPDX-License-Identifier: GPL-2.0
//! What somebody without rights, or in a namespace of his own, hears: of his own namespace and nothing else.

use crate::ends::{self, failed, same, Tree};
use st::child::{self, End};
use st::errno::{Errno, R};
use st::family::AF_SMC;
use st::fd::Fd;
use st::ktap::Ktap;
use st::netlink::Generic;
use st::{guest, sys};
use std::io::Write;

const SYSTEM: u8 = 1;
const GROUPS: u8 = 2;
const EIDS: u8 = 9;
/// A user without rights.
const NOBODY: u32 = 65_534;

/// Who asks, and where.
#[derive(Clone, Copy)]
enum Asker {
    /// A user without rights in the initial namespace.
    Nobody,
    /// The same in namespace `a`.
    NobodyThere,
    /// The superuser in the initial namespace.
    Root,
    /// The superuser of a user namespace, with a network and a machine's name of its own.
    Stranger,
}

impl Asker {
    /// What `what` writes as this asker.
    fn hears(self, what: impl FnOnce() -> String) -> Result<String, String> {
        let (text, end) = child::run(10_000 * guest::slow(), |out| {
            let place = match self {
                Self::NobodyThere => "/run/netns/a",
                _ => "/proc/1/ns/net",
            };
            let place = std::fs::File::open(place).expect("namespace");
            guest::enter_file(&place).expect("setns");
            // SAFETY: No pointers but to a text of that length; this process has one thread.
            let failed = unsafe {
                match self {
                    Self::Root => 0,
                    Self::Nobody | Self::NobodyThere => libc::setgid(NOBODY) + libc::setuid(NOBODY),
                    Self::Stranger => {
                        let own = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
                        libc::unshare(own) + libc::sethostname(c"stranger".as_ptr(), 8)
                    }
                }
            };
            assert_eq!(failed, 0, "rights");
            out.write_all(what().as_bytes()).expect("pipe");
        });
        match end {
            End::Exit(0) => Ok(text),
            end => Err(format!("{end:?}: {text}")),
        }
    }
}

/// Number of messages of a dump.
fn count(command: u8) -> String {
    let messages = || -> R<usize> {
        let all = Generic::open("SMC_GEN_NETLINK")?.dump(command)?;
        Ok(all.iter().filter(|message| !message.is_empty()).count())
    };
    messages().map_or_else(|e| e.to_string(), |n| n.to_string())
}

fn name() -> Result<(), String> {
    let heard = Asker::Stranger.hears(|| {
        let read = || -> Result<String, String> {
            let all = Generic::open("SMC_GEN_NETLINK").and_then(|n| n.dump(SYSTEM));
            let all = all.map_err(failed)?;
            let message = all.first().ok_or("nothing")?;
            Tree::new(message)?.nest(1)?.text(4)
        };
        read().unwrap_or_else(|e| e)
    });
    same("the machine's name", heard?.as_str(), "stranger")
}

fn groups(listener: &Fd) -> Result<(), String> {
    let _pair = ends::pair(listener)?;
    let heard = |asker: Asker| asker.hears(|| count(GROUPS));
    same("nobody", heard(Asker::Nobody)?.as_str(), "0")?;
    same("a stranger", heard(Asker::Stranger)?.as_str(), "0")?;
    // Both ends are of this machine.
    same("there", heard(Asker::NobodyThere)? != "0", true)?;
    same("root", heard(Asker::Root)? != "0", true)
}

fn eids() -> Result<(), String> {
    let heard = |asker: Asker| asker.hears(|| count(EIDS));
    same("a stranger", heard(Asker::Stranger)?.as_str(), "0")?;
    same("nobody", heard(Asker::Nobody)? != "0", true)
}

/// Words that the lines of `/proc/net/smc_fallback` about peers begin with.
fn peers() -> String {
    let text = std::fs::read_to_string("/proc/thread-self/net/smc_fallback");
    let text = text.unwrap_or_else(|e| e.to_string());
    let about = |word: &str| text.lines().filter(|l| l.starts_with(word)).count();
    format!("{} {}", about("reason "), about("peer "))
}

fn fallbacks() -> Result<(), String> {
    let tcp = ends::within(1, || -> R<Fd> {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        sys::bind(fd.raw(), &ends::server(0))?;
        sys::listen(fd.raw(), 1)?;
        Ok(fd)
    });
    let tcp = tcp.map_err(|e: Errno| format!("listen: {e}"))?;
    let at = sys::sockname(tcp.raw()).map_err(failed)?;
    let connected = ends::within(0, || -> R<Fd> {
        let fd = sys::socket(AF_SMC, libc::SOCK_STREAM, 0)?;
        sys::connect(fd.raw(), &at)?;
        Ok(fd)
    });
    let connected = connected.map_err(|e: Errno| format!("connect: {e}"))?;
    drop((tcp, connected));
    let here = ends::outside(0, peers);
    same("root", here.as_str(), "1 1")?;
    same("nobody", Asker::NobodyThere.hears(peers)?.as_str(), "1 0")
}

/// Runs the points.
pub fn run(k: &mut Ktap) {
    k.outcome("name", name());
    ends::prepare().expect("prepare");
    let listener = ends::listener().expect("listener");
    k.outcome("groups", groups(&listener));
    k.outcome("eids", eids());
    k.outcome("fallbacks", fallbacks());
}
