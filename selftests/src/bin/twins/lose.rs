// SPDX-License-Identifier: GPL-2.0
//! Promoted connections whose link goes, over a model card on loopback.

use crate::forced;
use crate::model::Model;
use crate::pair::Pair;
use crate::step::Step;
use st::card::{trouble, Devices};
use st::rng::Rng;
use st::sys;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// When a link goes.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Before the step.
    Before(What),
    /// After the step, before what it says has come for sure.
    After(What),
    /// After the card has acknowledged what the step said, and no software hears of that.
    Forgets,
}

/// What goes.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The device; another one comes.
    Device,
    /// Its links: it says that it has failed, and works again.
    Links,
}

/// Has links go.
pub struct Loser {
    card: String,
    devices: Devices,
    every: u64,
    /// Number of losses.
    pub losses: Cell<u64>,
    /// A device has said that it has failed, and the connection's ends may not know it.
    told: Cell<bool>,
}

/// Longest wait until both ends know that their link is lost; it may be over before anybody looks, if they are on another
/// one.
const KNOWN: Duration = Duration::from_millis(200);

/// Loads the card's module.
///
/// # Errors
/// What is missing.
pub fn load() -> Result<(), String> {
    let words = |program: &str, word: &str| std::process::Command::new(program).arg(word).status();
    let _ = words("modprobe", "ib_core");
    let loaded = words("insmod", "/rsmc/kmod/card.ko");
    match loaded.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err("card.ko cannot be loaded".into()),
    }
}

/// Adds this process's card to loopback.
///
/// # Errors
/// What is missing.
pub fn place() -> Result<(), String> {
    st::net::sysctl("net.smc.neighbour_time", "0")?;
    add(&Devices::here(), &card())
}

/// The name of this process's card: all namespaces see the cards of all.
fn card() -> String {
    format!("card_l{}", std::process::id())
}

fn add(devices: &Devices, card: &str) -> Result<(), String> {
    let added = devices.add(card, "lo");
    added.map_err(|e| format!("no card on loopback: {e}"))
}

/// Tells whether a connection that lives through a loss before a step does so, too, where the step is, or about it.
pub fn may_at(m: &Model, step: &Step, loss: Loss) -> bool {
    match *step {
        Step::Close { .. } => false,
        // Both directions at once are as a close, unless the rings are left before.
        Step::Shutdown { end, how } => {
            let own = m.ends[end];
            let rest = match how {
                libc::SHUT_RD => own.shut_write,
                libc::SHUT_WR => own.shut_read,
                _ => true,
            };
            let both = rest || m.ends[1 - end].shut_write;
            !both || matches!(loss, Loss::Before(_))
        }
        Step::Send { flags, .. } => flags & libc::MSG_OOB == 0,
        _ => true,
    }
}

/// Tells whether a step sends, and does not wait for room, or asks whether there is some.
fn is_hasty(m: &Model, step: &Step) -> bool {
    let asks = match *step {
        Step::Send { flags, .. } => flags & libc::MSG_DONTWAIT != 0,
        Step::Fill { .. } | Step::Poll { .. } | Step::Wait { .. } => true,
        _ => false,
    };
    asks || step.sends() && step.end().is_some_and(|end| m.ends[end].nonblock)
}

/// Tells whether a connection is SMC-R at both ends and lives through a loss: neither end has closed, both have not ended,
/// and no urgent byte is under way.
pub fn may(pair: &Pair, m: &Model) -> bool {
    let all = |good: &dyn Fn(usize) -> bool| (0..2).all(good);
    // An urgent byte that the reader stands at counts, too.
    !m.urgent
        && all(&|end| m.ends[end].open)
        && !all(&|end| m.ends[end].shut_write)
        && !(0..2).any(|end| m.ends[end].shut_write && m.ends[end].shut_read)
        && !m.reset
        && forced::is_smc(pair)
}

impl Loser {
    /// One that draws a loss in one of `every` steps.
    pub fn new(every: u64) -> Self {
        Self {
            card: card(),
            devices: Devices::here(),
            every,
            losses: Cell::new(0),
            told: Cell::new(false),
        }
    }

    /// Draws a loss, or none.
    pub fn draws(&self, rng: &mut Rng) -> Option<Loss> {
        let loss = rng.range(0, 3 * self.every - 1);
        // A device that comes takes longer than all else.
        let what = match rng.range(0, 7) {
            0 => What::Device,
            _ => What::Links,
        };
        match loss {
            0 => Some(Loss::Before(what)),
            1 => Some(Loss::After(what)),
            2 => Some(Loss::Forgets),
            _ => None,
        }
    }

    /// Has it happen about a step; `known` waits, if that must be, until both ends know of what was lost before it.
    pub fn lose<T>(&self, loss: Loss, known: impl FnOnce(), act: impl FnOnce() -> T) -> T {
        self.losses.set(self.losses.get() + 1);
        match loss {
            Loss::Before(what) => {
                self.strike(what);
                known();
                act()
            }
            Loss::After(what) => {
                let done = act();
                self.strike(what);
                done
            }
            Loss::Forgets => {
                trouble(&self.card, "forgets", 1);
                let done = act();
                trouble(&self.card, "forgets", 0);
                // Where nothing was said there was nothing to be forgotten.
                self.strike(What::Links);
                done
            }
        }
    }

    fn strike(&self, what: What) {
        match what {
            What::Device => {
                self.devices
                    .delete(&self.card)
                    .expect("a device is deleted");
                add(&self.devices, &self.card).expect("a device is added");
            }
            What::Links => {
                trouble(&self.card, "fatal", 1);
                self.told.set(true);
            }
        }
    }

    /// Waits until both ends know of a loss, where the next step is one that a connection does not live through
    /// meanwhile. Waits for room where the step does not: there is none until the connection is TCP's again, and poll()
    /// says so. A device that goes is waited for by who deletes it.
    pub fn precedes(&self, pairs: &[Pair; 2], m: &Model, step: &Step) {
        let hasty = is_hasty(m, step);
        let awaited = hasty || !may_at(m, step, Loss::After(What::Links));
        let known = || (0..2).all(|end| !forced::is_smc_at(&pairs[1], end));
        let until = Instant::now() + KNOWN * st::guest::slow() as u32;
        while self.told.get() && awaited && !known() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(50));
        }
        if awaited || known() {
            self.told.set(false);
        }
        if let (true, Some(end)) = (hasty && m.lost, step.end()) {
            if pairs[0].has_room(end) {
                let _ = sys::poll1(pairs[1].raw(end), libc::POLLOUT, 10_000);
            }
        }
    }

    /// Another sequence begins.
    pub fn begins(&self) {
        self.told.set(false);
    }
}
