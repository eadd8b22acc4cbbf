// SPDX-License-Identifier: GPL-2.0

//! Deadlines of a group, and its end.

use super::{GroupState, LinkGroup};
use crate::host::{
    clock::{arm, now},
    namespace::Namespace, //
};
use kapi::{
    net::sock::tcp_state,
    rdma::completion::Status,
    sys::{hook::Notify, lock::SpinLockBhBackend, queue}, //
};
use kernel::{
    sync::{
        atomic::{Full, Relaxed},
        lock::Guard,
        Arc,
        ArcBorrow, //
    },
    workqueue::WorkItem, //
};
use smc_proto::{
    group::{EndReason, Todo},
    peer_cache::{Event, YOUNG},
    time::{earliest, Instant}, //
};
use smc_trace as trace;

/// State of a link until it ends, as the tracepoint `link_down` numbers it (C's `SMC_LNK_ACTIVE`).
const LINK_ACTIVE: i32 = 3;

impl LinkGroup {
    /// Tells whether the link has broken or the group has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.link.is_broken() || self.ended.load(Relaxed) != 0
    }

    /// Gives the link up: nothing more is sent, and the group will end. Any context.
    pub(crate) fn lose(self: &Arc<Self>) {
        self.link.mark_broken();
        self.link.break_off();
        self.kick();
    }

    /// Takes note that the port has failed: no new connection chooses the group until it is released, and it ends if the
    /// port is not back in time. Any context.
    pub(crate) fn hold(self: &Arc<Self>) {
        self.state.lock().proto.hold(now());
        self.kick();
    }

    /// Takes note that the port of a group that is held is back. Any context.
    pub(crate) fn release(self: &Arc<Self>) {
        let waited = self.state.lock().proto.release(now());
        if waited {
            self.kick();
        }
    }

    /// Tells whether the group is kept from new connections because of its port.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().proto.is_held()
    }

    /// Locks the state, which then knows when the peer was heard last.
    fn state_as_heard(&self) -> Guard<'_, GroupState, SpinLockBhBackend> {
        let mut state = self.state.lock();
        state.proto.heard(Instant(self.heard.acquire()));
        state
    }

    pub(super) fn rearm(&self) {
        // Held until the timer is set: a task that found a later deadline must not set it last.
        let timer = self.timer.lock();
        let deadline = {
            let state = self.state_as_heard();
            earliest(state.proto.next_deadline(), state.reclaim.next_deadline())
        };
        if let (Some(deadline), Some(timer)) = (deadline, &*timer) {
            arm(timer, deadline);
        }
    }

    /// Ends the group: its connections are aborted, its queue pair and memory given back. Sleeps.
    pub(crate) fn end(self: &Arc<Self>, reason: EndReason) {
        let todo = self.state.lock().proto.end(reason, now());
        self.finish(todo);
    }

    pub(super) fn finish(self: &Arc<Self>, todo: Todo) {
        if let Todo::End {
            last: Some(frame), ..
        } = todo
        {
            self.send_last(frame);
        }
        if self.ended.xchg(1, Full) != 0 {
            return;
        }
        // Without one, another thread is ending it for another reason.
        let reason = match todo {
            Todo::End { reason, .. } => Some(reason),
            _ => None,
        };
        if matches!(reason, Some(EndReason::LinkLost)) {
            self.tell_loss();
            self.note_bad_path();
        }
        if !matches!(reason, Some(EndReason::Idle)) {
            trace::link_down(
                &**self,
                self.peer_addr.namespace,
                LINK_ACTIVE,
                &self.link.device().name(),
            );
        }
        self.owner.forget(self);
        let mut some_go_on = false;
        for conn in self.conns.iter() {
            match conn.has_lifeline() {
                true => some_go_on = true,
                false => conn.kill(),
            }
        }
        if some_go_on {
            // They tell their peers what they have, which is to be all that the device has acknowledged.
            self.link.close();
            for conn in self.conns.iter() {
                conn.kill();
            }
        }
        self.revoke_rings();
        self.drop_spares();
        self.wake_waiter();
        self.link.close();
        self.drop_key();
        let resources = self.resources.lock().take();
        self.recv_bytes.store(0, Relaxed);
        if let Some(resources) = resources {
            resources.waiters.kick();
            for slab in resources.slabs.iter().chain(&resources.leaving) {
                slab.revoke();
            }
        }
        let timer = self.timer.lock().take();
        drop(timer);
    }

    /// Tells whether the port has failed since the group was begun: then what was lost says nothing of the path.
    /// Sleeps.
    pub(crate) fn has_port_failed(&self) -> bool {
        self.state.lock().proto.has_been_held() || !self.link.has_port()
    }

    /// Has it remembered that the peer's device has not answered, if the link is young: large packets may not get through,
    /// where the small ones did by which it was confirmed. A peer whose device is taken away, or that ends, says so by
    /// TCP, so nothing is remembered unless TCP lives in one of the connections. May sleep.
    fn note_bad_path(&self) {
        let young = |since: &Instant| now().since(*since) < YOUNG;
        if self.link.failure() != Some(&Status::Timeout)
            || !self.confirmed_at.as_ref().is_some_and(young)
            || self.has_port_failed()
        {
            return;
        }
        let mut conns = self.conns.iter();
        let Some(conn) = conns.find(|conn| conn.sock().state() != tcp_state::CLOSE) else {
            return;
        };
        if let Some(namespace) = Namespace::of(conn.sock()) {
            namespace.heard(conn.sock(), None, Event::LinkFailed);
        }
    }

    pub(super) fn kick(self: &Arc<Self>) {
        let _ = queue::enqueue_deadline::<_, 0>(self.clone());
    }

    fn on_deadline(self: &Arc<Self>) {
        let mut todo = self.look();
        if matches!(todo, Todo::None) {
            todo = self.look_for_silence();
        }
        if let Todo::End { .. } = todo {
            self.finish(todo);
            return;
        }
        loop {
            let todo = self.state_as_heard().proto.on_timer(now());
            match todo {
                Todo::None => break,
                Todo::Send(frame) => self.send_llc(frame),
                Todo::End { .. } => {
                    self.finish(todo);
                    return;
                }
                Todo::Settled(settled) => self.note_answer(settled),
                Todo::Handshake(_) | Todo::Judge => (),
                Todo::CheckPort => {
                    let found = self.link.check_port();
                    let todo = self.state_as_heard().proto.port_checked(found, now());
                    if let Todo::End { .. } = todo {
                        self.finish(todo);
                        return;
                    }
                }
            }
        }
        self.judge();
        self.reclaim();
        self.rearm();
    }

    /// Looks whether the peer takes what we send.
    pub(super) fn look(&self) -> Todo {
        let (under_way, done) = self.link.progress();
        self.state.lock().proto.look(under_way, done, now())
    }
}

impl Notify for LinkGroup {
    fn notify(this: ArcBorrow<'_, Self>) {
        Arc::<Self>::from(this).kick();
    }
}

impl WorkItem for LinkGroup {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.made.load(Relaxed) != 0 && this.made.xchg(0, Full) != 0 {
            this.grown();
        }
        if this.link.is_broken() {
            let todo = this.state.lock().proto.end(EndReason::LinkLost, now());
            this.finish(todo);
        } else if this.retired.load(Relaxed) != 0 || this.is_quarantine_full() {
            // A client's group may get a connection at any time: looking and ending are one.
            let todo = this.state.lock().proto.end_if_idle(now());
            // Not before: whoever looks for the one that is idle for longest would retire it again.
            this.retired.store(0, Relaxed);
            match todo {
                Todo::End { .. } => this.finish(todo),
                _ => this.on_deadline(),
            }
        } else {
            this.on_deadline();
        }
    }
}
