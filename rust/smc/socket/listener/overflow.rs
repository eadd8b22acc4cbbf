// SPDX-License-Identifier: GPL-2.0

//! A program that does not accept its connections.
//!
//! When there is no more room here, connections stay in TCP's queue. There a client that was offered
//! SMC waits for an answer to its proposal, and gives up after some seconds, where a client of TCP is
//! connected and can wait as long as it likes. So when that queue has not been empty for a while, no
//! more SMC is offered, and a little later, when those to whom it was have arrived, they are all
//! taken out and told that they are TCP's. What comes then is TCP's from the beginning, and waits in
//! TCP's queue. It ends when there is room again.

use super::Listener;
use crate::host::clock::{arm, now};
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

/// How long TCP's queue may hold connections before SMC is not offered any more, for what arrives
/// then to be told, and how often to look whether it is over. Together the first two are well below
/// the time that a client waits, which is 6 s here and in C.
const PATIENCE: Span = Span::from_millis(2000);
const GRACE: Span = Span::from_millis(1000);
const LOOK: Span = Span::from_millis(500);

/// How TCP's queue fares while there is no room here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// There is room, or nobody who needs it.
    None,
    /// There are connections in it. SMC is not offered any more from then on.
    Until(Instant),
    /// SMC is not offered. Those to whom it was are told at that time.
    Closing(Instant),
    /// They have been told.
    Closed,
}

/// What a look at TCP's queue leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverflowAction {
    Nothing,
    /// SMC is to be offered, or not, as [`Overflow::refuses`] says.
    Offer,
    /// All connections are to be taken out of TCP's queue.
    Empty,
}

impl Overflow {
    /// Whether SMC is not offered.
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Closing(_) | Self::Closed)
    }

    /// Goes on, when connections are `waiting` for room, and there may be `room` here for more.
    fn look(&mut self, waiting: bool, room: bool, now: Instant) -> OverflowAction {
        let (next, action) = match *self {
            Self::None if waiting => (Self::Until(now.after(PATIENCE)), OverflowAction::Nothing),
            Self::Until(at) if waiting && now >= at => {
                (Self::Closing(now.after(GRACE)), OverflowAction::Offer)
            }
            Self::Closing(at) if waiting && now >= at => (Self::Closed, OverflowAction::Empty),
            // Without anybody in TCP's queue, but also without room for those that would come.
            Self::Closed if !room => (Self::Closed, OverflowAction::Nothing),
            state if waiting => (state, OverflowAction::Nothing),
            state if state.refuses() => (Self::None, OverflowAction::Offer),
            _ => (Self::None, OverflowAction::Nothing),
        };
        *self = next;
        action
    }

    /// When to look again.
    fn next(self, now: Instant) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Until(at) | Self::Closing(at) => Some(at),
            Self::Closed => Some(now.after(LOOK)),
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
            let room = queues.held() <= self.sock.backlog();
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

    /// Takes everything out of TCP's queue. It holds no more than the backlog allows; a few more may
    /// come meanwhile, which are plain.
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

    fn look_again(self: &Arc<Self>, at: Instant) {
        let mut timer = self.timer.lock();
        // close() looks for the timer after it has said so.
        if self.queues.lock().closed {
            return;
        }
        if timer.is_none() {
            // Without memory for a timer the next arrival looks.
            *timer = TimerHook::new(self.clone()).ok();
        }
        if let Some(timer) = &*timer {
            arm(timer, at);
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
        }
    }
}
