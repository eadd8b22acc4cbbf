// SPDX-License-Identifier: GPL-2.0

//! A socket's sock in the overlay's data, and what the socket has of the overlay.

use crate::net::sock::Sock;
use core::ops::Deref;
use kernel::sync::{
    aref::ARef,
    atomic::{Acquire, Atomic, Full}, //
};

/// The sock of an overlay's socket, and whether the socket still refers to the data that this is part of: from its
/// first use on, until its release, and never again. See [`HasTied`].
pub struct Tied {
    sock: ARef<Sock>,
    state: Atomic<u32>,
}

/// The data is no socket's yet.
const NEW: u32 = 0;
/// The socket is not the overlay's any more.
const ENDED: u32 = 1;
/// The socket was given back to TCP, and has the data all the same.
const GIVEN_BACK: u32 = 2;
/// The socket has the data; its row is added to this.
const ATTACHED: u32 = 3;

impl Tied {
    /// Begins as no socket's.
    pub fn new(sock: ARef<Sock>) -> Self {
        Self {
            sock,
            state: Atomic::new(NEW),
        }
    }

    /// Returns the counted reference to the sock.
    pub fn sock(&self) -> &ARef<Sock> {
        &self.sock
    }

    /// Tells whether the socket was given back to TCP.
    pub fn is_given_back(&self) -> bool {
        self.state.load(Acquire) == GIVEN_BACK
    }

    /// Notes that a socket with this sock is about to have the data, and its row. False if one had it before.
    pub(crate) fn attach(&self, sock: &Sock, row: usize) -> bool {
        let attached = ATTACHED.saturating_add(row as u32);
        core::ptr::eq(self.sock.as_ptr(), sock.as_ptr())
            && self.state.cmpxchg(NEW, attached, Full).is_ok()
    }

    /// Notes that the socket was given back.
    pub(crate) fn give_back(&self) {
        let state = self.state.load(Acquire);
        if state >= ATTACHED {
            let _ = self.state.cmpxchg(state, GIVEN_BACK, Full);
        }
    }

    /// Tells whether no socket has the data, not yet or not any more.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state.load(Acquire), NEW | ENDED)
    }

    /// Notes the end. Returns the row of a socket that was the overlay's until now, `Some(None)` for one that was given
    /// back, and `None` for any but the first caller.
    pub(crate) fn end(&self) -> Option<Option<usize>> {
        match self.state.xchg(ENDED, Full) {
            NEW | ENDED => None,
            GIVEN_BACK => Some(None),
            attached => Some(Some(attached.saturating_sub(ATTACHED) as usize)),
        }
    }
}

impl Deref for Tied {
    type Target = Sock;

    #[inline]
    fn deref(&self) -> &Sock {
        &self.sock
    }
}

/// Data with a [`Tied`]. Implemented by [`tied!`](crate::tied).
///
/// # Safety
///
/// [`HasTied::tied`] returns a field of `self`, always the same one.
pub unsafe trait HasTied: Send + Sync + 'static {
    /// Returns the field.
    fn tied(&self) -> &Tied;
}

/// Makes a type a [`HasTied`], given its field of type [`Tied`]: `tied! { impl HasTied for Socket { self.sock } }`.
#[macro_export]
macro_rules! tied {
    (impl HasTied for $type:ty { self.$field:ident }) => {
        // SAFETY: `&raw const` admits no conversion, so the field itself is a `Tied`.
        unsafe impl $crate::net::overlay::HasTied for $type {
            #[inline]
            fn tied(&self) -> &$crate::net::overlay::Tied {
                let tied: *const $crate::net::overlay::Tied = &raw const self.$field;
                // SAFETY: A field of `self`.
                unsafe { &*tied }
            }
        }
    };
}
