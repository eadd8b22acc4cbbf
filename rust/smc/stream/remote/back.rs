// SPDX-License-Identifier: GPL-2.0

//! The way back to TCP: a promoted connection whose link, device or port is lost, or which is idle, goes on by the TCP
//! connection that it began as.
//!
//! 1. Who finds the link lost leaves the rings, and so does who is asked to by the peer: what has come by then can be
//!    read, later bytes there do not count. It says on TCP, where nothing was said since both ends have turned, how many
//!    bytes it has ([`Record`]).
//!    A client that does not know whether the server has read that it has turned says nothing before the server has.
//! 2. The peer leaves the rings, too, at the latest when it hears that, and says the same. A record is heard where it is
//!    in TCP's stream, behind what the program has not read: that may wait for its own writing to go on.
//! 3. Each gives TCP the bytes that the peer has not got, which are still in its send ring, and then the program's next
//!    ones. A reader takes what is left in the receive ring, then TCP's bytes.
//!
//! Where an end has not turned, or has closed and TCP with it ([`crate::socket::promotion`]), there is nothing to go back
//! to, and the connection is reset, as one over SMC-R alone is.

use super::{Machine, Remote};
use crate::{
    host::clock::now,
    smcr::SmcConn, //
};
use core::ops::Range;
use kapi::{errno, net::sock::tcp_state, sys::word::full_barrier};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    conn::{CloseMode, ProtoError},
    cursor::Pos,
    path::{Head, Route},
    promotion::Stage,
    time::{Instant, Span},
    wire::promotion::{Record, RECORD_LEN}, //
};

/// Bytes that are given to TCP at once.
const CHUNK: usize = 512;

/// Milliseconds until the next look at TCP, where that may not tell of what it brings; and where it does.
const OFTEN: u32 = 20;
const SELDOM: u32 = 1000;
/// The longest such time. It grows with that which the return has taken: it is this part of it.
const SELDOMEST: u32 = 30_000;
const RARER: u64 = 16;

/// Looks for what the peer has sent and its card has acknowledged: a second.
const MOST_LINGERS: u8 = 50;

/// Longest wait for the record of a peer that may not know that this end has turned, and does not know it if it says
/// nothing; longer than any device repeats a packet.
const PATIENCE: Span = Span::from_secs(5);

/// Bytes of TCP's receive buffer beyond which it is not widened any more: more than peers' send buffers have.
const WIDEST: u32 = 32 << 20;

/// What has been heard of the peer's record: nothing, yet; that it is in TCP's stream, behind bytes that the program has
/// not read; that it is there, and being taken out; that it was taken out.
pub(super) const NOTHING: u64 = 0;
const AHEAD: u64 = 1;
const TAKING: u64 = 2;
const HEARD: u64 = 3;

/// How far an end has come.
pub(super) struct Return {
    /// Its record, once it is known.
    record: Option<Record>,
    /// Bytes of its record that TCP has taken.
    said: usize,
    /// The bytes that are still to be given to TCP, once the peer has said what it has.
    rest: Option<Range<Pos>>,
    /// Since when no record has come, or room was made for it the last time.
    since: Instant,
    /// When this end has left the rings.
    begun: Instant,
}

/// A return that cannot be.
enum Broken {
    /// The peer has said something else.
    Breach(Option<ProtoError>),
    /// The peer, or the program, has ended the connection meanwhile.
    Over,
}

impl Remote {
    /// Tells whether the rings are left, and the stream is not TCP's alone yet.
    pub(crate) fn is_returning(&self) -> bool {
        match self.stage() {
            Stage::Returning => true,
            Stage::Turned => self.carriers.are_left(),
            _ => false,
        }
    }

    /// Begins the return if the rings are left, by this end or the peer, and goes on as far as TCP takes and brings
    /// something.
    pub(super) fn go_back(&self, machine: &mut Machine) {
        if !matches!(machine.promotion.stage(), Stage::Turned | Stage::Returning) {
            return;
        }
        let Some(conn) = machine.conn.clone() else {
            return;
        };
        match self.try_back(machine, &conn) {
            Ok(()) => (),
            Err(broken) => {
                if let Broken::Breach(Some(error)) = broken {
                    conn.group().tell_breach(error);
                }
                match conn.is_suspended() {
                    true => {
                        // What has come can be read before the error is seen.
                        machine.back = None;
                        if self.sock.state() != tcp_state::CLOSE || self.sock.has_seen_fin() {
                            self.sock.set_error(errno::ECONNABORTED);
                        }
                        // Otherwise TCP has told.
                        self.sock.abort();
                    }
                    false => {
                        self.astray(&conn);
                        conn.fail();
                    }
                }
            }
        }
        self.show(machine);
        if let Some(back) = &machine.back {
            // TCP does not wake anybody for less than `SO_RCVLOWAT` bytes, and the record is short.
            let often = self.sock.has_low_water()
                || back.rest.is_none() && self.route().head() != Head::Ring;
            let least = if often { OFTEN } else { SELDOM };
            // The peer decides how long it takes: it is not to buy many looks.
            let elapsed = now().since(back.begun).0 / 1_000_000 / RARER;
            let elapsed = u32::try_from(elapsed).unwrap_or(u32::MAX);
            conn.look_again(elapsed.clamp(least, SELDOMEST));
        }
    }

    fn try_back(&self, machine: &mut Machine, conn: &Arc<SmcConn>) -> Result<(), Broken> {
        if machine.promotion.stage() == Stage::Turned {
            if !conn.is_suspended() {
                let Some(record) = self.record()? else {
                    return Ok(());
                };
                if conn.is_over() {
                    // The peer does not know yet that both streams have ended, and will: TCP has said so.
                    if self.passes() {
                        let _ = self.sock.receive(&mut [0; RECORD_LEN]);
                    }
                    return Ok(());
                }
                // What the card has got from the peer is to be seen by the software, too.
                let lingers = match record.orderly {
                    true => machine.lingers < MOST_LINGERS && conn.awaits_rest(&record),
                    false => machine.lingers == 0,
                };
                if lingers {
                    machine.lingers = machine.lingers.saturating_add(1);
                    conn.look_again(OFTEN);
                    return Ok(());
                }
                conn.marks_are_read();
                let left = match record.orderly {
                    true => conn.leave(),
                    false => conn.suspend(),
                };
                if !left {
                    return Err(Broken::Over);
                }
            }
            if machine.promotion.awaits_mark() {
                // The peer says over the side connection where its bytes are.
                return Ok(());
            }
            if !machine.promotion.returns() {
                return Err(Broken::Over);
            }
            let begun = now();
            machine.back = Some(Return {
                record: None,
                said: 0,
                rest: None,
                since: begun,
                begun,
            });
            machine.has_left = true;
            machine.lingers = 0;
            self.through.set(0);
            self.show(machine);
        }
        if machine.back.is_some() && !conn.is_understood() {
            self.says_word(machine);
        }
        let Some(back) = &mut machine.back else {
            return Ok(());
        };
        self.say(back, conn);
        if back.rest.is_none() {
            self.hear(back, conn)?;
            self.has_room_for_record(back);
            // It may have waited for what was heard.
            self.say(back, conn);
            if !conn.is_understood() && now().reached(back.begun.after(PATIENCE)) {
                return Err(Broken::Over);
            }
        }
        if back.said == RECORD_LEN && self.give(back, conn)? {
            self.arrive(machine, conn);
        }
        Ok(())
    }

    /// Gives TCP the record. What it does not take now it does when it has room: that wakes the socket's watch.
    fn say(&self, back: &mut Return, conn: &SmcConn) {
        if back.record.is_none() {
            back.record = conn.record();
        }
        // Otherwise what it has sent may be on its way, and the end of that wakes the socket's watch; or the peer is to be
        // heard first.
        let Some(record) = back.record else { return };
        let bytes = record.bytes();
        let Some(rest) = bytes.get(back.said..).filter(|rest| !rest.is_empty()) else {
            return;
        };
        if let Ok(taken) = self.sock.send(rest) {
            back.said = back.said.saturating_add(taken);
            self.sock.push_stream();
        }
    }

    /// Returns the record behind the peer's cut in TCP's stream, if all of it has come. The program may not have read what
    /// precedes it, and may be waiting for the peer to read before it does.
    fn record(&self) -> Result<Option<Record>, Broken> {
        let cut = match self.route().head() {
            Head::Tcp => return Ok(None),
            Head::Until(cut) if !self.passes() => Some(cut),
            Head::Until(_) | Head::Ring => None,
        };
        let mut bytes = [0; RECORD_LEN];
        match self.sock.peek_from(cut, &mut bytes) {
            // The peer has ended without a word; not the program, which may have shut its receiving direction.
            Ok(0) if self.stage() == Stage::Returning && self.is_tcp_over() => Err(Broken::Over),
            Ok(RECORD_LEN) => match Record::parse(&bytes) {
                Some(record) => Ok(Some(record)),
                None => Err(Broken::Breach(None)),
            },
            Ok(some) if !Record::may_begin(bytes.get(..some).unwrap_or(&[])) => {
                Err(Broken::Breach(None))
            }
            // Its rest is on the way. An error is the program's to see.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Tells whether nothing more comes by TCP.
    fn is_tcp_over(&self) -> bool {
        self.sock.has_seen_fin() || self.sock.state() == tcp_state::CLOSE
    }

    /// Hears the peer's record.
    fn hear(&self, back: &mut Return, conn: &SmcConn) -> Result<(), Broken> {
        let record = match self.record() {
            Err(Broken::Over) if self.sock.has_seen_fin() && conn.have_both_ended() => {
                // The peer knew that, and has ended TCP: it needs no record, and has said none.
                conn.marks_are_read();
                back.rest = Some(conn.nothing_missing());
                self.heard.release(HEARD);
                return Ok(());
            }
            record => record?,
        };
        let Some(record) = record else {
            return Ok(());
        };
        conn.marks_are_read();
        let rest = conn
            .judge_record(&record)
            .map_err(|error| Broken::Breach(Some(error)))?;
        back.rest = Some(rest);
        self.heard.release(AHEAD);
        // The reader passes the cut, and then looks for this: one of the two sees what the other has done.
        full_barrier();
        self.passes_record();
        if self.sock.has_seen_fin() {
            // Pollers may have looked before it was known that this is the stream's.
            self.sock.wake_state();
        }
        Ok(())
    }

    /// Sees to it that the peer's record can come, although the program does not read what precedes it and TCP has no room
    /// for more: the program may be waiting for its own writing to go on. The peer's TCP has no more than its send buffer.
    fn has_room_for_record(&self, back: &mut Return) {
        if back.rest.is_some() || self.route().head() == Head::Ring {
            return;
        }
        let time = now();
        let late = time.since(back.since) >= Span::from_millis(u64::from(OFTEN));
        let size = self.sock.receive_buffer();
        let (narrow, wide) = self.widened();
        // How many bytes fill a buffer depends on how they were cut into packets.
        if late && self.sock.arrived_bytes() != 0 && size < WIDEST {
            let before = if size == wide { narrow } else { size };
            back.since = time;
            self.sock.widen(size);
            let wide = self.sock.receive_buffer();
            self.widened
                .release(u64::from(before) << 32 | u64::from(wide));
        }
    }

    /// Returns the size that TCP's receive buffer had, and has, if it was widened.
    fn widened(&self) -> (u32, u32) {
        let both = self.widened.acquire();
        ((both >> 32) as u32, both as u32)
    }

    /// Takes the record out of TCP's stream as soon as the program has read what precedes it. For readers, and for who has
    /// heard it.
    pub(super) fn passes_record(&self) {
        if self.heard.acquire() != AHEAD || !self.passes() || !self.heard.replace(AHEAD, TAKING) {
            return;
        }
        let mut bytes = [0; RECORD_LEN];
        // It has been seen there; if TCP gives nothing any more it is over.
        let _ = self.sock.receive(&mut bytes);
        self.heard.release(HEARD);
        let (narrow, wide) = self.widened();
        if wide != 0 {
            self.sock.narrow(wide, narrow);
            self.widened.release(0);
        }
        // TCP's bytes are the stream's from now on.
        self.sock.wake_readers();
    }

    /// Tells whether TCP's end is the stream's, as the peer's record precedes it.
    #[inline]
    pub(super) fn knows_end(&self) -> bool {
        self.heard.acquire() != NOTHING
    }

    /// Tells whether TCP's next bytes are those of the stream that follow what is left in the ring.
    #[inline]
    pub(super) fn has_heard(&self) -> bool {
        self.heard.acquire() == HEARD
    }

    /// Returns how many bytes of TCP precede those that follow what is left in the ring, once it is known that some may.
    pub(super) fn after_ring(&self) -> Option<usize> {
        let route = self.route();
        match (route.head(), self.heard.acquire()) {
            // The record is taken out when the reader has come there.
            (Head::Until(_), AHEAD) => {
                let left = route.left(self.sock.position());
                (left != 0).then(|| left.saturating_add(RECORD_LEN))
            }
            (Head::Ring, HEARD) => Some(0),
            _ => None,
        }
    }

    /// Gives TCP what the peer has not got. Returns whether that is all.
    fn give(&self, back: &mut Return, conn: &SmcConn) -> Result<bool, Broken> {
        let Some(rest) = &mut back.rest else {
            return Ok(false);
        };
        let mut bytes = [0; CHUNK];
        while rest.start < rest.end {
            let len = rest.end.saturating_sub(rest.start).min(CHUNK as u64) as usize;
            let chunk = bytes.get_mut(..len).unwrap_or_default();
            if conn.read_kept(rest.start, chunk) < len {
                return Err(Broken::Breach(None));
            }
            match self.sock.send(chunk) {
                Ok(taken) => rest.start = rest.start.wrapping_add(taken as u64),
                // As in `say`; or TCP is over.
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The stream is TCP's: what the program writes from now on follows what the peer had not got.
    fn arrive(&self, machine: &mut Machine, conn: &Arc<SmcConn>) {
        self.end_side();
        self.sock.push_stream();
        if conn.is_write_shut() || machine.shut & 2 != 0 {
            self.sock.end_stream();
        }
        machine.promotion.returned();
        machine.back = None;
        // Promoted again when it pays, and after a loss later than before.
        self.returned(conn.cause());
        // From here on readers may give the rings back, and writers go on by TCP.
        self.show(machine);
        // A program that reads nothing, as there is nothing, does not keep the ring.
        if let Some(_reader) = self.reader.try_lock() {
            self.leaves_ring(conn);
        }
        self.release_rings(conn);
        machine.conn = None;
        self.sock.wake_for_room();
    }

    /// Gives the rings back if neither end's bytes are needed any more.
    fn release_rings(&self, conn: &Arc<SmcConn>) {
        // Who gives to TCP sets the stage, a reader the route, before they come here: one of them sees both.
        full_barrier();
        if self.stage() != Stage::Tcp || self.route().head() != Head::Tcp {
            return;
        }
        // A reader and who gives to TCP may both find that; it is done once, as the next promotion may have begun.
        if !self.carriers.leave(conn) {
            return;
        }
        self.heard.release(NOTHING);
        self.has_carried(conn);
        conn.close(CloseMode::Abort);
        self.carriers.sweep();
    }

    /// Turns readers to TCP when they have read what is left in the ring. Returns whether they have; the caller keeps
    /// other readers out.
    pub(super) fn leaves_ring(&self, conn: &Arc<SmcConn>) -> bool {
        if self.route().head() != Head::Ring {
            return true;
        }
        let done = conn.is_suspended() && self.has_heard() && conn.unread_bytes() == 0;
        if done {
            self.route.release(Route::TCP.word());
            self.release_rings(conn);
        }
        done
    }
}
