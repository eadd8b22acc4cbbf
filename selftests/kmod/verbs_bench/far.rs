// SPDX-License-Identifier: GPL-2.0

//! One end here, the other in another guest. The two programs that load the module carry the numbers
//! from one to the other by `/proc/sys/net/verbs_bench`.

use crate::{
    end::{Here, Shared},
    link::{Half, Pair, Peer}, //
};
use kapi::{
    net::{
        netns::{Net, PerNet, Registration, Slot},
        sysctl::{Entry, Range, Table}, //
    },
    rdma::{device::Device, wr::Remote}, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};

const fn number(name: &'static CStr) -> Entry {
    Entry {
        name,
        default: 0,
        range: Range::Unsigned,
    }
}

const COUNT: usize = 15;

/// Module parameters: an end, what it is told of the other, its progress and its limit.
static NUMBERS: [Entry; COUNT] = [
    number(c"qpn"),
    number(c"psn"),
    number(c"mtu"),
    number(c"rkey"),
    number(c"addr_high"),
    number(c"addr_low"),
    number(c"ipv4"),
    number(c"peer_qpn"),
    number(c"peer_psn"),
    number(c"peer_mtu"),
    number(c"peer_rkey"),
    number(c"peer_addr_high"),
    number(c"peer_addr_low"),
    number(c"peer_ipv4"),
    number(c"step"),
];

/// The first of the peer's numbers, and how many there are of each.
const PEER: usize = 7;
const STEP: usize = 14;

/// Values of `step`: the module's own numbers are there; the program has written the peer's; the
/// module is connected; the program says that the other one is, or has done its work.
const OFFERED: i32 = 1;
const TOLD: i32 = 2;
const CONNECTED: i32 = 3;
const GO: i32 = 4;

pub(crate) struct Space(Table<COUNT>);

impl PerNet for Space {
    fn slot() -> &'static Slot {
        static SLOT: Slot = Slot::new();
        &SLOT
    }

    fn new(net: &Net) -> Result<Arc<Self>> {
        let table = Table::new(net, c"net/verbs_bench", &NUMBERS)?;
        Ok(Arc::new(Self(table), GFP_KERNEL)?)
    }

    fn exit(this: &Arc<Self>) {
        this.0.remove();
    }
}

impl Space {
    fn offer(&self, own: &Peer) {
        let [.., a, b, c, d] = own.gid;
        let numbers = [
            own.qpn,
            own.psn,
            u32::from(own.mtu),
            own.to.rkey,
            (own.to.addr >> 32) as u32,
            own.to.addr as u32,
            u32::from_be_bytes([a, b, c, d]),
        ];
        for (at, number) in numbers.into_iter().enumerate() {
            self.0.set(at, number as i32);
        }
    }

    fn peer(&self) -> Peer {
        let get = |at: usize| self.0.get(PEER.saturating_add(at)) as u32;
        let mut gid = [0; 16];
        let ipv4 = [[0, 0, 0xff, 0xff], get(6).to_be_bytes()];
        for (to, from) in gid.iter_mut().skip(8).zip(ipv4.into_iter().flatten()) {
            *to = from;
        }
        Peer {
            qpn: get(0),
            psn: get(1),
            mtu: u8::try_from(get(2)).unwrap_or(0),
            gid,
            to: Remote {
                addr: u64::from(get(4)) << 32 | u64::from(get(5)),
                rkey: get(3),
            },
        }
    }

    /// Waits until the program has come to `step`.
    fn until(&self, step: i32) -> Result {
        // For up to ten minutes.
        for _ in 0..60_000 {
            if self.0.get(STEP) == step {
                return Ok(());
            }
            fsleep(Delta::from_millis(10));
        }
        Err(ETIMEDOUT)
    }
}

/// Connects one end to another guest's; the first one is then ready to begin, the second one stays until
/// the first has done.
///
/// # Errors
///
/// `ETIMEDOUT` when the program does not go on, and those of the verbs.
pub(crate) fn connect(device: &Arc<Device>, first: bool) -> Result<(Pair, Numbers)> {
    let registration = Registration::<Space>::new()?;
    let space = Registration::<Space>::initial().ok_or(ENODEV)?;
    let here = if first { Here::First } else { Here::Second };
    let shared = Arc::new(Shared::new(here), GFP_KERNEL)?;
    let half = Half::new(device, &shared)?;
    space.offer(&half.describe());
    space.0.set(STEP, OFFERED);
    space.until(TOLD)?;
    let pair = Pair::one(half, &space.peer(), shared)?;
    space.0.set(STEP, CONNECTED);
    space.until(GO)?;
    Ok((pair, registration))
}

/// Keeps the numbers.
pub(crate) type Numbers = Pin<KBox<Registration<Space>>>;
