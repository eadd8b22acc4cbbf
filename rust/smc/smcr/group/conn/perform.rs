// SPDX-License-Identifier: GPL-2.0

//! Actions that the protocol state asks for, and the end of a connection.

use super::{SmcConn, APART};
use crate::host::{
    clock::{arm, now},
    namespace::Namespace, //
};
use kapi::{
    errno,
    rdma::region::Region,
    sys::{hook::Notify, queue}, //
};
use kernel::{
    sync::{
        atomic::{Full, Relaxed},
        Arc,
        ArcBorrow, //
    },
    workqueue::WorkItem, //
};
use smc_proto::conn::{Actions, RecvState};

impl SmcConn {
    /// Performs the protocol's actions. Any context; no lock of the connection held.
    #[inline]
    pub(crate) fn perform(self: &Arc<Self>, actions: Actions) {
        if actions == Actions::WAKE_READER {
            // Most often.
            self.wake_readers();
        } else if !actions.is_empty() {
            self.perform_all(actions);
        }
    }

    fn perform_all(self: &Arc<Self>, actions: Actions) {
        let mut actions = actions;
        if actions.has(Actions::TX_DUE) {
            actions = actions.without(Actions::TX_DUE) | self.group.send_due(self);
        }
        // Errors and state first: a program woken for data alone (io_uring) does not look for more.
        let rest = actions.without(Actions::WAKE_READER | Actions::WAKE_WRITER);
        if actions.has(Actions::WAKE_READER) || !rest.is_empty() {
            // Before anybody is woken: an end is to be seen, too.
            self.maybe_readable.set(1);
        }
        if !rest.is_empty() {
            self.perform_rare(rest);
        }
        if actions.has(Actions::WAKE_READER) {
            self.wake_readers();
        }
        if actions.has(Actions::WAKE_WRITER) {
            // Whatever TCP has still to send: only the ring counts.
            self.sock.wake_for_room();
        }
    }

    /// Wakes readers. As with TCP a poller is not woken for less than `SO_RCVLOWAT` bytes: an
    /// edge-triggered one would take that for an event.
    #[inline]
    fn wake_readers(&self) {
        match self.apart.get() == APART || self.sock.has_low_water() && self.has_too_few() {
            false => self.sock.wake_readers(),
            true => self.sock.wake_sleepers(),
        }
    }

    /// Tells whether more may come, and what is there is less than a poller waits for.
    #[cold]
    fn has_too_few(&self) -> bool {
        // Under the lock: whoever lowers the limit looks at the bytes under it afterwards.
        let proto = self.proto.lock();
        let can_receive = proto.directions().can_receive && !self.is_read_shut();
        let data = matches!(proto.recv_state(), RecvState::Data(_));
        data && can_receive && !proto.has_urgent() && !self.has_enough(&proto)
    }

    #[cold]
    fn perform_rare(self: &Arc<Self>, actions: Actions) {
        if actions.has(Actions::STATE) {
            let _ = self.note_end();
        }
        if actions.has_any(Actions::ERRORS) && self.has_socket() {
            self.sock.wake_error();
        }
        if actions.has(Actions::LEFT) {
            // What it says on TCP may wait for them.
            self.group.expect_ends();
        }
        if actions.has(Actions::STATE) {
            self.sock.wake_state();
        }
        // Of an urgent byte in what is not the program's it hears nothing; see [`SmcConn::takes_over`].
        if actions.has(Actions::URGENT_NEWS) && self.has_socket() {
            self.sock.signal_urgent();
        }
        if actions.has(Actions::DRAIN_LOST) {
            if let Some(namespace) = Namespace::of(&self.sock) {
                namespace.counters.drain_lost();
            }
        }
        let later = actions.among(Actions::SLEEPING);
        if !later.is_empty() {
            self.later(later);
        }
    }

    /// Sets the socket's error that `actions` stand for. Called under the protocol's lock, see
    /// [`SmcConn::change`].
    #[inline]
    pub(super) fn set_error(&self, actions: Actions) {
        if actions.has_any(Actions::ERRORS) {
            self.tell_error(actions);
        }
    }

    fn tell_error(&self, actions: Actions) {
        if !self.has_socket() {
            return;
        }
        if actions.has(Actions::ERR_RESET) && !self.has_tcp_told() {
            self.sock.set_error(errno::ECONNRESET);
        }
        if actions.has(Actions::ERR_ABORTED) {
            self.sock.set_error(errno::ECONNABORTED);
        }
        if actions.has(Actions::ERR_PIPE) {
            // TCP beneath has seen no FIN and may have said otherwise.
            self.sock.set_error(errno::EPIPE);
        }
    }

    /// Tells whether TCP reports the end of the connection to the program itself, and with its
    /// cause, such as a keepalive timeout. After a FIN it reports `EPIPE`, or nothing, to programs
    /// that could see that FIN, which does not count.
    fn has_tcp_told(&self) -> bool {
        self.sock.has_error() && !self.sock.has_the_error(errno::EPIPE)
            || self.is_tcp_dead() && !self.sock.has_seen_fin()
    }

    /// Leaves actions to the workqueue.
    pub(super) fn later(self: &Arc<Self>, actions: Actions) {
        let bits = actions.bits();
        let mut old = self.todo.load(Relaxed);
        while let Err(now) = self.todo.cmpxchg(old, old | bits, Full) {
            old = now;
        }
        let _ = queue::enqueue::<_, 0>(self.clone());
    }

    fn arm(&self) {
        let deadline = self.proto.lock().next_deadline();
        if let (Some(deadline), Some(timer)) = (deadline, &*self.timer.lock()) {
            arm(timer, deadline);
        }
        // It may have been set to an earlier look.
        self.watch_tcp();
    }

    /// Gives the buffers back. The group does not know the connection any more; `send` is the send
    /// ring that it has returned ([`remove_conn`](super::super::LinkGroup::remove_conn)).
    pub(crate) fn retire(&self, send: Option<Arc<Region>>) {
        let _ = self.end_drain();
        let reusable = self.proto.lock().rmbe_reusable();
        self.retire_ring(send);
        let timer = self.timer.lock().take();
        drop(timer);
        // A reader that still copies out of the buffer keeps it from reuse; a later one finds that
        // the connection is dissolved.
        let reader = self.readers.try_lock();
        self.retire_recv_rings(!reusable || reader.is_none());
        self.settle_stats();
        self.group.look_later();
    }
}

impl Notify for SmcConn {
    fn notify(this: ArcBorrow<'_, Self>) {
        Arc::<Self>::from(this).later(Actions::DEADLINE);
    }
}

impl WorkItem for SmcConn {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let todo = Actions::from_bits(this.todo.xchg(0, Full));
        if todo.has(Actions::DEADLINE) {
            this.change(|proto| proto.on_timer(now()));
            if this.is_apart() && !this.is_dissolved() {
                // Whoever has asked for a look.
                this.sock.wake_state();
            } else if this.has_lifeline() && this.has_socket() {
                this.look_at_tcp();
            }
        }
        let over = todo.has(Actions::TCP_OVER) && !this.proto.lock().is_released();
        if (over || todo.has(Actions::TCP_ABORT)) && this.has_socket() {
            this.sock.abort();
        }
        if todo.has(Actions::TCP_END) && this.has_socket() {
            this.fin_sent.set(1);
            this.sock.end_stream();
        }
        if todo.has_any(Actions::TIMER | Actions::DEADLINE) {
            this.arm();
        }
        if todo.has(Actions::RING_LEFT) {
            this.give_ring_back();
        }
        if todo.has(Actions::GROW) {
            this.grow_ring();
        }
        if todo.has(Actions::FREE) {
            let send = this.group.remove_conn(&this);
            this.retire(send);
        }
    }
}
