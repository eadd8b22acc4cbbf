// SPDX-License-Identifier: GPL-2.0

//! Telling user space of an address family's sockets: `NETLINK_SOCK_DIAG`.
//!
//! C header: [`include/linux/sock_diag.h`](srctree/include/linux/sock_diag.h)

use crate::{
    errno,
    net::{
        netlink::{self, Answer, Position},
        netns::Net, //
    }, //
};
use core::{marker::PhantomData, slice};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    types::Opaque, //
};
use smc_bindings as bindings;

/// The sockets of an address family.
pub trait Sockets: 'static {
    /// The address family.
    const FAMILY: u8;

    /// Writes messages about the sockets of a namespace, from `position` on.
    ///
    /// `request` is what follows the netlink header of the request, as it came from user space;
    /// it has at least two bytes. Every user may ask.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when `answer` is full: the function is called again, with `position` as it left
    /// it and another buffer. The end is reached when it returns without having written anything.
    fn dump(net: &Net, request: &[u8], position: &mut Position, answer: &mut Answer<'_>) -> Result;
}

/// Answers requests for as long as it lives.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Sockets> {
    #[pin]
    handler: Opaque<bindings::sock_diag_handler>,
    _type: PhantomData<T>,
}

// SAFETY: Dropping is the only operation.
unsafe impl<T: Sockets> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Sockets> Sync for Registration<T> {}

impl<T: Sockets> Registration<T> {
    /// Begins to answer.
    ///
    /// # Errors
    ///
    /// `EBUSY` when another module answers for the family.
    pub fn new(module: &'static ThisModule) -> Result<Pin<KBox<Self>>> {
        let this = KBox::pin_init(
            pin_init!(Self {
                handler <- Opaque::new(bindings::sock_diag_handler {
                    owner: module.as_ptr(),
                    family: T::FAMILY,
                    dump: Some(Self::handle),
                    ..Default::default()
                }),
                _type: PhantomData,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The handler is filled in and pinned until `drop`.
        if let Err(err) = to_result(unsafe { bindings::sock_diag_register(this.handler.get()) }) {
            // Not registered, so it must not be unregistered.
            // SAFETY: Nothing but the memory is given back, under a type without `drop`.
            unsafe {
                let raw = KBox::into_raw(Pin::into_inner_unchecked(this));
                drop(KBox::from_raw(raw.cast::<core::mem::ManuallyDrop<Self>>()));
            }
            return Err(err);
        }
        Ok(this)
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `skb` is a request of `sock_diag` with the header `nlh`. No more
    /// than the two bytes of a `struct sock_diag_req` are certain to follow that.
    unsafe extern "C" fn handle(
        skb: *mut bindings::sk_buff,
        nlh: *mut bindings::nlmsghdr,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The core passes a request that it has checked the length of.
            let flags = u32::from(unsafe { (*nlh).nlmsg_flags });
            // One of the two bits is enough, and all that some programs set.
            if flags & bindings::NLM_F_DUMP == 0 {
                return Err(errno::EOPNOTSUPP.into());
            }
            let mut control = bindings::netlink_dump_control {
                dump: Some(Self::dump),
                min_dump_alloc: bindings::DUMP_ALLOC,
                ..Default::default()
            };
            // SAFETY: `skb` and `nlh` are the request that the core passed. The netlink core takes a reference to
            // this module for as long as the dump is under way, and copies what it needs of `control`.
            Ok(unsafe { bindings::diag_dump_start(skb, nlh, &mut control) })
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `cb` is a dump under way that `handle` began, and `skb` the
    /// message to fill.
    unsafe extern "C" fn dump(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> ffi::c_int {
        // SAFETY: `nlh` is the request, which the callback keeps; it is `nlmsg_len` bytes long.
        let request = unsafe {
            let nlh = (*cb).nlh;
            let len = ((*nlh).nlmsg_len as usize).saturating_sub(size_of::<bindings::nlmsghdr>());
            slice::from_raw_parts(nlh.add(1).cast::<u8>(), len)
        };
        // SAFETY: A dump callback's arguments.
        unsafe {
            netlink::piece(skb, cb, None, |net, position, answer| {
                T::dump(net, request, position, answer)
            })
        }
    }
}

#[pinned_drop]
impl<T: Sockets> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by `new`; it waits until no `handle` runs any more.
        unsafe { bindings::sock_diag_unregister(self.handler.get()) };
    }
}
