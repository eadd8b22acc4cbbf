// SPDX-License-Identifier: GPL-2.0

//! An SMC-R connection: the protocol's state, its two rings, and who is to be woken.
//!
//! Locks, in the order in which they are taken: `writers` or `readers` (process context, around
//! copies from and to programs), the group's `turns`, then [`SmcConn::proto`] (softirq).

mod events;
mod perform;
mod stamp;

use crate::{
    group::LinkGroup,
    namespace::Namespace,
    slab::Lease,
    stats::{Buffer, Stats, Way}, //
};
use kapi::{
    errno,
    net::sock::Sock,
    new_spinlock_bh,
    rdma::{
        dma::Direction,
        region::Region,
        ring::Ring,
        wr::Remote, //
    },
    sys::{
        clock,
        hook::{Notify, TimerHook},
        lock::SpinLockBh,
        word::Word, //
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
        Mutex,
        SetOnce, //
    },
    workqueue::Work, //
};
use smc_proto::{
    conn::{Conn, Params, Peer},
    cursor::RingSize,
    group::rtoken::rmbe_offset,
    time::{Instant, Span},
    wire::{bufsize::BufSize, clc::RdmaEnd, ids::AlertToken}, //
};

/// The present time, as the protocol counts it.
pub(crate) fn now() -> Instant {
    Instant(clock::nanos())
}

/// Has a timer fire once `deadline` has passed.
pub(crate) fn arm<T: Notify>(timer: &TimerHook<T>, deadline: Instant) {
    let wait = deadline.since(now()).as_millis_ceil();
    timer.arm(u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1));
}

/// An SMC-R connection.
#[pin_data]
pub(crate) struct SmcConn {
    group: Arc<LinkGroup>,
    number: u8,
    token: AlertToken,
    /// The TCP connection beneath; its wait queue is the program's.
    sock: ARef<Sock>,
    #[pin]
    pub(crate) proto: SpinLockBh<Conn>,
    recv: Ring,
    recv_size: RingSize,
    /// Made when the program first sends: many connections only listen.
    send: SetOnce<Ring>,
    send_size: RingSize,
    remote: SetOnce<Remote>,
    /// What this connection has counted since it last gave its counts to the namespace.
    stats: Stats,
    /// 1 after shutdown(SHUT_RD). TCP's own bit is of no use: it also says that the peer's FIN has
    /// come, which may overtake data that is still on its way by RDMA.
    read_shut: Word,
    /// 1 from when our FIN goes on the TCP connection beneath: once the peer's has come, too, that is over
    /// in good order.
    fin_sent: Word,
    /// Not 0 while the connection counts among those that drain; see [`Namespace::begin_drain`].
    drains: Atomic<u64>,
    /// 1 when there may be something to read; a hint, written under the lock of `proto`.
    pub(crate) news: Word,
    stamp: stamp::Stamp,
    /// 1 when the program has kept the socket for something else: what happens here is no news.
    left: Atomic<u32>,
    #[pin]
    lease: Mutex<Option<Lease>>,
    /// Serialises programs that write.
    #[pin]
    pub(crate) writers: Mutex<()>,
    /// Serialises programs that read.
    #[pin]
    pub(crate) readers: Mutex<()>,
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<SmcConn>>>>>,
    todo: Atomic<u32>,
    #[pin]
    work: Work<SmcConn>,
}

impl_has_work! {
    impl HasWork<Self> for SmcConn { self.work }
}

/// What a connection is made of.
pub(crate) struct Parts {
    /// Its group.
    pub(crate) group: Arc<LinkGroup>,
    /// Its number in the group.
    pub(crate) slot: u8,
    /// Its name on the wire.
    pub(crate) token: AlertToken,
    /// The TCP connection.
    pub(crate) sock: ARef<Sock>,
    /// Its receive buffer.
    pub(crate) lease: Lease,
    /// The size of that.
    pub(crate) recv_size: RingSize,
    /// The size of its send ring.
    pub(crate) send_size: RingSize,
    /// Most bytes to hold back.
    pub(crate) autocork: u32,
    /// How long a closed connection waits for a peer that takes nothing.
    pub(crate) drain_idle: Span,
}

impl SmcConn {
    /// A connection whose handshake is under way.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>> {
        let recv = parts.lease.ring()?;
        let conn = Conn::new(Params {
            token: parts.token,
            recv: parts.recv_size,
            send: parts.send_size,
            autocork: parts.autocork,
            drain_idle: parts.drain_idle,
        });
        let Parts {
            group,
            slot: number,
            token,
            sock,
            lease,
            recv_size,
            send_size,
            ..
        } = parts;
        Arc::pin_init(
            pin_init!(Self {
                group,
                number,
                token,
                sock,
                proto <- new_spinlock_bh!(conn, "rsmc::SmcConn::proto"),
                recv,
                recv_size,
                send: SetOnce::new(),
                send_size,
                remote: SetOnce::new(),
                stats: Stats::new(),
                read_shut: Word::new(0),
                news: Word::new(0),
                stamp: stamp::Stamp::new(),
                drains: Atomic::new(0),
                fin_sent: Word::new(0),
                left: Atomic::new(0),
                lease <- new_mutex!(Some(lease), "rsmc::SmcConn::lease"),
                writers <- new_mutex!((), "rsmc::SmcConn::writers"),
                readers <- new_mutex!((), "rsmc::SmcConn::readers"),
                timer <- new_mutex!(None, "rsmc::SmcConn::timer"),
                todo: Atomic::new(0),
                work <- new_work!("rsmc::SmcConn::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The group that carries the connection.
    pub(crate) fn group(&self) -> &Arc<LinkGroup> {
        &self.group
    }

    /// The number of the connection in its group.
    pub(crate) fn slot(&self) -> u8 {
        self.number
    }

    /// The name of the connection on the wire.
    pub(crate) fn token(&self) -> AlertToken {
        self.token
    }

    /// The TCP connection beneath.
    pub(crate) fn sock(&self) -> &Sock {
        &self.sock
    }

    /// Where received bytes are.
    pub(crate) fn recv_ring(&self) -> &Ring {
        &self.recv
    }

    /// Where bytes to send are, once the program has sent any.
    pub(crate) fn send_ring(&self) -> Option<&Ring> {
        self.send.as_ref()
    }

    /// How many bytes to send there is room for.
    pub(crate) fn send_size(&self) -> usize {
        self.send_size.bytes() as usize
    }

    /// The send ring, made if need be. Sleeps; the caller holds `writers`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`.
    pub(crate) fn make_send_ring(&self) -> Result<&Ring> {
        if let Some(ring) = self.send.as_ref() {
            return Ok(ring);
        }
        let size = self.send_size();
        let (region, kind) = match self.group.take_spare(size) {
            Some(region) => (region, Buffer::Reused),
            None => {
                let region = Region::new(self.group.device(), size, Direction::ToDevice)?;
                (region, Buffer::Allocated)
            }
        };
        self.send.populate(Ring::new(region, 0, size)?);
        let ring = self.send.as_ref().ok_or(ENOMEM)?;
        if !self.group.keeps(self) {
            // Its end may not have seen the ring.
            ring.region().revoke();
        }
        self.stats.buffer_size(Way::Tx, size);
        self.stats.usage(Way::Tx, size as i64);
        self.stats.buffer(Way::Tx, kind);
        Ok(ring)
    }

    /// Where the peer's receive buffer begins.
    pub(crate) fn remote(&self) -> Option<Remote> {
        self.remote.copy()
    }

    /// The size of the peer's receive buffer, in bytes.
    pub(crate) fn peer_size(&self) -> Option<usize> {
        Some(self.proto.lock().peer()?.ring.bytes() as usize)
    }

    /// Our receive buffer, as accept and confirm name it.
    pub(crate) fn announce(&self) -> Option<RdmaEnd> {
        let lease = self.lease.lock();
        let (rkey, addr, rmbe_idx) = lease.as_ref()?.announce();
        Some(RdmaEnd {
            rkey,
            addr,
            rmbe_idx,
            token: self.token,
            size: BufSize::from_code(self.recv_size.code()?),
            ..RdmaEnd::default()
        })
    }

    /// Learns the peer's end from its accept or confirm.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that makes no sense.
    pub(crate) fn set_peer(&self, end: &RdmaEnd) -> Result {
        let extensions = self.group.extensions();
        let peer: Peer = smc_proto::handshake::peer(end, extensions).ok_or(EINVAL)?;
        let addr = rmbe_offset(end.rmbe_idx, peer.ring.bytes())
            .and_then(|offset| offset.checked_add(end.addr))
            .ok_or(EINVAL)?;
        self.remote.populate(Remote {
            addr,
            rkey: end.rkey.0,
        });
        self.proto.lock().set_peer(peer);
        Ok(())
    }

    /// Our accept or confirm goes out: from now on the peer may write into our buffer.
    pub(crate) fn expose(&self) {
        self.proto.lock().expose();
    }

    /// The peer has declined: it will not write into our buffer.
    pub(crate) fn peer_declined(&self) {
        self.proto.lock().peer_declined();
    }

    /// The handshake has ended well.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the link was lost meanwhile; `ENOMEM`.
    pub(crate) fn establish(self: &Arc<Self>) -> Result {
        *self.timer.lock() = Some(TimerHook::new(self.clone())?);
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

    /// What this connection counts.
    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gives what was counted to the namespace, which has to keep it when the socket is gone.
    pub(crate) fn settle_stats(&self) {
        if let Some(namespace) = Namespace::of(&self.sock) {
            namespace.settle(self);
        }
    }

    /// Which ways are shut, as `sock_diag` shows it: 1 receive, 2 send.
    pub(crate) fn shut_ways(&self) -> u8 {
        self.proto.lock().shut_ways() | u8::from(self.is_read_shut())
    }

    /// The state as `sock_diag` shows it.
    pub(crate) fn state_number(&self) -> u32 {
        self.proto.lock().state() as u32
    }
}
