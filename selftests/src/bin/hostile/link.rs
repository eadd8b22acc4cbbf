// SPDX-License-Identifier: GPL-2.0
//! Violations below SMC: RDMA outside of what was granted, packets that no device sends, silence,
//! and the TCP connection's end.

use crate::host::{End, Host, Role};
use st::point::T;
use st::rcpeer::Fate;
use st::roce::{op, reth};
use st::{clc, guest, net, sys};
use std::time::Duration;

crate::both!(
    write_wrong_key,
    write_before_the_buffer,
    write_beyond_the_buffer,
    write_null,
    read_request,
    atomics,
    invalidating_send,
    immediate,
    write_with_immediate,
    wrong_order_of_packets,
    strange_opcodes,
    broken_packets,
    silent_while_sending,
    silent_while_idle,
    never_ready,
    tcp_reset,
    tcp_fin,
    tcp_data,
    program_killed,
);

fn refused(t: &mut T, h: &mut Host, act: &dyn Fn(&mut Host, &crate::host::Conn<'_>)) {
    let Some(mut a) = h.open(t) else { return };
    let Some(b) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    act(h, &a);
    // Soft-RoCE tells the module of a wrong key before it answers: where the module is quick to take the
    // queue pair out of service, there is no answer. What must not come is an acknowledgement.
    let fate = h.rc.flush(3000);
    t.check(&format!("refused: {fate:?}"), fate != Fate::Acked);
    a.dead(t, "the connection");
    b.dead(t, "the other one of the link");
    h.fresh();
    if let Some(mut c) = h.open(t) {
        c.lives(t, &h.rc, "a new group");
    }
}

fn write_wrong_key(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, c| {
        h.rc.write(c.they.start(), c.they.rkey ^ 0x100, b"stray");
    });
}

fn write_before_the_buffer(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, c| {
        h.rc.write(c.they.addr.wrapping_sub(8), c.they.rkey, b"stray");
    });
}

fn write_beyond_the_buffer(t: &mut T, h: &mut Host) {
    // A slab has at most 16 MiB.
    refused(t, h, &|h, c| {
        let far = c.they.addr.wrapping_add(64 << 20);
        h.rc.write(far, c.they.rkey, &[9; 3000]);
    });
}

fn write_null(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, _| h.rc.write(0, 0, &[9; 3000]));
}

fn read_request(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, c| {
        h.rc.packet(op::READ, &reth(c.they.start(), c.they.rkey, 64));
    });
}

fn atomics(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, c| {
        let mut b = c.they.start().to_be_bytes().to_vec();
        b.extend(c.they.rkey.to_be_bytes());
        b.extend([1; 16]);
        h.rc.packet(op::FETCH_ADD, &b);
    });
}

/// A SEND that invalidates the memory key that all connections use.
fn invalidating_send(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    let mut b = a.they.rkey.to_be_bytes().to_vec();
    b.extend(crate::host::llc(0x27, 0));
    h.rc.packet(op::SEND_ONLY_INV, &b);
    let _ = h.rc.flush(1000);
    a.settled(t, "key invalidated");
    // Whether or not the device did it, a write is either taken or ends the link.
    h.rc.write(a.they.start() + a.prod, a.they.rkey, b"x");
    match h.rc.flush(3000) {
        Fate::Acked => a.lives(t, &h.rc, "it works"),
        _ => a.dead(t, "the connection"),
    }
}

/// A SEND with an immediate is a message like any other.
fn immediate(t: &mut T, h: &mut Host) {
    let Some(a) = h.open(t) else { return };
    let mut b = vec![1, 2, 3, 4];
    b.extend(crate::host::llc(0x27, 0));
    h.rc.packet(op::SEND_ONLY_IMM, &b);
    let _ = h.rc.flush(1000);
    a.settled(t, "immediate");
}

/// A WRITE with an immediate, from a peer with which nothing of that kind was agreed: no correct peer
/// does that, so the link ends.
fn write_with_immediate(t: &mut T, h: &mut Host) {
    let Some(a) = h.open(t) else { return };
    for _ in 0..200 {
        let mut b = reth(a.they.start(), a.they.rkey, 4);
        b.extend([0xff; 4]);
        b.extend(b"data");
        h.rc.packet(op::WRITE_ONLY_IMM, &b);
    }
    let _ = h.rc.flush(5000);
    a.dead(t, "immediate");
}

fn wrong_order_of_packets(t: &mut T, h: &mut Host) {
    refused(t, h, &|h, _| h.rc.packet(op::SEND_MIDDLE, &[7; 1024]));
    h.fresh();
    refused(t, h, &|h, _| {
        h.rc.packet(op::SEND_FIRST, &[7; 1024]);
        h.rc.packet(op::WRITE_LAST, &[7; 10]);
    });
}

/// Opcodes of other transports, and of none: the device drops them or breaks the queue pair.
fn strange_opcodes(t: &mut T, h: &mut Host) {
    for from in [0x18u8, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0] {
        let Some(mut a) = h.open(t) else { return };
        for code in from..=from | 0x1f {
            h.rc.stray(code, h.rc.psn(), &[code; 64], false);
            h.rc.stray(code, h.rc.psn().wrapping_add(1000), &[], false);
        }
        h.rc.send(&crate::host::llc(0x27, 0));
        match h.rc.flush(1000) {
            Fate::Acked => a.lives(t, &h.rc, "after opcodes"),
            _ => a.dead(t, "after opcodes"),
        }
        h.fresh();
    }
}

/// Wrong checksums, sequence numbers, lengths, and acknowledgments of what was never sent.
fn broken_packets(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    let abort = {
        let mut m = a.cdc();
        a.seq -= 1;
        m[25] = 0x20;
        m
    };
    for i in 0..100u32 {
        h.rc.stray(op::SEND_ONLY, h.rc.psn(), &abort, true);
        h.rc.stray(
            op::SEND_ONLY,
            h.rc.psn().wrapping_add(50 + i),
            &abort,
            false,
        );
        h.rc.stray(op::SEND_ONLY, h.rc.psn().wrapping_sub(1 + i), &abort, false);
        h.rc.stray(
            op::ACK,
            a.they.psn.wrapping_add(0x1000 + i),
            &[0x1f, 0, 0, 1],
            false,
        );
    }
    a.lives(t, &h.rc, "after broken packets");
    // The device is told that what it sent was refused.
    let _ = sys::send(a.fd.raw(), b"refuse me", libc::MSG_NOSIGNAL);
    h.rc.answers(false);
    // Again and again: a refusal of what was not sent yet is nothing, and one of a later packet
    // acknowledges those before.
    let mut end = End::Lives;
    for _ in 0..40 * guest::slow() {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let _ = sys::send(a.fd.raw(), b"refuse me", flags);
        sys::sleep_ms(10);
        for i in 0..250 {
            h.rc.stray(op::ACK, a.they.psn.wrapping_add(i), &[0x62, 0, 0, 1], false);
        }
        end = a.ended(100);
        if end != End::Lives {
            break;
        }
    }
    a.was_error(t, "refused", end);
}

/// The peer's device dies while the program sends.
fn silent_while_sending(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    h.rc.answers(false);
    let r = sys::send(a.fd.raw(), b"into the dark", libc::MSG_NOSIGNAL);
    t.is("send", r.ok(), Some(13));
    a.dead(t, "silence");
}

/// The peer's device dies, and nobody says anything: the heartbeat notices.
fn silent_while_idle(t: &mut T, h: &mut Host) {
    let r = net::sysctl("net.smc.smcr_testlink_time", "1");
    t.is("sysctl", r, Ok(()));
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    h.rc.answers(false);
    a.dead_within(t, "silence", 8000);
}

/// The peer's device answers, but never has a buffer, which devices put up with for ever: the
/// heartbeat notices, and what waits in the queue, such as a new memory key, holds nothing up.
fn never_ready(t: &mut T, h: &mut Host) {
    let r = net::sysctl("net.smc.smcr_testlink_time", "1");
    t.is("sysctl", r, Ok(()));
    let mut all = vec![];
    for _ in 0..4 {
        let Some(c) = h.open(t) else { return };
        all.push(c);
    }
    h.rc.never_ready();
    let r = sys::send(all[0].fd.raw(), b"nobody takes this", libc::MSG_NOSIGNAL);
    t.is("send", r.ok(), Some(17));
    // The fifth one needs a new memory key.
    let (mut tcp, fd) = h.tcp(t);
    let me = h.end();
    if h.role == Role::Client {
        tcp.send(&clc::proposal_v2(&me, 1));
    } else {
        let _ = clc::read(&mut tcp, 3000);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, None));
    }
    sys::sleep_ms(50);
    let asked = crate::bystander::longest_dump(500);
    t.check(
        &format!("dumps meanwhile: {asked:?}"),
        asked.is_ok_and(|longest| longest < Duration::from_millis(1000 * guest::slow())),
    );
    for (i, c) in all.iter().enumerate() {
        c.dead_within(t, &format!("connection {i}"), 8000);
    }
    drop((tcp, fd));
}

fn tcp_reset(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    let Some(mut b) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    a.tcp.send_rst();
    a.dead(t, "reset");
    b.lives(t, &h.rc, "the other");
}

/// A FIN says nothing about the data that goes by RDMA; but it must not lead to a hang.
fn tcp_fin(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    a.tcp.send_fin();
    sys::sleep_ms(100);
    a.settled(t, "FIN");
    // Nor does what follows it: the peer may have closed long ago, and its bytes still be read. But
    // when it is silent, too, it is gone.
    a.tcp.send_rst();
    a.dead_within(t, "reset and silence", 15_000);
}

/// Bytes in the TCP connection after the handshake are nobody's.
fn tcp_data(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.tcp.send(&vec![0x41; 20_000]);
    sys::sleep_ms(100);
    let r = sys::recv_vec(a.fd.raw(), 64, libc::MSG_DONTWAIT);
    t.check(
        &format!("not the program's: {r:?}"),
        !r.is_ok_and(|v| v.contains(&0x41)),
    );
    a.settled(t, "TCP data");
}

/// The program goes with everything open while the peer keeps talking.
fn program_killed(t: &mut T, h: &mut Host) {
    let Some(a) = h.open(t) else { return };
    let Some(mut b) = h.open(t) else { return };
    let crate::host::Conn {
        fd, mut tcp, they, ..
    } = a;
    let _ = sys::send(fd.raw(), &[1; 5000], libc::MSG_NOSIGNAL);
    drop(fd);
    for i in 0..50u64 {
        h.rc.write(they.start() + i * 10, they.rkey, b"late bytes");
    }
    t.is("taken", h.rc.flush(15_000), Fate::Acked);
    tcp.send_rst();
    for i in 0..50u64 {
        h.rc.write(they.start() + i * 10, they.rkey, b"late bytes");
    }
    t.is("taken", h.rc.flush(15_000), Fate::Acked);
    b.lives(t, &h.rc, "the other");
}
