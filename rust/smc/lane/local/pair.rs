// SPDX-License-Identifier: GPL-2.0

//! The two ends of a local path, and one of them as its socket sees it.

use super::{
    meet::MEETINGS,
    way::{Way, FIRST}, //
};
use crate::host::{
    fallback::Role,
    namespace::Namespace,
    stats::{Stat, Stats},
    sysctl::Sysctl, //
};
use kapi::{
    net::sock::Sock,
    sys::{
        bytes::Ring,
        once::Once,
        roster::Link,
        word::{full_barrier, Count, Word}, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, //
    },
    time::{delay::fsleep, Delta}, //
};
use smc_proto::path::Route;

/// An end: its sock, and the direction in which it writes.
#[pin_data]
pub(super) struct End {
    pub(super) sock: Once<ARef<Sock>>,
    #[pin]
    pub(super) out: Way,
    /// 1 when its file is being closed.
    gone: Word,
    /// 1 when TCP has told a reader of the time of its bytes, and how many are left.
    told: Word,
    /// 1 when its program has asked for `TCP_INQ`.
    details: Word,
    /// 1 when it has written into a ring.
    moved: Word,
    /// 1 when its program has dissolved the connection.
    left: Word,
    /// 1 when TCP has its connection for good.
    retired: Word,
    /// Number of splice() calls under way.
    splices: Atomic<i32>,
}

impl End {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            sock: Once::new(),
            out <- Way::new(),
            gone: Word::new(0),
            left: Word::new(0),
            retired: Word::new(0),
            told: Word::new(0),
            details: Word::new(0),
            moved: Word::new(0),
            splices: Atomic::new(0),
        })
    }
}

impl End {
    /// Returns its TCP connection, once that is known.
    #[inline]
    pub(super) fn sock(&self) -> Option<&Sock> {
        self.sock.get().map(|sock| &**sock)
    }

    /// Tells whether its file is being closed.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.get() != 0
    }
}

/// The two ends: the client's, then the server's. One of them may be all that is known.
#[pin_data]
pub(crate) struct Pair {
    /// The initial sequence numbers, by which the ends find each other.
    pub(super) key: u64,
    /// 1 once both ends are here.
    joined: Count,
    /// 1 when bytes went by TCP behind a cut.
    broken: Atomic<u32>,
    /// Link in the list of those that have had rings; see [`super::idle`].
    pub(super) link: Link<Pair>,
    #[pin]
    pub(super) client: End,
    #[pin]
    pub(super) server: End,
}

impl Pair {
    pub(super) fn new(key: u64) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                key,
                joined: Count::new(0),
                broken: Atomic::new(0),
                link: Link::new(),
                client <- End::new(),
                server <- End::new(),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn end(&self, active: bool) -> &End {
        if active {
            &self.client
        } else {
            &self.server
        }
    }

    /// Tells whether a direction has a ring.
    pub(super) fn has_rings(&self) -> bool {
        self.client.out.has_size() || self.server.out.has_size()
    }

    /// Makes the pair complete.
    pub(super) fn join(&self) {
        self.joined.release(1);
    }
}

/// An end of a local path.
pub(crate) struct Local {
    pub(super) pair: Arc<Pair>,
    /// The end that called connect().
    pub(super) active: bool,
    sock: ARef<Sock>,
    pub(super) namespace: Arc<Namespace>,
}

impl Local {
    pub(super) fn new(
        pair: Arc<Pair>,
        active: bool,
        sock: ARef<Sock>,
        namespace: Arc<Namespace>,
    ) -> Self {
        Self {
            pair,
            active,
            sock,
            namespace,
        }
    }

    /// Returns the TCP connection.
    #[inline]
    pub(crate) fn own(&self) -> &Sock {
        &self.sock
    }

    /// Returns this end and the other one.
    #[inline(always)]
    pub(super) fn ends(&self) -> (&End, &End) {
        let pair = &*self.pair;
        match self.active {
            true => (&pair.client, &pair.server),
            false => (&pair.server, &pair.client),
        }
    }

    /// Returns the direction in which this end writes.
    #[inline]
    pub(super) fn out(&self) -> &Way {
        &self.pair.end(self.active).out
    }

    /// Returns the direction from which this end reads.
    #[inline]
    pub(super) fn inward(&self) -> &Way {
        &self.pair.end(!self.active).out
    }

    /// Returns the other end's TCP connection, once that is known.
    #[inline]
    pub(super) fn peer(&self) -> Option<&Sock> {
        self.pair.end(!self.active).sock()
    }

    pub(super) fn splices(&self) -> &Atomic<i32> {
        &self.pair.end(self.active).splices
    }

    pub(super) fn counts(&self) -> &Stats {
        &self.namespace.counters.stats
    }

    /// Tells whether the two ends have met.
    #[inline]
    pub(crate) fn has_met(&self) -> bool {
        self.pair.joined.acquire() != 0
    }

    /// Tells whether bytes go through a ring in either direction.
    pub(crate) fn is_moved(&self) -> bool {
        self.out().route() != Route::TCP || self.inward().route() != Route::TCP
    }

    /// Tells whether a writer may leave TCP.
    #[inline]
    pub(super) fn may_move(&self) -> bool {
        self.has_met()
            && !self.stays()
            // The mark is TCP's: what follows it has to follow it there.
            && self.peer().is_some_and(|peer| !peer.has_urgent())
            && !self.is_gone()
    }

    /// Tells whether the other end's file is being closed.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.pair.end(!self.active).is_gone()
    }

    /// Runs `f` while no bytes are written: a FIN is to follow the last of them.
    pub(crate) fn without_writers<R>(&self, f: impl FnOnce() -> R) -> R {
        let _writer = self.out().writer.lock();
        f()
    }

    /// Takes note that TCP has told the reader of its bytes.
    #[cold]
    pub(super) fn tcp_tells(&self) {
        self.pair.end(self.active).told.set(1);
    }

    /// Tells whether TCP has, in the call that asks.
    #[cold]
    pub(super) fn is_told(&self) -> bool {
        let told = &self.pair.end(self.active).told;
        let yes = told.get() != 0;
        told.set(0);
        yes
    }

    /// Has the other end write to TCP from now on, which alone tells how many bytes are left (`TCP_INQ`).
    pub(crate) fn wants_count(&self) {
        self.pair.end(self.active).details.set(1);
    }

    /// Has both ends write to TCP from now on: its packets are to carry something of their own.
    pub(crate) fn bind_to_tcp(&self) {
        self.pair.client.details.set(1);
        self.pair.server.details.set(1);
    }

    /// Takes both directions back to TCP, for good.
    ///
    /// # Errors
    ///
    /// `EBUSY` while there are bytes in the ring that this end has not read, or the other end writes there.
    pub(crate) fn retire(&self) -> Result {
        self.bind_to_tcp();
        if !self.has_met() {
            self.give_up();
        }
        let way = self.out();
        way.end(&mut way.writer.lock());
        let way = self.inward();
        self.end_of_peer(way)?;
        let mut reader = way.reader.lock();
        if way.there() != 0 {
            return Err(EBUSY);
        }
        // Nothing has been put behind the cut, and nobody puts anything there.
        way.replace_route(way.route(), Route::TCP);
        *reader = None;
        if !self.is_retired() {
            self.pair.end(self.active).retired.set(1);
            self.settle();
        }
        Ok(())
    }

    /// Has the other end turn back to TCP. It may sleep while it writes, for a page of its program's memory:
    /// that is not waited for.
    fn end_of_peer(&self, way: &Way) -> Result {
        for _ in 0..10 {
            if let Some(mut writer) = way.writer.try_lock() {
                way.end(&mut writer);
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        Err(EBUSY)
    }

    /// Tells whether [`Local::retire`] has been done.
    pub(crate) fn is_retired(&self) -> bool {
        self.pair.end(self.active).retired.get() != 0
    }

    /// Takes note that this end writes into a ring; counts the first time.
    pub(super) fn moved(&self) {
        let end = self.pair.end(self.active);
        if end.moved.get() == 0 {
            end.moved.set(1);
            self.namespace.counters.moved(Role::of(self.active));
        }
    }

    /// Tells whether nobody will read what is sent: the other end's file is being closed, or its program
    /// has shut both directions. TCP's answer is a reset then.
    #[inline]
    pub(super) fn is_deserted(&self) -> bool {
        let deaf = || self.peer().is_some_and(Sock::is_receive_shut);
        self.is_gone() || self.own().is_receive_shut() && deaf()
    }

    /// Tells whether the connection is to stay on TCP, or to go back there with the next byte.
    #[inline]
    pub(super) fn stays(&self) -> bool {
        self.namespace.sysctls.get(Sysctl::PathLocal) == 0
    }

    /// Tells whether the program at either end wants of its bytes what TCP alone can do, or somebody wants
    /// to see the packets.
    #[inline]
    pub(super) fn is_bound_to_tcp(&self) -> bool {
        self.pair.end(!self.active).details.get() != 0
            || self.own().wants_send_stamps()
            || self
                .peer()
                .is_none_or(|peer| peer.wants_details() || self.own().has_packet_programs(peer))
    }

    /// Tells whether a test has writers change carriers.
    #[inline]
    pub(super) fn is_tested(&self) -> bool {
        self.namespace.sysctls.get(Sysctl::PathFlip) != 0
    }

    /// Tells whether a writer has to leave the ring.
    #[inline]
    pub(super) fn is_to_leave(&self) -> bool {
        self.stays() || self.is_deserted() || self.is_bound_to_tcp()
    }

    /// Tells the same, given the other end.
    #[inline(always)]
    pub(super) fn leaves(&self, other: &End) -> bool {
        let Some(peer) = other.sock() else {
            return true;
        };
        self.stays()
            || other.is_gone()
            || other.details.get() != 0
            || peer.wants_details()
            || self.own().wants_send_stamps()
            || self.own().has_packet_programs(peer)
            || self.own().is_receive_shut() && peer.is_receive_shut()
    }

    /// Tells whether a writer is to change carriers for the sake of a test (the sysctl `path_flip`): on
    /// average after half as many messages. The writer holds its lock.
    #[inline]
    pub(super) fn flips(&self) -> bool {
        match self.namespace.sysctls.get(Sysctl::PathFlip) {
            0 => false,
            most => self.out().counts_down(most as u32),
        }
    }

    /// Tells whether the ring has bytes to be read.
    pub(super) fn ring_holds(&self) -> bool {
        self.inward().there() != 0
    }

    /// Returns how many bytes could be read, up to an urgent one.
    pub(super) fn readable(&self) -> usize {
        self.with_tcp(Sock::unread_bytes)
    }

    /// Returns how many bytes have arrived, an urgent one among them: poll() is about these.
    pub(super) fn arrived(&self) -> usize {
        self.with_tcp(Sock::arrived_bytes)
    }

    /// Tells whether there is a byte behind the first `seen`. A call that begins at the urgent one passes it.
    pub(super) fn is_behind(&self, seen: usize) -> bool {
        let to_mark = self.readable();
        to_mark > seen || self.arrived() > seen.saturating_add(usize::from(seen == to_mark))
    }

    fn with_tcp(&self, unread: impl FnOnce(&Sock) -> usize) -> usize {
        let way = self.inward();
        let route = way.route();
        let there = way.there();
        if route.is_ring() {
            return there;
        }
        let sock = self.own();
        let [tcp, ring, behind] = route.readable(sock.position(), unread(sock), there);
        tcp.saturating_add(ring).saturating_add(behind)
    }

    /// Returns the bytes for which poll() waits: `SO_RCVLOWAT`, at most half of what a ring may hold, as
    /// more may never be there at once.
    pub(super) fn low_water(&self) -> usize {
        self.own().low_water(false, FIRST / 2)
    }

    /// Tells whether this end's bytes go into the ring.
    #[inline]
    pub(super) fn writes_ring(&self) -> bool {
        self.out().route().writes_ring()
    }

    /// Tells whether the ring has room for a writer; if not, one is woken when it has.
    pub(super) fn has_room(&self) -> bool {
        let room = self.out().has_room();
        if !room {
            self.own().expect_room();
        }
        room || self.is_deserted()
    }

    /// Returns the size up to which rings grow.
    pub(super) fn most(&self) -> usize {
        let most = self.namespace.sysctls.get(Sysctl::PathRing);
        let most = usize::try_from(most).unwrap_or(FIRST);
        let wanted = self.own().wanted_send_buffer().unwrap_or(most).min(most);
        // Down to a power of two.
        1usize << wanted.max(FIRST).ilog2()
    }

    /// Stops waiting for the other end. Returns whether it has not come.
    pub(crate) fn give_up(&self) -> bool {
        let alone = MEETINGS
            .get()
            .is_some_and(|meetings| meetings.leave(&self.pair));
        alone && !self.has_met()
    }

    /// Tells whether the connection was reset because bytes went by TCP behind a cut.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.pair.broken.load(Relaxed) != 0
    }

    /// Takes note of that. Returns whether it is the first time.
    pub(super) fn break_off(&self) -> bool {
        self.pair.broken.xchg(1, Relaxed) == 0
    }

    /// Closes this end: its file is being closed, and nobody reads or writes here any more.
    pub(crate) fn close(&self) {
        if !self.is_retired() {
            self.settle();
        }
        self.let_go();
        // Asked when nobody puts bytes there any more, but for one who looks whether we are here afterwards.
        // Who has left may have another connection by now.
        if self.has_met() && !self.has_left() && self.ring_holds() {
            // As TCP when bytes have not been read.
            self.own().abort();
        }
    }

    /// Leaves the connection, which is being dissolved: calls under way end.
    pub(crate) fn leave(&self) {
        self.pair.end(self.active).left.set(1);
        self.let_go();
    }

    /// Tells whether the program has left the connection, which TCP may have made another one by now.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.pair.end(self.active).left.get() != 0
    }

    /// Returns the number of bytes that this end has put into its ring, and of those that the other end has
    /// put into the one to this end.
    pub(crate) fn carried(&self) -> (u64, u64) {
        let [(_, sent), _] = self.out().counts();
        let [(_, received), _] = self.inward().counts();
        (sent, received)
    }

    /// Adds what has gone through the rings to the namespace's statistics.
    fn settle(&self) {
        let [(puts, sent), _] = self.out().counts();
        let [_, (takes, received)] = self.inward().counts();
        let stats = self.counts();
        for (stat, by) in [
            (Stat::TxCalls, puts),
            (Stat::TxBytes, sent),
            (Stat::RxCalls, takes),
            (Stat::RxBytes, received),
        ] {
            stats.add(stat, by);
        }
    }

    /// Gives the rings back, and tells the other end that nobody is here.
    fn let_go(&self) {
        let pair = &self.pair;
        pair.end(self.active).gone.set(1);
        full_barrier();
        if !self.has_met() {
            if let Some(meetings) = MEETINGS.get() {
                meetings.leave(pair);
            }
        }
        let (inward, out) = (self.inward(), self.out());
        let read: Option<Arc<Ring>> = {
            let mut reader = inward.reader.lock();
            let arrived = self.own().arrived_to();
            self.has_got_astray(inward.route(), arrived);
            reader.take()
        };
        let written = {
            let mut writer = out.writer.lock();
            self.has_sent_astray();
            writer.take()
        };
        drop((read, written));
        if self.is_gone() {
            self.forget_rings();
        }
        if let Some(peer) = self.peer() {
            // A writer that waits for room.
            peer.wake_for_room();
        }
    }
}
