// SPDX-License-Identifier: GPL-2.0

//! Overflow of a listener whose program does not accept its connections.
//!
//! If there is no more room in the listener, connections stay in TCP's accept queue. There a client
//! that was offered SMC waits for an answer to its proposal, and gives up after some seconds,
//! whereas a TCP client is connected and can wait for any time. So when TCP's queue has not been
//! empty for a while, SMC is not offered any more; a little later, when the clients to which it was
//! offered have arrived, all are taken out of the queue, and the SMC ones declined. Later
//! connections are TCP's from the beginning, and wait in TCP's queue. The overflow ends when there
//! is room again.

use super::Listener;
use crate::host::clock::{arm_by, now};
use kapi::{
    net::sock::tcp_state,
    sys::{
        hook::{Notify, TimerHook},
        queue, //
    }, //
};
use kernel::{
    impl_has_work,
    sync::{
        Arc,
        ArcBorrow, //
    },
    workqueue::WorkItem, //
};
use smc_proto::{
    reason::Reason,
    time::{Instant, Span}, //
};

/// Time that TCP's queue may hold connections before SMC is not offered any more. With [`GRACE`] it
/// is well below the time that a client waits, which is 6 s here and in C.
const PATIENCE: Span = Span::from_millis(2000);
/// Time for clients that were offered SMC to arrive, before they are declined.
const GRACE: Span = Span::from_millis(1000);
/// Time for which those that come later are declined, too: a client whose last ACK of the three-way
/// handshake found the queue full only arrives when it, or the SYN-ACK, is sent again. Together with
/// the others it is longer than a client waits.
const STRAGGLERS: Span = Span::from_millis(3500);
/// Interval of looks whether the overflow is over.
const LOOK: Span = Span::from_millis(500);

/// State of TCP's queue while the listener has no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// There is room, or no connection that needs it.
    None,
    /// Connections wait in it. From this time on SMC is not offered any more.
    Until(Instant),
    /// SMC is not offered. The clients to which it was are declined at this time.
    Closing(Instant),
    /// They have been declined; SMC is still not offered. Those that come until this time are declined.
    Closed(Instant),
}

/// Action after a look at TCP's queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverflowAction {
    Nothing,
    /// SMC is to be offered, or not, as [`Overflow::refuses`] says.
    Offer,
    /// All connections are to be taken out of TCP's queue.
    Empty,
}

impl Overflow {
    /// Tells whether SMC is not offered.
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Closing(_) | Self::Closed(_))
    }

    /// Advances the state, when connections are `waiting` for room, and there may be `room` in the
    /// listener for more. Returns the action to take.
    fn look(&mut self, waiting: bool, room: bool, now: Instant) -> OverflowAction {
        let (next, action) = match *self {
            Self::None if waiting => (Self::Until(now.after(PATIENCE)), OverflowAction::Nothing),
            Self::Until(at) if waiting && now >= at => {
                (Self::Closing(now.after(GRACE)), OverflowAction::Offer)
            }
            Self::Closing(at) if waiting && now >= at => {
                (Self::Closed(now.after(STRAGGLERS)), OverflowAction::Empty)
            }
            Self::Closed(until) if waiting && now < until => (*self, OverflowAction::Empty),
            // No connection waits in TCP's queue, but there is no room for those that would come.
            Self::Closed(_) if !room => (*self, OverflowAction::Nothing),
            state if waiting => (state, OverflowAction::Nothing),
            state if state.refuses() => (Self::None, OverflowAction::Offer),
            _ => (Self::None, OverflowAction::Nothing),
        };
        *self = next;
        action
    }

    /// Returns the time of the next look.
    fn next(self, now: Instant) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Until(at) | Self::Closing(at) => Some(at),
            Self::Closed(_) => Some(now.after(LOOK)),
        }
    }
}

impl_has_work! {
    impl HasWork<Self> for Listener { self.work }
}

impl Listener {
    /// Looks whether connections wait in TCP's queue for too long. The caller holds `moving`, and has
    /// moved what it could.
    pub(super) fn look_at_overflow(self: &Arc<Self>) {
        let waiting = self.sock.accept_pending();
        let (action, next) = {
            let mut queues = self.queues.lock();
            // The usual case.
            if !waiting && queues.overflow == Overflow::None || queues.closed {
                return;
            }
            let room = queues.ready.len() <= self.sock.backlog();
            let now = now();
            let action = queues.overflow.look(waiting && !room, room, now);
            (action, queues.overflow.next(now))
        };
        match action {
            OverflowAction::Nothing => (),
            OverflowAction::Offer => self.offer(),
            OverflowAction::Empty => self.empty(),
        }
        if let Some(next) = next {
            self.look_again(next);
        }
    }

    /// Takes everything out of TCP's queue. It holds no more than the backlog allows; a few more
    /// may come meanwhile, without the option.
    fn empty(self: &Arc<Self>) {
        for _ in 0..=self.sock.backlog() {
            let Ok(sock) = self.sock.accept() else {
                return;
            };
            if let Some(ready) = self.admit(sock, Some(Reason::Busy)) {
                self.push_ready(ready);
            }
        }
    }

    /// Has the worker look at the connections at this time, or earlier.
    pub(super) fn look_again(self: &Arc<Self>, at: Instant) {
        let mut timer = self.timer.lock();
        // close() takes the timer after it has set `closed`.
        if self.queues.lock().closed {
            return;
        }
        if timer.is_none() {
            // Without memory for a timer the next arrival looks.
            *timer = TimerHook::new(self.clone()).ok();
        }
        if let Some(timer) = &*timer {
            arm_by(timer, at);
        }
    }
}

impl Notify for Listener {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.sock.state() == tcp_state::LISTEN {
            this.pump();
            // One that was kept back has waited long enough.
            this.settled();
        }
    }
}
