// SPDX-License-Identifier: GPL-2.0
//! Which sockets `rsmc ss` shows.

use crate::cli::{ModeFilter, SsArgs};
use crate::diag::{Mode, Socket, State};
use crate::procs::Process;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all that share its first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "not an address or subnet such as 192.0.2.1 or 2001:db8::/32".to_string();
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl Subnet {
    /// True if the address is in it. An IPv4 address that is mapped into IPv6 counts as itself.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                let differ = u32::from(mine) ^ u32::from(other);
                differ.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                let differ = u128::from(mine) ^ u128::from(other);
                differ.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// True if the arguments ask for this socket; what they say of processes is for [`held`].
pub fn wanted(args: &SsArgs, socket: &Socket) -> bool {
    let state = if !args.state.is_empty() {
        args.state.contains(&socket.state)
    } else if args.all {
        true
    } else if args.listening {
        socket.state == State::LISTEN
    } else {
        !matches!(socket.state, State::LISTEN | State::INIT)
    };
    let mode = args.mode.is_empty()
        || args.mode.iter().any(|mode| match mode {
            ModeFilter::Smcr => socket.mode == Mode::SmcR,
            ModeFilter::Smcd => socket.mode == Mode::SmcD,
            ModeFilter::Tcp => matches!(socket.mode, Mode::Tcp | Mode::TcpFirst),
        });
    let port = |port: Option<u16>, any: &[u16]| port.is_none_or(|port| any.contains(&port));
    let address = |subnet: Option<Subnet>, any: &[IpAddr]| {
        subnet.is_none_or(|subnet| any.iter().any(|address| subnet.has(*address)))
    };
    let (local, remote) = (socket.local, socket.remote);
    let reason = args.reason.is_empty()
        || socket.fallback.is_some_and(|fallback| {
            args.reason.contains(&fallback.reason) || args.reason.contains(&fallback.peer)
        });
    state
        && mode
        && reason
        && port(args.port, &[local.port, remote.port])
        && port(args.sport, &[local.port])
        && port(args.dport, &[remote.port])
        && address(args.addr, &[local.address, remote.address])
        && address(args.src, &[local.address])
        && address(args.dst, &[remote.address])
}

/// True if one of the processes is the one the user named, or none was named.
pub fn held(args: &SsArgs, holders: &[Process]) -> bool {
    let Some(wanted) = &args.process else {
        return true;
    };
    let pid = wanted.parse().ok();
    let mut holders = holders.iter();
    holders.any(|holder| Some(holder.pid) == pid || holder.comm == *wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::{args, sockets};

    fn chosen(line: &str) -> Vec<usize> {
        let args = args(line);
        let all = sockets();
        (0..all.len())
            .filter(|index| wanted(&args, &all[*index]))
            .collect()
    }

    #[test]
    fn filters() {
        assert_eq!(chosen("rsmc ss"), [1, 2, 4]);
        assert_eq!(chosen("rsmc ss -a"), [0, 1, 2, 3, 4]);
        assert_eq!(chosen("rsmc ss -l"), [0]);
        assert_eq!(chosen("rsmc ss --mode tcp"), [1]);
        assert_eq!(chosen("rsmc ss --mode smcr --mode smcd"), [2, 4]);
        assert_eq!(chosen("rsmc ss -a --port 6379"), [0, 1, 2]);
        assert_eq!(chosen("rsmc ss --dport 80"), [4]);
        assert_eq!(chosen("rsmc ss --sport 80"), [0usize; 0]);
        assert_eq!(chosen("rsmc ss --state listen --state init"), [0, 3]);
        assert_eq!(chosen("rsmc ss -a --addr 10.0.0.0/8"), [1, 2, 4]);
        assert_eq!(chosen("rsmc ss --src 10.0.0.2"), [0usize; 0]);
        assert_eq!(chosen("rsmc ss --dst 10.0.0.2 --dport 80"), [4]);
        assert_eq!(chosen("rsmc ss --reason PEERDECL"), [1]);
        assert_eq!(chosen("rsmc ss --reason nosmcdev"), [1]);
        assert_eq!(chosen("rsmc ss --reason MEM"), [0usize; 0]);
    }

    #[test]
    fn subnets() {
        let has = |subnet: &str, address: &str| {
            let subnet: Subnet = subnet.parse().unwrap();
            subnet.has(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.200.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.1", "10.0.0.1") && !has("10.0.0.1", "10.0.0.0"));
        assert!(has("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "fd00::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!(has("::/0", "fd12::1"));
        for wrong in [
            "",
            "10.0.0.1/33",
            "10.0.0/8",
            "::/129",
            "::1/x",
            "10.0.0.1/-1",
        ] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn processes() {
        let holder = Process {
            pid: 42,
            comm: "redis-server".into(),
            fd: 7,
        };
        let holders = [holder];
        assert!(held(&args("rsmc ss"), &[]));
        assert!(held(&args("rsmc ss --process 42"), &holders));
        assert!(held(&args("rsmc ss --process redis-server"), &holders));
        assert!(!held(&args("rsmc ss --process redis"), &holders));
        assert!(!held(&args("rsmc ss --process 7"), &holders));
    }
}
