// SPDX-License-Identifier: GPL-2.0

//! From the program into the ring, or into TCP.

use super::{
    direction::{CountedRing, LocalDirection, FIRST},
    pair::{End, Local},
};
use crate::stream::{Put, Stop};
use kapi::{
    errno,
    net::{args::Message, sock::Sock},
    sys::word::full_barrier, //
};
use kernel::{
    prelude::*,
    sync::{Arc, UniqueArc}, //
};
use smc_proto::path::Route;

/// The program's memory is copied in chunks of this size. Nothing of a chunk that faults is sent; TCP's chunks are
/// at most as large.
pub(super) const PART: usize = 32 << 10;

/// The writer's ring, with its lock held.
type Writer = Option<Arc<CountedRing>>;

/// Puts as much as there is room for; see [`Usual::put`](crate::stream::Usual::put).
#[inline(always)]
pub(super) fn put(
    local: &Local,
    msg: &mut Message<'_>,
    put: &Put<'_>,
) -> Result<(usize, bool), Stop> {
    let direction = local.out();
    let mut writer = direction.writer.lock();
    // As TCP when connect() has dissolved the connection meanwhile, whatever that has made of it since.
    if !local.own().may_send() || local.is_dissolved() {
        return Err(Stop::Tcp(errno::EPIPE.into()));
    }
    // What control messages say is for TCP's packets.
    let leaves = put.urgent || msg.has_control() || local.is_to_leave() || local.flips();
    if !direction.route().writes_ring()
        && (leaves || !promote(local, direction, &mut writer, put.wanted))
    {
        return by_tcp(local, msg, put);
    }
    if leaves {
        return leave(local, msg, put, &mut writer);
    }
    let mut room = direction.room();
    if room == 0 || direction.wants_larger() || direction.is_small() && room < put.wanted {
        match grow(local, direction, &mut writer, put.wanted) {
            Growth::Room(larger) => room = larger,
            _ if room != 0 => (),
            Growth::Stays => return Err(Stop::Full),
            // There would have been room, as poll() says: TCP has some.
            Growth::NoMemory => return leave(local, msg, put, &mut writer),
        }
    }
    let Some(ring) = &*writer else {
        return Err(Stop::NoRing);
    };
    let wanted = put.wanted.min(room);
    let mut taken = 0usize;
    while taken < wanted {
        let len = wanted.wrapping_sub(taken).min(PART);
        let at = direction.head().wrapping_add(taken as u64);
        if ring.write(at, len, msg.source()) < len {
            break;
        }
        taken = taken.wrapping_add(len);
    }
    if taken == 0 {
        return Err(Stop::Fault);
    }
    direction.wrote(taken);
    if !put.carried.replace(true) {
        direction.counts_put();
    }
    drop(writer);
    let (_, other) = local.ends();
    told(local, other);
    Ok((taken, taken < wanted))
}

/// Turns back to TCP, with these bytes.
#[cold]
fn leave(
    local: &Local,
    msg: &mut Message<'_>,
    put: &Put<'_>,
    writer: &mut Writer,
) -> Result<(usize, bool), Stop> {
    if local.has_sent_astray() {
        return Err(Stop::Tcp(errno::EPIPE.into()));
    }
    local.out().end(writer);
    by_tcp(local, msg, put)
}

/// Tells the reader at the `other` end of bytes that were put into the ring.
#[inline(always)]
pub(super) fn told(local: &Local, other: &End) {
    // It has a full barrier between the bytes and the look for sleeping readers.
    let told = other.sock.with(|peer| match peer.has_low_water() {
        false => peer.wake_for_data(),
        true => wake_for_enough(local, peer),
    });
    // An end that has given its sock back is gone, even if its mark is not visible yet.
    if told.is_none() || other.is_gone() {
        reset(local);
    }
}

/// Wakes a reader with a `SO_RCVLOWAT` of its own. As with TCP a poller is not woken for fewer bytes: an
/// edge-triggered one would take that for an event.
#[cold]
fn wake_for_enough(local: &Local, peer: &Sock) {
    // Between the bytes and the look at the limit, which the reader may lower: then it looks at the bytes.
    full_barrier();
    match local.gave_enough(peer) {
        true => peer.wake_for_data(),
        false => peer.wake_sleepers(),
    }
}

/// Ends a connection whose other end was closed while bytes were put into the ring, if it has not read them: TCP's
/// answer to such.
#[cold]
fn reset(local: &Local) {
    // connect() that dissolves the connection takes this lock after it has set its mark, before TCP makes a new one.
    let _writer = local.out().writer.lock();
    if local.is_dissolved() || local.out().there() == 0 {
        return;
    }
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
            local.with_peer(|peer| {
                if !peer.has_low_water() {
                    return;
                }
                // TCP is silent below SO_RCVLOWAT, and does not know of what the ring holds.
                match local.own().sent_to() == peer.arrived_to() {
                    true => wake_for_enough(local, peer),
                    // On its way, as when the reader has its sock locked: not to be counted yet.
                    false => peer.wake_for_data(),
                }
            });
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
///
/// The reader's lock is only tried, and with it held nothing is waited for: the memory is there before, and so is this
/// end's sock, whose owner may sleep for a page of its program's memory.
#[inline(never)]
fn promote(local: &Local, direction: &LocalDirection, writer: &mut Writer, wanted: usize) -> bool {
    // Looked at first, so that no ring is made in vain.
    if !may_turn(local) || !local.own().seems_movable() || direction.reader.try_lock().is_none() {
        return false;
    }
    let size = wanted.next_power_of_two().clamp(FIRST, local.most());
    let ring = local.ring(size, direction.head());
    let ring = ring.or_else(|_| local.ring(FIRST, direction.head()));
    let Ok(ring) = ring.and_then(|ring| Ok(Arc::new(ring, GFP_KERNEL)?)) else {
        return false;
    };
    let guard = local.own().lock();
    let Some(mut reader) = direction.reader.try_lock() else {
        // It may sleep there, for a page of its program's memory.
        return false;
    };
    // Asked once more: an urgent byte may have arrived since, and its acknowledgement before this lock.
    let may = may_turn(local) && !guard.needs_tcp();
    let Some(cut) = guard.end_of_sent().filter(|_| may) else {
        return false;
    };
    let Some(route) = direction.route().promoted(cut) else {
        return false;
    };
    direction.cuts(cut);
    if !direction.replace_route(Route::TCP, route) {
        return false;
    }
    direction.has_ring(ring.size());
    *reader = Some(ring.clone());
    *writer = Some(ring);
    drop(reader);
    drop(guard);
    local.with_peer(Sock::expect_data);
    local.moved();
    local.has_rings();
    true
}

/// Tells whether both programs may leave TCP, as far as can be seen without a lock.
#[inline]
fn may_turn(local: &Local) -> bool {
    local.may_move() && !local.is_bound_to_tcp()
}

/// The outcome of an attempt to make a ring larger.
enum Growth {
    /// There is this much room now.
    Room(usize),
    /// It is not to be larger now, or the reader is at it.
    Stays,
    /// There is no memory.
    NoMemory,
}

/// Makes the ring larger for a writer that has found no room, or did so before, if that is worth it now.
#[inline(never)]
fn grow(local: &Local, direction: &LocalDirection, writer: &mut Writer, wanted: usize) -> Growth {
    let Some(size) = direction.larger(wanted, local.most()) else {
        return Growth::Stays;
    };
    // Looked at first, so that no ring is made in vain.
    if direction.try_reader().is_none() {
        return Growth::Stays;
    }
    let ring = local.ring(size, direction.tail());
    let ring = ring.and_then(|ring| Ok(UniqueArc::new(ring, GFP_KERNEL)?));
    let Ok(mut ring) = ring else {
        return Growth::NoMemory;
    };
    let (Some(mut reader), Some(old)) = (direction.try_reader(), &*writer) else {
        return Growth::Stays;
    };
    // From where the reader was a moment ago.
    old.move_to(direction.head(), ring.ring_mut());
    let ring: Arc<CountedRing> = ring.into();
    direction.has_ring(size);
    // Freed when the lock is released.
    let old = (reader.replace(ring.clone()), writer.replace(ring));
    drop(reader);
    drop(old);
    match direction.room() {
        0 => Growth::Stays,
        room => Growth::Room(room),
    }
}
