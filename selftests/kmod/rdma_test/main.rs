// SPDX-License-Identifier: GPL-2.0

//! Kernel test of `kapi::rdma`: two RDMA devices talk to each other inside one kernel.
//!
//! Loading runs the cases and prints one `ok` or `not ok` line for each; a last pair of queue
//! pairs then keeps writing until a device or the module is removed, which `run.sh` does.
#![forbid(unsafe_code)]

mod link;
mod side;

use kapi::rdma::{
    client::{Client, ClientOps, Event},
    completion::Status,
    config::Config,
    device::{Device, PortState},
    gid::GidKind, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    time::{delay::fsleep, Delta}, //
};
use link::{Link, Pair};

module! {
    type: RdmaTest,
    name: "rdma_test",
    authors: ["rsmc"],
    description: "test of kapi::rdma",
    license: "GPL",
    params: {
        quick: i32 {
            default: 0,
            description: "Only connect, write and close, and let any step fail",
        },
    },
}

/// Sizes of the writes that are compared byte by byte.
const SIZES: [usize; 22] = [
    1, 2, 31, 32, 33, 43, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 16384, 65535, 65536,
    65537, 131_072, 524_288, 1_048_576,
];

#[pin_data]
struct Ops {
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
    #[pin]
    links: Mutex<KVec<Link>>,
}

impl ClientOps for Ops {
    fn add(&self, device: &Arc<Device>) -> Result {
        if !device.is_roce(1)? {
            return Err(ENODEV);
        }
        pr_info!("add {}\n", name(device));
        self.devices.lock().push(device.clone(), GFP_KERNEL)?;
        Ok(())
    }

    fn remove(&self, device: &Arc<Device>) {
        pr_info!("remove device {}\n", device.serial());
        self.devices
            .lock()
            .retain(|other| !Arc::ptr_eq(other, device));
        let mut links = self.links.lock();
        let mut keep = KVec::new();
        while let Some(link) = links.pop() {
            if link.is_on(device) {
                link.close();
            } else {
                let _ = keep.push(link, GFP_KERNEL);
            }
        }
        *links = keep;
        pr_info!("removed device {}\n", device.serial());
    }

    fn event(&self, device: &Arc<Device>, event: Event) {
        pr_info!("event {:?} on {}\n", event, name(device));
    }
}

struct RdmaTest {
    // Dropped first: waits for everything that the devices know.
    _client: Client,
    ops: Arc<Ops>,
}

impl Drop for RdmaTest {
    fn drop(&mut self) {
        // Still empty: the client is dropped after this body, but `remove` has its own handle.
        pr_info!("unloading, {} links live\n", self.ops.links.lock().len());
    }
}

struct Name([u8; 64]);

fn name(device: &Device) -> Name {
    Name(device.name())
}

impl kernel::fmt::Display for Name {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        for byte in self.0.iter().take_while(|b| **b != 0) {
            write!(f, "{}", char::from(*byte))?;
        }
        Ok(())
    }
}

fn report(what: &str, result: Result) {
    match result {
        Ok(()) => pr_info!("ok {}\n", what),
        Err(error) => pr_info!("not ok {}: {:?}\n", what, error),
    }
}

fn check(condition: bool) -> Result {
    if condition {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Waits until `done`, for at most ten seconds.
fn wait(done: impl Fn() -> bool) -> Result {
    for _ in 0..10_000 {
        if done() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

fn config() -> Config {
    Config {
        send_slots: 16,
        send_wrs: 128,
        chain_wrs: 40,
        message: 4096,
        recv_first: 44,
        recv_spill: 4108,
        recv_slots: 48,
        ..Config::default()
    }
}

fn devices(device: &Arc<Device>) -> Result {
    let port = device.port(1)?;
    check(port.state == PortState::Active && (1..=5).contains(&port.active_mtu))?;
    let limits = device.limits()?;
    check(device.unfit().is_none() && limits.mr_pages >= 272 && limits.send_sges >= 1)?;
    check(device.is_software() && device.ports()? == 1 && device.node_type()? == 1)?;
    check(device.port(2).is_err() && device.gid(1, u16::MAX).is_none())?;
    let gid = device.find_gid(1, |gid| gid.ipv4().is_some())?;
    check(gid.kind() == GidKind::RoceV2 && gid.port() == 1)?;
    let net = gid.net().ok_or(ENOENT)?;
    let ifindex = gid.ifindex().ok_or(ENOENT)?;
    check(device.accessible_from(&net) && device.port_is_netdev(1, &net, ifindex))?;
    check(device.netdev(1) == Some((ifindex, net.clone())) && device.netdev(9).is_none())?;
    check(!device.port_is_netdev(1, &net, ifindex.wrapping_add(7)))?;
    check(gid.is_netdev(&net, ifindex) && gid.serves_subnet(&net, gid.ipv4().ok_or(ENOENT)?))?;
    check(!gid.serves_subnet(&net, [203, 0, 113, 1]))?;
    check(kapi::rdma::netns::base_ifindex(&net, ifindex) == Some(ifindex))?;
    let (mac, vlan) = gid.link_address()?;
    pr_info!(
        "{}: gid {} ipv4 {:?} ifindex {} mac {:x?} vlan {:?}, {:?}\n",
        name(device),
        gid.index(),
        gid.ipv4(),
        ifindex,
        mac,
        vlan,
        limits
    );
    Ok(())
}

fn sizes(pair: &Pair, by_key: bool) -> Result {
    for (i, size) in SIZES.iter().enumerate() {
        let odd = (i.wrapping_mul(13)) % 4096;
        pair.transfer(*size, odd, odd.wrapping_mul(3) % 5000, by_key)?;
        pair.reverse().transfer(*size, 0, odd, by_key)?;
    }
    Ok(())
}

fn refusals(pair: &Pair) -> Result {
    pair.refuses_bad_ranges()?;
    pair.fills_up()?;
    pair.seldom()?;
    pair.long_message()
}

fn bad_key(a: &Arc<Device>, b: &Arc<Device>) -> Result {
    let pair = Pair::connect(a, b, config())?;
    pair.transfer(5000, 0, 0, false)?;
    let status = pair.bad_key()?;
    pr_info!("write with a bad key: {:?}\n", status);
    check(status == Status::RemoteAccess)?;
    pair.is_dead()?;
    pair.close();
    Ok(())
}

fn revoked_key(a: &Arc<Device>, b: &Arc<Device>) -> Result {
    let pair = Pair::connect(a, b, config())?;
    pair.transfer(70_000, 0, 0, false)?;
    pair.right.channel().invalidate(&pair.right.mr)?;
    let status = pair.good_key()?;
    pr_info!("write to an invalidated region: {:?}\n", status);
    check(status == Status::RemoteAccess)?;
    pair.close();
    Ok(())
}

/// The peer vanishes: the chain must end with an error by itself.
fn lost_peer(a: &Arc<Device>, b: &Arc<Device>) -> Result {
    // rxe takes 7 for "for ever", other devices for seven.
    let config = Config {
        retries: 2,
        ..config()
    };
    let Pair { left, right } = Pair::connect(a, b, config)?;
    right.close();
    let status = left.write_nowhere()?;
    pr_info!("write to a closed queue pair: {:?}\n", status);
    check(!status.is_success())?;
    left.close();
    let Pair { left, right } = Pair::connect(a, b, config)?;
    right.close();
    let status = left.seldom_nowhere()?;
    check(!status.is_success())?;
    left.close();
    Ok(())
}

/// Six threads post while the queue pairs break, close or are dropped, or lose their memory.
fn races(a: &Arc<Device>, b: &Arc<Device>) -> Result {
    let before = side::posted();
    for round in 0..20 {
        let Pair { left, right } = Pair::connect(a, b, config())?;
        for number in 0..3 {
            left.poster(&right, number)?;
            right.poster(&left, number)?;
        }
        fsleep(Delta::from_millis(20));
        match round % 5 {
            0 => {
                left.channel().fail();
                right.close();
                left.close();
            }
            1 => {
                left.close();
                right.close();
            }
            2 => {
                drop(right);
                drop(left);
            }
            3 => {
                right.revoke(false);
                left.close();
                right.close();
            }
            _ => {
                left.revoke(true);
                fsleep(Delta::from_millis(1));
                right.close();
                drop(left);
            }
        }
        wait(side::no_posters)?;
        wait(side::no_tokens)?;
    }
    pr_info!("{} chains in races\n", side::posted().wrapping_sub(before));
    check(side::posted().wrapping_sub(before) > 200)
}

fn cases(a: &Arc<Device>, b: &Arc<Device>) -> Result {
    let pair = Pair::connect(a, b, config());
    report("connect", pair.as_ref().map(|_| ()).map_err(|e| *e));
    let pair = pair?;
    report("write by address, 1 byte to 1 MiB", sizes(&pair, false));
    report("write by key, 1 byte to 1 MiB", sizes(&pair, true));
    report("refusals, full queue, long message", refusals(&pair));
    pair.close();
    report("bad key", bad_key(a, b));
    report("revoked key", revoked_key(a, b));
    report("lost peer", lost_peer(a, b));
    // Dropped without closing, in every state.
    report("drop unconnected", link::abandon(a, config()));
    report("races", races(a, b));
    report("tokens", wait(side::no_tokens));
    Ok(())
}

/// One connection from beginning to end; for fault injection.
fn quick(ops: &Ops) -> Result {
    let (a, b) = ops.pair()?;
    let config = Config {
        send_slots: 4,
        send_wrs: 32,
        chain_wrs: 12,
        recv_slots: 8,
        ..config()
    };
    let pair = Pair::connect_small(&a, &b, config, 16384)?;
    pair.transfer(5000, 3, 4000, true)?;
    pair.transfer(5000, 3, 4000, false)?;
    pair.close();
    Ok(())
}

impl Ops {
    /// The first two devices.
    fn pair(&self) -> Result<(Arc<Device>, Arc<Device>)> {
        let devices = self.devices.lock();
        match (devices.first(), devices.get(1)) {
            (Some(a), Some(b)) => Ok((a.clone(), b.clone())),
            _ => Err(ENODEV),
        }
    }
}

fn run(ops: &Ops) -> Result {
    let (a, b) = ops.pair()?;
    report("device a", devices(&a));
    report("device b", devices(&b));
    cases(&a, &b)?;
    let Pair { left, right } = Pair::connect(&a, &b, config())?;
    left.pump(&right)?;
    right.pump(&left)?;
    let mut links = ops.links.lock();
    links.push(left, GFP_KERNEL)?;
    links.push(right, GFP_KERNEL)?;
    Ok(())
}

impl kernel::Module for RdmaTest {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let ops = Arc::pin_init(
            pin_init!(Ops {
                devices <- new_mutex!(KVec::new()),
                links <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )?;
        let client = Client::register(c"rdma_test", ops.clone())?;
        if *module_parameters::quick.value() != 0 {
            match quick(&ops) {
                Ok(()) => pr_info!("quick: done\n"),
                Err(error) => pr_info!("quick: {:?}\n", error),
            }
        } else {
            report("run", run(&ops));
        }
        pr_info!("cases done\n");
        Ok(Self {
            _client: client,
            ops,
        })
    }
}
