// SPDX-License-Identifier: GPL-2.0

//! The two ends of a local path, and one of them as its socket sees it.

use super::direction::{CountedRing, LocalDirection, FIRST};
use crate::host::{fallback::Role, namespace::Namespace};
use kapi::{
    net::sock::{Shareable, SharedSock, Sock},
    sys::{
        roster::Link,
        word::{Count, Word}, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, //
    }, //
};
use smc_proto::path::Route;

/// Bytes that TCP's receiver takes at first if its program reads nothing.
const WINDOW: usize = 64 << 10;

/// An end: its sock, and the direction in which it writes.
#[pin_data]
pub(super) struct End {
    /// Its TCP connection, while it is here. The other end uses it, but does not keep it alive.
    pub(super) sock: SharedSock,
    #[pin]
    pub(super) out: LocalDirection,
    /// 1 when its file is being closed.
    pub(super) gone: Word,
    /// 1 when it has left with none of its bytes in TCP after the cut.
    pub(super) quiet: Word,
    /// 1 when TCP has told a reader of the time of its bytes, and how many are left.
    told: Word,
    /// 1 when its program has asked for `TCP_INQ`.
    pub(super) details: Word,
    /// 1 when it has written into a ring.
    moved: Word,
    /// 1 when its program has dissolved the connection.
    pub(super) dissolved: Word,
    /// 1 when TCP has its connection for good.
    pub(super) retired: Word,
    /// Number of splice() calls under way.
    splices: Atomic<i32>,
    /// The part of this end's counts that is in the statistics of its namespace; under its lock `settling`.
    pub(super) settled: [Count; 4],
}

impl End {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            sock: SharedSock::new(),
            out <- LocalDirection::new(),
            gone: Word::new(0),
            quiet: Word::new(0),
            dissolved: Word::new(0),
            retired: Word::new(0),
            told: Word::new(0),
            details: Word::new(0),
            moved: Word::new(0),
            splices: Atomic::new(0),
            settled: [const { Count::new(0) }; 4],
        })
    }
}

impl End {
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
    /// 1 when bytes went by TCP after a cut.
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

    /// Puts the second end here, which makes the pair complete.
    pub(super) fn join(&self, active: bool, sock: Shareable) {
        self.end(active).sock.set(sock);
        self.joined.release(1);
    }

    /// Tells whether the two ends have met.
    #[inline]
    pub(super) fn has_met(&self) -> bool {
        self.joined.acquire() != 0
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
    pub(super) fn out(&self) -> &LocalDirection {
        &self.pair.end(self.active).out
    }

    /// Returns the direction from which this end reads.
    #[inline]
    pub(super) fn inward(&self) -> &LocalDirection {
        &self.pair.end(!self.active).out
    }

    /// Runs `f`, which does not sleep, with the other end's TCP connection; `None` when that has not come, or has left.
    #[inline]
    pub(super) fn with_peer<R>(&self, f: impl FnOnce(&Sock) -> R) -> Option<R> {
        self.pair.end(!self.active).sock.with(f)
    }

    pub(super) fn splices(&self) -> &Atomic<i32> {
        &self.pair.end(self.active).splices
    }

    /// Tells whether the two ends have met.
    #[inline]
    pub(crate) fn has_met(&self) -> bool {
        self.pair.has_met()
    }

    /// Tells whether bytes go through a ring in either direction.
    pub(crate) fn is_moved(&self) -> bool {
        self.out().route() != Route::TCP || self.inward().route() != Route::TCP
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

    /// Takes note that this end writes into a ring; counts the first time.
    pub(super) fn moved(&self) {
        let end = self.pair.end(self.active);
        if end.moved.get() == 0 {
            end.moved.set(1);
            self.namespace.counters.moved(Role::of(self.active));
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

    /// Tells whether there is a byte after the first `seen`. A call that begins at the urgent one passes it.
    pub(super) fn is_behind(&self, seen: usize) -> bool {
        let to_mark = self.readable();
        to_mark > seen || self.arrived() > seen.saturating_add(usize::from(seen == to_mark))
    }

    fn with_tcp(&self, unread: impl FnOnce(&Sock) -> usize) -> usize {
        in_both(self.inward(), self.own(), unread)
    }

    /// Tells whether enough has arrived for a poller here: `SO_RCVLOWAT`, or all that the writer has room for.
    pub(super) fn has_enough(&self) -> bool {
        is_enough(self.inward(), self.own())
    }

    /// Tells the same of the other end.
    pub(super) fn gave_enough(&self, peer: &Sock) -> bool {
        is_enough(self.out(), peer)
    }

    /// Tells whether this end's bytes go into the ring.
    #[inline]
    pub(super) fn writes_ring(&self) -> bool {
        self.out().route().writes_ring()
    }

    /// Tells whether the ring has room for a writer, or will be made larger. If not, the reader will wake the writer.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.out().has_room(|| self.most()) || self.awaits_room()
    }

    #[inline(never)]
    fn awaits_room(&self) -> bool {
        // Before the last check, as in TCP's poll: a reader that makes room after this sends SIGIO.
        self.own().expect_room();
        let room = self.out().awaits_room(|| self.most());
        if !room {
            self.with_peer(|peer| {
                if peer.has_low_water() {
                    // The ring is full, so the reader will never find more at once.
                    peer.wake_for_data();
                }
            });
        }
        room || self.is_deserted()
    }

    /// Returns the size up to which rings grow: `path_ring`, or, if the program has set `SO_SNDBUF` to less, as much
    /// as TCP would take then: the send buffer and the receiver's window.
    pub(super) fn most(&self) -> usize {
        let most = self.namespace.ring_limit();
        let own = self.own().wanted_send_buffer();
        let wanted = own.map_or(most, |own| own.saturating_add(WINDOW).min(most));
        // Down to a power of two.
        1usize << wanted.max(FIRST).ilog2()
    }

    /// Makes a ring for bytes of this end, the first of which is at position `first`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also when the user is at the limit.
    pub(super) fn ring(&self, size: usize, first: u64) -> Result<CountedRing> {
        CountedRing::new(size, first, self.namespace.user_limit())
    }

    /// Tells whether the connection was reset because bytes went by TCP after a cut.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.pair.broken.load(Relaxed) != 0
    }

    /// Takes note of that. Returns whether it is the first time.
    pub(super) fn break_off(&self) -> bool {
        self.pair.broken.xchg(1, Relaxed) == 0
    }

    /// Returns the number of bytes that this end has put into its ring, and of those that the other end has
    /// put into the one to this end.
    pub(crate) fn carried(&self) -> (u64, u64) {
        let [(_, sent), _] = self.out().counts();
        let [(_, received), _] = self.inward().counts();
        (sent, received)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Also of an end that was never closed: the other one is not to keep it.
        self.pair.end(self.active).sock.give_back();
    }
}

/// Returns how many bytes can be read at the reading end of a direction, whose TCP connection is `sock` and has as
/// many as `unread` says.
fn in_both(direction: &LocalDirection, sock: &Sock, unread: impl FnOnce(&Sock) -> usize) -> usize {
    let route = direction.route();
    let there = direction.there();
    if route.is_ring() {
        return there;
    }
    let [tcp, ring, behind] = route.readable(sock.position(), unread(sock), there);
    tcp.saturating_add(ring).saturating_add(behind)
}

fn is_enough(direction: &LocalDirection, sock: &Sock) -> bool {
    suffices(
        direction,
        sock,
        in_both(direction, sock, Sock::arrived_bytes),
    )
}

/// Tells whether a poller at the reading end of a direction, whose TCP connection is `sock`, is to hear of `there` bytes.
#[inline]
pub(super) fn suffices(direction: &LocalDirection, sock: &Sock, there: usize) -> bool {
    there != 0 && (there >= sock.low_water(false, usize::MAX) || direction.waits_for_room())
}
