// SPDX-License-Identifier: GPL-2.0
//! The fallback counters of a network namespace: `/proc/net/smc_fallback` of rsmc.
//!
//! Text lines: `smc_connections N`, `fallback_client N`, `fallback_server N`, `strict_refused N`,
//! `drains_lost N`, `tcp_sent_bytes N`, `tcp_received_bytes N`, then
//! `reason <client|server> CODE N`, then `peer ADDR CODE N` (a table of limited size), then
//! `neighbour ADDR CAUSE SECONDS N PORT`: a peer that is sent no option for SECONDS more, and how often (N) it was
//! found to be so. [`promotion`](crate::promotion) knows those of connections that began as TCP.

use crate::absent;
use crate::error::{Error, Result};
use crate::promotion::Promotions;
use std::io;
use std::net::IpAddr;

/// Where the counters are.
pub const FILE: &str = "/proc/net/smc_fallback";

/// Which side of a connection this host was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It connected.
    Client,
    /// It accepted.
    Server,
}

impl Role {
    /// `client` or `server`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
        }
    }

    /// The role of this name.
    pub(crate) fn from_name(name: &str) -> Result<Self> {
        match name {
            "client" => Ok(Role::Client),
            "server" => Ok(Role::Server),
            _ => Err(Error::Malformed("the role of a reason")),
        }
    }
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that became SMC; `None` if the source does not say.
    pub smc_connections: Option<u64>,
    /// Connections made by this host that fell back.
    pub fallback_client: u64,
    /// Connections accepted by this host that fell back.
    pub fallback_server: u64,
    /// Connections that strict mode refused instead of falling back; `None` if the source does
    /// not say.
    pub strict_refused: Option<u64>,
    /// Closed connections whose data their peers took too slowly; `None` if the source does not say.
    pub drains_lost: Option<u64>,
    /// Bytes that TCP has sent for sockets that did not become SMC; `None` if the source does not say.
    pub tcp_sent_bytes: Option<u64>,
    /// As before, received.
    pub tcp_received_bytes: Option<u64>,
    /// By role and reason code.
    pub reasons: Vec<(Role, u32, u64)>,
    /// By peer and reason code.
    pub peers: Vec<(IpAddr, u32, u64)>,
    /// Peers that are sent no option.
    pub neighbours: Vec<KnownPeer>,
    /// Connections that began as TCP.
    pub promotions: Promotions,
}

/// A peer that does not bear the SMC option, or the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPeer {
    /// The peer.
    pub address: IpAddr,
    /// The cause: `echo`, `silence`, `reset` or `declines`, or what a newer module knows.
    pub cause: String,
    /// Seconds until a connection tries the option again; 0: the next one does.
    pub left: u64,
    /// Number of times that it was found to be so.
    pub times: u64,
    /// The port that this is about; `None` if it is the whole address.
    pub port: Option<u16>,
}

impl Counters {
    /// Counts a peer's fallbacks; the kernel lists IPv4 and v4-mapped ones apart.
    fn add_peer(&mut self, peer: IpAddr, code: u32, count: u64) {
        let known = self
            .peers
            .iter_mut()
            .find(|entry| (entry.0, entry.1) == (peer, code));
        match known {
            Some(entry) => entry.2 = entry.2.saturating_add(count),
            None => self.peers.push((peer, code, count)),
        }
    }
}

/// Reads the counters' text. Lines of a kind that is not known are passed over, so that newer
/// modules may say more; a known line that cannot be read is an error.
///
/// # Errors
/// `Malformed`.
pub fn parse(text: &str) -> Result<Counters> {
    let mut counters = Counters::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            ["smc_connections", count] => counters.smc_connections = Some(number(count)?),
            ["fallback_client", count] => counters.fallback_client = number(count)?,
            ["fallback_server", count] => counters.fallback_server = number(count)?,
            ["strict_refused", count] => counters.strict_refused = Some(number(count)?),
            ["drains_lost", count] => counters.drains_lost = Some(number(count)?),
            ["tcp_sent_bytes", count] => counters.tcp_sent_bytes = Some(number(count)?),
            ["tcp_received_bytes", count] => counters.tcp_received_bytes = Some(number(count)?),
            ["reason", role, reason, count] => {
                let role = Role::from_name(role)?;
                counters.reasons.push((role, code(reason)?, number(count)?));
            }
            ["peer", peer, reason, count] => {
                let peer = peer
                    .parse()
                    .map_err(|_| Error::Malformed("a peer's address"))?;
                counters.add_peer(plain(peer), code(reason)?, number(count)?);
            }
            ["neighbour", address, cause, left, times, ref port @ ..] if port.len() <= 1 => {
                let address: IpAddr = address
                    .parse()
                    .map_err(|_| Error::Malformed("a peer's address"))?;
                counters.neighbours.push(KnownPeer {
                    address: plain(address),
                    cause: cause.into(),
                    left: number(left)?,
                    times: number(times)?,
                    port: match port {
                        [] | ["*"] => None,
                        [port, ..] => {
                            let port = port.parse();
                            Some(port.map_err(|_| Error::Malformed("a peer's port"))?)
                        }
                    },
                });
            }
            _ => counters.promotions.take(&fields)?,
        }
    }
    Ok(counters)
}

/// Reads this namespace's counters.
///
/// # Errors
/// `NotThere` if the module is not loaded.
pub fn read() -> Result<Counters> {
    match std::fs::read_to_string(FILE) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::NotThere(absent::line()))
        }
        Err(error) => Err(error.into()),
    }
}

/// An IPv4 peer by its IPv4 address, also where a socket of IPv6 talked to it.
pub fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A count.
pub(crate) fn number(text: &str) -> Result<u64> {
    text.parse()
        .map_err(|_| Error::Malformed("a fallback counter"))
}

/// The code of a reason.
pub(crate) fn code(text: &str) -> Result<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|_| Error::Malformed("a fallback reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "smc_connections 3\nfallback_client 12\nfallback_server 1\n\
        strict_refused 4\ntcp_sent_bytes 5\ntcp_received_bytes 6\nreason client 0x03010000 10\nreason client 0x03030000 2\nreason server 0x05000000 1\n\
        peer 10.0.0.2 0x03010000 10\npeer ::ffff:10.0.0.2 0x03010000 2\npeer fd00::2 0x05000000 1\n\
        neighbour 10.0.0.9 silence 3512 1 443\nneighbour ::ffff:10.0.0.8 future 0 2 *\nneighbour 10.0.0.7 echo 1 1\n";

    #[test]
    fn a_sample() {
        let counters = parse(SAMPLE).unwrap();
        assert_eq!(counters.smc_connections, Some(3));
        assert_eq!(
            (counters.fallback_client, counters.fallback_server),
            (12, 1)
        );
        assert_eq!(counters.reasons.len(), 3);
        assert_eq!(counters.reasons[0], (Role::Client, 0x0301_0000, 10));
        assert_eq!(counters.strict_refused, Some(4));
        assert_eq!(counters.tcp_sent_bytes, Some(5));
        assert_eq!(counters.tcp_received_bytes, Some(6));
        assert_eq!(counters.peers.len(), 2);
        assert_eq!(counters.peers[0].2, 12);
        let ports: Vec<_> = counters.neighbours.iter().map(|known| known.port).collect();
        assert_eq!(ports, [Some(443), None, None]);
        assert_eq!(counters.neighbours[0].left, 3512);
        assert_eq!(
            counters.neighbours[1].address,
            "10.0.0.8".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn unknown_lines_pass_and_broken_ones_do_not() {
        assert_eq!(parse("").unwrap(), Counters::default());
        assert_eq!(
            parse("peers_dropped 7\nfuture a b c d e\n").unwrap(),
            Counters::default()
        );
        for broken in [
            "smc_connections x",
            "fallback_client -1",
            "fallback_server 99999999999999999999",
            "reason nobody 0x1 1",
            "reason client 0xg 1",
            "reason client 0x123456789 1",
            "peer 10.0.0 0x1 1",
            "neighbour 10.0.0 echo 1 1",
            "neighbour 10.0.0.1 echo soon 1",
            "neighbour 10.0.0.1 echo 1 1 70000",
        ] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }
}
