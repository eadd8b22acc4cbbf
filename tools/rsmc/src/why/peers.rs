// SPDX-License-Identifier: GPL-2.0
//! Peers that do not bear SMC's TCP option, or the paths to them, and peers that RDMA does not reach: connections to them
//! send no option for a while.

use crate::absent;
use crate::cli::Target;
use crate::diag;
use crate::error::{Error, Result};
use crate::fallback::{self, Counters};
use crate::netlink::genl::Family;
use crate::netlink::wire::NLM_F_ACK;
use rustix::io::Errno;
use serde::Serialize;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// The command of `RSMC_POLICY` that forgets, and its attribute with the address.
const FORGET_PEERS: u8 = 7;
const ADDRESS: u16 = 8;

/// A peer as `--json` prints it. The names are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownPeer {
    address: IpAddr,
    /// `None` if it is the whole address.
    port: Option<u16>,
    /// `echo`, `silence`, `reset`, `declines`, `link`.
    cause: String,
    text: &'static str,
    seconds_left: u64,
    times: u64,
}

/// A cause in words.
fn text(cause: &str) -> &'static str {
    match cause {
        "echo" => "sends any TCP option back",
        "silence" => "does not answer SYNs with the SMC option",
        "reset" => "resets SYNs with the SMC option",
        "declines" => "keeps declining SMC, or handshakes with it fail",
        "link" => "is not reached by RDMA, or links to it break soon",
        _ => "does not bear the SMC option, for a cause that this version does not know",
    }
}

/// The peers that are remembered, or the one.
pub fn of(counters: &Counters, peer: Option<IpAddr>) -> Vec<KnownPeer> {
    let all = counters.neighbours.iter();
    all.filter(|known| peer.is_none_or(|peer| peer == known.address))
        .map(|known| KnownPeer {
            address: known.address,
            port: known.port,
            cause: known.cause.clone(),
            text: text(&known.cause),
            seconds_left: known.left,
            times: known.times,
        })
        .collect()
}

/// Lists them.
///
/// # Errors
/// Errors of writing to `out`.
pub fn tell(neighbours: &[KnownPeer], out: &mut dyn Write) -> Result<()> {
    if neighbours.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nPeers that are left to TCP for a while (`rsmc why --forget` ends that):"
    )?;
    for known in neighbours {
        let times = match known.times {
            1 => "once".into(),
            times => format!("{times} times"),
        };
        let left = match known.seconds_left {
            0 => "the next connection tries it again".into(),
            left => format!("another {}", time(left)),
        };
        let whom = match known.port {
            Some(port) => SocketAddr::new(known.address, port).to_string(),
            None => known.address.to_string(),
        };
        let text = known.text;
        writeln!(out, "  {whom} {text} (found {times}): {left}")?;
    }
    Ok(())
}

/// A time in words, in its largest two units.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Has the kernel forget one or all of them.
///
/// # Errors
/// `NotThere` without the module, `Table` for a peer that is not remembered, or the kernel's.
pub fn forget(target: Option<Target>) -> Result<()> {
    let missing = || match diag::has_smc_protocol() {
        true => "the loaded SMC module does not remember peers".into(),
        false => absent::line(),
    };
    let mut family = Family::find("RSMC_POLICY", 1, missing)?;
    let request = family.command(FORGET_PEERS, NLM_F_ACK);
    let (request, peer) = match target {
        None => (request, None),
        Some(Target::Peer(peer)) => {
            let address = match peer {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let request = request.attribute(ADDRESS, &address.octets());
            (request, Some(fallback::plain(peer)))
        }
        Some(Target::Process(pid)) => {
            return Err(Error::Usage(format!(
                "--forget needs an address, not {pid}"
            )));
        }
    };
    match (family.ask("forgetting peers", &request), peer) {
        (Err(Error::Refused(_, Errno::NOENT)), Some(peer)) => {
            Err(Error::Table(format!("nothing is remembered of {peer}")))
        }
        (other, _) => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told() {
        let counters = fallback::parse(
            "smc_connections 0\nneighbour 10.0.0.1 silence 3600 1\nneighbour fd00::1 echo 75 2\n\
             neighbour ::ffff:10.0.0.3 declines 0 1\nneighbour 10.0.0.4 new 9 1\n\
             neighbour fd00::2 silence 56 1 443\n",
        )
        .unwrap();
        let mut out = Vec::new();
        tell(&of(&counters, None), &mut out).unwrap();
        let told = String::from_utf8(out).unwrap();
        for line in [
            "10.0.0.1 does not answer SYNs with the SMC option (found once): another 1 h 0 min",
            "fd00::1 sends any TCP option back (found 2 times): another 1 min 15 s",
            "10.0.0.3 keeps declining SMC, or handshakes with it fail (found once): the next connection tries",
            "10.0.0.4 does not bear",
            "[fd00::2]:443 does not answer SYNs with the SMC option (found once): another 56 s",
        ] {
            assert!(told.contains(line), "{told}");
        }
        let one = of(&counters, "10.0.0.3".parse().ok());
        assert_eq!(one.len(), 1);
        let mut out = Vec::new();
        tell(&of(&counters, "10.0.0.5".parse().ok()), &mut out).unwrap();
        assert!(out.is_empty());
    }
}
