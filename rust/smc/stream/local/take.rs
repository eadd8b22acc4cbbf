// SPDX-License-Identifier: GPL-2.0

//! Out of TCP and the ring to the program.

use super::{
    direction::{CountedRing, LocalDirection},
    pair::Local,
};
use crate::stream::{Ask, Look, StreamIo, Took, STOP};
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        sock::tcp_state, //
    },
    sys::{bytes::Ring, word::read_barrier}, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    conn::RecvState,
    path::{Head, Route}, //
};

/// Copies what has arrived to the program; see [`Usual::take`](crate::stream::Usual::take).
#[inline(always)]
pub(super) fn take(local: &Local, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    let direction = local.inward();
    let mut reader = direction.reader.lock();
    if local.is_dissolved() {
        // As TCP when connect() has dissolved the connection meanwhile.
        return Err(errno::EPIPE.into());
    }
    let arrived = local.own().arrived_to();
    local.has_got_astray(direction.route(), arrived);
    let mut all = Took {
        bytes: 0,
        passed: 0,
        more: false,
        stop: false,
    };
    let mut rest = *ask;
    let tail = direction.tail();
    let control = msg.control();
    // With the lock held over all carriers: no other reader gets bytes in between.
    let end = loop {
        let told = all.bytes != 0 && local.is_told();
        let look = match ask.peek {
            true => peek(local, direction, &reader, msg, &rest),
            false => next(local, direction, &mut reader, msg, &rest),
        };
        if told {
            let more = matches!(&look, Ok(Look::Took(took)) if took.bytes != 0);
            if more && !local.is_told() {
                // The time of the last bytes counts, and those came by the ring.
                msg.rewind(&control);
            } else {
                local.tcp_tells();
            }
        }
        let Ok(Look::Took(took)) = look else {
            break Some(look);
        };
        all.bytes = all.bytes.saturating_add(took.bytes);
        all.passed = all.passed.saturating_add(took.passed);
        all.stop = took.stop;
        rest.before = rest.before.saturating_add(took.bytes);
        rest.passed = rest.passed.saturating_add(took.passed);
        rest.wanted = rest.wanted.saturating_sub(took.bytes);
        if !took.more || took.stop || rest.wanted == 0 {
            break None;
        }
    };
    if direction.tail() != tail && !ask.carried.replace(true) {
        direction.counts_take();
    }
    drop(reader);
    local.let_reader_go();
    match end {
        Some(end) if all.bytes == 0 && all.passed == 0 => end,
        _ => Ok(Look::Took(all)),
    }
}

/// Takes from the carrier of the next byte.
#[inline(always)]
fn next(
    local: &Local,
    direction: &LocalDirection,
    reader: &mut Option<Arc<CountedRing>>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
) -> Result<Look> {
    loop {
        // In this order: a thread that sees the end, or the writer's return to TCP, sees all bytes of the ring before it.
        let state = state(local);
        let route = direction.route();
        let there = direction.there();
        match route.head() {
            Head::Ring if there != 0 => {
                return from_ring(
                    local,
                    direction,
                    reader.as_deref().map(|ring| &**ring),
                    msg,
                    ask,
                    there,
                );
            }
            Head::Ring if !route.ends() => return Ok(Look::Nothing(state)),
            Head::Tcp => return from_tcp(local, msg, ask, state, None),
            // Asked once: TCP must not be called for 0 bytes, as it would consume an end that follows.
            Head::Until(_) => match route.left(local.own().position()) {
                0 => (),
                left => return from_tcp(local, msg, ask, state, Some(left)),
            },
            Head::Ring => (),
        }
        // The next byte comes by the next carrier.
        let passed = route.passed(local.own().position(), there == 0);
        if passed == route {
            return Ok(Look::Nothing(state));
        }
        if !direction.replace_route(route, passed) {
            // The writer has turned back meanwhile.
            continue;
        }
        if passed == Route::TCP {
            // What a writer that begins anew needs, it makes itself.
            *reader = None;
        }
    }
}

/// Returns why a reader gets no bytes: error, end or nothing yet, in TCP's order. Bytes that came before an end
/// are visible to loads after this call.
#[inline]
fn state(local: &Local) -> RecvState {
    let state = state_of_tcp(local);
    if state != RecvState::Empty {
        read_barrier();
    }
    state
}

#[inline]
fn state_of_tcp(local: &Local) -> RecvState {
    let sock = local.own();
    let (shut, closed) = (sock.is_receive_shut(), sock.state() == tcp_state::CLOSE);
    // TCP sets an error before it shuts the socket, and closes it.
    read_barrier();
    if local.is_broken() {
        RecvState::Reset
    } else if sock.has_seen_fin() {
        RecvState::Eof
    } else if sock.has_error() {
        RecvState::Reset
    } else if shut {
        RecvState::Eof
    } else if closed {
        RecvState::NotConnected
    } else {
        RecvState::Empty
    }
}

#[inline(always)]
fn from_ring(
    local: &Local,
    direction: &LocalDirection,
    reader: Option<&Ring>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
    there: usize,
) -> Result<Look> {
    let Some(ring) = reader else {
        return Ok(STOP);
    };
    let len = there.min(ask.wanted);
    let bytes = if ask.discard {
        len
    } else {
        ring.read(direction.tail(), len, msg.dest())
    };
    if bytes == 0 && len != 0 {
        return Err(EFAULT);
    }
    direction.took(bytes);
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: bytes == len && bytes < ask.wanted && local.readable() != 0,
        stop: false,
    }))
}

/// Has TCP receive, which adds the control messages for time and bytes left itself. It does not know of bytes in
/// a ring that follows.
fn receive(
    local: &Local,
    msg: &mut Message<'_>,
    len: usize,
    extra: u32,
    ring_follows: bool,
) -> Result<usize> {
    let control = msg.control();
    let bytes = local.own().receive_now(msg, len, extra)?;
    if local.own().wants_count() && ring_follows {
        msg.rewind(&control);
    } else if local.own().wants_stamps() || local.own().wants_count() {
        local.tcp_tells();
    }
    Ok(bytes)
}

/// Takes bytes from TCP, which does not wait: at most `left`, after which is a ring, or any number. `state` is from
/// before that.
#[inline(never)]
fn from_tcp(
    local: &Local,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
    state: RecvState,
    left: Option<usize>,
) -> Result<Look> {
    let sock = local.own();
    let nothing = sock.arrived_bytes() == 0;
    if ask.wanted == 0 {
        return Ok(if nothing { Look::Nothing(state) } else { STOP });
    }
    if nothing && ask.before != 0 {
        // TCP does not know what the call has got already, and would consume the error.
        return Ok(Look::Nothing(state));
    }
    if sock.is_at_mark() {
        if ask.before != 0 {
            return Ok(STOP);
        }
        if local.is_spliced(msg) {
            // As TCP, whose splice() does not step over the urgent byte.
            return Ok(match state {
                RecvState::Eof => Look::Nothing(state),
                _ => Look::Mark,
            });
        }
    }
    let extra = if ask.discard { flags::MSG_TRUNC } else { 0 };
    let wanted = ask.wanted.min(left.unwrap_or(usize::MAX));
    let bytes = match receive(local, msg, wanted, extra, left.is_some()) {
        Ok(0) => return Ok(Look::Nothing(RecvState::Eof)),
        Ok(bytes) => bytes,
        Err(err) if err == EAGAIN => return Ok(Look::Nothing(RecvState::Empty)),
        Err(err) => return Err(err),
    };
    // TCP never reads past the urgent mark in one call. After the last byte before a ring the mark is not next.
    let stop = left.is_none() && sock.is_at_mark();
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: bytes < ask.wanted && local.readable() != 0,
        stop,
    }))
}

/// Copies what follows the bytes that the call has passed, wherever they are, and leaves it there.
#[inline(never)]
fn peek(
    local: &Local,
    direction: &LocalDirection,
    ring: &Option<Arc<CountedRing>>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
) -> Result<Look> {
    let sock = local.own();
    let state = state(local);
    // The ring first, as in `take`: bytes that have come by TCP then may follow those of the ring.
    let (arrived, to_mark) = sock.arrived_and_mark();
    read_barrier();
    let route = direction.route();
    let there = direction.there();
    if route.head() == Head::Tcp && ask.before == 0 {
        // TCP knows of urgent bytes, and of the offset.
        let extra = if ask.discard { flags::MSG_TRUNC } else { 0 };
        let got = receive(local, msg, ask.wanted, flags::MSG_PEEK | extra, false);
        return match got {
            Ok(0) if ask.wanted != 0 => Ok(Look::Nothing(RecvState::Eof)),
            Ok(bytes) => {
                let skips = to_mark == Some(ask.passed) && !sock.oob_inline();
                Ok(looked(bytes, usize::from(skips), false))
            }
            Err(err) if err == EAGAIN => Ok(Look::Nothing(RecvState::Empty)),
            Err(err) => Err(err),
        };
    }
    let [first, held, behind] = route.readable(sock.position(), arrived, there);
    let [to_ring, to_rest] = [first, first.saturating_add(held)];
    let mut all = to_rest.saturating_add(behind);
    let mut offset = ask.before.saturating_add(ask.passed);
    if ask.wanted == 0 {
        // As TCP: any byte will do, an urgent one, too.
        return Ok(match offset < all {
            true => looked(0, 0, false),
            false => Look::Nothing(state),
        });
    }
    let mut passed = 0;
    // The mark is after the ring: a writer leaves that for an urgent byte, and returns when it was read.
    if let Some(mark) = to_mark.map(|left| left.saturating_add(held)) {
        if offset < mark {
            all = all.min(mark);
        } else if offset == mark && ask.before != 0 {
            // As TCP, which passes the mark only at the beginning of a call.
            return Ok(STOP);
        } else if offset == mark && offset < all && !sock.oob_inline() {
            passed = 1;
            offset = offset.saturating_add(1);
        }
    }
    if offset >= all {
        return Ok(match all {
            0 => Look::Nothing(state),
            // All of it has been passed.
            _ => looked(0, passed, false),
        });
    }
    let left = all.wrapping_sub(offset);
    let bytes = if ask.discard {
        // As TCP: what is thrown away is not copied even by a peek.
        ask.wanted.min(left)
    } else if offset < to_ring {
        let left = left.min(to_ring.wrapping_sub(offset));
        sock.peek_at(offset, msg, ask.wanted.min(left))?
    } else if offset < to_rest {
        let skip = offset.wrapping_sub(to_ring);
        let len = ask.wanted.min(left).min(held.wrapping_sub(skip));
        let at = direction.tail().wrapping_add(skip as u64);
        match ring {
            Some(ring) if len != 0 => match ring.read(at, len, msg.dest()) {
                0 => return Err(EFAULT),
                bytes => {
                    ask.carried.set(true);
                    bytes
                }
            },
            _ => 0,
        }
    } else {
        sock.peek_at(offset.wrapping_sub(held), msg, ask.wanted.min(left))?
    };
    let more = bytes != 0 && bytes < ask.wanted && bytes < left;
    Ok(looked(bytes, passed, more))
}

fn looked(bytes: usize, passed: usize, more: bool) -> Look {
    Look::Took(Took {
        bytes,
        passed,
        more,
        stop: false,
    })
}
