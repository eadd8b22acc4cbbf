// SPDX-License-Identifier: GPL-2.0

//! Bytes that go by TCP, which is called without ever waiting in it.

use super::{Inside, StreamIo, Usual};
use crate::{
    smcr::SmcConn,
    stream::{ring::take_from_ring, Ask, Look, Put, Stop, Took, STOP}, //
};
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        sock::tcp_state, //
    },
    sys::word::read_barrier,
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    conn::RecvState,
    path::{Head, Route},
    promotion::Stage, //
};

/// Gives bytes to TCP, or to the ring if this end has turned; see [`Usual::put`].
#[inline(never)]
pub(super) fn put(
    remote: &Inside<'_>,
    msg: &mut Message<'_>,
    what: &Put<'_>,
) -> Result<(usize, bool), Stop> {
    if let Some(conn) = remote.promoted().or_else(|| remote.turned()) {
        what.carried.set(true);
        return conn.put(msg, what);
    }
    let mut writer = remote.writer.lock();
    let held = core::mem::replace(&mut writer.held, false);
    if remote.stage() == Stage::Due {
        let mut machine = remote.machine.lock();
        if machine.promotion.stage() == Stage::Due {
            // Without memory the bytes go by TCP, as before.
            let _ = remote.turn(&mut machine, held);
        }
    }
    if let Some(conn) = remote.turned() {
        drop(writer);
        what.carried.set(true);
        return conn.put(msg, what);
    }
    let sock = &*remote.sock;
    if !sock.may_send() || remote.write_shut.get() != 0 {
        return Err(Stop::Tcp(errno::EPIPE.into()));
    }
    if remote.stage() == Stage::Returning {
        // Bytes before these are not given to TCP yet.
        return Err(Stop::Full);
    }
    let mut sent = sock.send_now(msg, what.wanted);
    if sent == Err(EAGAIN) && sock.is_writable() {
        // Room has come meanwhile, or it is memory that is missing.
        sent = sock.send_now(msg, what.wanted);
    }
    match sent {
        Ok(taken) => {
            writer.held = what.more;
            Ok((taken, false))
        }
        // Without this a writer that waits for room would find some, and ask again at once, for ever.
        Err(err) if err == EAGAIN && sock.is_writable() => Err(Stop::Later),
        Err(err) if err == EAGAIN => Err(Stop::Full),
        Err(err) if err == EFAULT => Err(Stop::Fault),
        Err(err) => Err(Stop::Tcp(err)),
    }
}

/// Goes on after a look into a ring that has been left meanwhile: the rest comes by TCP.
#[cold]
pub(super) fn took_last(
    remote: &Inside<'_>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
    look: Result<Look>,
) -> Result<Look> {
    match look? {
        Look::Nothing(RecvState::Empty) => take(remote, msg, ask),
        Look::Took(took) if !took.stop => {
            let beyond = took.bytes < ask.wanted && remote.unread().0 != 0;
            Ok(Look::Took(Took {
                more: took.more || beyond,
                ..took
            }))
        }
        look => Ok(look),
    }
}

/// Takes bytes from TCP, or from the ring once all of TCP's have been read; see [`Usual::take`].
#[inline(never)]
pub(super) fn take(remote: &Inside<'_>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    if let Some(conn) = remote.promoted().or_else(|| remote.behind()) {
        ask.carried.set(true);
        if ask.peek && conn.is_suspended() {
            return peek_left(remote, conn, msg, ask);
        }
        match take_from_ring(conn, msg, ask)? {
            // The rest comes by TCP.
            Look::Nothing(RecvState::Empty) if conn.is_suspended() => (),
            look if conn.is_suspended() => return took_last(remote, msg, ask, Ok(look)),
            look => return Ok(look),
        }
    }
    let reader = remote.reader.lock();
    let by_tcp = remote.stage() == Stage::Tcp && remote.route() == Route::TCP;
    // There is no record in TCP's stream then.
    if by_tcp && ask.before == 0 && !ask.peek {
        if let Some(look) = first(remote, msg, ask) {
            return look;
        }
    }
    remote.passes_record();
    if let Some(conn) = remote.behind() {
        // In this order: the ring may be left by others meanwhile, and TCP have bytes before its end.
        let state = state(remote);
        if !remote.leaves_ring(conn) {
            return Ok(Look::Nothing(match conn.unread_bytes() {
                0 => state,
                // They have come since the look.
                _ => RecvState::Empty,
            }));
        }
    }
    if !remote.passes() {
        let look = match ask.peek {
            true => peek(remote, msg, ask),
            false => next(remote, msg, ask),
        };
        if !remote.passes() {
            return look;
        }
        remote.passes_record();
        // With the record out of TCP's stream what follows it counts.
        return match look {
            Ok(Look::Took(took)) if !ask.peek => took_last(remote, msg, ask, Ok(Look::Took(took))),
            look => look,
        };
    }
    drop(reader);
    match remote.behind() {
        Some(conn) => {
            ask.carried.set(true);
            take_from_ring(conn, msg, ask)
        }
        // It was reset.
        None => Ok(Look::Nothing(state(remote))),
    }
}

/// Copies what follows the bytes that the call has passed, and leaves it there; what is left in the ring comes first. Bytes
/// that the call has passed elsewhere do not count.
#[cold]
fn peek_left(
    remote: &Inside<'_>,
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    ask: &Ask<'_>,
) -> Result<Look> {
    // In this order: what has come before an end is seen with it.
    let state = state(remote);
    let left = conn.unread_bytes();
    let offset = ask.before.saturating_add(ask.passed);
    let after = remote.after_ring();
    let there = after.map_or(0, |at| remote.sock.arrived_bytes().saturating_sub(at));
    if offset < left {
        return Ok(match take_from_ring(conn, msg, ask)? {
            Look::Took(took) => {
                let seen = offset
                    .saturating_add(took.bytes)
                    .saturating_add(took.passed);
                let beyond = there != 0 && seen >= left && took.bytes < ask.wanted;
                Look::Took(Took {
                    more: took.more || beyond,
                    ..took
                })
            }
            look => look,
        });
    }
    let beyond = offset.wrapping_sub(left);
    let rest = there.saturating_sub(beyond);
    if rest == 0 {
        return Ok(match offset {
            0 => Look::Nothing(state),
            _ => seen_all(ask, state),
        });
    }
    let wanted = ask.wanted.min(rest);
    let bytes = match ask.discard {
        true => wanted,
        false => {
            let at = after.unwrap_or(0).saturating_add(beyond);
            remote.sock.peek_at(at, msg, wanted)?
        }
    };
    Ok(looked(bytes, false))
}

/// Takes what TCP has at the beginning of a call, while the connection is TCP's alone; `None` where there is more to it.
#[inline]
fn first(remote: &Inside<'_>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Option<Result<Look>> {
    let sock = &*remote.sock;
    if ask.wanted == 0 || ask.discard || sock.has_urgent() {
        return None;
    }
    let bytes = match sock.receive_now(msg, ask.wanted, 0) {
        // The peer may have turned since, and this be TCP's end alone.
        Ok(0) if remote.stage() != Stage::Tcp => return None,
        Ok(0) => return Some(Ok(Look::Nothing(RecvState::Eof))),
        Ok(bytes) => bytes,
        Err(err) if err == EAGAIN => return Some(Ok(Look::Nothing(RecvState::Empty))),
        Err(err) => return Some(Err(err)),
    };
    Some(Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: bytes < ask.wanted && sock.has_unread(),
        stop: false,
    })))
}

/// Returns how many bytes of TCP come before the ring; `None` if the peer has not turned, as far as is known.
fn left(remote: &Inside<'_>) -> Option<usize> {
    let route = remote.route();
    match route.head() {
        Head::Until(_) => Some(route.left(remote.sock.position())),
        Head::Ring => Some(0),
        Head::Tcp => None,
    }
}

fn next(remote: &Inside<'_>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    let sock = &*remote.sock;
    // In this order: what has come before an end is seen with it.
    let state = state(remote);
    let left = left(remote);
    let arrived = sock.arrived_bytes();
    if ask.wanted == 0 {
        return Ok(match arrived {
            0 => Look::Nothing(state),
            _ => STOP,
        });
    }
    // TCP would consume an end that is not the stream's, and knows nothing of what the call has got already.
    let hides = left.is_some() || remote.stage().may_be_followed();
    if arrived == 0 && (ask.before != 0 || hides) {
        return Ok(Look::Nothing(state));
    }
    if sock.is_at_mark() {
        if ask.before != 0 {
            return Ok(STOP);
        }
        if remote.is_spliced(msg) {
            // As TCP, whose splice() does not step over the urgent byte.
            return Ok(match state {
                RecvState::Eof => Look::Nothing(state),
                _ => Look::Mark,
            });
        }
    }
    let extra = if ask.discard { flags::MSG_TRUNC } else { 0 };
    let wanted = ask.wanted.min(left.unwrap_or(usize::MAX));
    let bytes = match sock.receive_now(msg, wanted, extra) {
        // TCP counts a FIN before it says that it is one, and it is not the stream's end.
        Ok(0) if hides || remote.stage().may_be_followed() => {
            return Ok(Look::Nothing(RecvState::Empty));
        }
        Ok(0) => return Ok(Look::Nothing(RecvState::Eof)),
        Ok(bytes) => bytes,
        Err(err) if err == EAGAIN => return Ok(Look::Nothing(RecvState::Empty)),
        Err(err) => return Err(err),
    };
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: bytes < ask.wanted && remote.unread().0 != 0,
        // TCP never reads past the urgent mark in one call.
        stop: sock.is_at_mark(),
    }))
}

/// Copies what follows the bytes that the call has passed, wherever they are, and leaves it there.
fn peek(remote: &Inside<'_>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    let sock = &*remote.sock;
    let state = state(remote);
    let left = left(remote);
    let offset = ask.before.saturating_add(ask.passed);
    // Behind bytes a peek ends there; at the beginning it steps over the urgent byte, unless that is part of the stream.
    let mark = sock.bytes_before_mark();
    let steps = !sock.oob_inline();
    if left.is_none() && ask.before == 0 && !remote.stage().may_be_followed() {
        // TCP knows of urgent bytes, and of the offset.
        let extra = if ask.discard { flags::MSG_TRUNC } else { 0 };
        return match sock.receive_now(msg, ask.wanted, flags::MSG_PEEK | extra) {
            Ok(0) if ask.wanted != 0 => Ok(Look::Nothing(RecvState::Eof)),
            // It ends there, as a read does.
            Ok(bytes) => Ok(Look::Took(Took {
                bytes,
                passed: usize::from(steps && mark == Some(offset)),
                more: false,
                stop: bytes != 0 && mark == Some(offset.saturating_add(bytes)),
            })),
            // It steps over the urgent byte, and waits for what follows that.
            Err(err) if err == EAGAIN && steps && mark == Some(offset) => Ok(stepped(false)),
            Err(err) if err == EAGAIN => Ok(Look::Nothing(RecvState::Empty)),
            Err(err) => Err(err),
        };
    }
    if let (Some(left), Some(conn)) = (left, remote.carrier()) {
        if offset >= left {
            // All of TCP's has been seen.
            let beyond = offset.wrapping_sub(left);
            let before = ask.before.min(beyond);
            ask.carried.set(true);
            let rest = Ask {
                before,
                passed: beyond.wrapping_sub(before),
                ..*ask
            };
            let look = match conn.is_suspended() {
                true => peek_left(remote, conn, msg, &rest),
                false => take_from_ring(conn, msg, &rest),
            };
            return match look? {
                // What the call has seen before is not the ring's.
                Look::Nothing(state) if offset != 0 => Ok(seen_all(ask, state)),
                look => Ok(look),
            };
        }
    }
    if mark == Some(offset) {
        if ask.before != 0 {
            return Ok(STOP);
        }
        if steps {
            return Ok(stepped(true));
        }
    }
    let arrived = sock.arrived_bytes().min(left.unwrap_or(usize::MAX));
    let all = mark.filter(|at| offset < *at).unwrap_or(arrived);
    if offset >= all {
        return Ok(match all {
            0 => Look::Nothing(state),
            _ => seen_all(ask, state),
        });
    }
    let there = all.wrapping_sub(offset);
    let wanted = ask.wanted.min(there);
    let bytes = match ask.discard {
        // As TCP: what is thrown away is not copied even by a peek.
        true => wanted,
        false => sock.peek_at(offset, msg, wanted)?,
    };
    let seen = offset.saturating_add(bytes);
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: seen == all && bytes < ask.wanted && Some(all) == left,
        stop: mark == Some(seen),
    }))
}

/// A peek that has seen all there is. One of no bytes succeeds only where there are some, as with TCP.
fn seen_all(ask: &Ask<'_>, state: RecvState) -> Look {
    match ask.wanted {
        0 => Look::Nothing(state),
        _ => looked(0, false),
    }
}

/// A peek's step over the urgent byte; `more` if there may be bytes behind it.
fn stepped(more: bool) -> Look {
    Look::Took(Took {
        bytes: 0,
        passed: 1,
        more,
        stop: false,
    })
}

fn looked(bytes: usize, more: bool) -> Look {
    Look::Took(Took {
        bytes,
        passed: 0,
        more,
        stop: false,
    })
}

/// Returns why TCP has no bytes: error, end or nothing yet, in its order. Bytes that came before an end are visible to
/// loads after this call.
fn state(remote: &Inside<'_>) -> RecvState {
    let state = state_of_tcp(remote);
    if state != RecvState::Empty {
        read_barrier();
    }
    state
}

fn state_of_tcp(remote: &Inside<'_>) -> RecvState {
    let sock = &*remote.sock;
    let (shut, closed) = (remote.is_read_shut(), sock.state() == tcp_state::CLOSE);
    // TCP sets an error, and sees its end, before it closes.
    read_barrier();
    let ended = sock.has_seen_fin();
    // That the end may not be the stream's is said before the peer can end TCP.
    read_barrier();
    let followed = match remote.route().head() {
        Head::Ring => !remote.has_heard(),
        Head::Until(_) => true,
        Head::Tcp => remote.stage().may_be_followed(),
    };
    if ended && !followed {
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
