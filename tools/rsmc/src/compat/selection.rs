// SPDX-License-Identifier: GPL-2.0
//! Which groups, links and devices `smcr` and `smcd` are asked for.

use super::smc::{stem, Technology};
use crate::dev::Port;
use crate::error::{Error, Result};
use crate::link::{Group, Link};
use crate::system::interface;

/// Which groups, links or devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// The group of this number.
    Id(u64),
    /// Links and devices of this network interface.
    Interface(String),
    /// Links and ports of this RDMA device.
    Device(String),
}

impl Selection {
    /// From the words after the command.
    pub fn parse(technology: Technology, words: &[String]) -> Result<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (technology, &words[..]) {
            (_, [] | ["all"]) => Ok(Selection::All),
            (Technology::R, [which, name]) => match stem(which, &["netdev", "ibdev"], "filter")? {
                "netdev" => Ok(Selection::Interface((*name).into())),
                _ => Ok(Selection::Device((*name).into())),
            },
            (_, [id]) => match u64::from_str_radix(id.trim_start_matches("0x"), 16) {
                Ok(id) => Ok(Selection::Id(id)),
                Err(_) => Err(Error::Usage(format!("{id} is no hexadecimal number"))),
            },
            (_, words) => Err(Error::Usage(format!("what is {}?", words.join(" ")))),
        }
    }

    /// True if this group's link is asked for.
    pub fn has_link(&self, group: &Group, link: &Link) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(id) => group.id == *id,
            Selection::Interface(name) => interface(link.ifindex) == *name,
            Selection::Device(name) => link.device == *name,
        }
    }

    /// True if a group is asked for, or a link of it.
    pub fn has_group(&self, group: &Group) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(id) => group.id == *id,
            _ => group.links.iter().any(|link| self.has_link(group, link)),
        }
    }

    /// True if a device's port is asked for.
    pub fn has_port(&self, port: &Port) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(_) => false,
            Selection::Interface(name) => interface(port.ifindex) == *name,
            Selection::Device(name) => port.device == *name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups::tests::group;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn selections() {
        let parsed = |text: &str| Selection::parse(Technology::R, &words(text)).ok();
        assert_eq!(parsed("all"), Some(Selection::All));
        assert_eq!(parsed("1a"), Some(Selection::Id(0x1a)));
        assert_eq!(parsed("ibdev rxe0"), Some(Selection::Device("rxe0".into())));
        assert_eq!(parsed("ib rxe0"), Some(Selection::Device("rxe0".into())));
        assert_eq!(parsed("n eth0"), Some(Selection::Interface("eth0".into())));
        assert_eq!((parsed("ibdev"), parsed("link 1")), (None, None));
        assert!(Selection::parse(Technology::D, &words("netdev lo")).is_err());
        assert!(parsed("ibdev rxe0").unwrap().has_group(&group()));
        assert!(!parsed("ibdev rxe1").unwrap().has_group(&group()));
        assert!(!parsed("2b").unwrap().has_group(&group()));
    }
}
