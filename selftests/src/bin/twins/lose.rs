// SPDX-License-Identifier: GPL-2.0
//! Promoted connections whose link goes, over a model card on loopback.

use crate::model::Model;
use crate::pair::Pair;
use crate::step::Step;
use st::card::{trouble, Devices};
use st::rng::Rng;
use st::smcinfo;
use std::cell::Cell;

const CARD: &str = "card_l";

/// What goes.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// The device, before the step.
    Before,
    /// The device, after the step, before what it says has come for sure.
    After,
    /// The link: the card has acknowledged what the step said, and no software hears of that.
    Forgets,
}

/// Has links go.
pub struct Loser {
    devices: Devices,
    every: u64,
    /// Number of losses.
    pub losses: Cell<u64>,
}

/// Loads the card, and adds one to loopback.
///
/// # Errors
/// What is missing.
pub fn place() -> Result<(), String> {
    let words = |program: &str, word: &str| std::process::Command::new(program).arg(word).status();
    let _ = words("modprobe", "ib_core");
    let loaded = words("insmod", "/rsmc/kmod/card.ko");
    if !loaded.is_ok_and(|status| status.success()) {
        return Err("card.ko cannot be loaded".into());
    }
    st::net::sysctl("net.smc.neighbour_time", "0")?;
    add(&Devices::here())
}

fn add(devices: &Devices) -> Result<(), String> {
    let added = devices.add(CARD, "lo");
    added.map_err(|e| format!("no card on loopback: {e}"))
}

/// Tells whether a connection that lives through a loss before a step does so, too, where the step is, or about it.
pub fn may_at(m: &Model, step: &Step, loss: Loss) -> bool {
    match *step {
        Step::Close { .. } => false,
        // Both directions at once are as a close, unless the rings are left before.
        Step::Shutdown { end, how } => {
            let both = how == libc::SHUT_RDWR || m.ends[1 - end].shut_write;
            !both || matches!(loss, Loss::Before)
        }
        Step::Send { flags, .. } => flags & libc::MSG_OOB == 0,
        _ => true,
    }
}

/// Tells whether a connection is SMC-R at both ends and lives through a loss: neither end has closed, both have not ended,
/// and no urgent byte is under way.
pub fn may(pair: &Pair, m: &Model) -> bool {
    let is_smc = |end| smcinfo::info(pair.raw(end)).is_ok_and(|info| info.mode == 0);
    let all = |good: &dyn Fn(usize) -> bool| (0..2).all(good);
    // An urgent byte that the reader stands at counts, too.
    !m.urgent
        && all(&|end| m.ends[end].open)
        && !all(&|end| m.ends[end].shut_write)
        && !(0..2).any(|end| m.ends[end].shut_write && m.ends[end].shut_read)
        && !m.reset
        && all(&is_smc)
}

impl Loser {
    /// One that draws a loss in one of `every` steps.
    pub fn new(every: u64) -> Self {
        Self {
            devices: Devices::here(),
            every,
            losses: Cell::new(0),
        }
    }

    /// Draws a loss, or none.
    pub fn draws(&self, rng: &mut Rng) -> Option<Loss> {
        match rng.range(0, 3 * self.every - 1) {
            0 => Some(Loss::Before),
            1 => Some(Loss::After),
            2 => Some(Loss::Forgets),
            _ => None,
        }
    }

    /// Has it happen about a step.
    pub fn lose<T>(&self, loss: Loss, act: impl FnOnce() -> T) -> T {
        self.losses.set(self.losses.get() + 1);
        match loss {
            Loss::Before => {
                self.again();
                act()
            }
            Loss::After => {
                let done = act();
                self.again();
                done
            }
            Loss::Forgets => {
                trouble(CARD, "forgets", 1);
                let done = act();
                trouble(CARD, "forgets", 0);
                // Where nothing was said there was nothing to be forgotten.
                self.again();
                done
            }
        }
    }

    fn again(&self) {
        self.devices.delete(CARD).expect("a device is deleted");
        add(&self.devices).expect("a device is added");
    }
}
