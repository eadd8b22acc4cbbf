// SPDX-License-Identifier: GPL-2.0
//! Counters of blocks. The guest has one virtual CPU, but QEMU's threads are not ours to reason
//! about, so everything is atomic or locked.

use crate::owner::{self, Role};
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Executions of a block while counting was on, for each owner, and the effect of its beginning on the
/// owner.
#[derive(Default)]
pub struct Block {
    role: AtomicU8,
    executed: [AtomicU64; owner::OWNERS],
}

#[derive(Default)]
struct All {
    /// By address and number of instructions: a block may be translated in several lengths.
    blocks: HashMap<(u64, u64), &'static Block>,
    /// Functions that change the owner.
    roles: HashMap<u64, Role>,
    /// Parts that were counted and written.
    parts: u32,
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static OUT: OnceLock<String> = OnceLock::new();
static ROLES: OnceLock<String> = OnceLock::new();
static ALL: Mutex<Option<All>> = Mutex::new(None);

impl Block {
    /// The guest begins to execute it.
    pub fn executed(&self) {
        let role = self.role.load(Relaxed);
        if role != 0 {
            owner::enter(role);
        }
        if COUNTING.load(Relaxed) {
            if let Some(n) = self.executed.get(owner::now()) {
                n.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Names the file that counters go to.
pub fn write_to(file: &str) {
    let _ = OUT.set(file.to_owned());
}

/// Names the file that tells which functions change the owner.
pub fn roles_in(file: &str) {
    let _ = ROLES.set(file.to_owned());
}

/// Returns whether owners are told apart.
pub fn has_owners() -> bool {
    ROLES.get().is_some()
}

fn lock() -> MutexGuard<'static, Option<All>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the counter of a block; the same one each time it is translated. Never freed.
pub fn block(at: u64, length: u64) -> &'static Block {
    let mut all = lock();
    let All { blocks, roles, .. } = all.get_or_insert_default();
    blocks.entry((at, length)).or_insert_with(|| {
        let block: &'static Block = Box::leak(Box::default());
        let role = roles.get(&at).copied().unwrap_or_default();
        block.role.store(role, Relaxed);
        block
    })
}

/// Reads lines `ADDRESS LETTER`, the address hexadecimal. The file is written when the guest has
/// told its symbols, so it is read as late as possible.
fn read_roles(all: &mut All) {
    let Some(Ok(text)) = ROLES.get().map(std::fs::read_to_string) else {
        return;
    };
    let role = |line: &str| {
        let (at, letter) = line.split_once(' ')?;
        Some((u64::from_str_radix(at, 16).ok()?, owner::role(letter)?))
    };
    all.roles = text.lines().filter_map(role).collect();
    for ((at, _), block) in &all.blocks {
        let role = all.roles.get(at).copied().unwrap_or_default();
        block.role.store(role, Relaxed);
    }
    owner::follow();
}

/// Starts counting from nothing, or stops and writes what was counted.
pub fn mark() {
    let stop = COUNTING.fetch_xor(true, Relaxed);
    let mut all = lock();
    let all = all.get_or_insert_default();
    if !stop {
        read_roles(all);
        let counters = all.blocks.values().flat_map(|block| &block.executed);
        counters.for_each(|n| n.store(0, Relaxed));
        return;
    }
    let Some(out) = OUT.get() else { return };
    let file = std::fs::File::create(format!("{out}.{}", all.parts));
    all.parts = all.parts.wrapping_add(1);
    let Ok(file) = file else { return };
    let mut out = std::io::BufWriter::new(file);
    for ((at, length), block) in &all.blocks {
        let [own, wire] = [0, 1].map(|i: usize| {
            let executed = block.executed.get(i).map_or(0, |n| n.load(Relaxed));
            executed.saturating_mul(*length)
        });
        if (own, wire) != (0, 0) && writeln!(out, "{at:x} {own:x} {wire:x}").is_err() {
            return;
        }
    }
}
