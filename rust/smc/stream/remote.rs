// SPDX-License-Identifier: GPL-2.0

//! The stream of a connection with another host that has begun as TCP and may be promoted to SMC-R.
//!
//! While it is TCP's, calls go through here and not through TCP's own functions: they call those without ever waiting
//! inside, so nobody is there when a direction leaves TCP. The two ends agree by [`Promotion`]. Each then turns at a
//! position of TCP's stream: the bytes before it go on by TCP, those after it by the ring. A reader takes the ones, then
//! the others; when both directions have come so far the socket is the SMC-R connection's.
//!
//! Locks: `writer`, then `machine`, then those of the SMC-R connection. `reader` and `writer` are held over copies from
//! and to the program, so who works for others only tries them.

mod account;
mod back;
mod carriers;
mod close;
mod facts;
mod side;
mod tcp;
mod through;

pub(crate) use account::{step, Facts};
pub(crate) use carriers::Inside;
pub(crate) use close::Closed;
pub(crate) use side::{Heard, SideConnection};

use self::{back::Return, carriers::Carriers};
use super::{
    ring::{put_mark, take_mark},
    shut_down,
    StreamIo,
    Usual, //
};
use crate::{
    host::{clock::now, fallback::Role, namespace::Namespace},
    smcr::{
        group::{Apart, MARKS},
        SmcConn, //
    },
};
use account::Attempts;
use kapi::{
    errno,
    net::{
        sock::{tcp_state, Sock},
        socket::BsdSocket,
        uapi::{SHUT_RD, SHUT_RDWR, SHUT_WR}, //
    },
    sys::{
        gate::Prepared,
        word::{Count, Word}, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Atomic,
        Arc,
        Mutex,
        SetOnce, //
    },
};
use smc_proto::{
    path::{Head, Route},
    promotion::{may_cut, Promotion, Side, Stage, Step},
    reason::Reason,
    time::{Instant, Span},
    wire::promotion::{Join, Mark}, //
};

/// Doublings of the distance to the next attempt.
const MOST_DOUBLINGS: u32 = 12;
/// Milliseconds between looks whether TCP has sent what it holds back for more to follow.
const HELD_BACK: u32 = 50;
/// Losses of its link after which a connection stays TCP's.
const MOST_LOSSES: u32 = 6;

/// Milliseconds to wait for the server's first mark at most.
const MARK_PATIENCE: u32 = 5000;
/// Milliseconds that TCP may bring nothing while bytes before the peer's cut are missing, unless the socket has a
/// `TCP_USER_TIMEOUT`.
const REST_PATIENCE: u32 = 120_000;
/// The least of them, whatever the socket has: TCP repeats a packet four times meanwhile.
const LEAST_PATIENCE: u32 = 5000;
/// Milliseconds between looks for those bytes.
const REST_LOOK: u32 = 1000;

/// A client's attempt to promote the connection.
pub(crate) trait Dial: Send + Sync {
    /// Ends it. Sleeps.
    fn end(&self);

    /// The program has closed: ends it, or has it go on without the program. Sleeps.
    fn orphan(self: Arc<Self>);
}

/// What a writer leaves behind.
struct Writer {
    /// TCP may hold the last bytes back, as more was to follow. Of those before the first call that comes here this is not
    /// known.
    held: bool,
}

/// The agreement of the two ends, and the SMC-R connection that it is about.
struct Machine {
    promotion: Promotion,
    conn: Option<Arc<SmcConn>>,
    /// What is needed for calls to use it.
    prepared: Option<Prepared<SmcConn>>,
    /// Directions that the program has shut and whose end is to be said when it is known by which carrier: 1 receive, 2
    /// send.
    shut: u8,
    /// The program has closed, and the SMC-R connection is to be, as soon as it is known where the peer's bytes are.
    closes: bool,
    /// Set by [`Remote::close`].
    closed: bool,
    /// The return to TCP, while it is under way.
    back: Option<Return>,
    /// The rings were left, of which the socket has not been told.
    has_left: bool,
    /// Times that the peer's record was there and not taken.
    lingers: u8,
    /// What was said over the side connection last, and heard there and not looked at; how often that was nothing new.
    told: Option<Mark>,
    heard: Option<Mark>,
    words: u8,
    /// Since when the peer's word is waited for.
    asked_since: Option<Instant>,
    /// Where TCP's stream stands while bytes before the peer's cut are missing, and since when.
    lacks: Option<(u32, Instant)>,
    /// When a client has got the SMC-R connection, of which the server is to say something.
    offered_at: Option<Instant>,
}

/// An end of a connection with another host that may be promoted.
#[pin_data]
pub(crate) struct Remote {
    sock: ARef<Sock>,
    namespace: Arc<Namespace>,
    side: Side,
    /// The initial sequence numbers, from the first attempt on.
    numbers: SetOnce<Join>,
    /// The [`Stage`], and where the reader finds the next byte: a [`Route`]. Both change under the lock of `machine`, but
    /// that a reader passes the cut.
    stage: Word,
    route: Count,
    /// 1 once the program has ended its receiving direction.
    read_shut: Word,
    /// 1 once the program has ended its sending direction, and TCP has not been told.
    write_shut: Word,
    /// 1 while something about the socket keeps it on TCP for good.
    bound_to_tcp: Word,
    /// 1 once the connection was reset from here: nothing is in the rings any more.
    broken: Word,
    /// TCP's count of segments at which the next attempt is worth its price.
    due_at: Word,
    attempts: Attempts,
    /// Code of the reason why the connection is TCP's.
    reason: Word,
    /// 1 while all of the stream goes by the rings.
    through: Word,
    /// What has been heard of the peer's record, by which it has left the rings: see [`back`].
    heard: Count,
    /// The size of TCP's receive buffer before it was widened for the peer's record, and since; 0 if it was not.
    widened: Count,
    /// Number of splice() calls under way.
    splices: Atomic<i32>,
    /// The SMC-R connection, once an end has turned.
    #[pin]
    carriers: Carriers,
    /// The attempt that is under way.
    #[pin]
    dialer: Mutex<Option<Arc<dyn Dial>>>,
    /// Its side connection, from the handshake until both ends know where the stream is.
    #[pin]
    side_connection: Mutex<Option<Arc<dyn SideConnection>>>,
    #[pin]
    machine: Mutex<Machine>,
    /// Held by who gives bytes to TCP.
    #[pin]
    writer: Mutex<Writer>,
    /// Held by who takes bytes from TCP.
    #[pin]
    reader: Mutex<()>,
}

/// What [`Remote::advance`] has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing that concerns the socket.
    Nothing,
    /// The attempt has ended, and the connection is TCP's. If true, the program has ended its sending direction.
    Back(bool),
    /// Both directions have left TCP: the socket is this connection's.
    Promoted,
    /// The rings are left again: the socket is not the SMC-R connection's any more.
    Left,
}

impl Remote {
    /// Creates the stream of `sock`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        sock: ARef<Sock>,
        namespace: Arc<Namespace>,
        role: Role,
    ) -> Result<Arc<Self>> {
        let side = match role {
            Role::Client => Side::Client,
            Role::Server => Side::Server,
        };
        let due_at = threshold(&namespace, role);
        let is_shut = sock.is_receive_shut() && {
            // A FIN shuts it, too, and is marked with the lock held.
            let guard = sock.lock();
            guard.sock().is_receive_shut() && !guard.sock().has_seen_fin()
        };
        let promotion = Promotion::new(side);
        Arc::pin_init(
            pin_init!(Self {
                sock,
                namespace,
                side,
                numbers: SetOnce::new(),
                stage: Word::new(Stage::Tcp as u32),
                route: Count::new(Route::TCP.word()),
                read_shut: Word::new(u32::from(is_shut)),
                write_shut: Word::new(0),
                bound_to_tcp: Word::new(0),
                broken: Word::new(0),
                due_at: Word::new(due_at),
                attempts: Attempts::new(),
                reason: Word::new(Reason::PathRemote.code()),
                through: Word::new(0),
                heard: Count::new(back::NOTHING),
                widened: Count::new(0),
                splices: Atomic::new(0),
                carriers <- Carriers::new(),
                dialer <- new_mutex!(None, "rsmc::Remote::dialer"),
                side_connection <- new_mutex!(None, "rsmc::Remote::side_connection"),
                machine <- new_mutex!(
                    Machine {
                        promotion,
                        conn: None,
                        prepared: None,
                        shut: 0,
                        closes: false,
                        closed: false,
                        back: None,
                        has_left: false,
                        lingers: 0,
                        told: None,
                        heard: None,
                        words: 0,
                        asked_since: None,
                        lacks: None,
                        offered_at: None,
                    },
                    "rsmc::Remote::machine"
                ),
                writer <- new_mutex!(Writer { held: true }, "rsmc::Remote::writer"),
                reader <- new_mutex!((), "rsmc::Remote::reader"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the end that this is.
    pub(crate) fn side(&self) -> Side {
        self.side
    }

    /// Returns the initial sequence numbers, if there was an attempt.
    pub(crate) fn numbers(&self) -> Option<Join> {
        self.numbers.as_ref().copied()
    }

    /// Returns the code of the reason why the connection is TCP's.
    pub(crate) fn reason(&self) -> u32 {
        self.reason.get()
    }

    /// Returns how far the promotion has come.
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        Stage::from_number(self.stage.get())
    }

    /// Tells whether there is an SMC-R connection whose marks, or end, concern this one.
    pub(crate) fn is_being_promoted(&self) -> bool {
        self.stage() != Stage::Tcp
    }

    /// Tells whether all of the stream goes by the rings, and nothing else is under way.
    #[inline]
    pub(crate) fn is_through(&self) -> bool {
        self.through.get() != 0
    }

    /// Has all of the stream go by the rings, after [`Outcome::Promoted`]. Returns false if they have been left since.
    pub(crate) fn goes_through(&self) -> bool {
        let machine = self.machine.lock();
        // This may be another promotion than that of which the caller knows.
        let turned = machine.promotion.stage() == Stage::Turned;
        let open = turned && self.passes() && !machine.closed;
        self.through.set(u32::from(open));
        if let (true, Some(conn)) = (open, &machine.conn) {
            conn.may_leave();
        }
        open
    }

    #[inline]
    fn route(&self) -> Route {
        Route::from_word(self.route.acquire())
    }

    /// Tells whether TCP has carried so much that the connection is worth promoting, and no attempt is under way.
    #[inline]
    pub(crate) fn is_worth_promoting(&self) -> bool {
        let segments = self.sock.data_segments();
        let due = segments.wrapping_sub(self.due_at.get()) as i32;
        due >= 0
            && self.stage() == Stage::Tcp
            && self.bound_to_tcp.get() == 0
            && self.route() == Route::TCP
    }

    /// Returns the reason for which the connection has to stay TCP's at present, if there is one.
    pub(crate) fn keeps_to_tcp(&self) -> Option<Reason> {
        let sock = &*self.sock;
        let bound = self.bound_to_tcp.get() != 0
            || sock.seems_bound_to_tcp()
            || sock.has_low_water()
            || sock.has_peek_offset()
            || sock.uses_ipsec()
            || sock.has_packet_programs(sock);
        if bound {
            return Some(Reason::PathAttached);
        }
        if !self.carriers.is_empty() {
            // What is left in a ring has not been read.
            return Some(Reason::PathReturned);
        }
        let ended = !sock.may_send() || sock.is_receive_shut();
        ended.then_some(Reason::PathEnds)
    }

    /// Keeps the connection on TCP from now on: packets are to carry something of their own.
    pub(crate) fn bind_to_tcp(&self) {
        self.bound_to_tcp.set(1);
    }

    /// Notes an attempt in place of the one before, which is returned.
    pub(crate) fn replace_dialer(&self, dialer: Arc<dyn Dial>) -> Option<Arc<dyn Dial>> {
        self.dialer.lock().replace(dialer)
    }

    /// Takes the attempt that is under way.
    pub(crate) fn take_dialer(&self) -> Option<Arc<dyn Dial>> {
        self.dialer.lock().take()
    }

    /// Takes the attempt that is under way, if it is this one; otherwise tells whether it is.
    pub(crate) fn has_dialer(&self, dialer: &dyn Dial, takes: bool) -> bool {
        let mut own = self.dialer.lock();
        let is = own
            .as_ref()
            .is_some_and(|own| core::ptr::addr_eq(&raw const **own, &raw const *dialer));
        let gone = if is && takes { own.take() } else { None };
        drop(own);
        drop(gone);
        is
    }

    /// Ends the attempt that is under way.
    pub(crate) fn end_dialer(&self) {
        if let Some(dialer) = self.take_dialer() {
            dialer.end();
        }
    }

    /// Takes over the SMC-R connection that a handshake over a side connection has made, which is apart from the socket.
    /// Without `side` a link that is lost while the two ends turn costs the connection.
    pub(crate) fn offer(
        &self,
        conn: Arc<SmcConn>,
        side: Option<Arc<dyn SideConnection>>,
    ) -> Outcome {
        self.end_side();
        *self.side_connection.lock() = side;
        let outcome = self.try_offer(conn);
        if self.stage() == Stage::Tcp {
            self.end_side();
        }
        outcome
    }

    fn try_offer(&self, conn: Arc<SmcConn>) -> Outcome {
        {
            // One that was left while a call was inside.
            self.carriers.sweep();
            let prepared = Prepared::new(conn.clone());
            let mut machine = self.machine.lock();
            let step = match machine.closed || prepared.is_err() {
                true => Step::Leave,
                false => machine.promotion.offered(),
            };
            if step == Step::Leave {
                drop(machine);
                conn.dissolve();
                self.ended(Reason::PathEnds);
                return Outcome::Nothing;
            }
            machine.conn = Some(conn);
            machine.prepared = prepared.ok();
            (machine.told, machine.heard) = (None, None);
            (machine.words, machine.asked_since) = (0, None);
            if self.side == Side::Client {
                machine.offered_at = Some(now());
                if let Some(conn) = &machine.conn {
                    conn.look_again(MARK_PATIENCE);
                }
            }
            self.show(&mut machine);
            if step == Step::Decide {
                self.decide(&mut machine);
            }
        }
        self.advance()
    }

    /// Agrees to nothing, for this reason, if that is still possible.
    fn refuse(&self, machine: &mut Machine, reason: Reason) {
        let step = machine.promotion.refuse();
        self.perform(machine, step, reason);
    }

    /// Goes on as far as possible: hears the peer's marks, and turns. May sleep, but not for the peer or the program.
    pub(crate) fn advance(&self) -> Outcome {
        if self.stage() == Stage::Tcp {
            return Outcome::Nothing;
        }
        let mut machine = self.machine.lock();
        let since = machine.offered_at;
        while let Some(step) = self.next(&mut machine) {
            self.show(&mut machine);
            let turns = step == Step::Turn;
            if turns && !self.try_turn(&mut machine) {
                break;
            }
            if !turns {
                self.perform(&mut machine, step, Reason::PathRefused);
            }
        }
        let patience = Span::from_millis(u64::from(MARK_PATIENCE));
        if since.is_some_and(|since| now().since(since) >= patience) {
            // Only now: what the server has said was heard.
            machine.offered_at = None;
            self.refuse(&mut machine, Reason::PathRefused);
        }
        self.misses_rest(&mut machine);
        self.go_back(&mut machine);
        let left = core::mem::take(&mut machine.has_left);
        drop(machine);
        match left {
            true => Outcome::Left,
            false => self.outcome(),
        }
    }

    /// Resets the connection if bytes before the peer's cut do not come: a box on the way has taken some out of TCP's
    /// stream, so that the two ends count differently, and the reader would wait for ever.
    fn misses_rest(&self, machine: &mut Machine) {
        let cut = machine.promotion.peer_cut();
        let (Some(cut), Some(conn)) = (cut, machine.conn.clone()) else {
            return;
        };
        let arrived = self.sock.arrived_to();
        if conn.is_suspended() || cut.wrapping_sub(arrived) as i32 <= 0 {
            if machine.lacks.take().is_some() {
                conn.misses_rest(false, 0);
            }
            return;
        }
        // Without a reader TCP's window may be full.
        let is_read = self.sock.arrived_bytes() == 0;
        match machine.lacks.filter(|lacks| lacks.0 == arrived && is_read) {
            None => machine.lacks = Some((arrived, now())),
            Some((_, since)) => {
                let patience = match self.sock.user_timeout() {
                    0 => REST_PATIENCE,
                    millis => millis.max(LEAST_PATIENCE),
                };
                if now().since(since) >= Span::from_millis(patience.into()) {
                    self.is_reset(Reason::PathBreach);
                    conn.group().tell_missing();
                    self.perform(machine, Step::Reset, Reason::PathBreach);
                    return;
                }
            }
        }
        conn.misses_rest(true, REST_LOOK);
    }

    /// Says what has become of the attempt.
    fn outcome(&self) -> Outcome {
        match self.stage() {
            Stage::Tcp => Outcome::Back(self.write_shut.get() != 0),
            Stage::Turned if self.passes() => Outcome::Promoted,
            _ => Outcome::Nothing,
        }
    }

    /// Returns the next step, if there is one.
    fn next(&self, machine: &mut Machine) -> Option<Step> {
        let conn = machine.conn.clone()?;
        // In this order: what the peer has said before an end is heard before that.
        let state = conn.apart_state();
        if machine.promotion.awaits_mark() {
            if let Some(bytes) = take_mark(&conn) {
                let mark = Mark::parse(bytes).filter(|mark| self.may_be_said(*mark));
                let step = mark.and_then(|mark| machine.promotion.heard(mark).ok());
                if self.side == Side::Server && matches!(mark, Some(Mark::Cut(_))) {
                    conn.tell_read();
                }
                return Some(step.unwrap_or_else(|| self.breach(&conn)));
            }
        }
        if state == Apart::Open && machine.promotion.may_be_told() {
            if let Some(step) = self.hears_of_loss(machine, &conn) {
                return Some(step);
            }
        }
        let promotion = &mut machine.promotion;
        let cannot_be = |cut| match promotion.stage().is_apart() {
            true => !self.can_end_at(cut),
            // Once both have turned a record may follow the cut; see `back`.
            false => self.ends_before(cut),
        };
        if promotion.peer_cut().is_some_and(cannot_be) {
            return Some(self.breach(&conn));
        }
        let ended = match (state, promotion.stage().is_apart()) {
            (Apart::Open, _) => None,
            (Apart::Ended | Apart::Aborted, true) => Some(true),
            (Apart::Lost, true) => Some(false),
            // Of anything but an end in good order the socket has heard.
            (Apart::Ended, false) => promotion.awaits_mark().then_some(true),
            (Apart::Lost, false) if promotion.awaits_mark() && conn.is_suspended() => Some(false),
            (Apart::Aborted | Apart::Lost, false) => None,
        };
        if let Some(by_peer) = ended {
            let step = promotion.ended(by_peer);
            if step == Step::Ask {
                return self.asks(machine, &conn);
            }
            // The peer has ended it without a word of where its bytes are.
            let breach = by_peer && step == Step::Reset;
            return Some(if breach { self.breach(&conn) } else { step });
        }
        (promotion.stage() == Stage::Due).then_some(Step::Turn)
    }

    /// Tells whether the peer can have said this, as far as TCP's stream tells.
    fn may_be_said(&self, mark: Mark) -> bool {
        match mark {
            Mark::Cut(position) => self.can_end_at(position),
            Mark::Ready | Mark::Go | Mark::Stays => true,
        }
    }

    /// Tells whether the peer's bytes can have left TCP at this position.
    fn can_end_at(&self, position: u32) -> bool {
        let sock = &*self.sock;
        let may = || {
            let ended = sock.has_seen_fin();
            let arrived = sock.arrived_to().wrapping_sub(u32::from(ended));
            may_cut(position, arrived, ended)
        };
        if may() {
            return true;
        }
        // An end that is just arriving looks like a byte, but not with the lock.
        let _guard = sock.lock();
        may()
    }

    /// Tells whether TCP's stream has ended before this position.
    fn ends_before(&self, position: u32) -> bool {
        let sock = &*self.sock;
        let ends = || {
            let end = sock.arrived_to().wrapping_sub(1);
            sock.has_seen_fin() && (end.wrapping_sub(position) as i32) < 0
        };
        if !ends() {
            return false;
        }
        // As above.
        let _guard = sock.lock();
        ends()
    }

    /// Takes note that the peer says what no correct one does.
    #[cold]
    fn breach(&self, conn: &SmcConn) -> Step {
        self.is_reset(Reason::PathBreach);
        conn.group().tell_mark();
        Step::Reset
    }

    /// Takes a step; `why` is the reason if it is one back to TCP.
    fn perform(&self, machine: &mut Machine, step: Step, why: Reason) {
        match step {
            Step::Wait | Step::Turn => (),
            Step::Decide => self.decide(machine),
            Step::Say(mark) => {
                // The peer may turn as soon as it hears that, and end TCP, which is not the stream's end then.
                self.show(machine);
                let said = machine.conn.as_ref().map(|conn| put_mark(conn, mark));
                if !matches!(said, Some(Ok(()))) {
                    // The peer has not heard it, so it has not turned.
                    let step = machine.promotion.ended(true);
                    self.perform(machine, step, why);
                }
            }
            Step::Leave => self.leave(machine, why),
            // No side connection is left, or there is no time for it.
            Step::Ask | Step::Reset => self.reset(machine),
        }
        self.show(machine);
        if step == Step::Leave {
            // TCP's end, if it has come, is the stream's again.
            self.sock.wake_state();
        }
    }

    /// Agrees, if the socket may be promoted.
    fn decide(&self, machine: &mut Machine) {
        match self.keeps_to_tcp() {
            Some(reason) => self.refuse(machine, reason),
            None => {
                let step = machine.promotion.agree();
                self.perform(machine, step, Reason::PathRefused);
            }
        }
    }

    fn leave(&self, machine: &mut Machine, why: Reason) {
        machine.prepared = None;
        if let Some(conn) = machine.conn.take() {
            conn.dissolve();
        }
        // A client whose link is lost does not hear of it otherwise.
        self.says_word(machine);
        self.end_side();
        self.failed(why);
    }

    fn reset(&self, machine: &mut Machine) {
        // First: a writer that finds no ring any more must not give TCP its bytes.
        self.sock.set_error(errno::ECONNABORTED);
        self.sock.abort();
        self.broken.set(1);
        if let Some(conn) = machine.conn.take() {
            conn.shut_read();
            conn.dissolve();
        }
        self.end_side();
        self.ended(Reason::NoActiveLink);
    }

    /// Makes the stage seen by those who do not lock the machine, and the peer's cut by readers.
    fn show(&self, machine: &mut Machine) {
        let promotion = machine.promotion;
        // A reader that has come to the end of a ring that is left has set it back.
        let known = self.route() != Route::TCP || promotion.stage() == Stage::Returning;
        if let (Some(position), false) = (promotion.peer_cut(), known) {
            self.publish(machine);
            let route = Route::TCP.promoted(position).unwrap_or(Route::TCP);
            self.route.release(route.word());
            self.passes();
            if let Some(conn) = &machine.conn {
                conn.is_followed();
            }
            // What came before the mark of it may be all that they wait for.
            self.sock.wake_readers();
        }
        if let Some(conn) = machine.conn.as_ref().filter(|_| !machine.closed) {
            match (self.side, promotion.stage()) {
                // A server that has not heard the cut would give the program what the client says on TCP.
                (Side::Client, Stage::Bound | Stage::Due | Stage::Turned) => {
                    conn.may_be_left(MARKS as u8);
                }
                // A client that it has heard turns after that, and the client's cut may be in the ring when the link is
                // lost.
                (Side::Server, Stage::Turned) => conn.may_be_left(0),
                _ => (),
            }
        }
        let (before, stage) = (self.stage(), promotion.stage());
        self.stage.set(stage as u32);
        // A step back has been told with its reason.
        if stage != before && stage != Stage::Tcp {
            self.trace(account::of(stage), 0);
        }
    }

    /// Has calls use the SMC-R connection.
    fn publish(&self, machine: &mut Machine) {
        if let Some(prepared) = machine.prepared.take() {
            self.carriers.publish(prepared);
        }
    }

    /// Returns the SMC-R connection that the socket has, or has left with bytes in its ring.
    fn conn(&self, machine: &Machine) -> Option<Arc<SmcConn>> {
        let conn = machine.conn.clone();
        conn.or_else(|| self.enter().current().cloned())
    }

    /// Turns, if no writer is inside. A writer that is does it when it comes again, and one that has more to follow:
    /// unless that takes so long that TCP sends what it holds back for him.
    fn try_turn(&self, machine: &mut Machine) -> bool {
        let Some(writer) = self.writer.try_lock() else {
            return false;
        };
        if writer.held && self.sock.out_queue(true) != 0 {
            if let Some(conn) = &machine.conn {
                conn.look_again(HELD_BACK);
            }
            return false;
        }
        self.turn(machine, false).is_ok()
    }

    /// Leaves TCP with the next byte. The caller keeps writers out; what TCP has `held` back for them goes out.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when that is to be tried again. If the connection is over, that is as good as having turned.
    fn turn(&self, machine: &mut Machine, held: bool) -> Result {
        if held {
            self.sock.push_stream();
        }
        let Some(conn) = machine.conn.clone() else {
            return Err(EINVAL);
        };
        let position = self.sock.sent_to();
        match put_mark(&conn, Mark::Cut(position)) {
            Err(err) if err == ENOMEM => return Err(err),
            // The peer has turned, so what has become of the SMC-R connection is what has become of this one.
            Err(_) if machine.promotion.peer_cut().is_some() => (),
            Err(_) => {
                let by_peer = conn.apart_state() != Apart::Lost;
                let step = machine.promotion.ended(by_peer);
                self.perform(machine, step, Reason::PathRefused);
                return Ok(());
            }
            Ok(()) => (),
        }
        machine.promotion.turned(position);
        self.succeeded();
        self.publish(machine);
        conn.takes_over();
        // It did not concern the socket when it happened.
        let error = match conn.apart_state() {
            Apart::Open | Apart::Ended => None,
            Apart::Aborted => Some(errno::ECONNRESET),
            // The stream is on its way back to TCP, and the peer is told up to where it has gone there.
            Apart::Lost if conn.is_suspended() => None,
            Apart::Lost => Some(errno::ECONNABORTED),
        };
        // A program whose TCP connection has ended has been told by that.
        if let Some(error) = error.filter(|_| self.sock.state() != tcp_state::CLOSE) {
            self.sock.set_error(error);
            self.sock.abort();
        }
        self.show(machine);
        if machine.shut & 2 != 0 {
            let _ = shut_down(&conn, SHUT_WR);
        }
        if machine.shut & 1 != 0 {
            let _ = shut_down(&conn, SHUT_RD);
        }
        // The ring has room, whatever TCP has.
        self.sock.wake_for_room();
        Ok(())
    }

    /// Has a reset of TCP say what it means to a stream that has left TCP. Any context.
    pub(crate) fn judge_reset(&self) {
        if self.sock.has_the_error(errno::ECONNRESET) {
            if let Some(conn) = self.enter().turned() {
                conn.judge_reset();
            }
        }
    }

    /// Tells whether an urgent byte would come by TCP.
    pub(super) fn has_urgent_by_tcp(&self) -> bool {
        if self.is_through() {
            return false;
        }
        let by_tcp = self.route() == Route::TCP && !self.stage().may_be_followed();
        self.sock.has_urgent() || self.carriers.is_empty() || by_tcp
    }

    /// Passes the peer's cut if all before it has been read. Returns whether the next byte is in the ring.
    fn passes(&self) -> bool {
        let route = self.route();
        let passed = route.passed(self.sock.position(), false);
        // Who looks without a lock may be late, and the rings be left since.
        match passed != route && !self.route.replace(route.word(), passed.word()) {
            true => self.route().head() == Head::Ring,
            false => passed.head() == Head::Ring,
        }
    }

    /// Handles shutdown(): `how` as in the system call.
    ///
    /// # Errors
    ///
    /// TCP's.
    fn shut(&self, socket: &BsdSocket, how: i32) -> Result {
        let writer = self.writer.lock();
        let mut machine = self.machine.lock();
        let ways = match how {
            SHUT_RD => 1,
            SHUT_WR => 2,
            SHUT_RDWR => 3,
            _ => return Err(EINVAL),
        };
        if ways & 1 != 0 {
            // Before TCP wakes who waits for bytes.
            self.read_shut.set(1);
        }
        self.refuse(&mut machine, Reason::PathEnds);
        if machine.promotion.stage() == Stage::Due {
            let _ = self.turn(&mut machine, writer.held);
        }
        match machine.promotion.stage() {
            // With the machine locked: an attempt that is agreed on meanwhile would go on behind the end.
            Stage::Tcp | Stage::Offered => socket.native_shutdown(how),
            Stage::Bound | Stage::Due | Stage::Returning => {
                // It is said when the peer has said by which carrier, or TCP has the bytes before that.
                machine.shut |= ways;
                if ways & 2 != 0 {
                    self.write_shut.set(1);
                }
                drop(machine);
                if ways & 1 != 0 {
                    socket.native_shutdown(SHUT_RD)?;
                }
                self.sock.wake_state();
                Ok(())
            }
            Stage::Turned => {
                // The rings may be left meanwhile; the way back begins with the machine locked, and finds it then.
                let conn = machine.conn.clone();
                if ways & 1 != 0 {
                    // What TCP has is read first.
                    let _ = socket.native_shutdown(SHUT_RD);
                }
                conn.map_or(Ok(()), |conn| shut_down(&conn, how))
            }
        }
    }

    /// Ends what is between the two carriers, and tells whether TCP alone has the stream now: an end for good.
    pub(crate) fn retire(&self) -> bool {
        self.bind_to_tcp();
        let mut machine = self.machine.lock();
        self.refuse(&mut machine, Reason::PathAttached);
        let back = machine.promotion.stage() == Stage::Tcp && self.route() == Route::TCP;
        machine.closed |= back;
        if back {
            self.ended(Reason::PathAttached);
        }
        back
    }

    /// Ends the connection while the program keeps the socket.
    pub(crate) fn dissolve(&self) {
        let conn = {
            let mut machine = self.machine.lock();
            machine.closed = true;
            self.ended(Reason::PathEnds);
            let conn = self.conn(&machine);
            machine.conn = None;
            conn
        };
        self.end_side();
        if let Some(conn) = conn {
            conn.shut_read();
            conn.dissolve();
        }
    }
}

/// Returns the number of data segments after which a connection is worth promoting. A server has to be ready when the client
/// is.
pub(crate) fn threshold(namespace: &Namespace, role: Role) -> u32 {
    let segments = namespace.promotes_after();
    match role {
        Role::Client => segments,
        Role::Server => segments / 2,
    }
}
