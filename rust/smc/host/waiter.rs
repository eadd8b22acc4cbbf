// SPDX-License-Identifier: GPL-2.0

//! Upward call to the owner of a handshake after an event; and lists that take no memory with their lock held.
//!
//! Locks that programs share which have nothing to do with each other are held over no allocation: where memory is
//! short, that waits for others. So memory for a longer list is there before the lock is taken.

use core::{mem, ptr};
use kernel::{
    prelude::*,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Arc,
        Mutex, //
    }, //
};

/// Owner of a handshake, which goes on with it after an event: a client's socket, or a connection
/// that accept() has not handed out.
pub(crate) trait Waiter: Send + Sync {
    /// Queues the work that goes on with the handshake. Any context.
    fn kick(self: Arc<Self>);

    /// Takes note that a message goes out after which the peer may take the connection for made.
    fn answers(&self) {}
}

/// A waiter, and the memory that a list takes for it.
pub(crate) struct Seat(KBox<Node>);

struct Node {
    waiter: Arc<dyn Waiter>,
    next: Option<KBox<Node>>,
}

impl Seat {
    /// Prepares a waiter for a list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(waiter: Arc<dyn Waiter>) -> Result<Self> {
        let node = Node { waiter, next: None };
        Ok(Self(KBox::new(node, GFP_KERNEL)?))
    }
}

/// Those who wait for an event.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The last one that has come.
    last: Option<KBox<Node>>,
}

impl Waiters {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self { last: None }
    }

    /// Adds a waiter, unless it is there. Returns memory that was not needed, to be freed without the lock.
    pub(crate) fn add(&mut self, seat: Seat) -> Option<Seat> {
        let mut at = self.last.as_deref();
        while let Some(node) = at {
            if is_same(&node.waiter, &seat.0.waiter) {
                return Some(seat);
            }
            at = node.next.as_deref();
        }
        let mut node = seat.0;
        node.next = self.last.take();
        self.last = Some(node);
        None
    }

    fn pop(&mut self) -> Option<KBox<Node>> {
        let mut node = self.last.take()?;
        self.last = node.next.take();
        Some(node)
    }

    /// Kicks all of them, in the order in which they have come. Without locks.
    pub(crate) fn kick(mut self) {
        let mut turned = Self::new();
        while let Some(mut node) = self.pop() {
            node.next = turned.last.take();
            turned.last = Some(node);
        }
        while let Some(node) = turned.pop() {
            KBox::into_inner(node).waiter.kick();
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        // One after the other: each would drop the next within its own.
        while let Some(node) = self.pop() {
            drop(node);
        }
    }
}

/// Tells whether two waiters are the same handshake.
fn is_same(one: &Arc<dyn Waiter>, other: &Arc<dyn Waiter>) -> bool {
    // The address alone: one type may have several tables of functions.
    ptr::addr_eq(&**one, &**other)
}

/// A list, with its lock held.
pub(crate) type Locked<'a, T> = Guard<'a, KVec<T>, MutexBackend>;

/// Memory for a list that is to be longer.
pub(crate) struct Room<T>(KVec<T>);

impl<T> Room<T> {
    /// Allocates memory for a list that has `len` items, and is to have one more.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn beyond(len: usize) -> Result<Self> {
        let wanted = len.saturating_add(1).next_power_of_two().max(4);
        Ok(Self(KVec::with_capacity(wanted, GFP_KERNEL)?))
    }

    /// Moves a list here, if it gets longer by that. What is left is to be dropped without the list's lock.
    pub(crate) fn take(&mut self, list: &mut KVec<T>) {
        if self.0.capacity() <= list.capacity() {
            return;
        }
        for item in list.drain_all() {
            let _ = self.0.push_within_capacity(item);
        }
        mem::swap(&mut self.0, list);
    }
}

/// Tells whether a list has room for one more item.
pub(crate) fn has_room<T>(list: &KVec<T>) -> bool {
    list.len() < list.capacity()
}

/// Locks a list that has room for one more item. Returns also what is to be dropped after the lock.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn with_room<T>(list: &Mutex<KVec<T>>) -> Result<(Option<Room<T>>, Locked<'_, T>)> {
    let mut room: Option<Room<T>> = None;
    loop {
        let len = {
            let mut list = list.lock();
            if let Some(room) = &mut room {
                room.take(&mut list);
            }
            if has_room(&list) {
                return Ok((room, list));
            }
            list.len()
        };
        room = Some(Room::beyond(len)?);
    }
}

/// Adds an item to a list.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn push<T>(list: &Mutex<KVec<T>>, item: T) -> Result {
    // In this order: what is bound last is dropped first.
    let (_left, mut list) = with_room(list)?;
    list.push_within_capacity(item)?;
    Ok(())
}
