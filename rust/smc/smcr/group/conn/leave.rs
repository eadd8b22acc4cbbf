// SPDX-License-Identifier: GPL-2.0

//! Connections whose rings are left in the midst of the stream, which goes on by TCP: see
//! [`Remote`](crate::stream::remote::Remote), which tells the two ends what each other has got.

use super::SmcConn;
use core::ops::Range;
use kapi::rdma::ring::Ring;
use kernel::sync::Arc;
use smc_proto::{
    conn::ProtoError,
    cursor::Pos,
    ring::Pieces,
    wire::promotion::Record, //
};

/// Milliseconds between looks of [`SmcConn::watch_tcp`].
const LOOK: u32 = 100;

impl SmcConn {
    /// From now on the loss of the link is no end of the stream.
    pub(crate) fn may_be_left(&self) {
        if self.lifeline.get() == 0 {
            self.proto.lock().keep_tcp();
            self.lifeline.set(1);
        }
    }

    /// Tells whether the stream can go on without the link.
    pub(crate) fn has_lifeline(&self) -> bool {
        self.lifeline.get() != 0
    }

    /// Leaves the rings, if the stream has not ended and goes on by TCP: nothing is sent or received any more. Returns
    /// whether they are left. Any context.
    pub(crate) fn suspend(self: &Arc<Self>) -> bool {
        if self.lifeline.get() == 0 {
            return false;
        }
        let actions = {
            let mut proto = self.proto.lock();
            let actions = proto.suspend();
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

    /// Looks at TCP for the peer's record as long as TCP does not tell of so few bytes: `SO_RCVLOWAT` is higher.
    pub(crate) fn watch_tcp(&self) {
        if self.has_lifeline() && self.sock.has_low_water() {
            self.look_again(LOOK);
        }
    }

    /// Has the socket's watch look if there may be something for it.
    pub(super) fn look_at_tcp(&self) {
        if self.is_suspended() || self.sock.has_unread() {
            self.sock.wake_state();
        } else {
            self.watch_tcp();
        }
    }

    /// Returns what this end says of its rings, which are left.
    pub(crate) fn record(&self) -> Record {
        self.proto.lock().record()
    }

    /// Judges the peer's record. Returns the positions of the bytes that it has not got, or `None` if a writer has to
    /// leave the ring before that can be said. Sleeps, but for no writer.
    ///
    /// # Errors
    ///
    /// [`ProtoError`] if they are not in the send ring, or no correct peer says that.
    pub(crate) fn judge_record(&self, record: &Record) -> Result<Option<Range<Pos>>, ProtoError> {
        // Who comes after this finds that there is no room; who is there may be writing into what is known to be free.
        let quiet = match self.writers.try_lock() {
            Some(mut writers) => {
                writers.free = Pieces::NONE;
                true
            }
            None => false,
        };
        self.proto.lock().judge_record(record, quiet)
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
