// SPDX-License-Identifier: GPL-2.0

//! Limits of link groups: who may start one, and how many a peer may have.
//!
//! A group costs nearly a megabyte before the peer has proved anything, and what tells peers apart
//! is what they say of themselves. So what one address may begin at a time, and may keep, is
//! limited; a peer beyond the limit waits or gets plain TCP, and the groups of others stay.

use crate::{
    carrier::Core,
    host::origin::Origin, //
};
use smc_proto::time::Instant;

/// Groups without a connection that are kept for one address.
const IDLE: u32 = 8;
/// Groups of one address.
const GROUPS: u32 = 256;

/// Returns whether there may be one more group with this peer. If it has many without a connection, the
/// one that has had none for longest ends soon.
pub(super) fn admits(core: &Core, origin: Origin) -> bool {
    let (mut all, mut idle) = (0u32, 0u32);
    let mut longest: Option<(Instant, u32)> = None;
    core.each_group(|group| {
        if group.origin != origin {
            return;
        }
        all = all.saturating_add(1);
        let Some(since) = group.idle_since() else {
            return;
        };
        idle = idle.saturating_add(1);
        if longest.as_ref().is_none_or(|(first, _)| since < *first) {
            longest = Some((since, group.id));
        }
    });
    if let Some((_, id)) = longest.filter(|_| idle > IDLE) {
        let group = core.group_after(u64::from(id).saturating_sub(1));
        if let Some(group) = group.filter(|group| group.id == id) {
            group.retire();
        }
    }
    all < GROUPS
}
