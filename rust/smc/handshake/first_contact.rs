// SPDX-License-Identifier: GPL-2.0

//! Limits on the link groups of one peer address.
//!
//! A group costs nearly a megabyte before the peer has proved anything, and a peer chooses the IDs
//! that tell it from others. So the groups that one TCP address may begin at a time, and may keep,
//! are limited; a peer beyond the limit waits or gets plain TCP, and the groups of others stay.

use crate::{
    carrier::Core,
    host::origin::Origin, //
};
use smc_proto::time::Instant;

/// Most groups without a connection that are kept for one address.
const IDLE: u32 = 8;
/// Most groups of one address.
const GROUPS: u32 = 256;

/// Tells whether one more group with this peer is allowed. If the peer has many without a
/// connection, ends the one that has had none for longest, soon.
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
        if let Some(group) = core.group(id) {
            group.retire();
        }
    }
    all < GROUPS
}
