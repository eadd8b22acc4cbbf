// SPDX-License-Identifier: GPL-2.0
//! Checks what the tools say of a reason.

use crate::host::Role;
use st::fd::Fd;
use st::point::T;
use st::rawpeer::wire_addr;
use st::smcinfo;
use std::net::IpAddr;
use std::process::Command;

/// A code, its short name, and a word that the advice must have.
pub type Known = (u32, &'static str, &'static str);

/// Every code of C's `net/smc/smc_clc.h`, and the module's own.
pub const ALL: [Known; 38] = [
    (0x0101_0000, "MEM", "net.smc.rmem"),
    (0x0101_00ff, "BUSY", "backlog"),
    (0x0201_0000, "TIMEOUT_CL", "4791"),
    (0x0202_0000, "TIMEOUT_AL", "4791"),
    (0x0300_0000, "CNFERR", "rsmc pnet"),
    (0x0301_0000, "PEERNOSMC", "rsmc run"),
    (0x0302_0000, "IPSEC", "IPsec"),
    (0x0303_0000, "NOSMCDEV", "rdma link"),
    (0x0303_0001, "NOSMCDDEV", "ISM"),
    (0x0303_0002, "NOSMCRDEV", "rdma link"),
    (0x0303_0003, "NOISM2SUPP", "ISM"),
    (0x0303_0004, "NOV2EXT", "version 2"),
    (0x0303_0005, "NOV2DEXT", "SMC-D"),
    (0x0303_0006, "NOSEID", "rsmc ueid add"),
    (0x0303_0007, "NOSMCD2DEV", "ISM"),
    (0x0303_0008, "NOUEID", "rsmc ueid add"),
    (0x0303_0009, "RELEASEERR", "release"),
    (0x0303_000a, "MAXCONNERR", "smcr_max_conns_per_lgr"),
    (0x0303_000b, "MAXLINKERR", "smcr_max_links_per_lgr"),
    (0x0304_0000, "MODEUNSUPP", "SMC-D"),
    (0x0305_0000, "RMBE_EC", "eyecatchers"),
    (0x0306_0000, "OPTUNSUPP", "fast open"),
    (0x0306_00ff, "ATTACHED", "sockmap"),
    (0x0307_0000, "DIFFPREFIX", "subnet"),
    (0x0308_0000, "GETVLANERR", "VLAN"),
    (0x0309_0000, "ISMVLANERR", "VLAN"),
    (0x030a_0000, "NOACTLINK", "RDMA"),
    (0x030b_0000, "NOSRVLINK", "RDMA"),
    (0x030c_0000, "VERSMISMAT", "version 2"),
    (0x030d_0000, "MAX_DMB", "buffers"),
    (0x030e_0000, "NOROUTE", "routes"),
    (0x030f_0000, "NOINDIRECT", "routes"),
    (0x0400_0000, "SYNCERR", "RDMA"),
    (0x0500_0000, "PEERDECL", "the peer"),
    (0x0999_0000, "INTERR", "kernel log"),
    (0x0999_0001, "ERR_RTOK", "kernel log"),
    (0x0999_0002, "ERR_RDYLNK", "kernel log"),
    (0x0999_0003, "ERR_REGBUF", "kernel log"),
];

/// The code with this name.
pub fn code(name: &str) -> u32 {
    let known = ALL.iter().find(|known| known.1 == name);
    known.expect("a known name").0
}

fn word(name: &str) -> &'static str {
    let known = ALL.iter().find(|known| known.1 == name);
    known.expect("a known name").2
}

/// Waits until a socket of the module has fallen back, and says how the module sees it.
pub fn settled(t: &mut T, fd: &Fd) -> (u32, u32) {
    for _ in 0..1000 * st::guest::slow() {
        if let Ok(i) = smcinfo::info(fd.raw()) {
            if i.mode == smcinfo::MODE_TCP && i.reason != 0 {
                return (i.reason, i.peer_diagnosis);
            }
        }
        st::sys::sleep_ms(10);
    }
    t.check("no fallback", false);
    (0, 0)
}

/// The module's own decision: `name`, in the role that the packet host does not have.
pub fn own(t: &mut T, peer: Role, fd: &Fd, name: &str) {
    let seen = settled(t, fd);
    t.is(name, seen, (code(name), 0));
    let words = [peer_is(peer), "own", name, word(name), &inode(fd)];
    let address = st::sys::peername(fd.raw()).map(|a| a.ip());
    let other = wire_addr(true, t.ip);
    tools(t, address.unwrap_or(other), &words);
}

/// The peer has declined by these codes, one socket for each.
pub fn declined(t: &mut T, peer: Role, sockets: &[(Fd, Known)]) {
    let mut words = vec![peer_is(peer).to_owned(), "declined".into()];
    for (fd, (code, name, word)) in sockets {
        let seen = settled(t, fd);
        t.is(name, seen, (self::code("PEERDECL"), *code));
        words.extend([(*name).to_owned(), (*word).to_owned(), inode(fd)]);
    }
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let address = wire_addr(true, t.ip);
    tools(t, address, &words);
}

/// Strict mode has refused a client's connection for this reason: there is no socket to show.
pub fn refused(t: &mut T, name: &str) {
    let address = wire_addr(true, t.ip);
    tools(t, address, &["client", "refused", name, word(name), "0"]);
}

/// The module's role.
fn peer_is(peer: Role) -> &'static str {
    match peer {
        Role::Client => "server",
        Role::Server => "client",
    }
}

fn inode(fd: &Fd) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.raw())).unwrap_or_default();
    let text = link.to_string_lossy();
    text.chars().filter(char::is_ascii_digit).collect()
}

fn tools(t: &mut T, peer: IpAddr, words: &[&str]) {
    let script = std::env::var("RSMC_SELFTESTS").unwrap_or_default() + "/tools/told.py";
    let output = Command::new("python3")
        .arg(script)
        .arg(peer.to_canonical().to_string())
        .args(words)
        .output();
    match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            t.check(&text, output.status.success());
        }
        Err(e) => t.check(&format!("python3: {e}"), false),
    }
}
