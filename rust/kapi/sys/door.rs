// SPDX-License-Identifier: GPL-2.0

//! A way in that is closed in a moment when nobody is inside.

use super::word::Crowd;

/// The bit of a door that is shut; the others are the number of those inside.
const SHUT: i32 = i32::MIN;

/// A door: calls go in while it is open, and it [closes](Door::close) when none is inside. One who finds it shut is counted
/// for a moment, too, and has not been inside.
pub struct Door(Crowd);

impl Door {
    /// Makes a door that is shut.
    pub const fn new() -> Self {
        Self(Crowd::new(SHUT))
    }

    /// Goes in, until the guard is dropped; `None` if it is shut.
    #[inline]
    pub fn enter(&self) -> Option<Entered<'_>> {
        if self.0.add(1) < 0 {
            self.0.add(-1);
            return None;
        }
        Some(Entered(self))
    }

    /// Tells whether it is open: a hint.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.get() >= 0
    }

    /// Opens it.
    pub fn open(&self) {
        self.0.change(|state| state & !SHUT);
    }

    /// Shuts it, whoever is inside.
    pub fn shut(&self) {
        self.0.change(|state| state | SHUT);
    }

    /// Shuts it if nobody is inside. Returns whether it is shut, and nobody is; what those inside have done is seen then.
    /// It may say no in vain while somebody finds it shut.
    pub fn close(&self) -> bool {
        match self.0.get() {
            0 => self.0.replace(0, SHUT),
            state => state == SHUT,
        }
    }
}

impl Default for Door {
    fn default() -> Self {
        Self::new()
    }
}

/// One who is inside.
pub struct Entered<'a>(&'a Door);

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0 .0.add(-1);
    }
}
