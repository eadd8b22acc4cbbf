// SPDX-License-Identifier: GPL-2.0
//! The soft-RoCE devices, and the failures of their verbs.

use st::netlink::{attribute, attributes, Attribute, Netlink};
use st::{errno, guest};
use std::fs;
use std::time::{Duration, Instant};

/// The devices of the client's and of the server's end.
const ENDS: [&str; 2] = ["rxe_a", "rxe_b"];

const ARM: &str = "/sys/module/verb_fault/parameters/arm";

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

/// Has both devices say that they have failed, which is not true: no group is left, no memory and no queue.
pub fn interrupt() -> Result<(), String> {
    for device in ENDS {
        arm(&format!("device_fatal {device}"))?;
    }
    // The groups end in the background.
    wait_for("the end of all groups", || Ok(!has_queue_pairs()?))
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
