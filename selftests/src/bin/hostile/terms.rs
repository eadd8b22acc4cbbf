// SPDX-License-Identifier: GPL-2.0
//! Honest hosts of other kinds: such as know release 0 ("v2.0") only, and such as share a UEID with
//! this one that somebody has configured, and nothing else.

use crate::host::{llc, Host, Role};
use st::clc;
use st::netlink::{attribute, Generic};
use st::point::T;

crate::both!(release_0_short, release_0_long, user_eid);

/// `SMC_NETLINK_ADD_UEID` and `SMC_NETLINK_REMOVE_UEID`.
const ADD_UEID: u8 = 10;
const REMOVE_UEID: u8 = 11;

fn release_0_short(t: &mut T, h: &mut Host) {
    h.dress = |m| clc::release_0(m, false);
    talks(t, h, true);
}

fn release_0_long(t: &mut T, h: &mut Host) {
    h.dress = |m| clc::release_0(m, true);
    talks(t, h, true);
}

/// A connection that makes a group and one that joins it, and bytes over both. Release 0 does not
/// agree on links: the server has to say a word about a second one.
fn talks(t: &mut T, h: &mut Host, second_link: bool) {
    let Some(mut a) = h.open(t) else { return };
    if second_link && h.role == Role::Client {
        let offer = h.llc(2, 3000);
        // No MTU, which no host can accept.
        t.is("offer", offer.map(|m| m[32] & 0x0f), Some(0));
        h.rc.send(&llc(0x22, 0xc0));
    }
    if second_link && h.role == Role::Server {
        let mut m = llc(0x22, 0);
        m[4..10].copy_from_slice(&h.me.mac);
        m[12..28].copy_from_slice(&h.me.gid);
        m[28..31].copy_from_slice(&(h.me.qpn + 1).to_be_bytes()[1..]);
        m[31..33].copy_from_slice(&[2, 3]);
        h.rc.send(&m);
        let answer = h.llc(0x82, 3000);
        t.is("refused", answer.map(|m| m[3] & 0x40), Some(0x40));
    }
    a.lives(t, &h.rc, "first");
    let Some(mut b) = h.open(t) else { return };
    b.lives(t, &h.rc, "second");
    a.lives(t, &h.rc, "first again");
}

/// One for each role: the list is the whole host's, and points run at once.
const EIDS: [&[u8; 32]; 2] = [
    b"HOSTILE.CLIENT                  ",
    b"HOSTILE.SERVER                  ",
];

fn user_eid(t: &mut T, h: &mut Host) {
    let client = h.role == Role::Client;
    h.dress = match h.role {
        Role::Client => |m| clc::with_eid(m, EIDS[0]),
        Role::Server => |m| clc::with_eid(m, EIDS[1]),
    };
    if client {
        // Not configured yet: nothing in common.
        let (mut tcp, _) = h.tcp(t);
        let me = h.end();
        tcp.send(&(h.dress)(clc::proposal_v2(&me, 1)));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        t.is("declined", clc::diagnosis(&m), Some(0x0303_0008));
        tcp.send_rst();
    }
    let entry = attribute(1, &[&EIDS[usize::from(!client)][..], b"\0"].concat());
    let netlink = Generic::open("SMC_GEN_NETLINK").expect("netlink");
    t.is("added", netlink.act(ADD_UEID, &entry), Ok(()));
    talks(t, h, false);
    t.is("removed", netlink.act(REMOVE_UEID, &entry), Ok(()));
}
