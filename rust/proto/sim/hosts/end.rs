// SPDX-License-Identifier: GPL-2.0

//! What the kernel does at an end of a connection that may be promoted (`smc/stream/remote`), and its TCP.

use super::rings::{Apart, Rings};
use super::{byte, Hosts, Why};
use smc_proto::conn::{CloseMode, Farewell, RecvState};
use smc_proto::path::{Head, Route};
use smc_proto::promotion::{may_cut, Promotion, Side, Stage, Step};
use smc_proto::wire::promotion::{Mark, Record, MARK_LEN, RECORD_LEN};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that TCP has room for at the receiver, and under way.
const ROOM: usize = 48;
const AIR: usize = 40;
/// Most that the receive buffer is widened to.
const WIDEST: usize = 4 * (ROOM + AIR);

/// An end's half of TCP: what comes to it.
#[derive(Debug, Default)]
pub(super) struct Tcp {
    /// Position after the last byte that this end has given.
    pub(super) sent: u32,
    /// Position of its reader.
    pub(super) taken: u32,
    air: VecDeque<u8>,
    there: VecDeque<u8>,
    /// The peer's end is on its way behind those, and has come.
    pub(super) ends: bool,
    pub(super) fin: bool,
    room: usize,
}

/// What has been heard of the peer's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// It is in TCP's stream, behind what the program has not read.
    Ahead,
    /// It was taken out.
    Taken,
}

/// How far a return to TCP has come.
#[derive(Debug, Default)]
struct Back {
    said: usize,
    rest: Option<Range<u64>>,
}

/// An end.
pub(super) struct End {
    pub(super) machine: Promotion,
    pub(super) tcp: Tcp,
    pub(super) rings: Option<Rings>,
    /// Those whose socket is closed, or that are the socket's no more.
    pub(super) old: Vec<Rings>,
    route: Route,
    heard: Heard,
    back: Option<Back>,
    /// Its program agrees to a promotion.
    pub(super) decides: bool,
    /// What it has said over the side connection since it has an SMC-R connection.
    told: Option<Mark>,
    /// Bytes of its program.
    pub(super) written: u64,
    pub(super) read: u64,
    /// Its program has ended its direction, which TCP or the ring has not been told.
    pub(super) shut: bool,
    shut_due: bool,
    /// Its program has seen the end of the stream, wants to close, has closed.
    pub(super) saw_end: bool,
    pub(super) closing: bool,
    pub(super) closed: bool,
    /// It has closed, and TCP is kept; the SMC-R connection is being closed.
    stays: bool,
    begun: bool,
    /// It had not read all when it closed.
    pub(super) has_unread: bool,
}

impl core::fmt::Debug for End {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            tcp,
            written,
            read,
            shut,
            shut_due,
            saw_end,
            closing,
            closed,
            stays,
            ..
        } = self;
        write!(
            f,
            "{:?} {:?} cut {:?} {:?} {:?}; TCP sent {} taken {}, {} there, {} on the way, ends {} fin {}; written {written} \
             read {read}; shut {shut} due {shut_due}, saw end {saw_end}, closing {closing} stays {stays} closed {closed}; {:?} old {:?}",
            self.machine.stage(),
            self.route.head(),
            self.machine.peer_cut(),
            self.heard,
            self.back,
            tcp.sent,
            tcp.taken,
            tcp.there.len(),
            tcp.air.len(),
            tcp.ends,
            tcp.fin,
            self.rings,
            self.old,
        )
    }
}

impl End {
    pub(super) fn new(side: Side, sent: u32, taken: u32) -> Self {
        Self {
            machine: Promotion::new(side),
            tcp: Tcp {
                sent,
                taken,
                room: ROOM,
                ..Tcp::default()
            },
            rings: None,
            old: vec![],
            route: Route::TCP,
            heard: Heard::Nothing,
            back: None,
            decides: false,
            told: None,
            written: 0,
            read: 0,
            shut: false,
            shut_due: false,
            saw_end: false,
            closing: false,
            closed: false,
            stays: false,
            begun: false,
            has_unread: false,
        }
    }

    /// Whether the stream is TCP's alone.
    pub(super) fn is_cold(&self) -> bool {
        self.machine.stage() == Stage::Tcp && self.route == Route::TCP && self.rings.is_none()
    }

    pub(super) fn is_hot(&self) -> bool {
        self.machine.stage() == Stage::Turned && self.route.head() == Head::Ring && !self.is_left()
    }

    /// Whether the program and TCP allow a promotion.
    fn can_be_promoted(&self) -> bool {
        !self.shut && !self.closing && !self.tcp.fin && self.route == Route::TCP
    }

    /// Position after what has arrived by TCP.
    fn arrived(&self) -> u32 {
        self.tcp.taken.wrapping_add(self.tcp.there.len() as u32)
    }

    fn is_left(&self) -> bool {
        self.rings
            .as_ref()
            .is_some_and(|rings| rings.conn.is_suspended())
    }

    /// Whether the next byte is in the ring, whose turn it is when TCP's have been read.
    fn passes(&mut self) -> bool {
        self.route = self.route.passed(self.tcp.taken, false);
        self.route.head() == Head::Ring
    }
}

impl Hosts {
    /// Gives TCP bytes. Returns how many it has taken.
    fn send(&mut self, at: usize, bytes: &[u8]) -> usize {
        let to = &mut self.ends[1 - at].tcp;
        assert!(!to.ends || bytes.is_empty(), "bytes behind an end");
        let len = bytes.len().min(AIR.saturating_sub(to.air.len()));
        to.air.extend(&bytes[..len]);
        let sent = &mut self.ends[at].tcp.sent;
        *sent = sent.wrapping_add(len as u32);
        len
    }

    /// Ends TCP's stream.
    pub(super) fn end_stream(&mut self, at: usize) {
        self.ends[1 - at].tcp.ends = true;
    }

    /// TCP brings so many bytes.
    pub(super) fn bring(&mut self, at: usize, most: usize) -> bool {
        let tcp = &mut self.ends[at].tcp;
        let len = most
            .min(tcp.air.len())
            .min(tcp.room.saturating_sub(tcp.there.len()));
        tcp.there.extend(tcp.air.drain(..len));
        let ended = tcp.ends && tcp.air.is_empty() && !tcp.fin;
        tcp.fin |= ended;
        if ended {
            let now = self.now;
            if let Some(rings) = self.ends[at].rings.as_mut().filter(|rings| !rings.apart) {
                let number = rings.number;
                let actions = rings.conn.on_tcp_fin(now);
                self.act(at, number, actions);
            }
        }
        len != 0 || ended
    }

    /// An SMC-R connection is there.
    pub(super) fn offered(&mut self, at: usize, rings: Rings) {
        let (now, number) = (self.now, rings.number);
        let end = &mut self.ends[at];
        assert!(end.rings.is_none());
        end.rings = Some(rings);
        end.told = None;
        let conn = &mut end.rings.as_mut().expect("it").conn;
        let actions = conn.establish(now).expect("a peer");
        let step = match end.closed || !end.can_be_promoted() {
            true => Step::Leave,
            false => end.machine.offered(),
        };
        self.act(at, number, actions);
        match step {
            Step::Leave => self.dissolve(at),
            step => self.perform(at, step),
        }
    }

    fn perform(&mut self, at: usize, step: Step) {
        match step {
            Step::Wait | Step::Turn => (),
            Step::Decide => {
                let end = &mut self.ends[at];
                let step = match end.decides && end.can_be_promoted() {
                    true => end.machine.agree(),
                    false => end.machine.refuse(),
                };
                self.perform(at, step);
            }
            Step::Say(mark) => {
                if !self.put_mark(at, mark) {
                    let step = self.ends[at].machine.ended(true);
                    self.perform(at, step);
                }
            }
            Step::Leave => {
                self.dissolve(at);
                if at == 1 {
                    self.tell(at, Mark::Stays);
                }
                self.hangs_up(at);
                if std::mem::take(&mut self.ends[at].shut_due) {
                    self.end_stream(at);
                }
            }
            Step::Ask | Step::Reset => self.abort(at, Why::Turning),
        }
        self.show(at);
    }

    /// Takes an attempt back, if that can be.
    pub(super) fn refuse(&mut self, at: usize) {
        let step = self.ends[at].machine.refuse();
        self.perform(at, step);
    }

    fn show(&mut self, at: usize) {
        self.may_be_left(at);
        let end = &mut self.ends[at];
        let Some(cut) = end.machine.peer_cut() else {
            return;
        };
        if end.route == Route::TCP
            && end.heard == Heard::Nothing
            && end.machine.stage() != Stage::Tcp
        {
            end.route = Route::TCP.promoted(cut).expect("the first");
            end.passes();
        }
    }

    /// From now on the rings may be left: a client's when it knows where the server's bytes are.
    fn may_be_left(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let stage = end.machine.stage();
        let due = match at {
            0 => matches!(stage, Stage::Bound | Stage::Due | Stage::Turned) && !end.closed,
            _ => stage == Stage::Turned,
        };
        if due {
            let marks = match at {
                0 => 2 * MARK_LEN as u8,
                _ => 0,
            };
            if let Some(rings) = end.rings.as_mut().filter(|rings| !rings.lifeline) {
                rings.lifeline = true;
                rings.conn.keep_tcp(marks);
            }
        }
    }

    /// Goes on as far as possible.
    pub(super) fn look(&mut self, at: usize) {
        while let Some(step) = self.next(at) {
            match step {
                Step::Turn => self.turn(at),
                step => self.perform(at, step),
            }
        }
        self.go_back(at);
        let end = &mut self.ends[at];
        let hot = end.is_hot();
        if let Some(rings) = end.rings.as_mut().filter(|_| hot) {
            rings.conn.may_leave();
        }
        if end.closing && !end.closed {
            self.close(at);
        }
    }

    fn next(&mut self, at: usize) -> Option<Step> {
        if self.over || self.ends[at].machine.stage() == Stage::Tcp {
            return None;
        }
        let state = self.ends[at].rings.as_ref()?.apart_state();
        if self.ends[at].machine.awaits_mark() {
            if let Some(mark) = self.take_mark(at) {
                let (arrived, end) = (self.ends[at].arrived(), &mut self.ends[at]);
                if let Mark::Cut(cut) = mark {
                    assert!(may_cut(cut, arrived, end.tcp.fin), "{mark:?} of {end:?}");
                }
                let step = end.machine.heard(mark).expect("a mark in its order");
                if at == 1 && matches!(mark, Mark::Cut(_)) {
                    self.tell_read(at);
                    self.hangs_up(at);
                }
                return Some(step);
            }
        }
        if state == Apart::Open && self.ends[at].machine.may_be_told() {
            if let Some(mark) = self.kept.to[at].front().copied() {
                // The peer has lost the link.
                if at == 1 && self.ends[at].machine.stage().is_apart() {
                    self.kept.to[at].pop_front();
                    return Some(self.ends[at].machine.told(mark));
                }
                let rings = self.ends[at].rings.as_mut().expect("as above");
                let number = rings.number;
                let actions = rings.conn.suspend();
                if let Some(actions) = actions {
                    self.act(at, number, actions);
                    return self.next(at);
                }
            }
        }
        let end = &mut self.ends[at];
        let apart = end.machine.stage().is_apart();
        if let Some(cut) = end.machine.peer_cut() {
            let (arrived, fin) = (end.arrived(), end.tcp.fin);
            let right = match apart {
                true => may_cut(cut, arrived, fin),
                false => !fin || arrived.wrapping_sub(cut) as i32 >= 0,
            };
            assert!(right, "{end:?}");
        }
        let ended = match (state, apart) {
            (Apart::Open, _) => None,
            (Apart::Ended | Apart::Aborted, true) => Some(true),
            (Apart::Lost, true) => Some(false),
            (Apart::Ended, false) => end.machine.awaits_mark().then_some(true),
            (Apart::Lost, false) if end.machine.awaits_mark() && end.is_left() => Some(false),
            (Apart::Aborted | Apart::Lost, false) => None,
        };
        if let Some(by_peer) = ended {
            let step = end.machine.ended(by_peer);
            assert!(!by_peer || step != Step::Reset, "{end:?}");
            return match step {
                Step::Wait => None,
                Step::Ask => self.asks(at),
                step => Some(step),
            };
        }
        (end.machine.stage() == Stage::Due).then_some(Step::Turn)
    }

    /// The link is lost, and the peer has to say where the stream is.
    fn asks(&mut self, at: usize) -> Option<Step> {
        self.says_word(at);
        match self.kept.to[at].pop_front() {
            Some(mark) => match self.ends[at].machine.told(mark) {
                Step::Wait if self.ends[at].machine.peer_cut().is_none() => self.asks(at),
                step => Some(step),
            },
            None if self.kept.has == [true; 2] => None,
            None => Some(Step::Reset),
        }
    }

    /// Says over the side connection what the peer may not have heard otherwise, once.
    fn says_word(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let word = end.machine.word();
        if let (Some(word), true) = (word, word != end.told) {
            end.told = Some(word);
            self.tell(at, word);
        }
    }

    fn tell_read(&mut self, at: usize) {
        if let Some(rings) = &mut self.ends[at].rings {
            let number = rings.number;
            let actions = rings.conn.tell_read();
            self.act(at, number, actions);
        }
    }

    /// Leaves TCP with the next byte.
    fn turn(&mut self, at: usize) {
        let cut = self.ends[at].tcp.sent;
        let said = self.put_mark(at, Mark::Cut(cut));
        let end = &mut self.ends[at];
        let Some(rings) = &mut end.rings else { return };
        let state = rings.apart_state();
        if !said && end.machine.peer_cut().is_none() {
            let step = end.machine.ended(state != Apart::Lost);
            return self.perform(at, step);
        }
        end.machine.turned(cut);
        rings.apart = false;
        let shuts = std::mem::take(&mut end.shut_due);
        match state {
            Apart::Open | Apart::Ended => (),
            Apart::Aborted => self.abort(at, Why::Peer),
            Apart::Lost if rings.conn.is_suspended() => (),
            Apart::Lost => self.abort(at, Why::Killed),
        }
        self.show(at);
        if shuts {
            self.shut_ring(at);
        }
    }

    fn shut_ring(&mut self, at: usize) {
        let now = self.now;
        if let Some(rings) = &mut self.ends[at].rings {
            let number = rings.number;
            let actions = rings.conn.shutdown_write(now);
            self.act(at, number, actions);
        }
    }

    fn go_back(&mut self, at: usize) {
        let stage = self.ends[at].machine.stage();
        let gone = self.over || self.ends[at].rings.is_none();
        if gone || !matches!(stage, Stage::Turned | Stage::Returning) {
            return;
        }
        let done = self.try_back(at);
        if let (Err(why), false) = (done, self.over) {
            let Some(rings) = &mut self.ends[at].rings else {
                return;
            };
            if rings.conn.is_suspended() {
                return self.abort(at, why);
            }
            let number = rings.number;
            let actions = rings.conn.fail();
            self.act(at, number, actions);
        }
        self.show(at);
    }

    fn try_back(&mut self, at: usize) -> Result<(), Why> {
        if self.ends[at].machine.stage() == Stage::Turned {
            if !self.ends[at].is_left() && !self.follow(at)? {
                return Ok(());
            }
            let end = &mut self.ends[at];
            if end.machine.awaits_mark() {
                // The peer says where its bytes are over the side connection.
                return Ok(());
            }
            if !end.machine.returns() {
                return Err(Why::Over);
            }
            end.back = Some(Back::default());
            self.show(at);
        }
        if self.ends[at].back.is_none() {
            return Ok(());
        }
        if at == 0 {
            let rings = self.ends[at].rings.as_ref();
            if rings.is_some_and(|rings| !rings.conn.is_understood()) {
                self.says_word(at);
            }
        }
        self.say(at);
        if self.back(at).rest.is_none() {
            self.hear(at)?;
            self.widen(at);
            self.say(at);
        }
        if self.back(at).said == RECORD_LEN && self.give(at) {
            self.arrives(at);
        }
        Ok(())
    }

    fn back(&mut self, at: usize) -> &mut Back {
        self.ends[at].back.as_mut().expect("under way")
    }

    /// Leaves the rings if the peer has.
    fn follow(&mut self, at: usize) -> Result<bool, Why> {
        let Some(record) = self.record(at)? else {
            return Ok(false);
        };
        let Some(rings) = &mut self.ends[at].rings else {
            return Ok(false);
        };
        if rings.conn.is_over() {
            // The peer does not know yet that both have ended.
            let end = &mut self.ends[at];
            if end.passes() {
                end.tcp.there.drain(..RECORD_LEN);
                end.tcp.taken = end.tcp.taken.wrapping_add(RECORD_LEN as u32);
            }
            return Ok(false);
        }
        if record.orderly && rings.conn.awaits_rest(&record) {
            return Ok(false);
        }
        rings.conn.marks_are_read();
        let number = rings.number;
        let left = match (rings.lifeline, record.orderly) {
            (false, _) => None,
            (true, true) => rings.conn.leave(),
            (true, false) => rings.conn.suspend(),
        };
        let actions = left.ok_or(Why::Over)?;
        self.act(at, number, actions);
        Ok(true)
    }

    fn say(&mut self, at: usize) {
        let rings = self.ends[at].rings.as_ref().expect("while it returns");
        if !rings.conn.knows_record() {
            return;
        }
        let record = rings.conn.record();
        assert!(
            !record.orderly || rings.air.is_empty(),
            "more is on its way: {rings:?}"
        );
        let said = self.back(at).said;
        let taken = self.send(at, &record.bytes()[said..]);
        self.back(at).said += taken;
    }

    /// The peer's record, if all of it has come.
    fn record(&mut self, at: usize) -> Result<Option<Record>, Why> {
        let end = &mut self.ends[at];
        let offset = match end.route.head() {
            Head::Tcp => return Ok(None),
            Head::Until(cut) if !end.passes() => cut.wrapping_sub(end.tcp.taken) as usize,
            Head::Until(_) | Head::Ring => 0,
        };
        let there = end.tcp.there.iter().skip(offset).take(RECORD_LEN);
        let bytes: Vec<u8> = there.copied().collect();
        match <&[u8; RECORD_LEN]>::try_from(&bytes[..]) {
            Ok(bytes) => Ok(Some(Record::parse(bytes).expect("a record"))),
            Err(_)
                if bytes.is_empty() && end.machine.stage() == Stage::Returning && end.tcp.fin =>
            {
                Err(Why::Over)
            }
            Err(_) => {
                assert!(Record::may_begin(&bytes), "{bytes:?} of {end:?}");
                Ok(None)
            }
        }
    }

    fn hear(&mut self, at: usize) -> Result<(), Why> {
        let record = match self.record(at) {
            Err(Why::Over) if self.have_both_ended(at) => {
                let rings = self.ends[at].rings.as_mut();
                let conn = &mut rings.expect("while it returns").conn;
                conn.marks_are_read();
                let rest = Some(conn.nothing_missing());
                self.back(at).rest = rest;
                self.ends[at].heard = Heard::Taken;
                return Ok(());
            }
            record => record?,
        };
        let Some(record) = record else {
            return Ok(());
        };
        let conn = &mut self.ends[at].rings.as_mut().expect("while it returns").conn;
        conn.marks_are_read();
        let rest = conn.judge_record(&record).expect("a right record");
        conn.accept_record(&record);
        self.back(at).rest = Some(rest);
        self.ends[at].heard = Heard::Ahead;
        self.passes_record(at);
        Ok(())
    }

    fn have_both_ended(&self, at: usize) -> bool {
        let rings = self.ends[at].rings.as_ref();
        rings.is_some_and(|rings| rings.conn.have_both_ended())
    }

    /// Has room for the record, although the program does not read what precedes it.
    fn widen(&mut self, at: usize) {
        let unheard = self.back(at).rest.is_none();
        let end = &mut self.ends[at];
        if unheard && end.route.head() != Head::Ring && end.tcp.room < WIDEST {
            end.tcp.room += ROOM;
        }
    }

    fn passes_record(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.heard == Heard::Ahead && end.passes() {
            end.tcp.there.drain(..RECORD_LEN);
            end.tcp.taken = end.tcp.taken.wrapping_add(RECORD_LEN as u32);
            end.tcp.room = ROOM;
            end.heard = Heard::Taken;
        }
    }

    /// Gives TCP what the peer has not got; whether that is all.
    fn give(&mut self, at: usize) -> bool {
        let Some(rest) = self.back(at).rest.clone() else {
            return false;
        };
        let rings = self.ends[at].rings.as_ref().expect("while it returns");
        let bytes = rings.kept(rest.start, (rest.end - rest.start) as u32);
        assert_eq!(bytes.len() as u64, rest.end - rest.start);
        let taken = self.send(at, &bytes);
        let start = rest.start + taken as u64;
        self.back(at).rest = Some(start..rest.end);
        start == rest.end
    }

    /// The stream is TCP's.
    fn arrives(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let shuts = std::mem::take(&mut end.shut_due);
        let conn = &end.rings.as_ref().expect("while it returns").conn;
        let ends = shuts || conn.shut_ways() & 2 != 0 && end.shut;
        end.machine.returned();
        end.back = None;
        if ends {
            self.end_stream(at);
        }
        self.leaves_ring(at);
        self.release_rings(at);
    }

    fn release_rings(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.machine.stage() == Stage::Tcp && end.route.head() == Head::Tcp && end.rings.is_some()
        {
            end.heard = Heard::Nothing;
            self.close_rings(at, CloseMode::Abort, false);
        }
    }

    /// Turns the reader to TCP when it has read what is left in the ring; whether it has.
    fn leaves_ring(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        if end.route.head() != Head::Ring {
            return true;
        }
        let empty = end.rings.as_ref().is_some_and(|rings| rings.unread() == 0);
        let done = end.is_left() && end.heard == Heard::Taken && empty;
        if done {
            end.route = Route::TCP;
            self.release_rings(at);
        }
        done
    }

    /// The program writes so many bytes.
    pub(super) fn write(&mut self, at: usize, len: usize) -> usize {
        let end = &mut self.ends[at];
        if end.shut || end.closing {
            return 0;
        }
        let from = end.written;
        let bytes: Vec<u8> = (from..from + len as u64)
            .map(|position| byte(at, position))
            .collect();
        if end.machine.stage() == Stage::Due {
            self.turn(at);
        }
        if self.over {
            return 0;
        }
        let taken = match self.ends[at].machine.stage() {
            Stage::Turned => self.put(at, &bytes).unwrap_or(0),
            Stage::Returning => 0,
            _ => self.send(at, &bytes),
        };
        self.ends[at].written += taken as u64;
        taken
    }

    /// The program reads so many bytes at most. Returns how many it gets.
    pub(super) fn read(&mut self, at: usize, most: usize) -> usize {
        if self.ends[at].closing {
            return 0;
        }
        if self.ends[at].route.head() == Head::Ring {
            let bytes = self.take(at, most);
            if !bytes.is_empty() {
                return self.right(at, &bytes);
            }
            match self.ring_state(at) {
                RecvState::Empty if self.ends[at].is_left() => (),
                RecvState::Eof => {
                    self.ends[at].saw_end = true;
                    return 0;
                }
                _ => return 0,
            }
        }
        self.passes_record(at);
        if !self.leaves_ring(at) {
            return 0;
        }
        let end = &mut self.ends[at];
        if end.passes() {
            let bytes = self.take(at, most);
            return self.right(at, &bytes);
        }
        let followed = match end.route.head() {
            Head::Tcp => end.machine.stage().may_be_followed(),
            _ => true,
        };
        let len = end
            .route
            .left(end.tcp.taken)
            .min(most)
            .min(end.tcp.there.len());
        let bytes: Vec<u8> = end.tcp.there.drain(..len).collect();
        end.tcp.taken = end.tcp.taken.wrapping_add(len as u32);
        end.saw_end |=
            most != 0 && len == 0 && end.tcp.fin && end.tcp.there.is_empty() && !followed;
        if end.passes() {
            self.passes_record(at);
        }
        self.right(at, &bytes)
    }

    fn right(&mut self, at: usize, bytes: &[u8]) -> usize {
        let end = &mut self.ends[at];
        for got in bytes {
            let due = byte(1 - at, end.read);
            assert_eq!(*got, due, "byte {} at {at}", end.read);
            end.read += 1;
        }
        bytes.len()
    }

    /// The program ends its direction.
    pub(super) fn shut(&mut self, at: usize) {
        if self.ends[at].shut || self.ends[at].closing {
            return;
        }
        self.ends[at].shut = true;
        self.refuse(at);
        if self.ends[at].machine.stage() == Stage::Due {
            self.turn(at);
        }
        match self.ends[at].machine.stage() {
            Stage::Tcp | Stage::Offered => self.end_stream(at),
            Stage::Bound | Stage::Due | Stage::Returning => self.ends[at].shut_due = true,
            Stage::Turned => self.shut_ring(at),
        }
    }

    /// Begins to close a stream that leaves TCP, has left it, or is on its way back there, if the program has read everything:
    /// whether TCP is kept meanwhile.
    fn begin_closing(&mut self, at: usize) -> bool {
        if self.ends[at].machine.stage() == Stage::Due {
            self.turn(at);
        }
        let end = &self.ends[at];
        let Some(rings) = end.rings.as_ref().filter(|rings| rings.lifeline) else {
            return false;
        };
        let apart = end.machine.stage().is_apart();
        if self.over || !end.tcp.there.is_empty() && end.route.head() != Head::Ring {
            return false;
        }
        if !apart && rings.unread() != 0 {
            return false;
        }
        match end.machine.stage() {
            Stage::Bound => self.ends[at].shut_due = true,
            Stage::Turned if end.machine.awaits_mark() => self.shut_ring(at),
            Stage::Turned | Stage::Returning => return self.begin_closing_rings(at),
            Stage::Tcp | Stage::Offered | Stage::Due => return false,
        }
        true
    }

    fn begin_closing_rings(&mut self, at: usize) -> bool {
        let now = self.now;
        self.ends[at].begun = true;
        let Some(rings) = &mut self.ends[at].rings else {
            return false;
        };
        let number = rings.number;
        let actions = rings.conn.begin_closing(now);
        if let Some(actions) = actions {
            self.act(at, number, actions);
        }
        actions.is_some()
    }

    /// Whether TCP may be closed.
    fn is_farewell_over(&mut self, at: usize) -> bool {
        let end = &self.ends[at];
        match end.machine.stage() {
            Stage::Tcp | Stage::Offered => true,
            Stage::Returning | Stage::Bound | Stage::Due => false,
            Stage::Turned => {
                let conn = &end.rings.as_ref().expect("it has turned").conn;
                if end.machine.awaits_mark() {
                    return conn.is_killed() && !conn.is_suspended();
                }
                if !end.begun && !self.begin_closing_rings(at) {
                    return true;
                }
                let end = &self.ends[at];
                let conn = &end.rings.as_ref().expect("it has turned").conn;
                match conn.farewell() {
                    Farewell::Over => true,
                    Farewell::UnderWay => false,
                    // Time enough for a peer that had left its ring before.
                    Farewell::Said => {
                        !self.ends[1 - at].is_left()
                            && end.tcp.there.is_empty()
                            && end.tcp.air.is_empty()
                    }
                }
            }
        }
    }

    /// Ends it.
    fn end_closing(&mut self, at: usize) {
        self.note_unread(at);
        self.ends[at].closed = true;
        let Some(rings) = &self.ends[at].rings else {
            return self.close_tcp(at);
        };
        if rings.conn.is_suspended() {
            return self.close_left(at, true);
        }
        if rings.conn.is_killed() && !rings.conn.has_peer_all() {
            return self.abort(at, Why::Killed);
        }
        self.close_rings(at, CloseMode::Graceful, false);
        self.close_tcp(at);
    }

    /// Ends a stream that has left the rings; `silent` as in the kernel.
    fn close_left(&mut self, at: usize, silent: bool) {
        self.go_back(at);
        let end = &self.ends[at];
        let rings = end.rings.as_ref();
        let unread = rings.is_some_and(|rings| rings.unread() != 0);
        let has_all = rings.is_some_and(|rings| rings.conn.has_peer_all());
        let has_all = silent && has_all && end.heard == Heard::Nothing;
        let returned = end.machine.stage() == Stage::Tcp || has_all;
        if !returned || unread && end.route.head() != Head::Tcp {
            return self.abort(at, Why::Closed);
        }
        self.close_rings(at, CloseMode::Abort, false);
        self.close_tcp(at);
    }

    /// TCP is kept no longer.
    pub(super) fn lose_patience(&mut self) {
        for at in [0, 1] {
            if self.ends[at].stays && !self.ends[at].closed {
                self.end_closing(at);
            }
        }
    }

    /// The program closes: at once, unless TCP is kept, or the stream is between two carriers whose link works.
    pub(super) fn close(&mut self, at: usize) {
        let first = !self.ends[at].closing;
        self.ends[at].closing = true;
        if self.over || self.ends[at].closed {
            return;
        }
        if first {
            self.ends[at].stays = self.begin_closing(at);
        }
        if self.ends[at].stays {
            if !self.over && self.is_farewell_over(at) {
                self.end_closing(at);
            }
            return;
        }
        if let Some(rings) = &self.ends[at].rings {
            let orderly = rings.conn.is_suspended() && rings.conn.record().orderly;
            let returns = self.ends[at].back.is_some() && orderly;
            if returns || rings.conn.asks_to_leave() && !rings.conn.is_killed() {
                return;
            }
        }
        self.note_unread(at);
        self.ends[at].closed = true;
        if self.ends[at].is_left() {
            return self.close_left(at, false);
        }
        while let Some(step) = self.next(at).filter(|step| *step != Step::Turn) {
            self.perform(at, step);
        }
        self.refuse(at);
        if matches!(self.ends[at].machine.stage(), Stage::Bound | Stage::Due) {
            self.turn(at);
        }
        if self.over {
            return;
        }
        let unread = !self.ends[at].tcp.there.is_empty();
        let mode = if unread {
            CloseMode::Abort
        } else {
            CloseMode::Graceful
        };
        self.close_rings(at, mode, false);
        self.close_tcp(at);
    }

    /// Takes note of whether the program has not read all.
    fn note_unread(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let in_ring = end.rings.as_ref().is_some_and(|rings| rings.unread() != 0);
        end.has_unread |= in_ring || !end.tcp.there.is_empty();
    }

    fn close_tcp(&mut self, at: usize) {
        self.note_unread(at);
        match self.ends[at].tcp.there.is_empty() {
            true => self.end_stream(at),
            false => self.abort(at, Why::Closed),
        }
    }
}
