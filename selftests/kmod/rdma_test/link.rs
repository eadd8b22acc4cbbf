// SPDX-License-Identifier: GPL-2.0

//! Two connected queue pairs and what can be done with them.

use crate::{
    check,
    side::{Running, Side, Token},
    wait, //
};
use kapi::rdma::{
    channel::Channel,
    completion::Status,
    config::{Config, Path},
    device::Device,
    dma::Direction,
    gid::GidRef,
    mr::{Access, Mr},
    pd::Pd,
    qp::{Init, Qp, ReadyToReceive, ReadyToSend, Reset},
    region::Region,
    ring::Ring,
    route,
    wr::{Remote, Signal, Source, Write}, //
};
use kernel::{
    error::code,
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};

/// The size of the memory that the peer may write, and of what is sent from.
const MEMORY: usize = 1_048_576 + 65_536;

/// Bytes that are compared at a time.
const CHUNK: usize = 512;

/// One end of a connection.
pub(crate) struct Link {
    qp: Qp<Side, ReadyToSend>,
    side: Arc<Side>,
    device: Arc<Device>,
    pub(crate) mr: Arc<Mr>,
    source: Arc<Mr>,
}

/// Both ends.
pub(crate) struct Pair {
    pub(crate) left: Link,
    pub(crate) right: Link,
}

/// One direction of a pair.
pub(crate) struct Direct<'a> {
    from: &'a Link,
    to: &'a Link,
}

fn pattern(seed: u32, at: usize) -> u8 {
    let x = (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
    (x ^ (x >> 15)) as u8
}

fn local_gid(device: &Arc<Device>) -> Result<GidRef> {
    device.find_gid(1, |gid| gid.ipv4().is_some())
}

/// The way from `from` to `to`, and the MTU of both.
fn path(from: &GidRef, to: &GidRef, peer: &Channel<Side>, mtu: u8) -> Result<Path> {
    let net = from.net().ok_or(ENODEV)?;
    let ifindex = from.ifindex().ok_or(ENODEV)?;
    let via = route::Via { ifindex, mark: 0 };
    let hop = route::resolve(&net, &from.gid(), &to.gid(), via, 2000)?;
    let (mac, _) = to.link_address()?;
    check(hop.mac == mac && !hop.gateway && hop.mtu >= mtu)?;
    Ok(Path {
        mtu,
        qpn: peer.qpn(),
        psn: peer.psn(),
        sgid: from.gid(),
        sgid_index: from.index(),
        dgid: to.gid(),
        dmac: hop.mac,
        hop_limit: 64,
        traffic_class: 0,
        service_level: 0,
    })
}

/// Holds an end before it is connected.
struct Half {
    qp: Qp<Side, Init>,
    side: Arc<Side>,
    device: Arc<Device>,
    mr: Arc<Mr>,
    source: Arc<Mr>,
    gid: GidRef,
    mtu: u8,
}

impl Half {
    fn new(device: &Arc<Device>, config: Config, bytes: usize) -> Result<Self> {
        let pd = Pd::new(device)?;
        let side = Side::new()?;
        let qp: Qp<Side, Reset> = Qp::new(&pd, side.clone(), config)?;
        let memory = Region::new(device, bytes, Direction::Bidirectional)?;
        let source = Region::new(device, bytes, Direction::ToDevice)?;
        let mr = Mr::new(&pd, memory, Access::RemoteWrite)?;
        let source = Mr::new(&pd, source, Access::LocalRead)?;
        check(mr.addr() % 4096 == 0 && mr.addr() >> 47 == 0 && mr.addr() != 0)?;
        Ok(Self {
            qp: qp.init(1)?,
            side,
            device: device.clone(),
            mr,
            source,
            gid: local_gid(device)?,
            mtu: device.port(1)?.active_mtu,
        })
    }

    fn finish(self, path: &Path) -> Result<Link> {
        let qp: Qp<Side, ReadyToReceive> = self.qp.ready_to_receive(path)?;
        let early = qp.channel().post(Token::new(None), [], &[1]);
        check(early.is_err())?;
        let qp = qp.ready_to_send()?;
        qp.channel().register(&self.mr)?;
        qp.channel().register(&self.source)?;
        Ok(Link {
            qp,
            side: self.side,
            device: self.device,
            mr: self.mr,
            source: self.source,
        })
    }
}

impl Pair {
    pub(crate) fn connect(a: &Arc<Device>, b: &Arc<Device>, config: Config) -> Result<Self> {
        Self::connect_small(a, b, config, MEMORY)
    }

    /// Connects with `bytes` of memory on both sides.
    pub(crate) fn connect_small(
        a: &Arc<Device>,
        b: &Arc<Device>,
        config: Config,
        bytes: usize,
    ) -> Result<Self> {
        let a = Half::new(a, config, bytes)?;
        let b = Half::new(b, config, bytes)?;
        let mtu = a.mtu.min(b.mtu);
        let there = path(&a.gid, &b.gid, b.qp.channel(), mtu)?;
        let back = path(&b.gid, &a.gid, a.qp.channel(), mtu)?;
        Ok(Self {
            left: a.finish(&there)?,
            right: b.finish(&back)?,
        })
    }

    fn direct(&self) -> Direct<'_> {
        Direct {
            from: &self.left,
            to: &self.right,
        }
    }

    /// The same pair seen from the other side.
    pub(crate) fn reverse(&self) -> Direct<'_> {
        Direct {
            from: &self.right,
            to: &self.left,
        }
    }

    pub(crate) fn transfer(&self, len: usize, from: usize, to: usize, by_key: bool) -> Result {
        self.direct().transfer(len, from, to, by_key)
    }

    /// Ranges outside of memory and messages that are too long are refused at once.
    pub(crate) fn refuses_bad_ranges(&self) -> Result {
        let Direct { from, to } = self.direct();
        let channel = from.channel();
        let region = from.source.region();
        for (offset, len) in [
            (0, region.len() + 1),
            (region.len(), 1),
            (5, 0),
            (usize::MAX, 2),
        ] {
            let write = Write {
                from: Source::Region(region),
                offset,
                len,
                to: to.remote(0),
            };
            match channel.post(Token::new(None), [write], &[1; 44]) {
                Err(unsent) => check(unsent.error == code::EINVAL)?,
                Ok(()) => return Err(EINVAL),
            }
        }
        check(channel.post(Token::new(None), [], &[]).is_err())?;
        check(channel.post(Token::new(None), [], &[0; 4097]).is_err())?;
        check(channel.free_slots() == 16)
    }

    /// Posts until there is no room; everything posted ends.
    pub(crate) fn fills_up(&self) -> Result {
        let Direct { from, to } = self.direct();
        let before = from.side.sent.load(Relaxed);
        let arrived = to.side.received.load(Relaxed);
        let mut posted = 0i32;
        let mut refused = 0;
        for _ in 0..200 {
            let write = Write {
                from: Source::Region(from.source.region()),
                offset: 0,
                len: 65_536,
                to: to.remote(0),
            };
            match from.channel().post(Token::new(None), [write], &[7; 44]) {
                Ok(()) => posted += 1,
                Err(unsent) => {
                    check(unsent.error == code::EAGAIN)?;
                    refused += 1;
                }
            }
        }
        check(posted >= 16 && refused > 0)?;
        wait(|| from.side.sent.load(Relaxed) == before + posted)?;
        wait(|| to.side.received.load(Relaxed) == arrived + posted)?;
        pr_info!("{} posted, {} refused\n", posted, refused);
        check(from.channel().free_slots() == 16)
    }

    /// Chains of whose end the device tells seldom all end: when nobody waits for them, when somebody does, and when there
    /// are more than slots.
    pub(crate) fn seldom(&self) -> Result {
        let Direct { from, to } = self.direct();
        let channel = from.channel();
        let ends = || {
            let untold = from.side.untold.load(Relaxed);
            (from.side.sent.load(Relaxed), untold)
        };
        for expected in [false, true] {
            let (sent, untold) = ends();
            for _ in 0..3 {
                check(from.post_seldom(to.remote(0))? == Some(()))?;
            }
            if expected {
                channel.expect_ends();
            }
            wait(|| from.side.sent.load(Relaxed) == sent + 3)?;
            check(ends() == (sent + 3, untold + 3))?;
        }
        let (sent, untold) = ends();
        let (mut posted, mut refused) = (0i32, 0);
        for _ in 0..200 {
            match from.post_seldom(to.remote(0))? {
                Some(()) => posted += 1,
                None => refused += 1,
            }
        }
        wait(|| from.side.sent.load(Relaxed) == sent + posted)?;
        let untold = ends().1 - untold;
        pr_info!("{posted} posted, {untold} of whose end was not told, {refused} refused\n");
        check(posted >= 16 && untold >= posted / 2 && untold < posted)?;
        // The last one may end by a request that has a slot of its own for a moment.
        wait(|| channel.free_slots() == 16)
    }

    /// A message of a page goes through the shared tail of the receive buffers.
    pub(crate) fn long_message(&self) -> Result {
        let Direct { from, to } = self.direct();
        let mut message = KVec::with_capacity(4096, GFP_KERNEL)?;
        let mut sum = 0u32;
        for at in 0..4096 {
            let byte = pattern(99, at);
            sum = sum.wrapping_add(u32::from(byte));
            message.push(byte, GFP_KERNEL)?;
        }
        let arrived = to.side.received.load(Relaxed);
        from.channel()
            .post(Token::new(None), [], &message)
            .map_err(|unsent| unsent.error)?;
        wait(|| to.side.received.load(Relaxed) == arrived + 1)?;
        check(to.side.last_len.load(Relaxed) == 4096 && to.side.last_sum.load(Relaxed) == sum)
    }

    /// Writes under a key that the peer never gave out.
    pub(crate) fn bad_key(&self) -> Result<Status> {
        let remote = self.right.remote(0);
        self.left.write_one(Remote {
            addr: remote.addr,
            rkey: remote.rkey ^ 0x5500,
        })
    }

    /// Writes under the peer's key.
    pub(crate) fn good_key(&self) -> Result<Status> {
        self.left.write_one(self.right.remote(0))
    }

    /// Both ends have noticed.
    pub(crate) fn is_dead(&self) -> Result {
        wait(|| self.left.side.broken.load(Relaxed) == 1)?;
        wait(|| self.right.side.broken.load(Relaxed) == 1)?;
        check(!self.left.channel().is_sendable())?;
        check(
            self.left
                .channel()
                .post(Token::new(None), [], &[1])
                .is_err(),
        )
    }

    pub(crate) fn close(self) {
        self.left.close();
        self.right.close();
    }
}

impl Direct<'_> {
    /// Writes `len` bytes, announces them by a message, compares, and looks at the neighbours.
    pub(crate) fn transfer(&self, len: usize, from: usize, to: usize, by_key: bool) -> Result {
        let Direct { from: a, to: b } = self;
        let seed = (a.side.sent.load(Relaxed) as u32).wrapping_mul(77_777);
        let source = a.source.region();
        let target = b.mr.region();
        let mut buf = [0u8; CHUNK];

        let mut at = 0;
        while at < len {
            let n = CHUNK.min(len - at);
            for (i, byte) in buf.iter_mut().enumerate() {
                *byte = pattern(seed, at + i);
            }
            check(source.write_slice(from + at, &buf[..n]) == n)?;
            at += n;
        }
        let all = target.len();
        target.zero(0, all);

        // In two parts, as at the end of a ring, when there is enough.
        let half = len / 3;
        let part = |offset: usize, len: usize| Write {
            from: if by_key {
                Source::Mr(&a.source)
            } else {
                Source::Region(source)
            },
            offset: from + offset,
            len,
            to: b.remote(to + offset),
        };
        let parts = [part(0, half), part(half, len - half)];
        let writes = if half == 0 { &parts[1..] } else { &parts[..] };
        let sent = a.side.sent.load(Relaxed);
        let got = b.side.received.load(Relaxed);
        let mut message = [0u8; 44];
        message[..4].copy_from_slice(&seed.to_le_bytes());
        a.channel()
            .post(Token::new(None), writes.iter().copied(), &message)
            .map_err(|unsent| unsent.error)?;
        wait(|| b.side.received.load(Relaxed) == got + 1)?;
        check(b.side.last.load(Relaxed) == seed && b.side.last_len.load(Relaxed) == 44)?;

        // Through a ring that begins in the middle, so that reading wraps.
        let ring = Ring::new(target.clone(), 0, all)?;
        let mut at = 0;
        while at < len {
            let n = CHUNK.min(len - at);
            check(ring.read_slice(all + to + at, &mut buf[..n]) == n)?;
            for (i, byte) in buf[..n].iter().enumerate() {
                if *byte != pattern(seed, at + i) {
                    pr_err!("size {}: byte {} is wrong\n", len, at + i);
                    return Err(EIO);
                }
            }
            at += n;
        }
        let mut edge = [1u8; 2];
        ring.read_slice(all + to - 1, &mut edge[..1]);
        ring.read_slice(to + len, &mut edge[1..]);
        check(edge == [0, 0])?;
        wait(|| a.side.sent.load(Relaxed) == sent + 1)
    }
}

impl Link {
    pub(crate) fn channel(&self) -> &Arc<Channel<Side>> {
        self.qp.channel()
    }

    /// Returns whether this end uses `device`.
    pub(crate) fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.mr.addr() + offset as u64,
            rkey: self.mr.rkey(),
        }
    }

    fn write_one(&self, to: Remote) -> Result<Status> {
        let before = self.side.errors.load(Relaxed);
        let write = Write {
            from: Source::Region(self.source.region()),
            offset: 0,
            len: 3000,
            to,
        };
        self.channel()
            .post(Token::new(None), [write], &[3; 44])
            .map_err(|unsent| unsent.error)?;
        // Longer than all retries of a peer that is gone.
        for _ in 0..6 {
            if wait(|| self.side.errors.load(Relaxed) == before + 1).is_ok() {
                return Ok(self.side.status());
            }
        }
        Err(ETIMEDOUT)
    }

    /// Writes a little, of whose end the device tells seldom; `None` if there is no slot.
    fn post_seldom(&self, to: Remote) -> Result<Option<()>> {
        let write = Write {
            from: Source::Region(self.source.region()),
            offset: 0,
            len: 100,
            to,
        };
        let Some(mut slot) = self.channel().slot(|| ()) else {
            return Ok(None);
        };
        slot.post(Token::new(None), Signal::Seldom, [write], &[4; 44])
            .map(Some)
            .map_err(|unsent| unsent.error)
    }

    /// The same, to a queue pair that is no longer there: that ends, too.
    pub(crate) fn seldom_nowhere(&self) -> Result<Status> {
        let before = self.side.errors.load(Relaxed);
        let to = Remote {
            addr: 4096,
            rkey: 1,
        };
        check(self.post_seldom(to)? == Some(()))?;
        for _ in 0..6 {
            if wait(|| self.side.errors.load(Relaxed) > before).is_ok() {
                return Ok(self.side.status());
            }
        }
        Err(ETIMEDOUT)
    }

    /// Writes to a queue pair that is no longer there.
    pub(crate) fn write_nowhere(&self) -> Result<Status> {
        self.write_one(Remote {
            addr: 4096,
            rkey: 1,
        })
    }

    /// Starts a thread that writes to `peer` until the queue pair no longer takes it.
    pub(crate) fn poster(&self, peer: &Link, number: usize) -> Result {
        let poster = Poster {
            channel: self.channel().clone(),
            region: self.source.region().clone(),
            to: peer.remote(number * 8192),
            running: Running::new(),
        };
        kernel::workqueue::system_unbound()
            .try_spawn(GFP_KERNEL, move || poster.run())
            .map_err(Error::from)
    }

    /// Takes the memory away while it may be in use.
    pub(crate) fn revoke(&self, source: bool) {
        if source {
            self.source.region().revoke();
        } else {
            self.mr.revoke();
        }
    }

    /// Keeps writing to `peer` until the queue pair ends.
    pub(crate) fn pump(&self, peer: &Link) -> Result {
        for _ in 0..4 {
            let again = Some((self.source.region().clone(), peer.remote(4096)));
            self.channel()
                .post(Token::new(again), [], &[9; 44])
                .map_err(|unsent| unsent.error)?;
        }
        Ok(())
    }

    /// Ends this side; what the peer wrote stays readable.
    pub(crate) fn close(self) {
        pr_info!(
            "closing: {} sent, {} errors, {} received\n",
            self.side.sent.load(Relaxed),
            self.side.errors.load(Relaxed),
            self.side.received.load(Relaxed)
        );
        let channel = self.channel().clone();
        self.qp.close();
        self.mr.revoke();
        self.source.revoke();
        let mut byte = [0];
        self.mr.region().read_slice(0, &mut byte);
        if channel.post(Token::new(None), [], &[1]).is_ok() || channel.pd().is_ok() {
            pr_err!("not ok a closed channel still works\n");
        }
    }
}

struct Poster {
    channel: Arc<Channel<Side>>,
    region: Arc<Region>,
    to: Remote,
    // Dropped last: the test waits for it.
    running: Running,
}

impl Poster {
    fn run(self) {
        let mut len = 1;
        loop {
            len = len * 7 % 8191 + 1;
            let write = Write {
                from: Source::Region(&self.region),
                offset: len,
                len,
                to: self.to,
            };
            let posted = match len % 4 {
                0 => self.channel.post(Token::new(None), [write], &[1; 44]),
                _ => match self.channel.slot(|| ()) {
                    Some(mut slot) => {
                        slot.post(Token::new(None), Signal::Seldom, [write], &[1; 44])
                    }
                    None => {
                        kernel::time::delay::fsleep(kernel::time::Delta::from_micros(50));
                        continue;
                    }
                },
            };
            match posted {
                Ok(()) => self.running.posted(),
                Err(unsent) if unsent.error == code::EAGAIN => {
                    kernel::time::delay::fsleep(kernel::time::Delta::from_micros(50));
                }
                Err(_) => break,
            }
        }
    }
}

/// Drops queue pairs that were never connected.
pub(crate) fn abandon(device: &Arc<Device>, config: Config) -> Result {
    let pd = Pd::new(device)?;
    let reset: Qp<Side, Reset> = Qp::new(&pd, Side::new()?, config)?;
    let init = Qp::<Side, Reset>::new(&pd, Side::new()?, config)?.init(1)?;
    let failed = Qp::<Side, Reset>::new(&pd, Side::new()?, config)?
        .init(1)?
        .error()?;
    drop(pd);
    drop(reset);
    drop(init);
    failed.close();
    Ok(())
}
