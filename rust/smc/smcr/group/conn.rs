// SPDX-License-Identifier: GPL-2.0

//! An SMC-R connection: its protocol state, its two rings, and the wake-ups of the program.
//!
//! Locks, in the order in which they are taken: `writers` or `readers` (process context, around
//! copies from and to programs), then [`SmcConn::proto`] (softirq).
//! Documentation/locking.md has the whole order.

mod events;
mod idle;
mod leave;
mod perform;
mod recv;
mod ring;
mod stamp;

pub(crate) use ring::{charged_bytes, Writers};

use super::{super::slab::Lease, LinkGroup};
use crate::host::{
    clock::now,
    namespace::Namespace,
    promotions::Cause,
    stats::Stats, //
};
use core::ops::{Deref, DerefMut};
use kapi::{
    errno,
    net::sock::{Charge, Sock},
    new_spinlock_bh,
    rdma::region::Region,
    sys::{
        hook::TimerHook,
        lock::SpinLockBh,
        word::{full_barrier, Count, Word}, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Atomic,
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use recv::{Leases, Readers, RecvRings};
use smc_proto::{
    conn::{Conn, Params, Peer, RecvState},
    cursor::RingSize,
    time::Span,
    wire::{bufsize::BufSize, clc::RdmaEnd, ids::AlertToken, promotion::MARK_LEN}, //
};

/// Values of [`SmcConn::apart`].
const APART: u32 = 1;
const FOLLOWED: u32 = 2;

/// The largest ring, in bytes: more cannot be registered at once everywhere.
pub(crate) const RING_MAX: u32 = 1 << 20;

/// Bytes of the marks that each end says before any of its program's, if the connection began as TCP.
pub(crate) const MARKS: usize = 2 * MARK_LEN;

/// The timer of a connection.
type Timer = Pin<KBox<TimerHook<SmcConn>>>;

/// What sends and arrivals change: the protocol's state, and the send ring as it is posted from.
pub(crate) struct Locked {
    pub(super) conn: Conn,
    /// The send ring, while there is one.
    pub(super) ring: Option<Arc<Region>>,
    /// The receive rings.
    pub(crate) recv: RecvRings,
    /// True once the group has forgotten the connection, which then gets no ring any more.
    pub(super) forgotten: bool,
}

impl Deref for Locked {
    type Target = Conn;

    #[inline]
    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

/// An SMC-R connection.
#[pin_data]
pub(crate) struct SmcConn {
    group: Arc<LinkGroup>,
    /// Index of the connection in its group.
    index: u8,
    token: AlertToken,
    /// The TCP connection beneath; its wait queue is the program's.
    sock: ARef<Sock>,
    #[pin]
    pub(crate) proto: SpinLockBh<Locked>,
    send_size: RingSize,
    /// The number of the NAPI context by which data arrive, for programs that poll it themselves.
    napi_id: u32,
    /// Counts that have not been added to the namespace's yet.
    stats: Stats,
    /// 1 after shutdown(SHUT_RD). TCP's own bit does not serve: the peer's FIN sets it, too, and
    /// may overtake data that is still on its way by RDMA.
    read_shut: Word,
    /// 1 once our FIN is sent on the TCP connection beneath: when the peer's has come, too, that
    /// has ended in good order.
    fin_sent: Word,
    /// Not 0 while the connection counts among those that drain; see [`Namespace::begin_drain`].
    drains: Atomic<u64>,
    /// 1 when there may be bytes to read, or an end to see. It becomes 0 under the lock of `proto`, by a read that finds
    /// nothing more, and 1 before a reader is woken.
    pub(crate) maybe_readable: Word,
    stamp: stamp::Stamp,
    /// 1 while a send that has found no memory for its ring is not to try again.
    ring_enomem: Word,
    /// The user of the program that has read so much that its ring is to grow; see
    /// [`process::account`](kapi::net::process::account).
    reader: Atomic<u64>,
    /// Number of splice() calls from the socket under way.
    splices: Atomic<i32>,
    /// 1 when connect() has dissolved the connection: the program has kept the socket, to which errors are not
    /// reported any more.
    dissolved: Count,
    /// [`APART`] while the bytes of the socket go by TCP, and those of this connection are not the program's: its end is
    /// nobody's business but of [`Remote`](crate::stream::remote::Remote). [`FOLLOWED`] once the peer has turned: what
    /// arrives is the program's, what it writes goes by TCP still. 0 otherwise.
    apart: Word,
    /// 1 if the stream can go on by TCP when the link is lost.
    lifeline: Word,
    /// 1 while TCP has not brought all that the peer has sent before it left TCP.
    misses_rest: Word,
    /// 1 while a reset of TCP would come after the peer's end, and before that of the program.
    peer_has_ended: Word,
    /// 1 once the rings are left for that.
    suspended: Word,
    /// Why the peer was asked to leave the rings, or why they are left: a [`Cause`](crate::host::promotions::Cause).
    cause: Word,
    idle: idle::Idle,
    /// The buffers of the receive rings, until the connection is over.
    #[pin]
    leases: Mutex<Option<Leases>>,
    /// Serialises sendmsg().
    #[pin]
    pub(crate) writers: Mutex<Writers>,
    /// Serialises recvmsg().
    #[pin]
    pub(crate) readers: Mutex<Readers>,
    #[pin]
    timer: Mutex<Option<Timer>>,
    /// The [`Actions`](smc_proto::conn::Actions) that are left to the workqueue.
    todo: Atomic<u32>,
    #[pin]
    work: Work<SmcConn>,
}

impl_has_work! {
    impl HasWork<Self> for SmcConn { self.work }
}

/// State of a connection that is apart from its socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// It can be used.
    Open,
    /// The peer has ended its direction, or all of it.
    Ended,
    /// The peer has aborted it.
    Aborted,
    /// Its link was lost, or this end has ended it.
    Lost,
}

/// Parameters of a new connection.
pub(crate) struct Parts {
    /// The link group.
    pub(crate) group: Arc<LinkGroup>,
    /// Index of the connection in its group.
    pub(crate) index: u8,
    /// Alert token, the connection's name on the wire.
    pub(crate) token: AlertToken,
    /// The TCP connection.
    pub(crate) sock: ARef<Sock>,
    /// The receive buffer.
    pub(crate) lease: Lease,
    /// What was charged for both rings.
    pub(crate) charge: Option<Charge>,
    /// Sizes to which the receive ring and the send ring may grow.
    pub(crate) most: (RingSize, RingSize),
    /// Size of the send ring.
    pub(crate) send_size: RingSize,
    /// Most bytes that autocorking holds back.
    pub(crate) autocork: u32,
    /// Time that a closed connection waits for a peer that takes no data.
    pub(crate) drain_idle: Span,
    /// True if the socket is not the connection's yet.
    pub(crate) apart: bool,
}

impl SmcConn {
    /// Creates a connection whose handshake is under way.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>> {
        let recv = parts.lease.ring()?;
        let mut conn = Conn::new(Params {
            token: parts.token,
            recv: parts.lease.size(),
            send: parts.send_size,
            recv_most: parts.most.0,
            send_most: parts.most.1,
            autocork: parts.autocork,
            drain_idle: parts.drain_idle,
        });
        if parts.apart {
            // What the two kernels say first.
            conn.begins_with(MARKS as u8);
        }
        let Parts {
            group,
            index,
            token,
            sock,
            lease,
            charge,
            send_size,
            apart,
            ..
        } = parts;
        let napi_id = group.link.napi_id();
        let locked = Locked {
            conn,
            ring: None,
            recv: RecvRings::new(recv.clone()),
            forgotten: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                group,
                napi_id,
                index,
                token,
                sock,
                proto <- new_spinlock_bh!(locked, "rsmc::SmcConn::proto"),
                send_size,
                stats: Stats::new(),
                read_shut: Word::new(0),
                maybe_readable: Word::new(0),
                stamp: stamp::Stamp::new(),
                drains: Atomic::new(0),
                fin_sent: Word::new(0),
                ring_enomem: Word::new(0),
                reader: Atomic::new(0),
                splices: Atomic::new(0),
                dissolved: Count::new(0),
                apart: Word::new(if apart { APART } else { 0 }),
                lifeline: Word::new(0),
                misses_rest: Word::new(0),
                peer_has_ended: Word::new(0),
                suspended: Word::new(0),
                cause: Word::new(Cause::Peer as u32),
                idle: idle::Idle::new(),
                leases <- new_mutex!(Some(Leases::new(lease, charge)), "rsmc::SmcConn::leases"),
                writers <- new_mutex!(Writers::new(), "rsmc::SmcConn::writers"),
                readers <- new_mutex!(Readers::new(recv), "rsmc::SmcConn::readers"),
                timer <- new_mutex!(None, "rsmc::SmcConn::timer"),
                todo: Atomic::new(0),
                work <- new_work!("rsmc::SmcConn::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the link group that carries the connection.
    pub(crate) fn group(&self) -> &Arc<LinkGroup> {
        &self.group
    }

    /// Returns the index of the connection in its group.
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// Returns the alert token, the connection's name on the wire.
    pub(crate) fn token(&self) -> AlertToken {
        self.token
    }

    /// Returns the TCP connection beneath.
    pub(crate) fn sock(&self) -> &Sock {
        &self.sock
    }

    /// Returns how many bytes have to be there for a poller to hear of them: as many as `SO_RCVLOWAT` says, at most half
    /// of the ring, as more may never be there at once; at least 1.
    #[inline]
    pub(crate) fn poll_low_water(&self, proto: &Conn) -> usize {
        let (_, recv) = proto.rings();
        self.sock.low_water(false, recv.bytes() as usize / 2)
    }

    /// Tells whether a poller is to hear of the data that are there.
    pub(crate) fn has_enough(&self, proto: &Conn) -> bool {
        let low = self.poll_low_water(proto);
        match proto.recv_state() {
            RecvState::Data(there) => there as usize >= low || proto.waiting() as usize >= low,
            _ => false,
        }
    }

    /// Returns the size of the first send ring.
    pub(super) fn first_send_ring(&self) -> RingSize {
        self.send_size
    }

    /// Returns the size of the first send ring, in bytes.
    pub(crate) fn send_size(&self) -> usize {
        self.send_size.bytes() as usize
    }

    /// Returns the size of the peer's receive buffer, in bytes, once it is known.
    pub(crate) fn peer_size(&self) -> Option<usize> {
        Some(self.proto.lock().peer()?.ring.bytes() as usize)
    }

    /// Returns our receive buffer as CLC accept and confirm announce it.
    pub(crate) fn announce(&self) -> Option<RdmaEnd> {
        let leases = self.leases.lock();
        let lease = leases.as_ref()?.first()?;
        let (rkey, addr, rmbe_idx) = lease.announce();
        Some(RdmaEnd {
            rkey,
            addr,
            rmbe_idx,
            token: self.token,
            size: BufSize::from_code(lease.size().code()?),
            ..RdmaEnd::default()
        })
    }

    /// Takes over the peer's end from its CLC accept or confirm.
    ///
    /// # Errors
    ///
    /// `EINVAL` for values that make no sense.
    pub(crate) fn set_peer(&self, end: &RdmaEnd) -> Result {
        let extensions = self.group.extensions();
        let peer: Peer = smc_proto::handshake::peer(end, extensions).ok_or(EINVAL)?;
        self.proto.lock().set_peer(peer);
        Ok(())
    }

    /// Notes that our accept or confirm goes out: from now on the peer may write into our buffer.
    pub(crate) fn expose(&self) {
        self.proto.lock().expose();
    }

    /// Notes that the peer has declined, and will not write into our buffer.
    pub(crate) fn peer_declined(&self) {
        self.proto.lock().peer_declined();
    }

    /// Opens the connection after a successful handshake.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the link was lost meanwhile; `ENOMEM`.
    pub(crate) fn establish(self: &Arc<Self>) -> Result {
        *self.timer.lock() = Some(TimerHook::new(self.clone())?);
        self.set_napi();
        let actions = self
            .proto
            .lock()
            .establish(now())
            .map_err(|_| errno::ECONNABORTED.error())?;
        // connect() wakes those who wait when the socket has become this connection's. Told before,
        // io_uring, which asks no poll(), would call connect() again and find it undecided.
        self.perform(actions.quietly());
        Ok(())
    }

    /// Says where data for the socket come from.
    #[inline]
    fn set_napi(&self) {
        self.sock.set_napi(self.napi_id);
    }

    /// Polls the card for data, as long as `SO_BUSY_POLL` says; once if `nonblock`. Returns whether it has.
    #[inline]
    pub(crate) fn busy_poll(&self, nonblock: bool) -> bool {
        if self.sock.busy_poll_micros() == 0 {
            return false;
        }
        let has_ended = || self.maybe_readable.get() != 0;
        self.sock.busy_poll(self.napi_id, nonblock, has_ended);
        true
    }

    /// Takes note that what arrives from now on is the program's. The caller wakes pollers.
    pub(crate) fn is_followed(&self) {
        if self.is_apart() {
            self.apart.set(FOLLOWED);
            full_barrier();
        }
    }

    /// Makes the socket the connection's, which was apart from it.
    pub(crate) fn takes_over(&self) {
        self.apart.set(0);
        full_barrier();
        if self.proto.lock().knows_urgent() {
            // Nobody has been told while the socket was not the connection's.
            self.sock.signal_urgent();
        }
        // Nor has a poller heard of the bytes that came meanwhile.
        self.sock.wake_readers();
    }

    /// Tells whether the connection's end ends the socket's, too.
    #[inline]
    pub(super) fn has_socket(&self) -> bool {
        !self.is_dissolved() && !self.is_apart()
    }

    /// Tells whether the bytes of the socket go by TCP still.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.apart.get() != 0
    }

    /// Tells how the connection stands while it is apart from its socket.
    pub(crate) fn apart_state(&self) -> Apart {
        let proto = self.proto.lock();
        if proto.is_killed() {
            Apart::Lost
        } else if proto.is_aborted_by_peer() {
            Apart::Aborted
        } else if proto.shut_ways() & 1 != 0 {
            Apart::Ended
        } else {
            Apart::Open
        }
    }

    /// Returns the counts that have not been added to the namespace's yet.
    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Adds the counts to those of the namespace, which keeps them when the socket is gone.
    pub(crate) fn settle_stats(&self) {
        if let Some(namespace) = Namespace::of(&self.sock) {
            namespace.settle(&self.stats);
        }
    }

    /// Returns the directions that are shut, as bits of `sock_diag`: 1 receive, 2 send.
    pub(crate) fn shut_ways(&self) -> u8 {
        self.proto.lock().shut_ways() | u8::from(self.is_read_shut())
    }

    /// Returns the protocol state, as a number of `sock_diag`.
    pub(crate) fn state_number(&self) -> u32 {
        self.proto.lock().state() as u32
    }
}
