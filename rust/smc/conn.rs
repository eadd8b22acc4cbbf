// SPDX-License-Identifier: GPL-2.0

//! An SMC-R connection: the protocol's state, its two rings, and who is to be woken.
//!
//! Locks, in the order in which they are taken: `writers` or `readers` (process context, around
//! copies from and to programs), the group's `tx`, then [`SmcConn::proto`] (softirq).

use crate::{
    group::LinkGroup,
    namespace::Namespace,
    slab::Lease,
    stats::{Buffer, Stats, Way}, //
};
use kapi::{
    errno,
    net::sock::{state, Sock},
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
        queue, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    conn::{Actions, CloseMode, Conn, Params, Peer, ProtoError, DRAIN_IDLE},
    cursor::RingSize,
    group::rtoken::rmbe_offset,
    time::Instant,
    wire::{bufsize::BufSize, cdc::Cdc, clc::RdmaEnd, ids::AlertToken, immediate::Immediate}, //
};

/// The present time, as the protocol counts it.
pub(crate) fn now() -> Instant {
    Instant(clock::nanos())
}

/// Bits of [`SmcConn::todo`].
mod todo {
    /// The connection is over.
    pub(super) const FREE: u32 = 1;
    /// The TCP connection is to be reset.
    pub(super) const TCP_ABORT: u32 = 2;
    /// The deadline has come.
    pub(super) const DEADLINE: u32 = 4;
    /// The deadline has changed.
    pub(super) const TIMER: u32 = 8;
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
    read_shut: Atomic<u32>,
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
            drain_idle: DRAIN_IDLE,
        });
        let stats = Stats::new()?;
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
                stats,
                read_shut: Atomic::new(0),
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
        self.perform(actions);
        Ok(())
    }

    /// A CDC message for this connection has arrived. Softirq.
    pub(crate) fn on_cdc(self: &Arc<Self>, cdc: &Cdc) {
        self.on_notice(|proto| proto.on_cdc(cdc, now()));
    }

    /// A WRITE has announced itself. Softirq.
    pub(crate) fn on_immediate(self: &Arc<Self>, immediate: Immediate) {
        self.on_notice(|proto| proto.on_immediate(immediate, now()));
    }

    fn on_notice(
        self: &Arc<Self>,
        take: impl FnOnce(&mut Conn) -> core::result::Result<Actions, ProtoError>,
    ) {
        let actions = {
            let mut proto = self.proto.lock();
            let settings = self.sync_settings(&mut proto);
            match take(&mut proto) {
                Ok(actions) => {
                    if actions.has(Actions::URGENT) {
                        settings | actions | self.fetch_urgent(&mut proto)
                    } else {
                        settings | actions
                    }
                }
                // No correct peer sends this.
                Err(_) => proto.fail(),
            }
        };
        self.perform(actions);
    }

    fn fetch_urgent(&self, proto: &mut Conn) -> Actions {
        let mut byte = [0];
        if let Some(offset) = proto.urgent_offset() {
            if self.recv.read_slice(offset as usize, &mut byte) == 1 {
                let [value] = byte;
                return proto.store_urgent(value);
            }
        }
        Actions::NONE
    }

    /// Takes over what setsockopt() has told TCP.
    pub(crate) fn sync_settings(&self, proto: &mut Conn) -> Actions {
        let inline = self.sock.oob_inline();
        if proto.oob_inline() == inline {
            Actions::NONE
        } else {
            proto.set_oob_inline(inline)
        }
    }

    /// Sends what is held back: TCP_NODELAY was set or TCP_CORK cleared.
    pub(crate) fn push(self: &Arc<Self>) {
        let actions = self.proto.lock().push();
        self.perform(actions);
    }

    /// The peer broke the protocol. Any context.
    pub(crate) fn fail(self: &Arc<Self>) {
        let actions = self.proto.lock().fail();
        self.perform(actions);
    }

    /// The program wants to read no more: as with TCP nobody is told, and what arrives nevertheless
    /// can be read, but a read that finds nothing does not wait.
    pub(crate) fn shut_read(&self) {
        self.read_shut.store(1, Relaxed);
    }

    /// Whether [`SmcConn::shut_read`] was called.
    pub(crate) fn is_read_shut(&self) -> bool {
        self.read_shut.load(Relaxed) != 0
    }

    /// Whether the program has left: the receive buffer may be another connection's by now.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Acquire) != 0
    }

    /// Whether close() or shutdown() still waits for bytes that are not sent.
    pub(crate) fn is_draining(&self) -> bool {
        self.proto.lock().is_draining()
    }

    /// The link is gone. Any context.
    pub(crate) fn kill(self: &Arc<Self>) {
        let actions = self.proto.lock().kill();
        self.perform(actions);
    }

    /// The TCP connection beneath has ended. Process context.
    pub(crate) fn on_tcp_dead(self: &Arc<Self>) {
        let actions = self.proto.lock().on_tcp_dead();
        self.perform(actions);
    }

    /// Whether the TCP connection beneath has ended, which a reset does.
    pub(crate) fn is_tcp_dead(&self) -> bool {
        self.sock.state() == state::CLOSE
    }

    /// For a program that sends, or finds nothing to read: whether TCP has ended, and who watches it
    /// has not said so yet.
    pub(crate) fn notice_tcp_dead(self: &Arc<Self>) -> bool {
        if !self.is_tcp_dead() {
            return false;
        }
        let before = self.proto.lock().directions();
        self.on_tcp_dead();
        self.proto.lock().directions() != before
    }

    /// The peer has sent a FIN on the TCP connection beneath.
    pub(crate) fn on_tcp_fin(self: &Arc<Self>) {
        let actions = self.proto.lock().on_tcp_fin(now());
        self.perform(actions);
    }

    /// The program dissolves the connection and keeps the socket, for another one perhaps.
    pub(crate) fn leave(self: &Arc<Self>) {
        self.left.store(1, Release);
        self.close(CloseMode::Abort);
    }

    /// The program has closed the socket.
    pub(crate) fn close(self: &Arc<Self>, mode: CloseMode) {
        let actions = self.proto.lock().close(mode, now());
        self.perform(actions);
    }

    /// Carries out what the protocol wants. Any context; no lock of the connection held.
    pub(crate) fn perform(self: &Arc<Self>, actions: Actions) {
        if actions.is_empty() {
            return;
        }
        if self.left.load(Acquire) == 0 {
            // TCP tells the program itself when it is reset or gives up, and why: keepalive, for one.
            // But after a FIN it says EPIPE, or nothing, to programs that could see that FIN.
            let tcp_told = self.sock.has_error() && !self.sock.has_the_error(errno::EPIPE)
                || self.is_tcp_dead() && !self.sock.has_seen_fin();
            if actions.has(Actions::ERR_RESET) && !tcp_told {
                self.sock.report_error(errno::ECONNRESET);
            }
            if actions.has(Actions::ERR_ABORTED) {
                self.sock.report_error(errno::ECONNABORTED);
            }
        }
        if actions.has(Actions::TX_DUE) {
            self.group.send_due(self);
        }
        if actions.has(Actions::STATE) {
            self.sock.wake_state();
        }
        if actions.has(Actions::WAKE_READER) {
            self.sock.wake_readers();
        }
        if actions.has(Actions::WAKE_WRITER) {
            self.sock.wake_writers();
        }
        if actions.has(Actions::URGENT) {
            self.sock.signal_urgent();
        }
        let mut later = 0;
        for (action, bit) in [
            (Actions::FREE, todo::FREE),
            (Actions::TCP_ABORT, todo::TCP_ABORT),
            (Actions::TIMER, todo::TIMER),
        ] {
            if actions.has(action) {
                later |= bit;
            }
        }
        if later != 0 {
            self.later(later);
        }
    }

    fn later(self: &Arc<Self>, bits: u32) {
        let mut old = self.todo.load(Relaxed);
        while let Err(now) = self.todo.cmpxchg(old, old | bits, Full) {
            old = now;
        }
        let _ = queue::enqueue::<_, 0>(self.clone());
    }

    fn arm(&self) {
        let deadline = self.proto.lock().next_deadline();
        if let (Some(deadline), Some(timer)) = (deadline, &*self.timer.lock()) {
            let wait = deadline.since(now()).as_millis_ceil();
            timer.arm(u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1));
        }
    }

    /// What this connection counts.
    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gives what was counted to the namespace, which has to keep it when the socket is gone.
    pub(crate) fn settle_stats(&self) {
        if let Some(namespace) = Namespace::of(&self.sock) {
            namespace.counters.stats.absorb(&self.stats);
        }
    }

    /// The state as `sock_diag` shows it.
    pub(crate) fn state_number(&self) -> u32 {
        self.proto.lock().state() as u32
    }

    /// Gives the buffer back; the group no longer knows the connection.
    pub(crate) fn retire(&self) {
        for (way, ring) in [(Way::Rx, Some(&self.recv)), (Way::Tx, self.send_ring())] {
            if let Some(ring) = ring {
                self.stats.usage(way, -(ring.size() as i64));
            }
        }
        self.settle_stats();
        let (reusable, received) = {
            let proto = self.proto.lock();
            (proto.rmbe_reusable(), proto.received())
        };
        if let Some(ring) = self.send_ring() {
            match self.writers.try_lock() {
                // No request is under way, and who writes now finds that the connection is over.
                Some(_writer) if !ring.region().is_revoked() => {
                    self.group.keep_spare(ring.region());
                }
                _ => ring.region().revoke(),
            }
        }
        let timer = self.timer.lock().take();
        drop(timer);
        // Who still copies out of the buffer keeps it from others; who comes later finds that the
        // program has left.
        let reader = self.readers.try_lock();
        let lease = self.lease.lock().take();
        if let Some(mut lease) = lease {
            if reusable && reader.is_some() {
                // What the peer has written beyond it never was anybody's to read: the next
                // connection is with the same peer.
                self.recv
                    .clear(usize::try_from(received).unwrap_or(usize::MAX));
            } else {
                lease.quarantine();
                self.group.spoil();
            }
        }
    }
}

impl Notify for SmcConn {
    fn notify(this: ArcBorrow<'_, Self>) {
        Arc::<Self>::from(this).later(todo::DEADLINE);
    }
}

impl WorkItem for SmcConn {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let todo = this.todo.xchg(0, Full);
        if todo & todo::DEADLINE != 0 {
            let actions = this.proto.lock().on_timer(now());
            this.perform(actions);
        }
        if todo & todo::TCP_ABORT != 0 && this.left.load(Acquire) == 0 {
            this.sock.abort();
        }
        if todo & (todo::TIMER | todo::DEADLINE) != 0 {
            this.arm();
        }
        if todo & todo::FREE != 0 {
            this.group.remove_conn(&this);
            this.retire();
        }
    }
}
