// SPDX-License-Identifier: GPL-2.0
//! Counters of blocks. The guest has one virtual CPU, but QEMU's threads are not ours to reason
//! about, so everything is atomic.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How often a block was executed while counting was on.
#[derive(Default)]
pub struct Block(AtomicU64);

static COUNTING: AtomicBool = AtomicBool::new(false);
static FILE: OnceLock<String> = OnceLock::new();
/// By address and number of instructions: a block may be translated in several lengths.
static BLOCKS: Mutex<Option<HashMap<(u64, u64), &'static Block>>> = Mutex::new(None);

impl Block {
    /// The guest begins to execute it.
    pub fn executed(&self) {
        if COUNTING.load(Relaxed) {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// Where the counters go.
pub fn write_to(file: &str) {
    let _ = FILE.set(file.to_owned());
}

/// The counter of a block; the same one each time it is translated. Never freed.
pub fn block(at: u64, length: u64) -> &'static Block {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks
        .get_or_insert_default()
        .entry((at, length))
        .or_insert_with(|| Box::leak(Box::default()))
}

/// Starts counting from nothing, or stops and writes what was counted.
pub fn mark() {
    let stop = COUNTING.fetch_xor(true, Relaxed);
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(blocks) = &*blocks else { return };
    if !stop {
        blocks.values().for_each(|b| b.0.store(0, Relaxed));
        return;
    }
    let Some(Ok(file)) = FILE.get().map(std::fs::File::create) else {
        return;
    };
    let mut out = std::io::BufWriter::new(file);
    for ((at, length), block) in blocks {
        let n = block.0.load(Relaxed);
        if n != 0 && writeln!(out, "{at:x} {:x}", n.saturating_mul(*length)).is_err() {
            return;
        }
    }
}
