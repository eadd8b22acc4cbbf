// SPDX-License-Identifier: GPL-2.0
//! Reasons of peers that declined. The module counts such connections as "the peer declined"; the
//! peer's own code is only kept with the socket, so this is of connections that are still open.

use super::{connections, explain};
use crate::diag::{Mode, Socket};
use crate::error::Result;
use crate::reason::{self, Told};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;

/// A code that peers gave, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Declined {
    #[serde(flatten)]
    reason: Told,
    advice: &'static str,
    count: u64,
    #[serde(skip)]
    number: u32,
}

/// The codes that peers, or one peer, gave, the most frequent first.
pub fn by_peers(sockets: &[Socket], peer: Option<IpAddr>) -> Vec<Declined> {
    let mut counts = BTreeMap::new();
    for socket in sockets {
        let theirs = peer.is_none_or(|peer| peer == socket.remote.address.to_canonical());
        let said = socket.fallback.map_or(0, |fallback| fallback.peer);
        if theirs && said != 0 && socket.mode == Mode::Tcp {
            *counts.entry(said).or_insert(0u64) += 1;
        }
    }
    let mut declined: Vec<Declined> = counts
        .into_iter()
        .map(|(code, count)| Declined {
            reason: Told::new(code),
            advice: reason::advice(code),
            count,
            number: code,
        })
        .collect();
    declined.sort_by_key(|entry| std::cmp::Reverse(entry.count));
    declined
}

/// Explains them.
///
/// # Errors
/// Errors of writing to `out`.
pub fn tell(declined: &[Declined], out: &mut dyn Write) -> Result<()> {
    if declined.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nWhat peers that declined gave as their reason; the cure is there:"
    )?;
    for entry in declined {
        let count = connections(entry.count).replacen(" connection", " open connection", 1);
        explain(entry.number, &count, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Fallback;

    #[test]
    fn of_open_connections() {
        let mut sockets = crate::ss::tests::sockets();
        let peer = sockets[1].remote.address;
        let all = by_peers(&sockets, None);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].reason.name, all[0].count), ("NOSMCDEV", 1));
        assert_eq!(by_peers(&sockets, Some(peer.to_canonical())), all);
        assert_eq!(by_peers(&sockets, "192.0.2.1".parse().ok()), []);

        let twin = sockets[1].clone();
        sockets.push(twin);
        let mut rare = sockets[1].clone();
        rare.fallback = Some(Fallback {
            reason: 0x0500_0000,
            peer: 0x0303_0008,
        });
        sockets.insert(0, rare);
        let mut out = Vec::new();
        tell(&by_peers(&sockets, None), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let frequent = text
            .find("2 open connections: 0x03030000 NOSMCDEV\n")
            .unwrap();
        let rare = text.find("1 open connection: 0x03030008 NOUEID\n").unwrap();
        assert!(frequent < rare && text.contains("rsmc ueid add"), "{text}");
    }
}
