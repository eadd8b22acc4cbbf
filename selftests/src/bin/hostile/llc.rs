// SPDX-License-Identifier: GPL-2.0
//! LLC messages that make no sense: of unknown types, with wrong lengths, in wrong states, about
//! keys and links that do not exist, and too many of them.

use crate::host::{confirm_link, llc, new_key, Host, Role};
use st::point::T;
use st::rcpeer::{Arrived, Fate};
use st::rng::Rng;

crate::both!(
    unknown_types,
    wrong_lengths,
    noise,
    test_link,
    confirm_rkey,
    delete_rkey,
    add_link,
    delete_strange_link,
    delete_link,
    delete_all_links,
    confirm_again,
    responses_unasked,
    flood_of_tests,
    flood_of_keys,
    flood_unacknowledged,
);

/// Everything must have been taken, and the connection must work.
fn unharmed(t: &mut T, h: &mut Host, c: &mut crate::host::Conn<'_>, what: &str) {
    t.is(&format!("{what}: taken"), h.rc.flush(60_000), Fate::Acked);
    c.lives(t, &h.rc, what);
}

/// All values of the type byte that are no request that ends something.
fn unknown_types(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for ty in 0..=255u8 {
        if matches!(ty, 0x04 | 0x24 | 0xfe) {
            continue;
        }
        for flags in [0, 0x80, 0x7f, 0xff] {
            h.rc.send(&llc(ty, flags));
        }
    }
    unharmed(t, h, &mut c, "all types");
}

/// All lengths of messages, and length fields that say something else.
fn wrong_lengths(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for ty in [1u8, 2, 3, 5, 6, 7, 8, 9, 0x21, 0x22, 0x25, 0x26, 0x27, 0x29] {
        for n in [
            0usize, 1, 2, 3, 4, 5, 20, 43, 44, 45, 60, 100, 1024, 1025, 4096,
        ] {
            for field in [0u16, 1, 43, 44, 45, 0x2c00, 0xffff, n as u16] {
                let mut m = llc(ty, 0).to_vec();
                m[1..3].copy_from_slice(&field.to_le_bytes());
                m[4..].fill(0xff);
                m.resize(n, 0xff);
                h.rc.send(&m);
            }
        }
        t.is("taken", h.rc.flush(60_000), Fate::Acked);
        h.rc.drain();
    }
    unharmed(t, h, &mut c, "all lengths");
}

/// Random messages; nothing of type 4 and no CDC message that could hit the connection.
fn noise(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    let mut r = Rng::new(u64::from(c.they.psn) + 1);
    for i in 0..3000 {
        if i % 100 == 99 {
            let fate = h.rc.flush(60_000);
            if fate != Fate::Acked {
                return t.is("taken", fate, Fate::Acked);
            }
            h.rc.drain();
        }
        let n = r.range(0, 119) as usize;
        let mut m = vec![0u8; n];
        m.iter_mut().for_each(|b| *b = r.draw() as u8);
        if let Some(ty) = m.first_mut() {
            *ty = (*ty & 0x2f) | if r.draw() & 1 == 0 { 0 } else { 0x20 };
            if *ty & 15 == 4 {
                *ty = 7;
            }
        }
        if n > 2 && r.draw() & 1 == 0 {
            m[1] = 44;
            m[2] = 0;
        }
        h.rc.send(&m);
    }
    unharmed(t, h, &mut c, "noise");
}

/// The heartbeat is answered with the same bytes.
fn test_link(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for ty in [0x07, 0x27] {
        let mut m = llc(ty, 0);
        m[4..20].copy_from_slice(b"sixteen bytes...");
        h.rc.send(&m);
        let mut want = m;
        want[3] |= 0x80;
        t.is("answer", h.llc(0x87, 3000), Some(want));
    }
    unharmed(t, h, &mut c, "tests");
}

/// Keys of nothing, in any number.
fn confirm_rkey(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for count in [0u8, 1, 2, 3, 200, 255] {
        let mut m = llc(0x26, 0);
        m[4] = count;
        m[5..43].fill(count ^ 0x5a);
        h.rc.send(&m);
        let a = h.llc(0x86, 3000);
        t.check(&format!("count {count} answered"), a.is_some());
    }
    // More than the table holds: refused, not forgotten.
    let mut refused = 0;
    for i in 0..300u32 {
        h.rc.send(&new_key(i));
        match h.llc(0x86, 3000) {
            Some(a) => refused += u32::from(a[3] & 0x20 != 0),
            None => t.check(&format!("key {i} answered"), false),
        }
    }
    t.check(&format!("{refused} of 300 refused"), refused > 0);
    unharmed(t, h, &mut c, "keys");
}

/// Withdrawal of keys that do not exist, of more than there are, and of the one in use.
fn delete_rkey(t: &mut T, h: &mut Host) {
    let Some(c) = h.open(t) else { return };
    for ty in [0x09u8, 0x29] {
        for count in [0u8, 1, 8, 9, 10, 255] {
            let mut m = llc(ty, 0);
            m[4] = count;
            m[8..].fill(0xee);
            h.rc.send(&m);
            let a = h.llc(0x89, 3000);
            t.check(&format!("type {ty:x} count {count} answered"), a.is_some());
            if let (Some(a), true) = (a, count > 0) {
                t.check("refused", a[3] & 0x20 != 0);
            }
        }
    }
    let mut m = llc(0x29, 0).to_vec();
    m[1..3].copy_from_slice(&(8u16 + 255 * 4).to_le_bytes());
    m[4] = 255;
    m.resize(8 + 255 * 4, 0xdd);
    h.rc.send(&m);
    let unknown = h.llc(0x89, 3000).map(|answer| answer[5]);
    t.is("keys of a long one that are unknown", unknown, Some(255));
    let mut m = llc(0x29, 0);
    m[4] = 1;
    m[8..12].copy_from_slice(&c.me.rkey.to_be_bytes());
    h.rc.send(&m);
    t.check("own key answered", h.llc(0x89, 3000).is_some());
    c.settled(t, "after its key was withdrawn");
    let r = h.rc.flush(3000);
    t.is("taken", r, Fate::Acked);
}

/// Offers of links: a client rejects them, a server ignores them.
fn add_link(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for ty in [0x02u8, 0x22] {
        for fill in [0u8, 0x11, 0xff] {
            let mut m = llc(ty, 0);
            m[4..].fill(fill);
            h.rc.send(&m);
        }
        let mut m = llc(ty, 0);
        m[4..10].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        m[12..28].copy_from_slice(&h.me.gid);
        m[30] = 77;
        m[31] = 2;
        h.rc.send(&m);
        if h.role == Role::Server {
            let a = h.llc(0x82, 3000);
            t.is("rejected", a.map(|a| a[3] & 0xc0), Some(0xc0));
        }
    }
    // Its continuation without a beginning, and suggestions.
    for _ in 0..5 {
        h.rc.send(&llc(0x03, 0));
        h.rc.send(&llc(0x25, 0));
    }
    let mut long = llc(0x22, 0).to_vec();
    long.resize(4096, 0xff);
    long[1..3].copy_from_slice(&4096u16.to_le_bytes());
    h.rc.send(&long);
    unharmed(t, h, &mut c, "offers");
}

/// Deletion of a link that does not exist.
fn delete_strange_link(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for link in [0u8, 2, 3, 0x80, 255] {
        let mut m = llc(0x24, 0);
        m[4] = link;
        h.rc.send(&m);
        let a = h.llc(0x84, 3000);
        t.is(
            "refused",
            a.map(|a| a[5..9].to_vec()),
            Some(vec![0, 0x10, 0, 0]),
        );
    }
    unharmed(t, h, &mut c, "strange links");
}

fn ends_by(t: &mut T, h: &mut Host, m: [u8; 44]) {
    let Some(mut a) = h.open(t) else { return };
    let Some(b) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    h.rc.send(&m);
    a.dead(t, "one");
    b.dead(t, "other");
    // Whatever comes now is for nobody.
    for _ in 0..10 {
        h.rc.send(&m);
    }
    // The next one begins anew.
    h.fresh();
    if let Some(mut c) = h.open(t) {
        c.lives(t, &h.rc, "a new group");
    }
}

fn delete_link(t: &mut T, h: &mut Host) {
    let mut m = llc(0x24, 0);
    m[4] = 1;
    ends_by(t, h, m);
}

fn delete_all_links(t: &mut T, h: &mut Host) {
    let mut m = llc(0x04, 0x40);
    m[4] = 0xff;
    ends_by(t, h, m);
}

/// CONFIRM_LINK when there is nothing to confirm.
fn confirm_again(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for flags in [0x03, 0x83, 0, 0x80] {
        h.rc.send(&confirm_link(&h.me, flags));
    }
    unharmed(t, h, &mut c, "confirmed again");
    let Some(mut d) = h.open(t) else { return };
    d.lives(t, &h.rc, "another");
}

/// Answers to questions that nobody asked.
fn responses_unasked(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for ty in [1u8, 2, 3, 4, 5, 6, 7, 8, 9] {
        for v in [0, 0x20] {
            for flags in [0x80, 0xa0, 0xb0, 0xc0, 0xe0, 0xff] {
                let mut m = llc(ty | v, flags);
                m[4..].fill(0x42);
                h.rc.send(&m);
            }
        }
    }
    unharmed(t, h, &mut c, "answers");
}

/// More heartbeats than anyone could answer.
fn flood_of_tests(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for _ in 0..4000 {
        h.rc.send(&llc(0x27, 0));
    }
    t.is("taken", h.rc.flush(60_000), Fate::Acked);
    st::sys::sleep_ms(50);
    let answers = h.rc.drain().len();
    t.check(
        &format!("{answers} answers"),
        answers > 0 && answers <= 4000,
    );
    unharmed(t, h, &mut c, "flood");
}

/// Requests about keys and connections without end, while the program sends, too.
fn flood_of_keys(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    for i in 0..2000u32 {
        let mut m = llc(if i % 2 == 0 { 0x26 } else { 0x29 }, 0);
        m[4] = (i % 256) as u8;
        m[5..43].fill(i as u8);
        h.rc.send(&m);
        if i % 10 == 0 {
            let mut m = c.cdc();
            m[24] = 0x10;
            h.rc.send(&m);
        }
    }
    t.is("taken", h.rc.flush(60_000), Fate::Acked);
    st::sys::sleep_ms(50);
    unharmed(t, h, &mut c, "flood");
}

/// Questions whose answers are never acknowledged: the device gives up, the connection ends.
fn flood_unacknowledged(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "before");
    h.rc.answers(false);
    for _ in 0..500 {
        h.rc.send(&llc(0x27, 0));
    }
    c.dead_within(t, "unacknowledged", 10_000);
    let left = h.rc.drain();
    let none = left.iter().all(|a| matches!(a, Arrived::Message(_)));
    t.check("nothing but answers", none);
}
