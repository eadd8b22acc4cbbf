// SPDX-License-Identifier: GPL-2.0

//! Two connected queue pairs.

use crate::end::{End, Here, Plan, Shared, Way};
use kapi::rdma::{
    channel::Channel,
    config::{Config, Path},
    device::Device,
    dma::Direction,
    gid::GidRef,
    mr::{Access, Mr},
    pd::Pd,
    qp::{Init, Qp, ReadyToReceive, ReadyToSend, Reset},
    region::Region,
    route,
    wr::Remote, //
};
use kernel::{
    prelude::*,
    sync::{Arc, SetOnce}, //
};

/// The size of the memory that the peer writes, and of what is sent from.
const MEMORY: usize = 65_536;

/// Describes an end to the other one.
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) mtu: u8,
    pub(crate) to: Remote,
}

/// Holds an end before it is connected.
pub(crate) struct Half {
    qp: Qp<End, Init>,
    end: Arc<End>,
    memory: Arc<Mr>,
    source: Arc<Region>,
    gid: GidRef,
    mtu: u8,
}

impl Half {
    pub(crate) fn new(device: &Arc<Device>, shared: &Arc<Shared>) -> Result<Self> {
        let pd = Pd::new(device)?;
        let end = Arc::new(
            End {
                shared: shared.clone(),
                way: SetOnce::new(),
            },
            GFP_KERNEL,
        )?;
        let config = Config {
            recv_first: 44,
            ..Config::default()
        };
        let qp: Qp<End, Reset> = Qp::new(&pd, end.clone(), config)?;
        let memory = Region::new(device, MEMORY, Direction::Bidirectional)?;
        Ok(Self {
            qp: qp.init(1)?,
            end,
            memory: Mr::new(&pd, memory, Access::RemoteWrite)?,
            source: Region::new(device, MEMORY, Direction::ToDevice)?,
            gid: device.find_gid(1, |gid| gid.ipv4().is_some())?,
            mtu: device.port(1)?.active_mtu,
        })
    }

    /// Returns the description for the other end.
    pub(crate) fn describe(&self) -> Peer {
        Peer {
            qpn: self.qp.channel().qpn(),
            psn: self.qp.channel().psn(),
            gid: self.gid.gid(),
            mtu: self.mtu,
            to: Remote {
                addr: self.memory.addr(),
                rkey: self.memory.rkey(),
            },
        }
    }

    fn path(&self, peer: &Peer) -> Result<Path> {
        let net = self.gid.net().ok_or(ENODEV)?;
        let ifindex = self.gid.ifindex().ok_or(ENODEV)?;
        let via = route::Via { ifindex, mark: 0 };
        let hop = route::resolve(&net, &self.gid.gid(), &peer.gid, via, 2000)?;
        Ok(Path {
            mtu: self.mtu.min(peer.mtu),
            qpn: peer.qpn,
            psn: peer.psn,
            sgid: self.gid.gid(),
            sgid_index: self.gid.index(),
            dgid: peer.gid,
            dmac: hop.mac,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        })
    }

    fn connect(self, peer: &Peer) -> Result<Link> {
        let path = self.path(peer)?;
        let qp: Qp<End, ReadyToReceive> = self.qp.ready_to_receive(&path)?;
        let qp = qp.ready_to_send()?;
        qp.channel().register(&self.memory)?;
        let from = self.source;
        if !self.end.way.populate(Way { from, to: peer.to }) {
            return Err(EBUSY);
        }
        Ok(Link {
            qp,
            end: self.end,
            memory: self.memory,
        })
    }
}

/// One end of a connection.
struct Link {
    qp: Qp<End, ReadyToSend>,
    end: Arc<End>,
    memory: Arc<Mr>,
}

impl Link {
    fn channel(&self) -> &Arc<Channel<End>> {
        self.qp.channel()
    }

    fn close(self) {
        self.qp.close();
        self.memory.revoke();
    }
}

/// The ends that are here.
pub(crate) struct Pair {
    left: Link,
    right: Option<Link>,
    shared: Arc<Shared>,
}

impl Pair {
    /// Both ends, one on each device.
    pub(crate) fn connect(a: &Arc<Device>, b: &Arc<Device>) -> Result<Self> {
        let shared = Arc::new(Shared::new(Here::Both), GFP_KERNEL)?;
        let (a, b) = (Half::new(a, &shared)?, Half::new(b, &shared)?);
        let (of_a, of_b) = (a.describe(), b.describe());
        Ok(Self {
            left: a.connect(&of_b)?,
            right: Some(b.connect(&of_a)?),
            shared,
        })
    }

    /// One end, whose peer is in another guest.
    pub(crate) fn one(half: Half, peer: &Peer, shared: Arc<Shared>) -> Result<Self> {
        Ok(Self {
            left: half.connect(peer)?,
            right: None,
            shared,
        })
    }

    /// Sends the first chains; when that began.
    pub(crate) fn begin(&self, plan: Plan) -> Result<i64> {
        self.shared.begin(plan);
        let start = self.shared.now();
        for _ in 0..plan.first() {
            self.left.end.send(self.left.channel());
        }
        self.shared.ended().map(|_| start)
    }

    /// When the last message had arrived.
    pub(crate) fn ended(&self) -> Result<Option<i64>> {
        self.shared.ended()
    }

    pub(crate) fn close(self) {
        self.left.close();
        if let Some(right) = self.right {
            right.close();
        }
    }
}
