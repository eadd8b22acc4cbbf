// SPDX-License-Identifier: GPL-2.0
//! Owner of executed instructions: the socket, or the wire. A function that both use (memcpy, kmalloc,
//! a lock) is on the account of the one that calls it.
//!
//! Each kernel stack has its list of the calls that have not returned, with where the return address
//! is and who was the owner before. A function of the list that the lab gives makes its owner the
//! one of all it calls, until it returns. Calls and returns tell the stack pointer by the memory that
//! they write and read, so no register is needed, which the interface of older QEMUs does not give.
//!
//! A stack that is switched to by the scheduler goes on with its own owner. One that is switched to
//! otherwise and has no calls is an interrupt's: it begins with the owner of what it came from. A
//! worker's own loop is on the account of the work that it did last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The socket's own, and the wire's.
pub const OWNERS: usize = 2;
const OWN: usize = 0;
const WIRE: usize = 1;

/// Effect that the beginning of a function has on owner or stack.
pub type Role = u8;
const BE_OWN: Role = 1;
const BE_WIRE: Role = 2;
/// The scheduler changes the stack.
const SWITCH: Role = 3;
/// A thread begins.
const FORK: Role = 4;
/// A worker begins a work.
const WORK: Role = 5;

/// x86-64's stacks are of this size and lie at multiples of it.
const STACK: u64 = 16 << 10;

static NOW: AtomicUsize = AtomicUsize::new(OWN);
static FOLLOWING: AtomicBool = AtomicBool::new(false);
static STACKS: Mutex<Option<Stacks>> = Mutex::new(None);

/// Reads a role from its letter in the lab's file.
pub fn role(letter: &str) -> Option<Role> {
    Some(match letter {
        "o" => BE_OWN,
        "w" => BE_WIRE,
        "s" => SWITCH,
        "f" => FORK,
        "k" => WORK,
        _ => return None,
    })
}

/// A call that has not returned.
struct Call {
    /// Where its return address is.
    slot: u64,
    /// The owner before.
    before: usize,
    /// It is a worker's, of a work.
    work: bool,
}

#[derive(Default)]
struct Stack {
    calls: Vec<Call>,
    /// The owner while another stack is in use.
    owner: usize,
    /// The owner of the last work done here.
    last: usize,
    /// A work has begun and has called nothing with an owner yet.
    fresh: bool,
}

impl Stack {
    /// Takes off what is at or below `slot`: it has returned.
    fn unwind(&mut self, slot: u64) {
        while self.calls.last().is_some_and(|call| call.slot <= slot) {
            let Some(call) = self.calls.pop() else { return };
            self.owner = if call.work { self.last } else { call.before };
        }
    }
}

#[derive(Default)]
struct Stacks {
    all: HashMap<u64, Stack>,
    /// The stack in use.
    here: u64,
    /// The scheduler is about to change it.
    switching: bool,
}

impl Stacks {
    /// The stack that `slot` is on, which is the one in use from now on.
    fn at(&mut self, slot: u64) -> &mut Stack {
        let key = slot / STACK;
        let moved = key != self.here;
        if moved {
            let owner = NOW.load(Relaxed);
            self.all.entry(self.here).or_default().owner = owner;
            let next = self.all.entry(key).or_default();
            // What lies below has returned unseen, by a jump.
            next.unwind(slot.wrapping_sub(8));
            if next.calls.is_empty() && !self.switching {
                next.owner = owner;
            }
            self.here = key;
            self.switching = false;
        }
        let stack = self.all.entry(key).or_default();
        if !moved {
            stack.owner = NOW.load(Relaxed);
        }
        stack
    }
}

fn with(f: impl FnOnce(&mut Stacks)) {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    f(stacks.get_or_insert_default());
}

/// Returns the owner of what is executed.
pub fn now() -> usize {
    NOW.load(Relaxed)
}

/// Follows calls from now on.
pub fn follow() {
    FOLLOWING.store(true, Relaxed);
}

/// The guest has called; the return address is at `slot`.
pub fn called(slot: u64) {
    if !FOLLOWING.load(Relaxed) {
        return;
    }
    with(|stacks| {
        let stack = stacks.at(slot);
        stack.unwind(slot);
        let before = stack.owner;
        NOW.store(before, Relaxed);
        stack.calls.push(Call {
            slot,
            before,
            work: false,
        });
    });
}

/// The guest returns by the address at `slot`.
pub fn returned(slot: u64) {
    if !FOLLOWING.load(Relaxed) {
        return;
    }
    with(|stacks| {
        let stack = stacks.at(slot);
        stack.unwind(slot);
        NOW.store(stack.owner, Relaxed);
    });
}

/// The guest is at the beginning of a function with a role.
pub fn enter(role: Role) {
    if !FOLLOWING.load(Relaxed) {
        return;
    }
    with(|stacks| {
        if role == SWITCH {
            stacks.switching = true;
            return;
        }
        let here = stacks.here;
        let stack = stacks.all.entry(here).or_default();
        match role {
            FORK => {
                *stack = Stack::default();
                NOW.store(OWN, Relaxed);
            }
            WORK => {
                stack.fresh = true;
                if let Some(call) = stack.calls.last_mut() {
                    call.work = true;
                }
            }
            _ => {
                let owner = if role == BE_WIRE { WIRE } else { OWN };
                if std::mem::take(&mut stack.fresh) {
                    stack.last = owner;
                }
                NOW.store(owner, Relaxed);
            }
        }
    });
}
