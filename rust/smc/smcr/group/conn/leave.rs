// SPDX-License-Identifier: GPL-2.0

//! Connections whose rings are left in the midst of the stream, which goes on by TCP: see
//! [`Remote`](crate::stream::remote::Remote), which tells the two ends what each other has got.

use super::{Locked, SmcConn, MARKS};
use crate::host::{clock::now, promotions::Cause};
use core::ops::Range;
use kapi::rdma::ring::Ring;
use kernel::sync::Arc;
use smc_proto::{
    conn::{Actions, Conn, Farewell, ProtoError},
    cursor::Pos,
    ring::Pieces,
    wire::{clc::Extensions, promotion::Record}, //
};

/// Milliseconds between looks of [`SmcConn::watch_tcp`].
const LOOK: u32 = 100;

impl SmcConn {
    /// From now on the loss of the link is no end of the stream. The peer knows that this end has left TCP when it has
    /// read `marks` bytes.
    pub(crate) fn may_be_left(&self, marks: u8) {
        if self.lifeline.get() == 0 {
            self.proto.lock().keep_tcp(marks);
            self.lifeline.set(1);
            self.group.watch_worth(&self.sock);
            self.group.watch_silence();
            // It may be idle from now on, and the link may be worse than TCP.
            self.group.look_later();
        }
    }

    /// From now on the rings may be left in good order: all of the stream goes by them.
    pub(crate) fn may_leave(&self) {
        if self.group.extensions().has(Extensions::LEAVES) {
            self.proto.lock().may_leave();
        }
    }

    /// Begins to close: the program has, and its stream can go on by TCP; [`SmcConn::close`] follows. Returns false, and
    /// does nothing, where there is no need.
    pub(crate) fn begin_closing(self: &Arc<Self>) -> bool {
        let actions = self.proto.lock().begin_closing(now());
        let begins = actions.is_some();
        if let Some(actions) = actions {
            self.perform(actions);
        }
        begins
    }

    /// Returns how far that is.
    pub(crate) fn farewell(&self) -> Farewell {
        self.proto.lock().farewell()
    }

    /// Tells whether the connection has ended without the peer's doing.
    pub(crate) fn is_killed(&self) -> bool {
        self.proto.lock().is_killed()
    }

    /// Asks the peer to leave the rings, for this cause. Returns whether it is asked. Any context.
    pub(crate) fn ask_to_leave(self: &Arc<Self>, cause: Cause) -> bool {
        let asks = {
            let mut proto = self.proto.lock();
            let asks = proto.ask_to_leave();
            if asks.is_some() {
                self.cause.set(cause as u32);
            }
            asks
        };
        if let Some(actions) = asks {
            self.perform(actions);
        }
        asks.is_some()
    }

    /// Tells whether the peer was asked that, and is expected to answer.
    pub(crate) fn asks_to_leave(&self) -> bool {
        let proto = self.proto.lock();
        proto.asks_to_leave() && !proto.is_killed()
    }

    /// Does what is rare when a message has come. The state is locked.
    #[cold]
    pub(super) fn has_heard(&self, state: &mut Locked, actions: Actions) -> Actions {
        if actions.has(Actions::LEFT) {
            // Seen by whom that wakes.
            self.suspended.set(1);
        }
        match actions.has(Actions::URGENT) {
            true => self.fetch_urgent(state),
            false => Actions::NONE,
        }
    }

    /// Tells whether the stream can go on without the link.
    pub(crate) fn has_lifeline(&self) -> bool {
        self.lifeline.get() != 0
    }

    /// The peer has left the rings, so it knows that this end has left TCP.
    pub(crate) fn marks_are_read(&self) {
        self.proto.lock().marks_are_read();
    }

    /// Tells whether the peer is known to know that this end has left TCP.
    pub(crate) fn is_understood(&self) -> bool {
        self.proto.lock().is_understood()
    }

    /// Has the peer told that its marks were read: its own return waits for that.
    pub(crate) fn tell_read(self: &Arc<Self>) {
        let actions = self.proto.lock().tell_read();
        self.perform(actions);
    }

    /// Leaves the rings, if the stream has not ended and goes on by TCP: nothing is sent or received any more. Returns
    /// whether they are left. Any context.
    pub(crate) fn suspend(self: &Arc<Self>) -> bool {
        self.leave_by(Conn::suspend)
    }

    /// The same while the link works, as the peer has left them in good order.
    pub(crate) fn leave(self: &Arc<Self>) -> bool {
        self.leave_by(Conn::leave)
    }

    fn leave_by(self: &Arc<Self>, how: impl FnOnce(&mut Conn) -> Option<Actions>) -> bool {
        if self.lifeline.get() == 0 {
            return false;
        }
        let actions = {
            let mut proto = self.proto.lock();
            let actions = how(&mut proto);
            if actions.is_some() {
                self.suspended.set(1);
            }
            actions
        };
        match actions {
            Some(actions) => self.perform(actions),
            None => return self.is_suspended(),
        }
        true
    }

    /// Tells whether the rings are left.
    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.get() != 0
    }

    /// Has the socket's watch look again in `msecs` milliseconds: what TCP brings or takes does not always wake it.
    pub(crate) fn look_again(&self, msecs: u32) {
        if let Some(timer) = &*self.timer.lock() {
            timer.arm_by(msecs);
        }
    }

    /// Says whether TCP has still to bring what the peer has sent before it left TCP; if so, the socket's watch looks again
    /// in `msecs` milliseconds.
    pub(crate) fn misses_rest(&self, misses: bool, msecs: u32) {
        self.misses_rest.set(misses.into());
        if misses {
            self.look_again(msecs);
        }
    }

    /// Looks at TCP for the peer's record as long as TCP does not tell of so few bytes: `SO_RCVLOWAT` is higher.
    pub(crate) fn watch_tcp(&self) {
        if self.has_lifeline() && self.sock.has_low_water() {
            self.look_again(LOOK);
        }
    }

    /// Has the socket's watch look if there may be something for it.
    pub(super) fn look_at_tcp(&self) {
        let misses_rest = self.misses_rest.get() != 0;
        if self.is_suspended() || self.sock.has_unread() || misses_rest {
            self.sock.wake_state();
        } else {
            self.watch_tcp();
        }
    }

    /// Tells whether both streams have ended, and TCP was told.
    pub(crate) fn is_over(&self) -> bool {
        self.proto.lock().is_over()
    }

    /// Tells whether both streams have ended, as far as is known here.
    pub(crate) fn have_both_ended(&self) -> bool {
        self.proto.lock().have_both_ended()
    }

    /// Tells whether the peer's kernel has said that it has everything.
    pub(crate) fn has_peer_all(&self) -> bool {
        self.proto.lock().has_peer_all()
    }

    /// Returns the positions of the bytes that a peer needs which has got all.
    pub(crate) fn nothing_missing(&self) -> Range<Pos> {
        self.proto.lock().nothing_missing()
    }

    /// Returns why the rings are left.
    pub(crate) fn cause(&self) -> Cause {
        match self.proto.lock().record().orderly {
            true => Cause::from_number(self.cause.get()),
            false => Cause::Lost,
        }
    }

    /// Returns what this end says of its rings, which are left; `None` as long as that is not known.
    pub(crate) fn record(&self) -> Option<Record> {
        let proto = self.proto.lock();
        proto.knows_record().then(|| proto.record())
    }

    /// Tells whether what the peer has sent, by its record, is on its way still.
    pub(crate) fn awaits_rest(&self, record: &Record) -> bool {
        self.proto.lock().awaits_rest(record)
    }

    /// Returns the numbers of the program's bytes that have gone, of these of how many it is known that they have arrived,
    /// and that have come by the rings.
    pub(crate) fn carried(&self) -> [u64; 3] {
        let (sent, arrived, received) = self.proto.lock().carried();
        [sent, arrived, received].map(|bytes| bytes.saturating_sub(MARKS as u64))
    }

    /// Judges the peer's record. Returns the positions of the bytes that it has not got.
    ///
    /// # Errors
    ///
    /// [`ProtoError`] if no correct peer says that.
    pub(crate) fn judge_record(&self, record: &Record) -> Result<Range<Pos>, ProtoError> {
        let mut proto = self.proto.lock();
        let missing = proto.judge_record(record)?;
        proto.accept_record(record);
        Ok(missing)
    }

    /// Copies bytes from the send ring, from position `from` of the stream on. Returns how many, which is less than
    /// `bytes` has room for only where there is no ring.
    pub(crate) fn read_kept(&self, from: Pos, bytes: &mut [u8]) -> usize {
        let (ring, pieces) = {
            let state = self.proto.lock();
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let pieces = state.kept(from, len);
            let Some(region) = &state.ring else { return 0 };
            (region.clone(), pieces)
        };
        let size = ring.len();
        let Ok(ring) = Ring::new(ring, 0, size) else {
            return 0;
        };
        read_pieces(&ring, &pieces, bytes)
    }

    /// Returns the number of bytes in the receive ring that the program has not read, an urgent one included.
    pub(crate) fn unread_bytes(&self) -> usize {
        let at = self.proto.lock().positions();
        at.received.saturating_sub(at.consumed) as usize
    }

    /// Tells whether the program has ended its sending direction.
    pub(crate) fn is_write_shut(&self) -> bool {
        !self.proto.lock().directions().can_send
    }
}

/// Copies what these pieces of a ring have. Returns how many bytes, which is less than `bytes` has room for only where
/// the ring or the pieces end.
fn read_pieces(ring: &Ring, pieces: &Pieces, bytes: &mut [u8]) -> usize {
    let mut done = 0usize;
    for piece in pieces.iter() {
        let end = done.saturating_add(piece.len as usize);
        let Some(part) = bytes.get_mut(done..end) else {
            break;
        };
        let read = ring.read_slice(piece.offset as usize, part);
        done = done.saturating_add(read);
        if read < piece.len as usize {
            break;
        }
    }
    done
}
