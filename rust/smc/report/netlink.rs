// SPDX-License-Identifier: GPL-2.0

//! The generic netlink families `SMC_GEN_NETLINK` and `SMC_PNETID`, by which C's smc-tools and
//! `rsmc` configure and inspect SMC.
//!
//! Numbers are those of `include/uapi/linux/smc.h`. Commands of SMC-D and the system EID exist and
//! report that there is none.
//!
//! * here is `SMC_GEN_NETLINK`, its configuration and counters
//! * [`links`] lists link groups, links and RDMA devices
//! * [`pnet`] is `SMC_PNETID`
//! * [`policy`] is `RSMC_POLICY`, our own

mod learned;
mod links;
mod pnet;
mod policy;

use crate::{
    host::{
        counters::REASONS,
        eid::Eids,
        fallback::Role,
        namespace::Namespace,
        stats,
        sysctl::Sysctl, //
    },
    smcr::SMCR,
    socket::Registry, //
};
use kapi::{
    errno,
    net::{
        genl::{Command, Family, Kind},
        netlink::{Answer, Attributes, Position},
        netns::Net, //
    },
    sys::host, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::wire::clc::Eid;

pub(crate) use pnet::Pnet;
pub(crate) use policy::Policy;

const fn command(number: u8, kind: Kind) -> Command {
    Command {
        number,
        kind,
        own: false,
    }
}

fn namespace(net: &Net) -> Result<Arc<Namespace>> {
    Namespace::at(net).ok_or(ENOENT)
}

fn sockets(net: &Net) -> Result<Arc<Registry>> {
    Registry::at(net).ok_or(ENOENT)
}

/// The family `SMC_GEN_NETLINK`.
pub(crate) struct General;

/// Commands of [`General`].
mod general {
    pub(super) const SYSTEM: u8 = 1;
    pub(super) const GROUPS: u8 = 2;
    pub(super) const LINKS: u8 = 3;
    pub(super) const GROUPS_D: u8 = 4;
    pub(super) const DEVICES_D: u8 = 5;
    pub(super) const DEVICES: u8 = 6;
    pub(super) const STATS: u8 = 7;
    pub(super) const FALLBACKS: u8 = 8;
    pub(super) const DUMP_UEID: u8 = 9;
    pub(super) const ADD_UEID: u8 = 10;
    pub(super) const REMOVE_UEID: u8 = 11;
    pub(super) const FLUSH_UEID: u8 = 12;
    pub(super) const DUMP_SEID: u8 = 13;
    pub(super) const ENABLE_SEID: u8 = 14;
    pub(super) const DISABLE_SEID: u8 = 15;
    pub(super) const DUMP_LIMITATION: u8 = 16;
    pub(super) const ENABLE_LIMITATION: u8 = 17;
    pub(super) const DISABLE_LIMITATION: u8 = 18;
}

/// `SMC_NLA_EID_TABLE_ENTRY`: an EID and a NUL byte.
const EID_ENTRY: u16 = 1;

impl Family for General {
    const NAME: &'static CStr = c"SMC_GEN_NETLINK";
    const VERSION: u8 = 1;
    const COMMANDS: &'static [Command] = &[
        command(general::SYSTEM, Kind::Dump),
        command(general::GROUPS, Kind::Dump),
        command(general::LINKS, Kind::Dump),
        command(general::GROUPS_D, Kind::Dump),
        command(general::DEVICES_D, Kind::Dump),
        command(general::DEVICES, Kind::Dump),
        command(general::STATS, Kind::Dump),
        command(general::FALLBACKS, Kind::Dump),
        command(general::DUMP_UEID, Kind::Dump),
        command(general::ADD_UEID, Kind::Act),
        command(general::REMOVE_UEID, Kind::Act),
        command(general::FLUSH_UEID, Kind::Act),
        command(general::DUMP_SEID, Kind::Dump),
        command(general::ENABLE_SEID, Kind::Act),
        command(general::DISABLE_SEID, Kind::Act),
        command(general::DUMP_LIMITATION, Kind::Dump),
        command(general::ENABLE_LIMITATION, Kind::Act),
        command(general::DISABLE_LIMITATION, Kind::Act),
    ];

    fn act(net: &Net, command: u8, attributes: &Attributes<'_>) -> Result {
        let initial = Namespace::initial().ok_or(ENOENT)?;
        let eids = &initial.eids;
        match command {
            general::ADD_UEID => eids.add(eid(attributes)?),
            general::REMOVE_UEID => eids.remove(&eid(attributes)?),
            general::FLUSH_UEID => {
                eids.flush();
                Ok(())
            }
            general::ENABLE_LIMITATION | general::DISABLE_LIMITATION => {
                let on = command == general::ENABLE_LIMITATION;
                namespace(net)?.sysctls.set(Sysctl::LimitHs, on);
                Ok(())
            }
            _ => Err(errno::EOPNOTSUPP.into()),
        }
    }

    fn list(
        net: &Net,
        command: u8,
        _attributes: Option<&Attributes<'_>>,
        position: &mut Position,
        answer: &mut Answer<'_>,
    ) -> Result {
        match command {
            general::GROUPS | general::LINKS => {
                let registry = SMCR.get().ok_or(ENOENT)?;
                let with_links = command == general::LINKS;
                return links::list_groups(&registry, net, with_links, position, answer);
            }
            general::DEVICES => {
                let registry = SMCR.get().ok_or(ENOENT)?;
                return links::list_devices(&registry, net, position, answer);
            }
            general::FALLBACKS => return list_fallbacks(&*namespace(net)?, position, answer),
            general::DUMP_UEID => {
                // They are the host's: who administers it sees them everywhere, others in the initial namespace.
                if !net.is_initial() && !answer.is_for_admin() {
                    return Ok(());
                }
                let initial = Namespace::initial().ok_or(ENOENT)?;
                return list_eids(&initial.eids, position, answer);
            }
            _ => (),
        }
        // The others have one message, or none.
        let [done, ..] = position;
        if *done != 0 {
            return Ok(());
        }
        match command {
            general::SYSTEM => write_system(answer)?,
            general::STATS => write_stats(&*sockets(net)?, answer)?,
            // Without ISM devices C says as little.
            general::DUMP_SEID => answer.message(&[])?.end(),
            general::DUMP_LIMITATION => {
                let limited = namespace(net)?.sysctls.get(Sysctl::LimitHs) != 0;
                let mut message = answer.message(&[])?;
                message.put(1, &[u8::from(limited)])?;
                message.end();
            }
            // No SMC-D.
            _ => (),
        }
        *done = 1;
        Ok(())
    }
}

fn eid(attributes: &Attributes<'_>) -> Result<Eid> {
    match attributes.get(EID_ENTRY)? {
        Some([eid @ .., _]) => Ok(Eid(eid.try_into().map_err(|_| EINVAL)?)),
        _ => Err(EINVAL),
    }
}

fn list_eids(eids: &Eids, position: &mut Position, answer: &mut Answer<'_>) -> Result {
    let [at, ..] = position;
    while let Some(eid) = eids.at(*at as usize) {
        let mut message = answer.message(&[])?;
        message.put_string(EID_ENTRY, &eid.0)?;
        message.end();
        *at = at.wrapping_add(1);
    }
    Ok(())
}

fn write_system(answer: &mut Answer<'_>) -> Result {
    let name = host::name_for_task();
    let mut message = answer.message(&[])?;
    // SMC_GEN_SYS_INFO
    message.nest(1, |out| {
        // Version, release, ISM of version 2, SMC-R of version 2.
        for (kind, value) in [(1, 2), (2, 1), (3, 0), (6, 1)] {
            out.put(kind, &[value])?;
        }
        out.put_string(4, name.text())
    })?;
    message.end();
    Ok(())
}

fn write_stats(sockets: &Registry, answer: &mut Answer<'_>) -> Result {
    let mut message = answer.message(&[])?;
    // SMC_GEN_STATS
    message.nest(7, |out| {
        out.nest(1, stats::write_none)?;
        out.nest(2, |out| sockets.total().write(out))?;
        // Errors of handshakes that were no fallback, of clients and servers.
        for (kind, role) in [(3, Role::Client), (4, Role::Server)] {
            out.put_u64(kind, sockets.namespace.counters.errors(role), 0)?;
        }
        Ok(())
    })?;
    message.end();
    Ok(())
}

/// Lists the reasons of fallbacks, of servers and clients in turn, one message for each; the first
/// has the totals.
fn list_fallbacks(
    namespace: &Namespace,
    position: &mut Position,
    answer: &mut Answer<'_>,
) -> Result {
    let counters = &namespace.counters;
    let [at, told, ..] = position;
    while let Some((index, role)) = usize::try_from(*at / 2)
        .ok()
        .filter(|index| *index < REASONS)
        .zip(Some(if *at % 2 == 0 {
            Role::Server
        } else {
            Role::Client
        }))
    {
        if let Some((code, count)) = counters.reason_at(role, index) {
            let mut message = answer.message(&[])?;
            // SMC_GEN_FBACK_STATS
            message.nest(8, |out| {
                out.put(1, &[u8::from(role == Role::Server)])?;
                if *told == 0 {
                    out.put_u64(2, counters.fallbacks(Role::Server), 0)?;
                    out.put_u64(3, counters.fallbacks(Role::Client), 0)?;
                }
                out.put(4, &code.to_ne_bytes())?;
                let count = u16::try_from(count).unwrap_or(u16::MAX);
                out.put(5, &count.to_ne_bytes())
            })?;
            message.end();
            *told = 1;
        }
        *at = at.wrapping_add(1);
    }
    Ok(())
}
