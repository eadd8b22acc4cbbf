// SPDX-License-Identifier: GPL-2.0
//! The module's local path: its settings for each namespace, and the proof that a connection has taken it.

use crate::fd::Fd;
use crate::{net, smcinfo, sys};
use std::path::Path;

/// `mode` of `RSMC_INFO`: by the local path.
pub const MODE_LOCAL: u32 = 2;

const PATH: &str = "net.smc.path";
const LOCAL: &str = "net.smc.path_local";

fn has(name: &str) -> bool {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    Path::new(&file).exists()
}

/// Turns every path off in the current namespace, so that connections are SMC-R as without them.
/// Where the loaded module knows of no paths, there is nothing to turn off.
pub fn off() -> Result<(), String> {
    set(0)
}

/// Sets the order of TCP and SMC in the current namespace, if the loaded module knows of paths.
pub fn set(value: u32) -> Result<(), String> {
    match has(PATH) {
        true => net::sysctl(PATH, &value.to_string()),
        false => Ok(()),
    }
}

/// Has connections of the current namespace to other hosts begin as TCP, and move to SMC-R after this many segments of
/// data, also over a device that is software; 0 for never.
pub fn first(segments: u64) -> Result<(), String> {
    set(2)?;
    net::sysctl("net.smc.path_promote", &segments.to_string())?;
    net::sysctl("net.smc.path_software", "1")
}

/// Has connections of the current namespace to other hosts begin as TCP, and stay so over a device that is software.
pub fn kept() -> Result<(), String> {
    first(32)?;
    net::sysctl("net.smc.path_software", "0")
}

/// Turns the local path on in the current namespace: 1 for connections inside of it, 2 to others
/// of this host as well. Returns false where the loaded module has none.
pub fn local(reach: u64) -> Result<bool, String> {
    if !has(PATH) || !has(LOCAL) {
        return Ok(false);
    }
    net::sysctl(PATH, "1")?;
    net::sysctl(LOCAL, &reach.to_string())?;
    Ok(true)
}

/// Sends a few bytes each way and checks that both ends are on the local path then.
pub fn prove_local(client: &Fd, server: &Fd) -> Result<(), String> {
    for (from, to) in [(client, server), (server, client)] {
        sys::send_all(from.raw(), b"path").map_err(|e| format!("send: {e}"))?;
        let got = sys::recv_all(to.raw(), 4).map_err(|e| format!("recv: {e}"))?;
        if got != b"path" {
            return Err(format!("sent \"path\", received {got:?}"));
        }
    }
    for (name, end) in [("client", client), ("server", server)] {
        let seen = smcinfo::info(end.raw())
            .map_err(|e| format!("{name}: RSMC_INFO: {e}: not a socket of the family"))?;
        if seen.mode != MODE_LOCAL {
            return Err(format!(
                "{name}: not on the local path: mode {} (0 SMC-R, 1 TCP, 3 path still on TCP), \
                 wanted {MODE_LOCAL}; reason {:#010x}",
                seen.mode, seen.reason
            ));
        }
    }
    Ok(())
}
