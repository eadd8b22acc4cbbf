// SPDX-License-Identifier: GPL-2.0

//! A list of at most `N` small values, without an allocator.

use core::fmt;

/// At most `N` values in order.
#[derive(Clone, Copy)]
pub struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// An empty list; `filler` takes the place of the values still missing.
    pub const fn filled(filler: T) -> Self {
        List {
            items: [filler; N],
            len: 0,
        }
    }

    /// Appends a value; false if the list is full.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        match self.items.get_mut(self.len) {
            Some(slot) => {
                *slot = value;
                self.len = self.len.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The values.
    pub fn as_slice(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }

    /// Iterates over the values.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of values where the wire has one byte for it.
    pub(crate) fn count(&self) -> u8 {
        u8::try_from(self.len).unwrap_or(u8::MAX)
    }

    /// Reports whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    /// An empty list.
    pub fn new() -> Self {
        List::filled(T::default())
    }

    /// A list of these values, if they are not too many.
    pub fn from_slice(values: &[T]) -> Option<Self> {
        let mut list = List::new();
        for value in values {
            if !list.push(*value) {
                return None;
            }
        }
        Some(list)
    }
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        List::new()
    }
}

impl<T: Copy + PartialEq, const N: usize> PartialEq for List<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Eq, const N: usize> Eq for List<T, N> {}

impl<T: Copy + fmt::Debug, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
