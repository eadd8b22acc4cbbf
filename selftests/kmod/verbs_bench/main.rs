// SPDX-License-Identifier: GPL-2.0

//! Measures RDMA without sockets: between two devices of one kernel, each message one RDMA WRITE
//! with a SEND of 44 bytes behind it, posted in one chain, which is what SMC-R sends at the least; or,
//! with `imm`, one RDMA WRITE with immediate, which is what two hosts with rsmc send.
//!
//! With `far` one end is here and the other in another guest, for the time that passes on the wall.
//!
//! Loading measures and prints lines `bench METRIC VALUE UNIT`, in nanoseconds of the kernel's
//! clock. No program runs, nothing is copied, nobody sleeps: completions post what comes next.
#![forbid(unsafe_code)]

mod end;
mod far;
mod link;

use end::Plan;
use kapi::rdma::{
    client::{Client, ClientOps, Event},
    device::Device, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    time::{delay::fsleep, Delta}, //
};
use link::Pair;

module! {
    type: VerbsBench,
    name: "verbs_bench",
    authors: ["rsmc"],
    description: "cost of RDMA verbs",
    license: "GPL",
    params: {
        scale: i32 {
            default: 1,
            description: "Divide the amounts, for a quick look",
        },
        imm: i32 {
            default: 0,
            description: "1: one WRITE with immediate for each message",
        },
        only: i32 {
            default: 0,
            description: "1: 64 bytes, 2: 16 KiB, 3: bulk, instead of all",
        },
        far: i32 {
            default: 0,
            description: "1: the end that begins, 2: the other one, is in another guest",
        },
    },
}

#[pin_data]
struct Ops {
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
}

impl ClientOps for Ops {
    fn add(&self, device: &Arc<Device>) -> Result {
        self.devices.lock().push(device.clone(), GFP_KERNEL)?;
        Ok(())
    }

    fn remove(&self, device: &Arc<Device>) {
        self.devices
            .lock()
            .retain(|other| !Arc::ptr_eq(other, device));
    }

    fn event(&self, _device: &Arc<Device>, _event: Event) {}
}

/// Runs a plan from its beginning to the last completion: nanoseconds.
fn run(pair: &Pair, plan: Plan) -> Result<u64> {
    let start = pair.begin(plan)?;
    // For up to ten minutes of a guest's time; looking costs little at this pace.
    for _ in 0..60_000 {
        if let Some(end) = pair.ended()? {
            return Ok(u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        }
        fsleep(Delta::from_millis(10));
    }
    Err(ETIMEDOUT)
}

/// Prints `total` for each of `parts`.
fn show(metric: &str, total: u64, parts: u64) {
    let tenths = total.saturating_mul(10) / parts.max(1);
    pr_info!("bench {} {}.{} ns\n", metric, tenths / 10, tenths % 10);
}

fn measure(ops: &Ops, work: Work, far: i32) -> Result {
    let (a, b) = {
        let devices = ops.devices.lock();
        (devices.first().cloned(), devices.get(1).cloned())
    };
    let a = a.ok_or(ENODEV)?;
    match far {
        0 => {
            let pair = Pair::connect(&a, &b.ok_or(ENODEV)?)?;
            measure_all(&pair, work)?;
            pair.close();
        }
        first => {
            let (pair, _numbers) = far::connect(&a, first == 1)?;
            if first == 1 {
                measure_all(&pair, work)?;
            }
            pair.close();
        }
    }
    Ok(())
}

/// What to measure.
#[derive(Clone, Copy)]
struct Work {
    scale: u32,
    imm: bool,
    /// The metric's number; 0: all.
    only: i32,
}

/// Says how many operations a run had: all that were executed, those that are not timed as well.
fn tell(operations: u32) {
    pr_info!("operations {}\n", operations);
}

fn measure_all(pair: &Pair, work: Work) -> Result {
    let Work { scale, imm, only } = work;
    let as_asked = |plan: Plan| if imm { plan.by_immediate() } else { plan };
    for (number, metric, bytes, amount) in [
        (1, "pingpong_64", 64, 5000),
        (2, "pingpong_16384", 16_384, 1000),
    ] {
        if ![0, number].contains(&only) {
            continue;
        }
        let trips = (amount / scale).max(1);
        for turns in [trips / 10 + 1, trips] {
            let plan = Plan::ping_pong(bytes, turns.saturating_mul(2));
            let ns = run(pair, as_asked(plan))?;
            tell(turns.saturating_mul(2));
            if turns == trips {
                show(metric, ns, u64::from(trips).saturating_mul(2));
            }
        }
    }
    if ![0, 3].contains(&only) {
        return Ok(());
    }
    let mb = (16 / scale).max(1);
    let chains = mb.saturating_mul(16);
    let before = chains / 4 + 1;
    run(pair, as_asked(Plan::one_way(65_536, before)))?;
    let ns = run(pair, as_asked(Plan::one_way(65_536, chains)))?;
    tell(before.saturating_add(chains).saturating_mul(64));
    show("bulk_per_KiB", ns, u64::from(chains).saturating_mul(64));
    Ok(())
}

struct VerbsBench {
    _client: Client,
}

impl kernel::Module for VerbsBench {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let ops = Arc::pin_init(
            pin_init!(Ops {
                devices <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )?;
        let client = Client::register(c"verbs_bench", ops.clone())?;
        let scale = u32::try_from(*module_parameters::scale.value()).unwrap_or(1);
        let work = Work {
            scale: scale.max(1),
            imm: *module_parameters::imm.value() != 0,
            only: *module_parameters::only.value(),
        };
        measure(&ops, work, *module_parameters::far.value())?;
        Ok(Self { _client: client })
    }
}
