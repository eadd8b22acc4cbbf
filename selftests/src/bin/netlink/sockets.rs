// SPDX-License-Identifier: GPL-2.0
//! Checks what `sock_diag` tells, by `linux/smc_diag.h`.

use crate::commands::number;
use crate::Held;
use st::diag;
pub use st::diag::Socket;
use st::errno::R;
use st::fd::Fd;
use std::collections::HashMap;

const CONNECTION: u16 = 1;
const GROUP: u16 = 2;
const SHUTDOWN: u16 = 3;
const FALLBACK: u16 = 5;
/// All attributes that are given only if asked for.
const EXTENSIONS: u8 = 0x1f;
const ACTIVE: u8 = 1;
const LISTEN: u8 = 10;

/// All sockets of the namespace, in the order of the dump, with their inodes.
pub fn all(extensions: u8) -> R<Vec<(u64, Socket)>> {
    diag::all(extensions, libc::NLM_F_DUMP)
}

/// The inode of a socket.
pub fn inode(fd: &Fd) -> u64 {
    diag::inode(fd.raw()).unwrap_or(0)
}

/// Family, state, mode, and the length of each attribute of a socket.
fn like(socket: &Socket, state: u8, mode: u8, lengths: &[(u16, usize)]) -> Result<(), String> {
    let head = &socket.fixed[..3];
    let mut found: Vec<_> = socket.attributes.iter().map(|a| (a.0, a.1.len())).collect();
    found.sort_unstable();
    match head == [43, state, mode] && found == lengths {
        true => Ok(()),
        false => Err(format!(
            "{head:?} {found:?}, not {state} {mode} {lengths:?}"
        )),
    }
}

/// The sockets that are held, with and without what must be asked for.
pub fn listed(held: &Held) -> Result<(), String> {
    for extensions in [EXTENSIONS, 0] {
        let sockets = all(extensions).map_err(|e| e.to_string())?;
        let sockets: HashMap<u64, Socket> = sockets.into_iter().collect();
        let of = |fd: &Fd| sockets.get(&inode(fd)).ok_or("a socket is missing");
        let plain = [(SHUTDOWN, 1), (FALLBACK, 8)];
        let more = [(CONNECTION, 76), (GROUP, 147), (SHUTDOWN, 1), (FALLBACK, 8)];
        let asked: &[_] = if extensions == 0 { &plain } else { &more };
        let smc = of(&held.smc)?;
        like(smc, ACTIVE, 0, asked).map_err(|e| format!("SMC-R: {e}"))?;
        let tcp = of(&held.tcp)?;
        like(tcp, ACTIVE, 1, &plain).map_err(|e| format!("fallback: {e}"))?;
        let reason = tcp.attributes.iter().find(|a| a.0 == FALLBACK);
        let reason = reason.map_or(0, |a| number(&a.1));
        if reason != 0x0301_0000 {
            return Err(format!("reason {reason:#x}"));
        }
        if let Some(listener) = &held.listener {
            like(of(listener)?, LISTEN, 0, &plain).map_err(|e| format!("listener: {e}"))?;
        }
        // Addresses of sockets of AF_SMC: the connection's port at one end.
        let ports = [&smc.fixed[4..6], &smc.fixed[6..8]];
        if !ports.contains(&&crate::PORT.to_be_bytes()[..]) {
            return Err(format!("ports {ports:02x?}"));
        }
    }
    Ok(())
}
