// SPDX-License-Identifier: GPL-2.0

//! The end of a stream whose file is being closed.
//!
//! A program that does not wait for the end (`SO_LINGER`), and has read everything, leaves its TCP connection behind until
//! the peer has been told everything ([`Closed::Stays`]): should the link be lost before, the rest goes by TCP, as it does
//! for a program that has not closed. That holds from the moment on in which the rings may be left. Otherwise the stream
//! ends at once, by the carrier that it is on.

use super::{Machine, Remote};
use crate::{
    host::promotions::Cause,
    smcr::SmcConn,
    stream::{shut_down, StreamIo},
};
use kapi::net::{sock::tcp_state, uapi::SHUT_WR};
use kernel::{
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};
use smc_proto::{
    conn::{CloseMode, Farewell},
    path::Head,
    promotion::{Stage, Step},
    reason::Reason, //
};

/// Milliseconds between looks of a close for the end of a return, and their number: a second and a half.
const PAUSE: i64 = 2;
const MOST_PAUSES: u32 = 750;

/// What [`Remote::close`] leaves.
pub(crate) enum Closed {
    /// Nothing.
    Nothing,
    /// An SMC-R connection that is to be closed, too, and whether TCP has bytes that the program has not read, of which the
    /// peer hears as of an abort.
    Ends(Arc<SmcConn>, bool),
    /// The stream: TCP is not to be closed before [`Remote::farewell`] says so.
    Stays,
}

impl Remote {
    /// Ends the stream: the socket's file is being closed, with a reset if it `aborts`. With `may_stay` the TCP connection
    /// can be kept for a while.
    pub(crate) fn close(&self, may_stay: bool, aborts: bool) -> Closed {
        if may_stay && self.stays() {
            return Closed::Stays;
        }
        let closed = self.close_at_once(aborts);
        self.end_side();
        closed
    }

    fn close_at_once(&self, aborts: bool) -> Closed {
        // A reset waits for no answer of the peer's.
        if !aborts && self.enter().unread().0 == 0 {
            self.settle();
        }
        let mut machine = self.machine.lock();
        machine.closed = true;
        if let Some(conn) = self.conn(&machine).filter(|conn| conn.is_suspended()) {
            self.close_left(&mut machine, &conn, false);
            machine.conn = None;
            return Closed::Nothing;
        }
        while let Some(step) = self.next(&mut machine).filter(|step| *step != Step::Turn) {
            self.perform(&mut machine, step, Reason::PathRefused);
        }
        self.refuse(&mut machine, Reason::PathEnds);
        self.turn_at_last(&mut machine);
        // No SMC-R connection had come of it.
        self.ended(Reason::PathEnds);
        let unread = self.sock.arrived_bytes() != 0;
        match machine.conn.take() {
            Some(conn) => Closed::Ends(conn, unread),
            None => Closed::Nothing,
        }
    }

    /// Begins to close a stream that leaves TCP, has left it, or is on its way back there, if the program has read
    /// everything: TCP is kept, so that the peer gets the rest also when the link is lost meanwhile.
    fn stays(&self) -> bool {
        let mut machine = self.machine.lock();
        if machine.promotion.stage() == Stage::Due {
            // No call is inside any more.
            let _ = self.turn(&mut machine, false);
        }
        let conn = machine.conn.clone().filter(|conn| conn.has_lifeline());
        let Some(conn) = conn.filter(|_| self.enter().unread().0 == 0) else {
            return false;
        };
        match machine.promotion.stage() {
            // The end is said where the server's bytes go on, by which the client knows its own carrier.
            Stage::Bound => machine.shut |= 2,
            // Its mark could not be read in a ring whose reading end is shut.
            Stage::Turned if machine.promotion.awaits_mark() => {
                let _ = shut_down(&conn, SHUT_WR);
            }
            Stage::Turned | Stage::Returning => return conn.begin_closing(),
            Stage::Tcp | Stage::Offered | Stage::Due => return false,
        }
        machine.closes = true;
        true
    }

    /// Goes on with a stream of which [`Remote::close`] has said that it stays. Returns how far its end
    /// is; it is over also when TCP has what the peer lacks.
    pub(crate) fn farewell(&self) -> Farewell {
        let _ = self.advance();
        if self.sock.state() == tcp_state::CLOSE {
            return Farewell::Over;
        }
        let mut machine = self.machine.lock();
        let Some(conn) = machine.conn.clone() else {
            return Farewell::Over;
        };
        match machine.promotion.stage() {
            Stage::Tcp | Stage::Offered => Farewell::Over,
            Stage::Bound | Stage::Due | Stage::Returning => Farewell::UnderWay,
            Stage::Turned if machine.promotion.awaits_mark() => {
                if conn.is_killed() && !conn.is_suspended() {
                    Farewell::Over
                } else {
                    Farewell::UnderWay
                }
            }
            Stage::Turned => {
                // It is known now where the peer's bytes are.
                let begins = core::mem::take(&mut machine.closes);
                if begins && !conn.begin_closing() {
                    Farewell::Over
                } else {
                    conn.farewell()
                }
            }
        }
    }

    /// Ends such a stream; TCP is closed after this.
    pub(crate) fn end_closing(&self) {
        self.end_side();
        let mut machine = self.machine.lock();
        machine.closed = true;
        let is_left = |conn: &Arc<SmcConn>| conn.is_suspended();
        if !machine.conn.as_ref().is_some_and(is_left) {
            self.turn_at_last(&mut machine);
        }
        let Some(conn) = machine.conn.take() else {
            return;
        };
        // In this order: one that is suspended is killed, too.
        let lost = conn.is_killed() && !conn.has_peer_all();
        if conn.is_suspended() {
            self.close_left(&mut machine, &conn, true);
        } else {
            if lost {
                // The peer does not hear otherwise that it lacks something.
                self.sock.abort();
            }
            conn.close(CloseMode::Graceful);
        }
    }

    /// The peer has turned, or may: it is to know up to where TCP goes. No call is inside any more.
    fn turn_at_last(&self, machine: &mut Machine) {
        let turns = matches!(machine.promotion.stage(), Stage::Bound | Stage::Due);
        if turns && self.turn(machine, false).is_err() {
            self.reset(machine);
        }
    }

    /// Waits until the stream is on one carrier, as its file is being closed: the peer, which was asked to leave the rings,
    /// has left them and reads no more there, or stays; or this end has, and what follows is to be given to TCP. Where the
    /// link is lost nobody waits: there may be no answer.
    fn settle(&self) {
        for _ in 0..MOST_PAUSES {
            let mut machine = self.machine.lock();
            let Some(conn) = machine.conn.clone() else {
                return;
            };
            if !conn.is_suspended() && !conn.asks_to_leave() {
                return;
            }
            self.go_back(&mut machine);
            let returns = machine.back.is_some() && conn.cause() != Cause::Lost;
            drop(machine);
            if !returns && !conn.asks_to_leave() {
                return;
            }
            fsleep(Delta::from_millis(PAUSE));
        }
    }

    /// Ends a stream that has left the rings, or is about to, as its file is closed; with a reset unless TCP has all of
    /// it, and the program has read all. `silent` says that the peer has not answered for long: one that had everything,
    /// and knew that this end had closed, says nothing when the link is lost.
    fn close_left(&self, machine: &mut Machine, conn: &Arc<SmcConn>, silent: bool) {
        self.go_back(machine);
        let unread = self.route().head() != Head::Tcp && conn.unread_bytes() != 0;
        let has_all = silent && conn.has_peer_all() && !self.knows_end();
        if machine.promotion.stage() != Stage::Tcp && !has_all || unread {
            self.sock.abort();
        }
        conn.close(CloseMode::Abort);
    }
}
