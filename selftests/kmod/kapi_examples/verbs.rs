// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of the guest, and two connected queue pairs.

use kapi::rdma::{
    channel::{Channel, Handler},
    client::{Client, ClientOps},
    config::{Config, Path},
    device::Device,
    dma::Direction,
    gid::GidRef,
    mr::{Access, Mr},
    pd::Pd,
    qp::{Init, Qp, ReadyToSend, Reset},
    region::Region,
    route,
    wr::Remote, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex}, //
};

/// Bytes that the peer may write.
const MEMORY: usize = 4096;

#[pin_data]
struct Ops {
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
}

impl ClientOps for Ops {
    fn add(&self, device: &Arc<Device>) -> Result {
        Ok(self.devices.lock().push(device.clone(), GFP_KERNEL)?)
    }

    fn remove(&self, device: &Arc<Device>) {
        self.devices
            .lock()
            .retain(|other| !Arc::ptr_eq(other, device));
    }
}

/// The devices, which may be used until this is dropped. There can be one at a time.
pub(crate) struct Devices {
    _client: Client,
    ops: Arc<Ops>,
}

impl Devices {
    /// Takes all that there are.
    pub(crate) fn new() -> Result<Self> {
        let devices = pin_init!(Ops { devices <- new_mutex!(KVec::new()) });
        let ops = Arc::pin_init(devices, GFP_KERNEL)?;
        let client = Client::register(c"kapi_examples", ops.clone())?;
        Ok(Self {
            _client: client,
            ops,
        })
    }

    /// Returns one of them, the first one being number 0.
    pub(crate) fn get(&self, number: usize) -> Result<Arc<Device>> {
        let devices = self.ops.devices.lock();
        devices.get(number).cloned().ok_or(ENODEV)
    }
}

/// One end before it is connected.
struct Half<H: Handler> {
    qp: Qp<H, Init>,
    memory: Arc<Mr>,
    gid: GidRef,
    mtu: u8,
}

impl<H: Handler> Half<H> {
    fn new(device: &Arc<Device>, handler: Arc<H>) -> Result<Self> {
        let pd = Pd::new(device)?;
        let qp: Qp<H, Reset> = Qp::new(&pd, handler, Config::default())?;
        let memory = Region::new(device, MEMORY, Direction::Bidirectional)?;
        Ok(Self {
            qp: qp.init(1)?,
            memory: Mr::new(&pd, memory, Access::RemoteWrite)?,
            gid: device.find_gid(1, |gid| gid.ipv4().is_some())?,
            mtu: device.port(1)?.active_mtu,
        })
    }

    fn path(&self, peer: &Self) -> Result<Path> {
        let net = self.gid.net().ok_or(ENODEV)?;
        let ifindex = self.gid.ifindex().ok_or(ENODEV)?;
        let via = route::Via { ifindex, mark: 0 };
        let hop = route::resolve(&net, &self.gid.gid(), &peer.gid.gid(), via, 2000)?;
        Ok(Path {
            mtu: self.mtu.min(peer.mtu),
            qpn: peer.qp.channel().qpn(),
            psn: peer.qp.channel().psn(),
            sgid: self.gid.gid(),
            sgid_index: self.gid.index(),
            dgid: peer.gid.gid(),
            dmac: hop.mac,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        })
    }

    fn connect(self, path: &Path) -> Result<End<H>> {
        let qp = self.qp.ready_to_receive(path)?.ready_to_send()?;
        qp.channel().register(&self.memory)?;
        Ok(End {
            qp,
            memory: self.memory,
        })
    }
}

/// One end of a connection.
struct End<H: Handler> {
    qp: Qp<H, ReadyToSend>,
    memory: Arc<Mr>,
}

impl<H: Handler> End<H> {
    fn close(self) {
        self.qp.close();
        self.memory.revoke();
    }
}

/// Two connected queue pairs, on the first two devices.
pub(crate) struct Pair<H: Handler> {
    near: End<H>,
    far: End<H>,
}

impl<H: Handler> Pair<H> {
    /// Connects them.
    pub(crate) fn new(devices: &Devices, near: Arc<H>, far: Arc<H>) -> Result<Self> {
        let near = Half::new(&devices.get(0)?, near)?;
        let far = Half::new(&devices.get(1)?, far)?;
        let (there, back) = (near.path(&far)?, far.path(&near)?);
        Ok(Self {
            near: near.connect(&there)?,
            far: far.connect(&back)?,
        })
    }

    /// Returns the near end.
    pub(crate) fn channel(&self) -> &Arc<Channel<H>> {
        self.near.qp.channel()
    }

    /// Returns where the near end may write.
    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.far.memory.addr(),
            rkey: self.far.memory.rkey(),
        }
    }

    /// Returns the memory there.
    pub(crate) fn memory(&self) -> &Region {
        self.far.memory.region()
    }

    /// Closes both; all callbacks have been called then.
    pub(crate) fn close(self) {
        self.near.close();
        self.far.close();
    }
}
