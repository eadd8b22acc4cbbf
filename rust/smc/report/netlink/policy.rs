// SPDX-License-Identifier: GPL-2.0

//! The family `RSMC_POLICY`: the rules that say which TCP sockets become SMC's, the peers that are sent no option, and
//! the promoted connections that are to go back to TCP.
//!
//! All of it is for administrators of the network namespace, and about that namespace alone.

use super::{learned, namespace, sockets};
use crate::host::{
    rules::{self, Label, Rule, Text, MOST},
    tcp2smc, //
};
use kapi::{
    errno,
    net::{
        genl::{Command, Family, Kind},
        netlink::{Answer, Attributes, Message, Position},
        netns::Net, //
    }, //
};
use kernel::{prelude::*, sync::atomic::Relaxed};
use smc_proto::policy::{Facts, Network, Range, Verdict};

/// The family `RSMC_POLICY`.
pub(crate) struct Policy;

/// Commands of [`Policy`].
mod commands {
    /// Lists the rules in their order.
    pub(super) const LIST: u8 = 1;
    /// Replaces all rules by those of the request, at once.
    pub(super) const REPLACE: u8 = 2;
    /// Adds the rule of the request.
    pub(super) const ADD: u8 = 3;
    /// Removes the rule with the number of the request.
    pub(super) const DEL: u8 = 4;
    /// Removes all rules.
    pub(super) const FLUSH: u8 = 5;
    /// Says which rule decides about a socket with the facts of the request.
    pub(super) const TEST: u8 = 6;
    /// Forgets a peer to which no option is sent, or all of them.
    pub(super) const FORGET_PEERS: u8 = 7;
    /// Lists what rules with `auto` have learnt.
    pub(super) const LEARNED: u8 = 8;
    /// Forgets it.
    pub(super) const FORGET_LEARNED: u8 = 9;
    /// Has promoted connections go back to TCP: one by its cookie, those with a peer, or all.
    pub(super) const DEMOTE: u8 = 10;
}

/// Attributes of a request or an answer.
mod attribute {
    /// A rule: those of [`super::rule`], nested.
    pub(super) const RULE: u16 = 1;
    /// Position of a new rule, from 0; a `u32`.
    pub(super) const POSITION: u16 = 2;
    /// Number of a rule; a `u32`.
    pub(super) const ID: u16 = 3;
    /// Facts about a socket: those of [`super::rule`], nested.
    pub(super) const FACTS: u16 = 4;
    /// Whether the socket may become SMC's; a `u8`.
    pub(super) const ALLOWED: u16 = 5;
    /// Whether a rule before that one may still match, when more is known; a `u8`.
    pub(super) const OPEN: u16 = 6;
    /// The sysctl `tcp2smc`; a `u32`.
    pub(super) const MODE: u16 = 7;
    /// Address of a peer, as IPv6; 16 bytes.
    pub(super) const ADDRESS: u16 = 8;
    /// The record of a service: attributes of [`super::learned`], nested.
    pub(super) const SERVICE: u16 = 9;
    /// The kernel's number of a socket; a `u64`.
    pub(super) const COOKIE: u16 = 10;
}

/// Attributes of a rule, and of the facts about a socket.
mod rule {
    /// 0 deny, 1 allow, 2 auto, 3 share; a `u8`.
    pub(super) const VERDICT: u16 = 1;
    /// Percentage of share; a `u8`.
    pub(super) const SHARE: u16 = 2;
    /// Path of the program, a pattern; a string, as the next two.
    pub(super) const EXE: u16 = 3;
    /// Name of the thread, a pattern.
    pub(super) const COMM: u16 = 4;
    /// Path of the cgroup.
    pub(super) const CGROUP: u16 = 5;
    /// User; a `u32`.
    pub(super) const UID: u16 = 6;
    /// First and last local port; two `u16`. Of facts, a port twice.
    pub(super) const PORT: u16 = 7;
    /// Address of the peer, 16 bytes, and the length of the prefix, one.
    pub(super) const PEER: u16 = 8;
    /// First and last port of the peer.
    pub(super) const PEER_PORT: u16 = 9;
    /// 1 for MPTCP; a `u8`.
    pub(super) const MPTCP: u16 = 10;
    /// Number of the rule; a `u32`.
    pub(super) const ID: u16 = 11;
    /// Number of decisions; a `u64`.
    pub(super) const HITS: u16 = 12;
    /// Padding.
    pub(super) const PAD: u16 = 13;
}

const fn own(number: u8, kind: Kind) -> Command {
    Command {
        number,
        kind,
        own: true,
    }
}

impl Family for Policy {
    const NAME: &'static CStr = c"RSMC_POLICY";
    const VERSION: u8 = 1;
    const COMMANDS: &'static [Command] = &[
        own(commands::LIST, Kind::Dump),
        own(commands::REPLACE, Kind::Act),
        own(commands::ADD, Kind::Act),
        own(commands::DEL, Kind::Act),
        own(commands::FLUSH, Kind::Act),
        own(commands::TEST, Kind::Get),
        own(commands::FORGET_PEERS, Kind::Act),
        own(commands::LEARNED, Kind::Dump),
        own(commands::FORGET_LEARNED, Kind::Act),
        own(commands::DEMOTE, Kind::Act),
    ];

    fn act(net: &Net, command: u8, attributes: &Attributes<'_>) -> Result {
        let namespace = namespace(net)?;
        let rules = &namespace.rules;
        match command {
            commands::REPLACE => {
                let mut new = KVVec::new();
                let mut rest = *attributes;
                while let Some((kind, contents)) = rest.take()? {
                    if kind != attribute::RULE {
                        continue;
                    }
                    if new.len() >= MOST {
                        return Err(E2BIG);
                    }
                    let rule = parse(&Attributes::nested(contents))?;
                    new.push(rule, GFP_KERNEL_ACCOUNT)?;
                }
                rules.replace(new)
            }
            commands::ADD => {
                let contents = attributes.get(attribute::RULE)?.ok_or(EINVAL)?;
                let rule = parse(&Attributes::nested(contents))?;
                let position = number(attributes, attribute::POSITION)?;
                rules.add(rule, position.map_or(usize::MAX, |at| at as usize))
            }
            commands::DEL => rules.remove(number(attributes, attribute::ID)?.ok_or(EINVAL)?),
            commands::FLUSH => {
                rules.flush();
                Ok(())
            }
            commands::FORGET_LEARNED => {
                namespace.learned.forget();
                Ok(())
            }
            commands::DEMOTE => {
                let cookie = attributes.get(attribute::COOKIE)?.map(<[u8; 8]>::try_from);
                let cookie = cookie.transpose().map_err(|_| EINVAL)?;
                let peer = attributes.get(attribute::ADDRESS)?.map(TryInto::try_into);
                let peer = peer.transpose().map_err(|_| EINVAL)?;
                match sockets(net)?.demote(cookie.map(u64::from_ne_bytes), peer) {
                    true => Ok(()),
                    false => Err(ENOENT),
                }
            }
            commands::FORGET_PEERS => {
                let known = &namespace.peer_cache;
                let Some(address) = attributes.get(attribute::ADDRESS)? else {
                    known.forget_all();
                    return Ok(());
                };
                match known.forget(address.try_into().map_err(|_| EINVAL)?) {
                    true => Ok(()),
                    false => Err(ENOENT),
                }
            }
            _ => Err(errno::EOPNOTSUPP.into()),
        }
    }

    fn list(
        net: &Net,
        command: u8,
        attributes: Option<&Attributes<'_>>,
        position: &mut Position,
        answer: &mut Answer<'_>,
    ) -> Result {
        let namespace = namespace(net)?;
        if command == commands::TEST {
            let facts = attributes.ok_or(EINVAL)?.get(attribute::FACTS)?;
            return test(
                &namespace,
                &Attributes::nested(facts.ok_or(EINVAL)?),
                answer,
            );
        }
        if command == commands::LEARNED {
            let learned = &namespace.learned;
            return learned::list(learned, attribute::SERVICE, position, answer);
        }
        let Some(rules) = namespace.rules.get() else {
            return Ok(());
        };
        let [at, ..] = position;
        while let Some((rule, label)) = rules.at(*at as usize) {
            let mut message = answer.message(&[])?;
            message.nest(attribute::RULE, |out| write(out, rule, label))?;
            message.end();
            *at = at.wrapping_add(1);
        }
        Ok(())
    }
}

/// Answers which rule decides about a socket with these facts.
fn test(
    namespace: &crate::host::namespace::Namespace,
    attributes: &Attributes<'_>,
    answer: &mut Answer<'_>,
) -> Result {
    let text = |kind| {
        attributes
            .string(kind, rules::TEXT)
            .map(|text| text.unwrap_or(&[]))
    };
    let peer = match attributes.get(rule::PEER)? {
        None => None,
        Some(bytes) => {
            let port = range(attributes, rule::PEER_PORT)?;
            Some((network(bytes)?.address(), port.map_or(0, |port| port.first)))
        }
    };
    let facts = Facts {
        exe: text(rule::EXE)?,
        comm: text(rule::COMM)?,
        cgroup: text(rule::CGROUP)?,
        uid: number(attributes, rule::UID)?.unwrap_or(u32::MAX),
        mptcp: Some(flag(attributes, rule::MPTCP)?),
        port: range(attributes, rule::PORT)?.map(|port| port.first),
        peer,
    };
    let answered = tcp2smc::test(namespace, &facts);
    let mut message = answer.message(&[])?;
    message.put(attribute::MODE, &answered.mode.to_ne_bytes())?;
    message.put(attribute::ALLOWED, &[u8::from(answered.allowed)])?;
    message.put(attribute::OPEN, &[u8::from(answered.open)])?;
    if let Some(id) = answered.rule {
        message.put(attribute::ID, &id.to_ne_bytes())?;
    }
    message.end();
    Ok(())
}

fn number(attributes: &Attributes<'_>, kind: u16) -> Result<Option<u32>> {
    match attributes.get(kind)? {
        None => Ok(None),
        Some(bytes) => Ok(Some(u32::from_ne_bytes(
            bytes.try_into().map_err(|_| EINVAL)?,
        ))),
    }
}

fn byte(attributes: &Attributes<'_>, kind: u16) -> Result<Option<u8>> {
    match attributes.get(kind)? {
        None => Ok(None),
        Some([byte]) => Ok(Some(*byte)),
        Some(_) => Err(EINVAL),
    }
}

fn flag(attributes: &Attributes<'_>, kind: u16) -> Result<bool> {
    Ok(byte(attributes, kind)?.unwrap_or(0) != 0)
}

fn range(attributes: &Attributes<'_>, kind: u16) -> Result<Option<Range>> {
    let Some(bytes) = attributes.get(kind)? else {
        return Ok(None);
    };
    let [a, b, c, d] = bytes.try_into().map_err(|_| EINVAL)?;
    let range = Range {
        first: u16::from_ne_bytes([a, b]),
        last: u16::from_ne_bytes([c, d]),
    };
    match range.first <= range.last {
        true => Ok(Some(range)),
        false => Err(EINVAL),
    }
}

fn network(bytes: &[u8]) -> Result<Network> {
    let (address, length) = bytes.split_first_chunk::<16>().ok_or(EINVAL)?;
    let [length] = length else {
        return Err(EINVAL);
    };
    Network::new(*address, *length).ok_or(EINVAL)
}

/// Reads a rule. Attributes that it does not know are an error: a condition is never left out.
fn parse(attributes: &Attributes<'_>) -> Result<Rule> {
    let mut rest = *attributes;
    while let Some((kind, _)) = rest.take()? {
        if !(rule::VERDICT..=rule::MPTCP).contains(&kind) {
            return Err(EINVAL);
        }
    }
    let verdict = match byte(attributes, rule::VERDICT)?.ok_or(EINVAL)? {
        0 => Verdict::Deny,
        1 => Verdict::Allow,
        2 => Verdict::Auto,
        3 => match byte(attributes, rule::SHARE)?.ok_or(EINVAL)? {
            share @ 0..=100 => Verdict::Share(share),
            _ => return Err(EINVAL),
        },
        _ => return Err(EINVAL),
    };
    let text = |kind| match attributes.string(kind, rules::TEXT)? {
        None => Ok(None),
        Some(&[]) => Err(EINVAL),
        Some(text) => Text::new(text).map(Some),
    };
    Ok(Rule {
        exe: text(rule::EXE)?,
        comm: text(rule::COMM)?,
        cgroup: text(rule::CGROUP)?,
        uid: number(attributes, rule::UID)?,
        port: range(attributes, rule::PORT)?,
        peer: attributes.get(rule::PEER)?.map(network).transpose()?,
        peer_port: range(attributes, rule::PEER_PORT)?,
        mptcp: flag(attributes, rule::MPTCP)?,
        ..Rule::new(verdict)
    })
}

fn write(out: &mut Message<'_>, from: &Rule, label: &Label) -> Result {
    let (verdict, share) = match from.verdict {
        Verdict::Deny => (0, None),
        Verdict::Allow => (1, None),
        Verdict::Auto => (2, None),
        Verdict::Share(share) => (3, Some(share)),
    };
    out.put(rule::ID, &label.id.to_ne_bytes())?;
    out.put(rule::VERDICT, &[verdict])?;
    if let Some(share) = share {
        out.put(rule::SHARE, &[share])?;
    }
    for (kind, text) in [
        (rule::EXE, &from.exe),
        (rule::COMM, &from.comm),
        (rule::CGROUP, &from.cgroup),
    ] {
        if let Some(text) = text {
            out.put_string(kind, text.as_ref())?;
        }
    }
    if let Some(uid) = from.uid {
        out.put(rule::UID, &uid.to_ne_bytes())?;
    }
    for (kind, range) in [(rule::PORT, from.port), (rule::PEER_PORT, from.peer_port)] {
        if let Some(range) = range {
            let [a, b] = range.first.to_ne_bytes();
            let [c, d] = range.last.to_ne_bytes();
            out.put(kind, &[a, b, c, d])?;
        }
    }
    if let Some(peer) = from.peer {
        let mut bytes = [peer.length(); 17];
        if let Some(address) = bytes.first_chunk_mut::<16>() {
            *address = peer.address();
        }
        out.put(rule::PEER, &bytes)?;
    }
    if from.mptcp {
        out.put(rule::MPTCP, &[1])?;
    }
    out.put_u64(rule::HITS, label.hits.load(Relaxed), rule::PAD)
}
