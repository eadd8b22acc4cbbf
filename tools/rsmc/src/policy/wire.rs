// SPDX-License-Identifier: GPL-2.0
//! Rules as the generic netlink family `RSMC_POLICY` has them.

use super::rule::Rule;
use crate::error::{Error, Result};
use crate::netlink::genl::{self, Body};
use crate::netlink::wire::{Attribute, Attributes};
use smc_proto::policy::{Network, Range, Verdict};

/// Commands.
pub(super) mod command {
    pub(crate) const LIST: u8 = 1;
    pub(crate) const REPLACE: u8 = 2;
    pub(crate) const ADD: u8 = 3;
    pub(crate) const DEL: u8 = 4;
    pub(crate) const FLUSH: u8 = 5;
    pub(crate) const TEST: u8 = 6;
    pub(crate) const LEARNED: u8 = 8;
    pub(crate) const FORGET_LEARNED: u8 = 9;
}

/// Attributes of requests and answers.
pub(super) mod attribute {
    pub(crate) const RULE: u16 = 1;
    pub(crate) const POSITION: u16 = 2;
    pub(crate) const ID: u16 = 3;
    pub(crate) const FACTS: u16 = 4;
    pub(crate) const ALLOWED: u16 = 5;
    pub(crate) const OPEN: u16 = 6;
    pub(crate) const MODE: u16 = 7;
    pub(crate) const SERVICE: u16 = 9;
}

/// Attributes of a rule, and of facts.
pub(super) mod rule {
    pub(crate) const VERDICT: u16 = 1;
    pub(crate) const SHARE: u16 = 2;
    pub(crate) const EXE: u16 = 3;
    pub(crate) const COMM: u16 = 4;
    pub(crate) const CGROUP: u16 = 5;
    pub(crate) const UID: u16 = 6;
    pub(crate) const PORT: u16 = 7;
    pub(crate) const PEER: u16 = 8;
    pub(crate) const PEER_PORT: u16 = 9;
    pub(crate) const MPTCP: u16 = 10;
    pub(crate) const ID: u16 = 11;
    pub(crate) const HITS: u16 = 12;
}

/// A rule that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: u32,
    /// How often it has decided.
    pub hits: u64,
    /// The rule.
    pub rule: Rule,
}

/// Two ports as an attribute has them.
pub(super) fn ports(range: Range) -> [u8; 4] {
    let [a, b] = range.first.to_ne_bytes();
    let [c, d] = range.last.to_ne_bytes();
    [a, b, c, d]
}

/// A network as an attribute has it.
pub(super) fn peer(network: Network) -> [u8; 17] {
    let mut bytes = [network.length(); 17];
    bytes[..16].copy_from_slice(&network.address());
    bytes
}

/// The attributes of a rule.
pub(super) fn encode(from: &Rule) -> Attributes {
    let (verdict, share) = match from.verdict {
        Verdict::Deny => (0, None),
        Verdict::Allow => (1, None),
        Verdict::Auto => (2, None),
        Verdict::Share(part) => (3, Some(part)),
    };
    let mut all = Attributes::default().attribute(rule::VERDICT, &[verdict]);
    if let Some(share) = share {
        all = all.attribute(rule::SHARE, &[share]);
    }
    for (kind, text) in [
        (rule::EXE, &from.exe),
        (rule::COMM, &from.comm),
        (rule::CGROUP, &from.cgroup),
    ] {
        if let Some(text) = text {
            all = all.text(kind, text);
        }
    }
    if let Some(uid) = from.uid {
        all = all.attribute(rule::UID, &uid.to_ne_bytes());
    }
    if let Some(range) = from.port {
        all = all.attribute(rule::PORT, &ports(range));
    }
    if let Some(network) = from.peer {
        all = all.attribute(rule::PEER, &peer(network));
    }
    if let Some(range) = from.peer_port {
        all = all.attribute(rule::PEER_PORT, &ports(range));
    }
    if from.mptcp {
        all = all.attribute(rule::MPTCP, &[1]);
    }
    all
}

const BAD: Error = Error::Malformed("a rule of the policy");

fn range(attribute: &Attribute<'_>) -> Result<Range> {
    let [a, b, c, d] = attribute.payload.try_into().map_err(|_| BAD)?;
    Ok(Range {
        first: u16::from_ne_bytes([a, b]),
        last: u16::from_ne_bytes([c, d]),
    })
}

fn network(attribute: &Attribute<'_>) -> Result<Network> {
    let bytes: [u8; 17] = attribute.payload.try_into().map_err(|_| BAD)?;
    let (address, length) = bytes.split_first_chunk::<16>().ok_or(BAD)?;
    Network::new(*address, length[0]).ok_or(BAD)
}

/// Reads an answer to `LIST`.
pub(super) fn decode(body: &Body) -> Result<Listed> {
    let attributes = body.attributes()?;
    let outer = attributes.iter().find(|a| a.kind == attribute::RULE);
    let (mut id, mut hits, mut share, mut verdict) = (0, 0, 0, None);
    let mut to = Rule::new(Verdict::Deny);
    for attribute in genl::all(outer.ok_or(BAD)?.nested())? {
        let number = || attribute.number().ok_or(BAD);
        let small = || u8::try_from(number()?).map_err(|_| BAD);
        match attribute.kind {
            rule::VERDICT => verdict = Some(small()?),
            rule::SHARE => share = small()?,
            rule::EXE => to.exe = Some(attribute.text()),
            rule::COMM => to.comm = Some(attribute.text()),
            rule::CGROUP => to.cgroup = Some(attribute.text()),
            rule::UID => to.uid = Some(u32::try_from(number()?).map_err(|_| BAD)?),
            rule::PORT => to.port = Some(range(&attribute)?),
            rule::PEER => to.peer = Some(network(&attribute)?),
            rule::PEER_PORT => to.peer_port = Some(range(&attribute)?),
            rule::MPTCP => to.mptcp = number()? != 0,
            rule::ID => id = u32::try_from(number()?).map_err(|_| BAD)?,
            rule::HITS => hits = number()?,
            _ => {}
        }
    }
    to.verdict = match verdict {
        Some(0) => Verdict::Deny,
        Some(1) => Verdict::Allow,
        Some(2) => Verdict::Auto,
        Some(3) => Verdict::Share(share),
        _ => return Err(BAD),
    };
    Ok(Listed { id, hits, rule: to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rule::from_file;

    #[test]
    fn a_rule_comes_back_as_it_was_sent() {
        let lines =
            "allow exe=/a comm=b* cgroup=/c uid=5 port=1-2 peer=10.0.0.0/8 peer-port=3 mptcp\n\
                     share=7\ndeny\nauto peer=::1";
        for rule in from_file("f", lines).unwrap() {
            let inner = encode(&rule)
                .attribute(rule::ID, &9u32.to_ne_bytes())
                .attribute(rule::HITS, &10u64.to_ne_bytes());
            let outer = Attributes::default().nest(attribute::RULE, &inner);
            let listed = decode(&Body(outer.bytes().to_vec())).unwrap();
            assert_eq!((listed.id, listed.hits), (9, 10));
            assert_eq!(listed.rule, rule);
        }
        assert!(decode(&Body(vec![9, 0, 1, 0, 1])).is_err());
        assert!(decode(&Body(Vec::new())).is_err());
    }
}
