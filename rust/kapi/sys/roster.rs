// SPDX-License-Identifier: GPL-2.0

//! A list of all living objects of a kind, which can be walked in pieces.
//!
//! Joining and leaving cost a short spinlock and no memory: the links are part of the object. The
//! list is split into shards, so that CPUs seldom meet, and each member has a number that grows
//! within its shard, so that a walk can go on where it stopped however long ago that was.

use core::{
    cell::UnsafeCell,
    ptr::{self, NonNull}, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        SpinLock, //
    }, //
};

/// Number of lists that a [`Roster`] is.
const SHARDS: usize = 16;

/// Number of members that [`Roster::next`] returns at most.
pub const BATCH: usize = 32;

/// The links of a member: a field of type `Link<Self>`, see [`member!`](crate::member).
pub struct Link<T> {
    /// The roster this object has joined, ever; a roster is known by the address of its shards.
    home: Atomic<*mut Shards<T>>,
    node: UnsafeCell<Node<T>>,
}

/// Protected by the lock of the shard that the member belongs to.
struct Node<T> {
    next: Option<NonNull<T>>,
    previous: Option<NonNull<T>>,
    /// The member's number, 0 while it is not on the list.
    number: u64,
}

// SAFETY: `node` is only touched under the lock of the shard, which is the same one for all users of
// a member because it follows from `home` and the member's address.
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: A shared reference reaches `node` with the shard's lock only, and `home` is atomic.
unsafe impl<T: Send + Sync> Sync for Link<T> {}

impl<T> Link<T> {
    /// Makes the links of an object that is on no roster.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            home: Atomic::new(ptr::null_mut()),
            node: UnsafeCell::new(Node {
                next: None,
                previous: None,
                number: 0,
            }),
        }
    }
}

/// An object that can be on a [`Roster`]. Implemented by [`member!`](crate::member).
///
/// # Safety
///
/// [`Member::link`] returns a field of `self`, always the same one.
pub unsafe trait Member: Send + Sync + Sized + 'static {
    /// Returns the links.
    fn link(&self) -> &Link<Self>;
}

/// Makes a type a [`Member`], given its field of type [`Link<Self>`](Link):
/// `member! { impl Member for Socket { self.link } }`.
#[macro_export]
macro_rules! member {
    (impl Member for $type:ty { self.$field:ident }) => {
        // SAFETY: `&raw const` admits no conversion, so the field itself is a `Link`.
        unsafe impl $crate::sys::roster::Member for $type {
            fn link(&self) -> &$crate::sys::roster::Link<Self> {
                let link: *const $crate::sys::roster::Link<Self> = &raw const self.$field;
                // SAFETY: A field of `self`.
                unsafe { &*link }
            }
        }
    };
}

/// # Invariants
///
/// The list holds one reference count of each `Arc` whose contents it links. `reached` is null or a member.
struct List<T> {
    first: Option<NonNull<T>>,
    last: Option<NonNull<T>>,
    /// The last member that a walk has returned: the walk goes on after it, without a look at those before.
    reached: Option<NonNull<T>>,
    /// The number of the next member.
    number: u64,
}

// SAFETY: The list owns references to `T`s, which may be used and dropped on any thread.
unsafe impl<T: Send + Sync> Send for List<T> {}

#[pin_data]
struct Shards<T> {
    #[pin]
    shards: [SpinLock<List<T>>; SHARDS],
}

/// Position of a walk over a [`Roster`]. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The shard.
    pub shard: u64,
    /// The number of the last member that was returned.
    pub number: u64,
}

/// A roster. It holds a reference to each member, so a member must leave at the end of its life.
pub struct Roster<T: Member>(Pin<KBox<Shards<T>>>);

/// The members that [`Roster::next`] returns, each with the position that is right after it.
pub type Members<T> = [Option<(Position, Arc<T>)>; BATCH];

impl<T: Member> Roster<T> {
    /// Makes an empty roster.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        let shards = KBox::pin_init(
            pin_init!(Shards {
                shards <- pin_init::pin_init_array_from_fn(|_| {
                    new_spinlock!(
                        List {
                            first: None,
                            last: None,
                            reached: None,
                            number: 1,
                        },
                        "kapi::Roster"
                    )
                }),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(shards))
    }

    fn home(&self) -> *mut Shards<T> {
        (&raw const *self.0).cast_mut()
    }

    /// Returns the shard of a member. Objects are at least a cache line apart.
    fn shard(&self, member: *const T) -> &SpinLock<List<T>> {
        let index = (member as usize >> 6) ^ (member as usize >> 12);
        // The mask keeps the index in range.
        &self.0.shards[index & (SHARDS - 1)]
    }

    /// Puts `member` on the roster. One that is or was on this or another roster is left alone.
    pub fn join(&self, member: &Arc<T>) {
        let link = member.link();
        if link
            .home
            .cmpxchg(ptr::null_mut(), self.home(), Relaxed)
            .is_err()
        {
            return;
        }
        let raw = NonNull::from(&**member);
        let mut list = self.shard(raw.as_ptr()).lock();
        // INVARIANT: The count moves to the list.
        let _ = Arc::into_raw(member.clone());
        // SAFETY: The shard's lock is held.
        let node = unsafe { &mut *link.node.get() };
        node.number = list.number;
        list.number = list.number.wrapping_add(1);
        node.previous = list.last;
        match list.last {
            // SAFETY: On this list, so alive, and the lock is held.
            Some(last) => unsafe { (*last.as_ref().link().node.get()).next = Some(raw) },
            None => list.first = Some(raw),
        }
        list.last = Some(raw);
    }

    /// Takes `member` off the roster, if it is there.
    pub fn leave(&self, member: &T) {
        if member.link().home.load(Relaxed) != self.home() {
            return;
        }
        let mut list = self.shard(member).lock();
        let held = Self::unlink(&mut list, member);
        drop(list);
        // Outside of the lock, as this may be the last reference.
        drop(held);
    }

    /// Takes `member` out of `list`, which is locked and the one it belongs to.
    fn unlink(list: &mut List<T>, member: &T) -> Option<Arc<T>> {
        // SAFETY: The shard's lock is held.
        let node = unsafe { &mut *member.link().node.get() };
        if node.number == 0 {
            return None;
        }
        node.number = 0;
        if list.reached == Some(NonNull::from(member)) {
            list.reached = node.previous;
        }
        let (next, previous) = (node.next.take(), node.previous.take());
        match previous {
            // SAFETY: On this list, so alive, and the lock is held.
            Some(previous) => unsafe { (*previous.as_ref().link().node.get()).next = next },
            None => list.first = next,
        }
        match next {
            // SAFETY: On this list, so alive, and the lock is held.
            Some(next) => unsafe { (*next.as_ref().link().node.get()).previous = previous },
            None => list.last = previous,
        }
        // SAFETY: The member was on the list, which owned the count that is taken over here.
        Some(unsafe { Arc::from_raw(member) })
    }

    /// Fills `members` with the next ones after `position`, and moves that along. Returns how many.
    ///
    /// A member that is on the roster during the whole walk is met exactly once.
    pub fn next(&self, position: &mut Position, members: &mut Members<T>) -> usize {
        let mut found = 0;
        while let Some(shard) = usize::try_from(position.shard)
            .ok()
            .and_then(|shard| self.0.shards.get(shard))
        {
            let mut list = shard.lock();
            // Numbers grow along the list: what is before a member that was passed was passed, too.
            let reached = list.reached.filter(|reached| {
                // SAFETY: A member, so alive, and the lock is held.
                let node = unsafe { &*reached.as_ref().link().node.get() };
                node.number <= position.number
            });
            let mut at = reached.or(list.first);
            while let Some(raw) = at {
                // SAFETY: On the list, so alive, and the lock is held.
                let (member, node) = unsafe { (raw.as_ref(), &*raw.as_ref().link().node.get()) };
                at = node.next;
                if node.number <= position.number {
                    continue;
                }
                let Some(slot) = members.get_mut(found) else {
                    return found;
                };
                // SAFETY: The list owns a count, so a further one may be taken; this one is given
                // back to the list at once.
                let held = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(member) });
                position.number = node.number;
                list.reached = Some(raw);
                *slot = Some((*position, Arc::clone(&held)));
                found += 1;
            }
            drop(list);
            position.shard = position.shard.wrapping_add(1);
            position.number = 0;
        }
        found
    }
}

impl<T: Member> Drop for Roster<T> {
    fn drop(&mut self) {
        for shard in &self.0.shards {
            loop {
                let mut list = shard.lock();
                let Some(first) = list.first else {
                    break;
                };
                // SAFETY: On the list, so alive, and the lock is held.
                let held = Self::unlink(&mut list, unsafe { first.as_ref() });
                drop(list);
                drop(held);
            }
        }
    }
}
