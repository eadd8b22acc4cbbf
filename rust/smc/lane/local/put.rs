// SPDX-License-Identifier: GPL-2.0

//! From the program into the ring, or into TCP.

use super::{
    pair::{End, Local},
    way::{Way, FIRST}, //
};
use crate::lane::{Put, Stop};
use kapi::{
    errno,
    net::{args::Message, sock::Sock},
    sys::{bytes::Ring, word::full_barrier}, //
};
use kernel::{
    prelude::*,
    sync::{Arc, UniqueArc}, //
};
use smc_proto::path::Route;

/// The program's memory is copied in parts of so many bytes; of one that cannot be read to its end
/// nothing is sent. TCP's are at most as large.
pub(super) const PART: usize = 32 << 10;

/// The writer's ring, with its lock held.
type Writer = Option<Arc<Ring>>;

/// Puts as much as there is room for; see [`Lane::put`](crate::lane::Lane::put).
#[inline(always)]
pub(super) fn put(
    local: &Local,
    msg: &mut Message<'_>,
    put: &Put<'_>,
) -> Result<(usize, bool), Stop> {
    let way = local.out();
    let mut writer = way.writer.lock();
    // As TCP when connect() has dissolved the connection meanwhile, whatever that has made of it since.
    if !local.own().may_send() || local.has_left() {
        return Err(Stop::Tcp(errno::EPIPE.into()));
    }
    // What control messages say is for TCP's packets.
    let leaves = put.urgent || msg.has_control() || local.is_to_leave() || local.flips();
    if !way.route().writes_ring() && (leaves || !promote(local, way, &mut writer, put.wanted)) {
        return by_tcp(local, msg, put);
    }
    if leaves {
        if local.has_sent_astray() {
            return Err(Stop::Tcp(errno::EPIPE.into()));
        }
        way.end(&mut writer);
        return by_tcp(local, msg, put);
    }
    let mut room = way.room();
    if room == 0 || way.is_cramped() {
        match grow(local, way, &mut writer, put.wanted) {
            Some(larger) => room = larger,
            None if room == 0 => return Err(Stop::Full),
            None => (),
        }
    }
    let Some(ring) = &*writer else {
        return Err(Stop::Hungry);
    };
    let wanted = put.wanted.min(room);
    let mut taken = 0usize;
    while taken < wanted {
        let len = wanted.wrapping_sub(taken).min(PART);
        let at = way.head().wrapping_add(taken as u64);
        if ring.write(at, len, msg.source()) < len {
            break;
        }
        taken = taken.wrapping_add(len);
    }
    if taken == 0 {
        return Err(Stop::Fault);
    }
    way.wrote(taken);
    if !put.carried.replace(true) {
        way.counts_put();
    }
    drop(writer);
    let (_, other) = local.ends();
    if let Some(peer) = other.sock() {
        told(local, other, peer);
    }
    Ok((taken, taken < wanted))
}

/// Tells the reader, `peer`, of bytes that were put into the ring.
#[inline(always)]
pub(super) fn told(local: &Local, other: &End, peer: &Sock) {
    // A full barrier in it stands between the bytes and the look at who reads.
    match peer.has_low_water() {
        false => peer.wake_for_data(),
        true => wake_for_enough(local, peer),
    }
    if other.is_gone() {
        reset(local);
    }
}

/// Wakes a reader with a `SO_RCVLOWAT` of its own. Pollers hear of less than that as little as from TCP: it would be
/// an edge, with whatever else is ready.
#[cold]
fn wake_for_enough(local: &Local, peer: &Sock) {
    // Between the bytes and the look at the limit, which the reader may lower: then it looks at the bytes.
    full_barrier();
    match local.gave_enough(peer) {
        true => peer.wake_for_data(),
        false => peer.wake_sleepers(),
    }
}

/// Ends a connection whose other end was closed while bytes were put into the ring: TCP's answer to such.
#[cold]
fn reset(local: &Local) {
    let sock = local.own();
    sock.set_error(errno::ECONNRESET);
    sock.abort();
}

/// Gives the bytes to TCP, which does not wait.
#[inline(never)]
fn by_tcp(local: &Local, msg: &mut Message<'_>, put: &Put<'_>) -> Result<(usize, bool), Stop> {
    let mut sent = local.own().send_now(msg, put.wanted);
    if sent == Err(EAGAIN) && local.own().is_writable() {
        // Room has come meanwhile, or it is memory that is missing.
        sent = local.own().send_now(msg, put.wanted);
    }
    match sent {
        Ok(taken) => {
            if let Some(peer) = local.peer().filter(|peer| peer.has_low_water()) {
                // TCP is silent below SO_RCVLOWAT, and does not know of what the ring holds.
                match local.own().sent_to() == peer.arrived_to() {
                    true => wake_for_enough(local, peer),
                    // On its way, as when the reader has its sock locked: not to be counted yet.
                    false => peer.wake_for_data(),
                }
            }
            Ok((taken, false))
        }
        // Without this a writer that waits for room would find some, and ask again at once, for ever.
        Err(err) if err == EAGAIN && local.own().is_writable() => Err(Stop::Later),
        Err(err) if err == EAGAIN => Err(Stop::Full),
        Err(err) if err == EFAULT => Err(Stop::Fault),
        Err(err) => Err(Stop::Tcp(err)),
    }
}

/// Turns from TCP to the ring, if that is possible now. Returns whether it was.
#[inline(never)]
fn promote(local: &Local, way: &Way, writer: &mut Writer, wanted: usize) -> bool {
    if !local.may_move() {
        return false;
    }
    let Some(mut reader) = way.reader.try_lock() else {
        // It may sleep there, for a page of its program's memory.
        return false;
    };
    if reader.is_none() {
        let size = wanted.next_power_of_two().clamp(FIRST, local.most());
        let ring = Ring::new(size, way.head()).or_else(|_| Ring::new(FIRST, way.head()));
        let Ok(ring) = ring.and_then(|ring| Ok(Arc::new(ring, GFP_KERNEL)?)) else {
            return false;
        };
        *reader = Some(ring);
    }
    let guard = local.own().lock();
    let cut = guard
        .end_of_sent()
        // Asked once more: an urgent byte may have arrived since, and its acknowledgement before this lock.
        .filter(|_| !guard.needs_tcp() && !local.is_bound_to_tcp() && local.may_move());
    let Some((cut, route)) = cut.and_then(|cut| Some((cut, way.route().promoted(cut)?))) else {
        return false;
    };
    way.cuts(cut);
    writer.clone_from(&reader);
    way.has_ring(reader.as_ref().map_or(0, |ring| ring.size()));
    let done = way.replace_route(Route::TCP, route);
    drop(guard);
    if done {
        if let Some(peer) = local.peer() {
            peer.expect_data();
        }
        local.moved();
        local.has_rings();
    }
    done
}

/// Makes the ring larger for a writer that has found no room, or did so before, if that is worth it now.
/// Returns the room then.
#[inline(never)]
fn grow(local: &Local, way: &Way, writer: &mut Writer, wanted: usize) -> Option<usize> {
    let size = way.larger(wanted, local.most())?;
    let mut ring = UniqueArc::new(Ring::new(size, way.tail()).ok()?, GFP_KERNEL).ok()?;
    let mut reader = way.reader.try_lock()?;
    // From where the reader was a moment ago.
    writer.as_ref()?.move_to(way.head(), &mut ring);
    let ring: Arc<Ring> = ring.into();
    *reader = Some(ring.clone());
    *writer = Some(ring);
    way.has_ring(size);
    Some(way.room()).filter(|room| *room != 0)
}
