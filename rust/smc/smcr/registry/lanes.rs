// SPDX-License-Identifier: GPL-2.0

//! The choice of a lane for a client's connection.
//!
//! A lane more costs a first contact, which is dear, and near a megabyte at either end. So a connection prefers, in
//! this order:
//!
//! 1. the lane of the CPU on which connect() was called;
//! 2. one that has no connection at present: it costs nothing to join, and nobody is disturbed. So short connections,
//!    one after the other, stay in one lane, wherever the scheduler has their program run;
//! 3. a new one, as long as there are fewer than may be;
//! 4. the one with the fewest connections.
//!
//! The client alone decides. A server that has no group with the lane's peer id begins one, as with any peer that it
//! does not know; the C module does so, too.

use super::SmcrRegistry;
use crate::smcr::lane::{Lane, LaneWanted, MOST_CLASSES, NUMBERS};
use smc_proto::wire::clc::Class;

/// The lanes that there are, of those that serve.
#[derive(Default)]
struct Found {
    own: Option<u8>,
    unused: Option<u8>,
    /// The one with the fewest connections, and their number.
    least: Option<(u8, u8)>,
    count: u32,
    /// Numbers in use, also by lanes that do not serve, as bits.
    taken: u32,
    /// Classes of all lanes with the peer, and their number.
    classes: [Class; MOST_CLASSES],
    class_count: usize,
}

impl Found {
    /// Returns the classes, each once.
    fn classes(&self) -> &[Class] {
        self.classes.get(..self.class_count).unwrap_or(&[])
    }

    fn note_class(&mut self, class: Class) {
        if self.classes().contains(&class) {
            return;
        }
        if let Some(free) = self.classes.get_mut(self.class_count) {
            *free = class;
            self.class_count = self.class_count.saturating_add(1);
        }
    }
}

impl SmcrRegistry {
    /// Chooses the lane of a connection that begins. Returns `None` where lanes with the peer have as many classes as
    /// they may, and the connection's is not among those.
    pub(crate) fn choose_lane(&self, wanted: &LaneWanted<'_>) -> Option<Lane> {
        let most = wanted.most.max(1);
        let index = |cpu: u32| cpu.checked_rem(most).unwrap_or(0);
        let mut found = Found::default();
        self.each_group(|group| {
            let Some(lane) = group.lane.filter(|_| group.peer_addr == wanted.peer_addr) else {
                return;
            };
            found.taken |= 1u32.wrapping_shl(u32::from(lane.number));
            found.note_class(group.class);
            if group.class != wanted.class {
                return;
            }
            let Some(conns) = group.lane_load(wanted.port) else {
                return;
            };
            found.count = found.count.saturating_add(1);
            if index(lane.cpu) == index(wanted.cpu) {
                found.own = Some(lane.number);
            }
            if conns == 0 {
                found.unused = Some(lane.number);
            }
            if found.least.is_none_or(|(_, least)| conns < least) {
                found.least = Some((lane.number, conns));
            }
        });
        let classes = found.classes();
        if classes.len() == MOST_CLASSES && !classes.contains(&wanted.class) {
            return None;
        }
        let least = found.least.map(|(number, _)| number);
        let number = found
            .own
            .or(found.unused)
            .or_else(|| free_number(&found, index(wanted.cpu), most))
            .or(least);
        Some(Lane {
            number: number.unwrap_or(0),
            cpu: wanted.cpu,
        })
    }
}

/// Returns the number of a lane that is to begin, if one may. Handshakes that begin at the same time on one CPU find
/// the same one.
fn free_number(found: &Found, index: u32, most: u32) -> Option<u8> {
    if found.count >= most {
        return None;
    }
    let is_free = |number: &u8| found.taken & 1u32.wrapping_shl(u32::from(*number)) == 0;
    let wanted = match found.taken {
        0 => 0,
        _ => u8::try_from(index).unwrap_or(0) % NUMBERS,
    };
    Some(wanted)
        .filter(is_free)
        .or_else(|| (0..NUMBERS).find(is_free))
}
