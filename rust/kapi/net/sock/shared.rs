// SPDX-License-Identifier: GPL-2.0

//! A connection that others may look at until its owner takes it back.

use super::Sock;
use core::ptr;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Full, Relaxed},
        rcu, //
    },
    types::Opaque, //
};
use smc_bindings as bindings;

/// A counted reference to a sock, and what RCU needs to give it up later.
#[repr(C)]
struct Node {
    /// First: RCU hands its address to `put`.
    head: Opaque<bindings::callback_head>,
    sock: ARef<Sock>,
}

/// A sock that can be shared: all the memory that this takes is there.
pub struct Shareable(KBox<Node>);

impl Shareable {
    /// Prepares `sock`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(sock: ARef<Sock>) -> Result<Self> {
        let node = Node {
            head: Opaque::uninit(),
            sock,
        };
        Ok(Self(KBox::new(node, GFP_KERNEL)?))
    }
}

/// A place for a sock that others look at, which keeps it alive until it is given back and not longer.
///
/// # Invariants
///
/// `node` is null, or what `KBox::into_raw` gave and nobody else owns. A node that was taken out of here is freed only
/// by `put`, an RCU grace period later, unless `self` is borrowed exclusively.
///
/// # Examples
///
/// ```
/// use kapi::net::sock::{Shareable, SharedSock, Sock};
/// use kernel::{prelude::*, sync::aref::ARef};
///
/// /// What the other end of a connection sees of this one.
/// struct End(SharedSock);
///
/// impl End {
///     fn open(&self, sock: ARef<Sock>) -> Result {
///         self.0.set(Shareable::new(sock)?);
///         Ok(())
///     }
///
///     /// Called by the other end. Nothing happens if this one has been closed.
///     fn wake(&self) {
///         self.0.with(Sock::wake_for_data);
///     }
///
///     fn close(&self) {
///         self.0.give_back();
///         assert!(self.0.with(|_| ()).is_none());
///     }
/// }
/// # let pair = crate::tcp::Pair::new()?;
/// # let sock = pair.client();
///
/// let end = End(SharedSock::new());
/// end.open(sock.into())?;
/// assert_eq!(end.0.with(|shared| core::ptr::eq(shared, sock)), Some(true));
/// end.wake();
/// end.close();
/// end.wake();
/// # Ok::<(), Error>(())
/// ```
pub struct SharedSock {
    node: Atomic<*mut Node>,
}

// SAFETY: It owns a counted reference to a sock, which may be used and given up by any thread.
unsafe impl Send for SharedSock {}
// SAFETY: Threads that share it get shared references to the sock, which any thread may use; the count
// that it owns is atomic.
unsafe impl Sync for SharedSock {}

impl Default for SharedSock {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedSock {
    /// Makes an empty place.
    pub const fn new() -> Self {
        // INVARIANT: Null.
        Self {
            node: Atomic::new(ptr::null_mut()),
        }
    }

    /// Puts `sock` here. What was here before is given back.
    pub fn set(&self, sock: Shareable) {
        // INVARIANT: The box is given away to this place.
        let old = self.node.xchg(KBox::into_raw(sock.0), Full);
        give_up(old);
    }

    /// Runs `f` with the sock; `None` when there is none. `f` is in an RCU section: it does not sleep.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&Sock) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // The address is what all that follows depends on.
        let node = self.node.load(Relaxed);
        if node.is_null() {
            return None;
        }
        // SAFETY:
        // - By the type invariant a node that was here in this RCU section is freed after it, or when nobody borrows
        //   `self`: a close on another CPU takes it out of its place and leaves the rest to RCU.
        // - `f` does not sleep, as nothing may in such a section (lockdep, and klint where it is run, say if it does).
        // - It does not change while it is here but for `head`, which is not looked at.
        // - `f` cannot keep the reference.
        let sock = unsafe { &(*node).sock };
        Some(f(sock))
    }

    /// Gives the sock back: nobody finds it here any more, and those who have just done so are not waited for. Any
    /// context.
    pub fn give_back(&self) {
        give_up(self.node.xchg(ptr::null_mut(), Full));
    }
}

impl Drop for SharedSock {
    fn drop(&mut self) {
        let node = self.node.load(Relaxed);
        if !node.is_null() {
            // SAFETY: By the type invariant it is ours alone, and nobody borrows `self` to look at it.
            drop(unsafe { KBox::from_raw(node) });
        }
    }
}

/// Frees a node that was taken out of its place, if there is one, once nobody looks at it.
fn give_up(node: *mut Node) {
    if node.is_null() {
        return;
    }
    // SAFETY:
    // - The caller has taken the node out, so nobody else frees it, and `head` is used for nothing else.
    // - `put` is code of this module, which `GivenBack` keeps until all such calls have been made.
    unsafe { bindings::call_rcu(Opaque::cast_into(&raw const (*node).head), Some(put)) };
}

/// Frees a node.
///
/// # Safety
///
/// Called by RCU alone, once for each `call_rcu` in `give_up`, in a softirq or a kernel thread, after all sections have
/// ended that began before it.
unsafe extern "C" fn put(head: *mut bindings::callback_head) {
    // SAFETY:
    // - `head` is the first field of a node that `KBox::into_raw` gave.
    // - Those who found it in its place have ended their sections; nobody finds it there any more.
    // - sock_put() may be called in a softirq.
    drop(unsafe { KBox::from_raw(head.cast::<Node>()) });
}

/// Waits, when it is dropped, until all socks that were given back are freed: the callback that does so is code of
/// this module.
/// To be dropped after everything that may give one back.
pub struct GivenBack(());

impl GivenBack {
    /// Makes one.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Default for GivenBack {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        // SAFETY: It is dropped in process context, without locks.
        unsafe { bindings::rcu_barrier() };
    }
}
