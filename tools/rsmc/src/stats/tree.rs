// SPDX-License-Identifier: GPL-2.0
//! The counters of `SMC_NETLINK_GET_STATS`: nested attributes, given names by their numbers.

use crate::error::{Error, Result};
use crate::netlink::genl;
use crate::netlink::wire::Attribute;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name of an attribute of the statistics, and its contents.
#[derive(Debug)]
pub enum Kind {
    /// A number of any width.
    Count(&'static str),
    /// Attributes inside, by number from 1.
    Group(&'static str, &'static [Kind]),
}
use Kind::{Count, Group};

const SIZES: &[Kind] = &[
    Count("8k"),
    Count("16k"),
    Count("32k"),
    Count("64k"),
    Count("128k"),
    Count("256k"),
    Count("512k"),
    Count("1024k"),
    Count("larger"),
];
const BUFFERS: &[Kind] = &[
    Count("peer_too_small"),
    Count("too_small"),
    Count("peer_full"),
    Count("full"),
    Count("reused"),
    Count("allocated"),
    Count("downgraded"),
];
const TECHNOLOGY: &[Kind] = &[
    Group("tx_buffer_sizes", SIZES),
    Group("rx_buffer_sizes", SIZES),
    Group("tx_request_sizes", SIZES),
    Group("rx_request_sizes", SIZES),
    Group("tx_buffers", BUFFERS),
    Group("rx_buffers", BUFFERS),
    Count("client_v1"),
    Count("client_v2"),
    Count("server_v1"),
    Count("server_v2"),
    Count("sendpage_calls"),
    Count("splice_calls"),
    Count("cork_calls"),
    Count("nodelay_calls"),
    Count("urgent_calls"),
    Count("rx_bytes"),
    Count("tx_bytes"),
    Count("rx_requests"),
    Count("tx_requests"),
    Count("rx_buffer_bytes"),
    Count("tx_buffer_bytes"),
];
/// By attribute number, from 1 (`SMC_NLA_STATS_…`).
pub const STATS: &[Kind] = &[
    Group("smc_d", TECHNOLOGY),
    Group("smc_r", TECHNOLOGY),
    Count("client_handshake_errors"),
    Count("server_handshake_errors"),
];

/// A counter, or named counters in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A counter.
    Count(u64),
    /// Counters with their names.
    Group(Vec<(&'static str, Node)>),
}

/// Counters by their names joined by points.
pub type Flat = BTreeMap<String, u64>;

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_string(),
        path => format!("{path}.{name}"),
    }
}

/// True for numbers that go up and down: the memory of the buffers there are now.
pub fn is_amount(path: &str) -> bool {
    path.ends_with("_buffer_bytes")
}

/// Reads attributes as the counters that `kinds` names, the first one having number 1.
/// Others (of a later kernel, or padding) are passed over.
///
/// # Errors
/// `Malformed`: a length inside that leads outside, or a counter of an odd width.
pub fn read(attributes: &[Attribute<'_>], kinds: &[Kind]) -> Result<Node> {
    let mut nodes = Vec::new();
    for attribute in attributes {
        let index = usize::from(attribute.kind).checked_sub(1);
        match index.and_then(|index| kinds.get(index)) {
            Some(Count(name)) => {
                let number = attribute.number();
                let number = number.ok_or(Error::Malformed("a counter's length"))?;
                nodes.push((*name, Node::Count(number)));
            }
            Some(Group(name, inside)) => {
                let inner = genl::all(attribute.nested())?;
                nodes.push((*name, read(&inner, inside)?));
            }
            None => {}
        }
    }
    Ok(Node::Group(nodes))
}

impl Node {
    /// The node of this name inside.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match self {
            Node::Count(_) => None,
            Node::Group(nodes) => {
                let mut nodes = nodes.iter();
                nodes
                    .find(|(known, _)| *known == name)
                    .map(|(_, node)| node)
            }
        }
    }

    /// The counter of this name inside; 0 if there is none.
    pub fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Node::Count(count)) => *count,
            _ => 0,
        }
    }

    /// All counters inside, each with its names joined by points.
    pub fn flat(&self) -> Flat {
        let mut flat = Flat::new();
        self.flatten("", &mut flat);
        flat
    }

    fn flatten(&self, path: &str, flat: &mut Flat) {
        match self {
            Node::Count(count) => {
                flat.insert(path.to_string(), *count);
            }
            Node::Group(nodes) => {
                for (name, node) in nodes {
                    node.flatten(&join(path, name), flat);
                }
            }
        }
    }

    /// The counters less what they were before. What is no counter but an amount stays.
    #[must_use]
    pub fn since(&self, before: &Flat) -> Node {
        self.less("", before)
    }

    fn less(&self, path: &str, before: &Flat) -> Node {
        match self {
            Node::Count(count) if is_amount(path) => Node::Count(*count),
            Node::Count(count) => {
                let before = before.get(path).copied().unwrap_or(0);
                Node::Count(count.saturating_sub(before))
            }
            Node::Group(nodes) => {
                let less = |(name, node): &(&'static str, Node)| {
                    (*name, node.less(&join(path, name), before))
                };
                Node::Group(nodes.iter().map(less).collect())
            }
        }
    }

    /// True if all counters inside are zero.
    pub fn is_zero(&self) -> bool {
        match self {
            Node::Count(count) => *count == 0,
            Node::Group(nodes) => nodes.iter().all(|(_, node)| node.is_zero()),
        }
    }

    /// Prints the counters that are not zero: a line for each, histograms in one line.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Node::Group(nodes) = self {
            for (name, node) in nodes {
                tell(name, node, "", out)?;
            }
        }
        Ok(())
    }
}

fn tell(name: &str, node: &Node, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let words = match name {
        "smc_d" => "SMC-D".into(),
        "smc_r" => "SMC-R".into(),
        name => name.replace('_', " "),
    };
    match node {
        Node::Count(0) => {}
        Node::Count(count) => writeln!(out, "{indent}{words}: {count}")?,
        Node::Group(_) if node.is_zero() => {
            if indent.is_empty() {
                writeln!(out, "{words}: unused")?;
            }
        }
        Node::Group(nodes) if indent.is_empty() => {
            writeln!(out, "{words}:")?;
            for (name, node) in nodes {
                tell(name, node, "  ", out)?;
            }
        }
        Node::Group(nodes) => {
            let mut parts = Vec::new();
            for (name, node) in nodes {
                if let Node::Count(count @ 1..) = node {
                    parts.push(format!("{} {count}", name.replace('_', " ")));
                }
            }
            writeln!(out, "{indent}{words}: {}", parts.join(", "))?;
        }
    }
    Ok(())
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Node::Count(count) => serializer.serialize_u64(*count),
            Node::Group(nodes) => {
                let mut map = serializer.serialize_map(Some(nodes.len()))?;
                for (name, node) in nodes {
                    map.serialize_entry(name, node)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::{attribute, attributes};

    fn sample() -> Vec<u8> {
        let sizes = [
            attribute(4, &0u64.to_ne_bytes()),
            attribute(9, &5u64.to_ne_bytes()),
        ];
        let tech = [
            attribute(0x8000 | 1, &sizes.concat()),
            attribute(8, &3u64.to_ne_bytes()),
            attribute(20, &64u32.to_ne_bytes()),
            attribute(99, &[1, 2, 3]),
        ];
        [
            attribute(1, &attribute(8, &0u64.to_ne_bytes())),
            attribute(2, &tech.concat()),
            attribute(3, &1u64.to_ne_bytes()),
        ]
        .concat()
    }

    #[test]
    fn names_by_number() {
        let bytes = sample();
        let node = read(&genl::all(attributes(&bytes)).unwrap(), STATS).unwrap();
        let value = serde_json::to_value(&node).unwrap();
        assert_eq!(value["smc_r"]["tx_buffer_sizes"]["larger"], 5);
        assert_eq!(value["smc_r"]["client_v2"], 3);
        assert_eq!(value["smc_r"]["rx_buffer_bytes"], 64);
        assert_eq!(value["smc_d"]["client_v2"], 0);
        assert_eq!(value["client_handshake_errors"], 1);
        let mut out = Vec::new();
        node.tell(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "SMC-D: unused\nSMC-R:\n  tx buffer sizes: larger 5\n  client v2: 3\n  \
             rx buffer bytes: 64\nclient handshake errors: 1\n"
        );
    }

    #[test]
    fn differences() {
        let bytes = sample();
        let node = read(&genl::all(attributes(&bytes)).unwrap(), STATS).unwrap();
        let mut before = node.flat();
        assert_eq!(before["smc_r.tx_buffer_sizes.larger"], 5);
        assert_eq!(before["client_handshake_errors"], 1);
        before.insert("smc_r.tx_buffer_sizes.larger".into(), 3);
        let since = node.since(&before);
        let smc_r = since.get("smc_r").unwrap();
        assert_eq!(smc_r.get("tx_buffer_sizes").unwrap().count("larger"), 2);
        assert_eq!(smc_r.count("client_v2"), 0);
        assert_eq!(smc_r.count("rx_buffer_bytes"), 64);
        assert_eq!(smc_r.count("nothing"), 0);
        assert!(since.get("smc_d").unwrap().is_zero());
    }

    #[test]
    fn damage_is_an_error_or_passed_over() {
        let whole = sample();
        for cut in 0..whole.len() {
            if let Ok(all) = genl::all(attributes(&whole[..cut])) {
                let _ = read(&all, STATS);
            }
        }
        let odd = attribute(3, &[1, 2, 3]);
        assert!(read(&genl::all(attributes(&odd)).unwrap(), STATS).is_err());
        let inside = attribute(2, &attribute(1, &[9, 0, 1, 0]));
        assert!(read(&genl::all(attributes(&inside)).unwrap(), STATS).is_err());
    }
}
