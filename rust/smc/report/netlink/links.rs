// SPDX-License-Identifier: GPL-2.0

//! Link groups, links and RDMA devices, as `smcr` and `rsmc` ask for them.
//!
//! A dump has the groups of the asker's network namespace, and in the initial one, for who has `CAP_NET_ADMIN`, all of
//! them.
//! Groups and devices come in the order of their numbers, which are never used again: whatever
//! comes or goes between the pieces of a dump, nothing is listed twice and nothing else is left
//! out.

use super::general;
use crate::{
    host::{
        namespace::Namespace,
        pnet::Member,
        text::{self, GidText},
    }, //
    smcr::{group::GroupFacts, LinkGroup, SmcrRegistry},
};
use kapi::{
    net::{
        netlink::{Answer, Message, Position},
        netns::Net, //
    },
    rdma::device::{Device, PortState, Unfit}, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    llc::link::{LinkState, Role}, //
};

/// `SMC_LGR_SINGLE`: one link, without a redundant second one.
const SINGLE: u8 = 1;
/// Attribute of a device that the module cannot use, with the number of the reason; the in-tree module has
/// none so high.
const UNFIT: u16 = 64;
/// Ports of a device that the interface has room for.
const PORTS: u32 = 2;

/// Lists the link groups, one message for each; `with_links` adds one for its link.
pub(super) fn list_groups(
    registry: &SmcrRegistry,
    net: &Net,
    with_links: bool,
    position: &mut Position,
    answer: &mut Answer<'_>,
) -> Result {
    let all = net.is_initial() && answer.is_for_admin();
    let [last, told, ..] = position;
    while let Some(group) = registry.group_after(*last) {
        let facts = group.facts();
        if facts.active && (all || facts.cookie == net.cookie()) {
            // The one before may have ended after its header.
            if *told != u64::from(facts.id) {
                answer.answers(general::GROUPS);
                let mut message = answer.message(&[])?;
                message.nest(2, |out| write_group(out, &facts))?;
                message.end();
                *told = u64::from(facts.id);
            }
            if with_links {
                answer.answers(general::LINKS);
                let mut message = answer.message(&[])?;
                message.nest(3, |out| write_link(out, &group, &facts))?;
                message.end();
            }
        }
        *last = u64::from(facts.id);
    }
    Ok(())
}

/// Writes `SMC_GEN_LGR_SMCR`.
fn write_group(out: &mut Message<'_>, facts: &GroupFacts) -> Result {
    let terms = &facts.terms;
    out.put(1, &facts.id.to_ne_bytes())?;
    out.put(2, &[u8::from(terms.key.role == Role::Server)])?;
    out.put(3, &[SINGLE])?;
    out.put_string(4, facts.pnet())?;
    // As C does: the low byte of the VLAN ID.
    out.put(5, &[facts.vlan.unwrap_or(0) as u8])?;
    out.put(6, &u32::from(facts.conns).to_ne_bytes())?;
    out.put_u64(9, facts.cookie, 10)?;
    // Physically contiguous buffers.
    out.put(11, &[0])?;
    out.put_uint(12, facts.send_bytes)?;
    out.put_uint(13, facts.recv_bytes)?;
    if terms.key.version < 2 {
        return Ok(());
    }
    out.nest(7, |out| {
        // C's enumeration begins with the version, without a number for "unspecified".
        out.put(0, &[terms.key.version])?;
        out.put(1, &[terms.release])?;
        out.put(2, &[facts.peer.os])?;
        out.put_string(3, facts.peer.eid.text())?;
        out.put_string(4, facts.peer.host())
    })?;
    out.nest(8, |out| {
        out.put(1, &[u8::from(!facts.gateway)])?;
        out.put(2, &[terms.max_conns])?;
        out.put(3, &[terms.max_links])
    })
}

/// Writes `SMC_GEN_LINK_SMCR`.
fn write_link(out: &mut Message<'_>, group: &LinkGroup, facts: &GroupFacts) -> Result {
    let state = match facts.state {
        LinkState::Active => 3u32,
        LinkState::Inactive => 1,
        _ => 2,
    };
    let name = group.link.device().name();
    out.put(1, &[facts.number])?;
    out.put_string(2, text::name(&name))?;
    out.put(3, &[group.link.port() as u8])?;
    out.put_string(4, GidText::new(&group.link.gid()).text())?;
    out.put_string(5, GidText::new(&facts.terms.key.peer_gid).text())?;
    out.put(6, &u32::from(facts.conns).to_ne_bytes())?;
    out.put(7, &facts.ifindex.to_ne_bytes())?;
    out.put(8, &facts.uid)?;
    out.put(9, &facts.peer.link_uid)?;
    out.put(10, &state.to_ne_bytes())
}

/// Lists the RDMA devices, one message for each.
pub(super) fn list_devices(
    registry: &SmcrRegistry,
    net: &Net,
    position: &mut Position,
    answer: &mut Answer<'_>,
) -> Result {
    let [last, ..] = position;
    while let Some(device) = registry.devices.after(*last) {
        if device.accessible_from(net) {
            let mut message = answer.message(&[])?;
            message.nest(6, |out| write_device(out, registry, net, &device))?;
            message.end();
        }
        *last = u64::from(device.serial()).saturating_add(1);
    }
    Ok(())
}

/// Writes `SMC_GEN_DEV_SMCR` for the namespace `net`: an interface index means nothing elsewhere.
fn write_device(
    out: &mut Message<'_>,
    registry: &SmcrRegistry,
    net: &Net,
    device: &Arc<Device>,
) -> Result {
    let name = device.name();
    let links = |port| registry.links_on(device, port);
    let ports = device.ports().unwrap_or(0).min(PORTS);
    let used = (1..=ports).any(|port| links(port) != 0);
    // Critical: something would be lost with it. A group has no link on another device.
    out.put(2, &[u8::from(used)])?;
    if let Some(pci) = device.pci() {
        // Function id and channel are those of s390, and zero with C elsewhere, too.
        out.put(3, &0u32.to_ne_bytes())?;
        out.put(4, &0u16.to_ne_bytes())?;
        out.put(5, &pci.vendor.to_ne_bytes())?;
        out.put(6, &pci.device.to_ne_bytes())?;
        out.put_string(7, text::name(&pci.address))?;
    }
    out.put_string(10, text::name(&name))?;
    if let Some(lack) = device.unfit() {
        let number = match lack {
            Unfit::FastRegistration => 1u8,
            Unfit::PageSize => 2,
            Unfit::FirstByte => 3,
            Unfit::QueuePairs => 4,
        };
        out.put(UNFIT, &[number])?;
    }
    for port in 1..=ports {
        let known = Member::port(text::name(&name), port as u8)
            .ok()
            .and_then(|member| Namespace::initial()?.pnets.of(&member));
        // Without asking the driver: all of generic netlink would wait for that.
        let state = device.known_state(port);
        let active = state.is_ok_and(|state| state == PortState::Active);
        let here = |index: &u32| device.port_is_netdev(port, net, *index);
        let interface = device.netdev(port).map(|(index, _)| index).filter(here);
        let roce = device.is_roce(port).unwrap_or(false);
        out.nest(7u16.saturating_add(port as u16), |out| {
            out.put(1, &[u8::from(known.is_some())])?;
            out.put_string(2, known.as_ref().map_or(&[], |id| id.text()))?;
            out.put(3, &interface.unwrap_or(0).to_ne_bytes())?;
            out.put(4, &[u8::from(active)])?;
            out.put(5, &[u8::from(roce)])?;
            out.put(6, &links(port).to_ne_bytes())
        })?;
    }
    Ok(())
}
