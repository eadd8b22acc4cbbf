// SPDX-License-Identifier: GPL-2.0

//! Events of a connection: messages of the peer, calls of the program, the end of TCP.

use super::{Locked, SmcConn};
use crate::host::{
    clock::now,
    namespace::Namespace,
    stats::Stat, //
};
use kapi::{
    errno,
    net::{
        args::{Message, Splice},
        sock::tcp_state,
        socket::BsdSocket, //
    },
    sys::lock::{lock_with_bh_off, SpinLockBhBackend}, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, lock::Guard, Arc}, //
};
use smc_proto::{
    conn::{Actions, CloseMode, Conn, ProtoError},
    time::Instant,
    wire::{cdc::Cdc, immediate::Immediate}, //
};

impl SmcConn {
    /// Handles a CDC message for this connection. Softirq.
    pub(crate) fn on_cdc(self: &Arc<Self>, cdc: &Cdc, now: Instant) {
        self.on_notice(|proto| proto.on_cdc(cdc, now));
    }

    /// Handles an RDMA WRITE with immediate, which announces its own bytes. Softirq.
    pub(crate) fn on_immediate(self: &Arc<Self>, immediate: Immediate, now: Instant) {
        self.on_notice(|proto| proto.on_immediate(immediate, now));
    }

    fn on_notice(
        self: &Arc<Self>,
        take: impl FnOnce(&mut Conn) -> core::result::Result<Actions, ProtoError>,
    ) {
        let mut breach = None;
        self.change_locked(lock_with_bh_off(&self.proto), |proto| {
            let settings = self.sync_settings(proto);
            self.maybe_readable.set(1);
            self.set_napi();
            let before = self.sock.wants_stamps().then(|| proto.received());
            let taken = take(proto);
            if let Some(before) = before {
                self.stamp(proto, before);
            }
            match taken {
                Ok(actions) => {
                    if actions.has_any(Actions::URGENT | Actions::LEFT) {
                        settings | actions | self.has_heard(proto, actions)
                    } else {
                        settings | actions
                    }
                }
                // No correct peer sends this.
                Err(error) => {
                    breach = Some(error);
                    proto.fail()
                }
            }
        });
        if let Some(error) = breach {
            self.group.tell_breach(error);
        }
    }

    /// Applies `how` to the protocol state and performs the resulting actions. The socket's error
    /// is set before the new state is visible: a reader that finds the connection ended without an
    /// error takes that for the end of the stream.
    #[inline]
    pub(super) fn change(self: &Arc<Self>, how: impl FnOnce(&mut Conn) -> Actions) {
        self.change_locked(self.proto.lock(), |state| how(&mut state.conn));
    }

    /// The same, with the state locked.
    #[inline]
    fn change_locked(
        self: &Arc<Self>,
        mut proto: Guard<'_, Locked, SpinLockBhBackend>,
        how: impl FnOnce(&mut Locked) -> Actions,
    ) {
        let actions = how(&mut proto);
        self.set_error(actions);
        drop(proto);
        self.perform(actions);
    }

    pub(super) fn fetch_urgent(&self, state: &mut Locked) -> Actions {
        let mut byte = [0];
        if let Some((ring, offset)) = state.urgent_offset() {
            let ring = state.recv.get(ring);
            if ring.is_some_and(|ring| ring.read_slice(offset as usize, &mut byte) == 1) {
                let [value] = byte;
                return state.store_urgent(value);
            }
        }
        Actions::NONE
    }

    /// Copies `SO_OOBINLINE` from the TCP socket, where setsockopt() sets it.
    #[inline]
    pub(crate) fn sync_settings(&self, proto: &mut Conn) -> Actions {
        let inline = self.sock.oob_inline();
        if proto.oob_inline() == inline {
            Actions::NONE
        } else {
            proto.set_oob_inline(inline)
        }
    }

    /// Sends held-back bytes, after `TCP_NODELAY` was set or `TCP_CORK` cleared.
    pub(crate) fn push(self: &Arc<Self>) {
        let actions = self.proto.lock().push();
        self.perform(actions);
    }

    /// Aborts the connection, because the peer broke the protocol. Any context.
    pub(crate) fn fail(self: &Arc<Self>) {
        self.change(Conn::fail);
    }

    /// Handles shutdown() of the receiving direction. As with TCP the peer is not told, and bytes
    /// that arrive nevertheless can be read, but a read that finds none does not wait.
    pub(crate) fn shut_read(&self) {
        self.read_shut.set(1);
    }

    /// Tells whether [`SmcConn::shut_read`] was called.
    pub(crate) fn is_read_shut(&self) -> bool {
        self.read_shut.get() != 0
    }

    /// Splices from the socket by way of recvmsg(). Returns the number of bytes moved.
    ///
    /// # Errors
    ///
    /// Errors of splice() and recvmsg().
    pub(crate) fn splice(&self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        self.stats.add(Stat::Splices, 1);
        self.splices.add(1, Relaxed);
        let moved = socket.copy_splice(splice);
        self.splices.add(-1, Relaxed);
        moved
    }

    /// Tells whether this is the recvmsg() of a splice(), which fills pages.
    #[cold]
    pub(crate) fn is_spliced(&self, msg: &Message<'_>) -> bool {
        msg.fills_pages() && self.splices.load(Relaxed) != 0
    }

    /// Tells whether the program has dissolved the connection, whose receive buffer may be another's by
    /// now.
    #[inline]
    pub(crate) fn is_dissolved(&self) -> bool {
        self.dissolved.acquire() != 0
    }

    /// Tells whether close() or shutdown() still waits for unsent bytes.
    pub(crate) fn is_draining(&self) -> bool {
        self.proto.lock().is_draining()
    }

    /// Ends the connection, because its link is gone; its stream goes on if it can do so by TCP. Any context.
    pub(crate) fn kill(self: &Arc<Self>) {
        if !self.suspend() {
            self.change(Conn::kill);
        }
    }

    /// Handles the end of the TCP connection beneath. Process context.
    pub(crate) fn on_tcp_dead(self: &Arc<Self>) {
        self.change(Conn::on_tcp_dead);
        let error = self.note_end();
        self.judge_reset();
        if error == Actions::NONE && self.may_judge() {
            // As with TCP, which has no connection any more when both have ended.
            let _ = self.sock.take_error();
        }
    }

    /// Takes note whether a reset comes after the peer's end, and before that of the program. Returns what it means.
    pub(super) fn note_end(&self) -> Actions {
        let error = self.proto.lock().reset_error();
        self.peer_has_ended.set(error.has(Actions::ERR_PIPE).into());
        error
    }

    /// Has a reset of the TCP connection beneath say what TCP would say at this place of the stream. A peer that has gone
    /// from TCP to the ring ends its stream there, so that its reset is TCP's first word of an end. Any context, with
    /// whatever lock of TCP's, or of the socket's wait queue, held.
    pub(crate) fn judge_reset(&self) {
        if self.may_judge() && self.peer_has_ended.get() != 0 {
            self.sock.set_error(errno::EPIPE);
        }
    }

    fn may_judge(&self) -> bool {
        let waits = self.sock.has_the_error(errno::ECONNRESET);
        waits && self.has_lifeline() && !self.is_suspended()
    }

    /// Tells whether the TCP connection beneath has ended without the FINs of both ends, by a reset
    /// for one.
    #[inline]
    pub(crate) fn is_tcp_dead(&self) -> bool {
        self.sock.state() == tcp_state::CLOSE && !self.has_tcp_ended()
    }

    /// Tells whether both ends have sent their FINs. The peer's RDMA data may still be on its way.
    fn has_tcp_ended(&self) -> bool {
        self.fin_sent.get() != 0 && self.sock.has_seen_fin()
    }

    /// Handles the end of the TCP connection beneath if the socket's watch has not done so yet;
    /// called when the program sends, or finds nothing to read. Returns whether the connection's
    /// state has changed.
    #[inline]
    pub(crate) fn notice_tcp_dead(self: &Arc<Self>) -> bool {
        self.is_tcp_dead() && self.tcp_has_died()
    }

    #[cold]
    fn tcp_has_died(self: &Arc<Self>) -> bool {
        let before = self.proto.lock().directions();
        self.on_tcp_dead();
        self.proto.lock().directions() != before
    }

    /// Handles the peer's FIN on the TCP connection beneath.
    pub(crate) fn on_tcp_fin(self: &Arc<Self>) {
        let actions = self.proto.lock().on_tcp_fin(now());
        self.perform(actions);
    }

    /// Aborts the connection while the program keeps the socket, perhaps for another connection.
    pub(crate) fn dissolve(self: &Arc<Self>) {
        self.dissolved.release(1);
        self.close(CloseMode::Abort);
    }

    /// Handles close() of the socket. Sleeps.
    pub(crate) fn close(self: &Arc<Self>, mode: CloseMode) {
        // Counted before anybody can see it end: from then on it may be freed, and the count with it.
        let (actions, crowded, aborted) = {
            let mut proto = self.proto.lock();
            let actions = proto.close(mode, now());
            let crowded = proto.is_draining() && !self.begin_drain();
            (actions, crowded, proto.has_aborted_tcp())
        };
        // The work may not have come to that, and TCP says FIN when this returns.
        if aborted && self.has_socket() {
            self.sock.abort();
        }
        self.perform(actions);
        if crowded && !self.group.shed_drain() {
            self.lose_drain();
        }
    }

    /// Counts this closed connection among those with data left for the peer. Returns false if there
    /// are more than there may be.
    fn begin_drain(&self) -> bool {
        let Some(namespace) = Namespace::of(&self.sock) else {
            return true;
        };
        let (number, may) = namespace.begin_drain();
        self.drains.store(number, Relaxed);
        may
    }

    /// Returns the number that the connection has as one of those that drain, not 0; lower ones are older.
    pub(crate) fn drain_number(&self) -> Option<u64> {
        Some(self.drains.load(Relaxed)).filter(|number| *number != 0)
    }

    /// Takes back the count of [`SmcConn::begin_drain`]. Returns false if there was none.
    pub(super) fn end_drain(&self) -> bool {
        let counted = self.drains.load(Relaxed) != 0 && self.drains.xchg(0, Relaxed) != 0;
        if counted {
            if let Some(namespace) = Namespace::of(&self.sock) {
                namespace.end_drain();
            }
        }
        counted
    }

    /// Gives up what the connection has left for its peer, unless its drain has ended.
    pub(crate) fn lose_drain(self: &Arc<Self>) {
        if self.end_drain() {
            // If all of it has gone meanwhile, the peer need not be told.
            self.change(|proto| match proto.is_draining() {
                true => proto.give_up_drain(now()) | Actions::DRAIN_LOST,
                false => Actions::NONE,
            });
        }
    }
}
