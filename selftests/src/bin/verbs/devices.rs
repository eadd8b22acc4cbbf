// SPDX-License-Identifier: GPL-2.0
//! The soft-RoCE devices, and the failures of their verbs.

use st::netlink::{attribute, attributes, Attribute, Netlink};
use st::{errno, guest, net};
use std::fs;
use std::time::{Duration, Instant};

/// Namespace, device and network device of the client's and of the server's end.
const ENDS: [(&str, &str, &str); 2] = [("a", "rxe_a", "va"), ("b", "rxe_b", "vb")];

const ARM: &str = "/sys/module/verb_fault/parameters/arm";
const QUEUE_PAIRS: &str = "/sys/module/verb_fault/parameters/qps";

/// Says what is to fail; see `verb_fault`.
pub fn arm(what: &str) -> Result<(), String> {
    fs::write(ARM, what).map_err(|e| format!("arming '{what}': {e}"))
}

/// Returns the number of calls that have failed since something was armed.
pub fn hits() -> u32 {
    let text = fs::read_to_string(ARM).unwrap_or_default();
    let hits = text.split_whitespace().nth(1);
    hits.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Returns the number of queue pairs that were made since the module was loaded.
pub fn queue_pairs_made() -> Result<u32, String> {
    let text = fs::read_to_string(QUEUE_PAIRS).unwrap_or_default();
    let made = text.trim().parse();
    made.map_err(|e| format!("{QUEUE_PAIRS} is '{text}': {e}"))
}

/// Has both devices say that they have failed, which is not true, and takes the link away for a moment: no group is
/// left, and nothing that is known of the ports. No process is started, which on a kernel with KASAN would be most of
/// what a failure costs.
pub fn interrupt() -> Result<(), String> {
    for (_, device, _) in ENDS {
        arm(&format!("device_fatal {device}"))?;
    }
    // The groups end in the background. One whose port is down alone would be given time.
    wait_for("the end of all groups", || Ok(!has_queue_pairs()?))?;
    in_namespace("a", || net::link("va", false))?;
    in_namespace("a", || net::link("va", true))?;
    for (ns, _, netdev) in ENDS {
        wait_for("devices that take packets", || {
            in_namespace(ns, || net::runs(netdev))
        })?;
    }
    wait_for("active ports with GIDs", || Ok(is_up()))
}

fn wait_for(what: &str, mut done: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(30 * guest::slow());
    while !done()? {
        if Instant::now() > end {
            return Err(format!("waited in vain for {what}"));
        }
        st::sys::sleep_ms(2);
    }
    Ok(())
}

/// Does something where only a thread of its own can be.
fn in_namespace<T: Send>(
    ns: &str,
    act: impl FnOnce() -> Result<T, errno::Errno> + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| guest::enter(ns).and_then(|()| act()));
        let done = thread.join().map_err(|_| "panic".to_owned())?;
        done.map_err(|e| format!("in namespace {ns}: {e}"))
    })
}

/// Numbers of `<rdma/rdma_netlink.h>`: the protocol, its client NLDEV, and of that.
const NETLINK_RDMA: i32 = 20;
const NLDEV: u16 = 5 << 10;
const GET: u16 = 1;
const RES_QP_GET: u16 = 10;
const DEV_INDEX: u16 = 1;
const RES_QP: u16 = 19;
const RES_TYPE: u16 = 26;
/// `IB_QPT_RC`
const RC: u8 = 2;

/// Returns whether any reliable connected queue pair exists.
fn has_queue_pairs() -> Result<bool, String> {
    let any = |kind: u16, all: &[Attribute]| -> Option<Vec<u8>> {
        let found = all.iter().find(|(this, _)| *this == kind);
        found.map(|(_, value)| value.clone())
    };
    let look = || -> errno::R<bool> {
        let rdma = Netlink::open(NETLINK_RDMA)?;
        for device in rdma.ask(NLDEV | GET, true, &[])? {
            let Some(index) = any(DEV_INDEX, &attributes(&device)?) else {
                continue;
            };
            let asked = attribute(DEV_INDEX, &index);
            for part in rdma.ask(NLDEV | RES_QP_GET, true, &asked)? {
                for (_, list) in attributes(&part)?.iter().filter(|a| a.0 == RES_QP) {
                    for (_, pair) in attributes(list)? {
                        if any(RES_TYPE, &attributes(&pair)?).is_some_and(|kind| kind == [RC]) {
                            return Ok(true);
                        }
                    }
                }
            }
        }
        Ok(false)
    };
    look().map_err(|e| format!("queue pairs: {e}"))
}

/// Returns whether both ports are active, and their tables, which are filled in the background, have the
/// GIDs of their IPv4 addresses.
fn is_up() -> bool {
    let read = |file: String| fs::read_to_string(file).unwrap_or_default();
    ["1", "2"].iter().zip(ENDS).all(|(host, (_, device, _))| {
        let port = format!("/sys/class/infiniband/{device}/ports/1");
        let gid = format!("0000:0000:0000:0000:0000:ffff:0a4d:000{host}");
        read(format!("{port}/state")).contains("ACTIVE")
            && (0..16).any(|i| read(format!("{port}/gids/{i}")).trim() == gid)
    })
}
