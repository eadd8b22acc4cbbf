// SPDX-License-Identifier: GPL-2.0

//! A first-in first-out queue on top of `KVec`, into which late items can be put where they belong.

use kernel::prelude::*;

/// A queue with a `pop` of amortised constant time: taken slots are given back half a vector at a
/// time.
pub(crate) struct Fifo<T> {
    items: KVec<Option<T>>,
    head: usize,
}

impl<T> Fifo<T> {
    /// Creates an empty queue.
    pub(crate) const fn new() -> Self {
        Self {
            items: KVec::new(),
            head: 0,
        }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len().saturating_sub(self.head)
    }

    /// Makes room for `more` items, so that as many [`Fifo::push`]es cannot fail.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, more: usize, flags: kernel::alloc::Flags) -> Result {
        self.compact();
        self.items.reserve(more, flags)?;
        Ok(())
    }

    /// Appends an item; gives it back if there is no room.
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        match self.items.push_within_capacity(Some(item)) {
            Ok(()) => Ok(()),
            Err(err) => match err.0 {
                Some(item) => Err(item),
                None => Ok(()),
            },
        }
    }

    /// Appends an item and moves it before all that have a greater key; gives it back if there is no
    /// room.
    pub(crate) fn push_by_key(&mut self, item: T, key: impl Fn(&T) -> u64) -> Result<(), T> {
        self.push(item)?;
        let items = self.items.get_mut(self.head..).unwrap_or(&mut []);
        let mut at = items.len().saturating_sub(1);
        while let Some(before) = at.checked_sub(1) {
            let of = |at: usize| items.get(at).and_then(Option::as_ref).map(&key);
            if of(before) <= of(at) {
                break;
            }
            items.swap(before, at);
            at = before;
        }
        Ok(())
    }

    /// Returns the oldest item.
    pub(crate) fn first(&self) -> Option<&T> {
        self.items.get(self.head)?.as_ref()
    }

    /// Returns all items, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let items = self.items.get(self.head..).unwrap_or(&[]);
        items.iter().flatten()
    }

    /// Takes the oldest item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.items.get_mut(self.head)?.take();
        self.head = self.head.saturating_add(1);
        if self.head == self.items.len() {
            self.items.truncate(0);
            self.head = 0;
        }
        item
    }

    fn compact(&mut self) {
        if self.head < 32 || self.head < self.items.len() / 2 {
            return;
        }
        let mut to = 0usize;
        let mut from = self.head;
        while let Some(item) = self.items.get_mut(from).map(Option::take) {
            if let Some(slot) = self.items.get_mut(to) {
                *slot = item;
            }
            to = to.saturating_add(1);
            from = from.saturating_add(1);
        }
        self.items.truncate(to);
        self.head = 0;
    }
}
