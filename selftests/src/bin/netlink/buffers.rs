// SPDX-License-Identifier: GPL-2.0
//! Checks what `net.smc.rmem` and `net.smc.wmem` make of the buffers, as SMC_DIAG_CONNINFO tells.

use crate::ends::{self, failed, outside, same};
use st::fd::Fd;
use st::net;

/// Bytes to receive into and to send from, that an end asks for.
type Sizes = [u32; 2];

const PORT: u16 = 7112;
const DEFAULT: Sizes = [65536, 65536];

fn set(end: usize, [receive, send]: Sizes) -> Result<(), String> {
    outside(end, || {
        net::sysctl("net.smc.rmem", &receive.to_string())?;
        net::sysctl("net.smc.wmem", &send.to_string())
    })
}

/// The end's send buffer, its receive buffer, and its peer's.
fn told(end: usize, fd: &Fd) -> Result<[u32; 3], String> {
    let size = |at| ends::connection(end, fd, at);
    Ok([size(4)?, size(8)?, size(12)?])
}

/// Each end's own settings, of sizes from the least to more than the default. They count for sockets that
/// are made after them, the listener among these.
pub fn by_sysctl(_: &Fd) -> Result<(), String> {
    const CASES: [[Sizes; 2]; 3] = [
        [[131_072, 32_768], [16_384, 262_144]],
        [[16_384, 16_384], [524_288, 65_536]],
        [DEFAULT, DEFAULT],
    ];
    let tried = CASES.iter().try_for_each(|[client, server]| {
        set(0, *client)?;
        set(1, *server)?;
        let listener = ends::listener_at(PORT).map_err(failed)?;
        let pair = ends::pair(&listener)?;
        let wanted = |own: &Sizes, peer: &Sizes| [own[1], own[0], peer[0]];
        same("client", told(0, &pair[0])?, wanted(client, server))?;
        same("server", told(1, &pair[1])?, wanted(server, client))
    });
    // Also for the points that follow a failure.
    set(0, DEFAULT).and(set(1, DEFAULT)).and(tried)
}
