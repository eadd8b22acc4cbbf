// SPDX-License-Identifier: GPL-2.0

//! Whether the link is better than TCP: connections that were promoted and could go by either leave it if it is not.
//!
//! The host that has begun the link tests it, once a second while there is such a connection; see
//! [`smc_proto::group::worth`]. A link that was left so is tested on until it is good again or ends, and no connection with
//! its peer is promoted meanwhile. Connections that cannot go by TCP stay.
//!
//! Both hosts look whether a link of such connections alone has fallen silent, and do not wait until the device says so
//! ([`smc_proto::group::silence`]).

use super::LinkGroup;
use crate::host::{clock::now, promotions::Cause};
use kapi::{net::sock::Sock, rdma::completion::Status};
use kernel::sync::Arc;
use smc_proto::{
    group::Todo,
    llc::link::Role,
    time::Span, //
};

impl LinkGroup {
    /// Has the link tested from now on, as a connection could go by TCP, too, of which `sock` knows the round trips. The
    /// caller plans a look, which is earlier and sees to the timer.
    pub(super) fn watch_worth(&self, sock: &Sock) {
        let Some(micros) = sock.shortest_round_trip() else {
            return;
        };
        let tcp = Span(u64::from(micros).saturating_mul(1000));
        let mut state = self.state.lock();
        if state.proto.terms().key.role == Role::Client {
            state.proto.worth.watch(tcp, now());
        }
    }

    /// Has the link looked at from now on for whether it has fallen silent, as a connection could go by TCP. The caller
    /// plans a look, which sees to the timer.
    pub(super) fn watch_silence(&self) {
        self.state.lock().proto.silence.watch(now());
    }

    /// Ends the group if the link has fallen silent, and all of its connections can go by TCP. Sleeps.
    pub(super) fn look_for_silence(self: &Arc<Self>) -> Todo {
        let due = self.state.lock().proto.silence.next_deadline();
        if !due.is_some_and(|at| now().reached(at)) {
            return Todo::None;
        }
        let (mut some, mut all) = (false, true);
        for conn in self.conns.iter() {
            some |= conn.has_lifeline();
            // Others, and what a program has left behind, have nothing but the link.
            all = all && conn.has_lifeline() && !conn.proto.lock().is_released();
        }
        let (under_way, ended) = self.link.progress();
        let todo = {
            let mut state = self.state.lock();
            if !some {
                state.proto.silence.rest();
            }
            // Where others wait for the device, so do all.
            state.proto.look_for_silence(under_way && all, ended, now())
        };
        if let Todo::End { .. } = todo {
            // As the device would have it, soon: what is remembered of the path depends on that.
            self.link.note_failure(Status::Timeout);
        } else if under_way {
            self.expect_ends();
        }
        todo
    }

    /// Tells whether the link was found worse than TCP.
    pub(crate) fn is_worse(&self) -> bool {
        self.state.lock().proto.worth.is_worse()
    }

    /// Goes on with the tests, and has connections leave the link if it is worse than TCP. Sleeps.
    pub(super) fn judge(self: &Arc<Self>) {
        let due = self.state.lock().proto.worth.next_deadline();
        if !due.is_some_and(|at| now().reached(at)) {
            return;
        }
        let (mut some, mut ahead, mut arrived) = (false, 0u64, 0u64);
        for conn in self.conns.iter() {
            let at = conn.proto.lock().positions();
            ahead = ahead.wrapping_add(at.sent.saturating_sub(at.completed));
            arrived = arrived.wrapping_add(at.received);
            some |= conn.has_lifeline();
        }
        let (test, worse) = {
            let mut state = self.state.lock();
            if !some {
                state.proto.worth.rest();
            }
            let test = state.proto.judge(now(), ahead, arrived);
            (test, state.proto.worth.is_worse())
        };
        if let Some(frame) = test {
            self.send_llc(frame);
        }
        if worse && some {
            // Those that could not leave at the last test may now.
            for conn in self.conns.iter().filter(|conn| conn.has_lifeline()) {
                conn.ask_to_leave(Cause::Worse);
            }
        }
    }
}
