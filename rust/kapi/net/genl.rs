// SPDX-License-Identifier: GPL-2.0

//! Generic netlink families.
//!
//! C header: [`include/net/genetlink.h`](srctree/include/net/genetlink.h)

use crate::net::{
    netlink::{self, Answer, Attributes, Position},
    netns::Net, //
};
use core::{marker::PhantomData, slice};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    types::Opaque, //
};
use smc_bindings as bindings;

/// Kind of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It lists something; every user may ask.
    Dump,
    /// It lists something, all of it or what the request's attributes choose; every user may ask.
    Get,
    /// It does something; needs `CAP_NET_ADMIN` in the initial user namespace.
    Act,
}

/// A command of a family.
pub struct Command {
    /// Its number.
    pub number: u8,
    /// Its kind.
    pub kind: Kind,
    /// True if it needs `CAP_NET_ADMIN` in the user namespace that owns the network namespace, whatever its
    /// kind says.
    pub own: bool,
}

impl Command {
    fn flags(&self) -> u32 {
        match (self.own, self.kind) {
            (true, _) => bindings::GENL_UNS_ADMIN_PERM,
            (false, Kind::Act) => bindings::GENL_ADMIN_PERM,
            (false, _) => 0,
        }
    }
}

/// A generic netlink family. All functions are called in process context, by several tasks at once: the lock of all
/// families (`genl_mutex`) is not held, since they allocate memory that the asker's control group is charged with,
/// and that may make it sleep for long.
pub trait Family: 'static {
    /// The name, at most 15 bytes.
    const NAME: &'static CStr;
    /// The version.
    const VERSION: u8;
    /// The commands.
    const COMMANDS: &'static [Command];

    /// Does what a command of [`Kind::Act`] says, for the namespace it came from.
    ///
    /// # Errors
    ///
    /// The error that the sender gets.
    fn act(net: &Net, command: u8, attributes: &Attributes<'_>) -> Result;

    /// Writes what a command of [`Kind::Dump`] or [`Kind::Get`] lists, from `position` on.
    ///
    /// `attributes` are those of the request if it wants not all but a choice.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when `answer` is full: the function is called again, with `position` as it left
    /// it and another buffer. The end is reached when it returns without having written anything.
    fn list(
        net: &Net,
        command: u8,
        attributes: Option<&Attributes<'_>>,
        position: &mut Position,
        answer: &mut Answer<'_>,
    ) -> Result;
}

/// Answers requests for as long as it lives.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Family> {
    #[pin]
    family: Opaque<bindings::genl_family>,
    /// Operations that the family points to.
    _operations: KVec<bindings::genl_ops>,
    registered: bool,
    _type: PhantomData<T>,
}

// SAFETY: Dropping is the only operation.
unsafe impl<T: Family> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Family> Sync for Registration<T> {}

/// Limit of the reply to one request, in multiples of its usual length (a page, or two).
const MAX_FACTOR: u32 = 16;
/// Length of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

impl<T: Family> Registration<T> {
    /// Begins to answer.
    ///
    /// # Errors
    ///
    /// `EEXIST` when there is such a family, `ENOMEM`.
    pub fn new(module: &'static ThisModule) -> Result<Pin<KBox<Self>>> {
        let mut operations = KVec::with_capacity(T::COMMANDS.len(), GFP_KERNEL)?;
        let mut highest = 0;
        for command in T::COMMANDS {
            highest = command.number.max(highest);
            let dumps = command.kind != Kind::Act;
            operations.push(
                bindings::genl_ops {
                    cmd: command.number,
                    flags: command.flags() as u8,
                    doit: match command.kind {
                        Kind::Act => Some(Self::act),
                        Kind::Get => Some(Self::get),
                        Kind::Dump => None,
                    },
                    dumpit: if dumps { Some(Self::dump) } else { None },
                    ..Default::default()
                },
                GFP_KERNEL,
            )?;
        }
        let mut family = bindings::genl_family {
            version: u32::from(T::VERSION),
            module: module.as_ptr(),
            ops: operations.as_ptr(),
            n_ops: operations.len() as u8,
            // These commands predate the checks of newer ones; attributes are checked here.
            resv_start_op: highest.saturating_add(1),
            ..Default::default()
        };
        family.set_netnsok(1);
        family.set_parallel_ops(1);
        for (to, from) in family.name.iter_mut().zip(T::NAME.to_bytes()) {
            *to = *from as ffi::c_char;
        }
        let mut this = KBox::pin_init(
            pin_init!(Self {
                family <- Opaque::new(family),
                _operations: operations,
                registered: false,
                _type: PhantomData,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The family is filled in and pinned, and its operations stay where they are.
        to_result(unsafe { bindings::genl_register_family(this.family.get()) })?;
        // SAFETY: Nothing is moved.
        unsafe { this.as_mut().get_unchecked_mut() }.registered = true;
        Ok(this)
    }

    /// Returns the attributes of a request.
    ///
    /// # Safety
    ///
    /// `info` describes a request that stays in memory during `'a`.
    unsafe fn attributes<'a>(nlh: *const bindings::nlmsghdr) -> Attributes<'a> {
        let header = size_of::<bindings::nlmsghdr>().wrapping_add(GENERIC_HEADER);
        // SAFETY: The core has checked that the message is as long as it says.
        Attributes::new(unsafe {
            let len = ((*nlh).nlmsg_len as usize).saturating_sub(header);
            slice::from_raw_parts(nlh.cast::<u8>().add(header), len)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `info` is a checked request of this family, whose namespace is
    /// alive.
    unsafe extern "C" fn act(
        _skb: *mut bindings::sk_buff,
        info: *mut bindings::genl_info,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The core passes a request with its headers, and holds the namespace.
            let (net, command, attributes) = unsafe {
                (
                    Net::from_raw(bindings::genl_info_net(info)),
                    (*(*info).genlhdr).cmd,
                    Self::attributes((*info).nlhdr),
                )
            };
            T::act(net, command, &attributes)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `skb` and `info` are a checked request of this family, whose
    /// namespace is alive.
    unsafe extern "C" fn get(
        skb: *mut bindings::sk_buff,
        info: *mut bindings::genl_info,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The core passes a request with its headers, and holds the namespace.
            let (net, command, attributes, nlh) = unsafe {
                (
                    Net::from_raw(bindings::genl_info_net(info)),
                    (*(*info).genlhdr).cmd,
                    Self::attributes((*info).nlhdr),
                    &*(*info).nlhdr,
                )
            };
            // Twice as large, and so on, until all of it fits.
            let mut factor = 1;
            let reply = loop {
                // SAFETY: `skb` is the request, which the core keeps during the call.
                match unsafe { Self::reply(skb, nlh, net, command, &attributes, factor) } {
                    Err(err) if err == EMSGSIZE && factor < MAX_FACTOR => {
                        factor = factor.saturating_mul(2);
                    }
                    reply => break reply?,
                }
            };
            // SAFETY: The message is complete; the function takes it over.
            to_result(unsafe { bindings::genlmsg_reply(reply, info) })?;
            Ok(0)
        })
    }

    /// Makes one message of what [`Family::list`] says to a request, of at most `factor` times the usual
    /// length. The caller owns it.
    ///
    /// # Safety
    ///
    /// `skb` is a netlink request, and `nlh` its header.
    unsafe fn reply(
        skb: *mut bindings::sk_buff,
        nlh: &bindings::nlmsghdr,
        net: &Net,
        command: u8,
        attributes: &Attributes<'_>,
        factor: u32,
    ) -> Result<*mut bindings::sk_buff> {
        // SAFETY: Allocates a message.
        let reply = unsafe { bindings::nlmsg_new(factor) };
        if reply.is_null() {
            return Err(ENOMEM);
        }
        let generic = Some([command, T::VERSION, 0, 0]);
        // SAFETY: The new message is ours, and the request is the caller's.
        let mut answer = unsafe { Answer::new(reply, skb, nlh, generic) };
        let mut position = Position::default();
        let listed = T::list(net, command, Some(attributes), &mut position, &mut answer)
            .and_then(|()| answer.done());
        if let Err(err) = listed {
            // SAFETY: The message is ours alone.
            unsafe { bindings::nlmsg_discard(reply) };
            return Err(err);
        }
        Ok(reply)
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `cb` is a dump under way of this family, and `skb` the message
    /// to fill.
    unsafe extern "C" fn dump(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> ffi::c_int {
        // SAFETY: The generic header follows the netlink header of every request that gets here.
        let command = unsafe { *(*cb).nlh.add(1).cast::<u8>() };
        let generic = Some([command, T::VERSION, 0, 0]);
        // SAFETY: A dump callback's arguments.
        unsafe {
            netlink::piece(skb, cb, generic, |net, position, answer| {
                T::list(net, command, None, position, answer)
            })
        }
    }
}

#[pinned_drop]
impl<T: Family> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        if self.registered {
            // SAFETY: Registered by `new`; it waits until no command runs any more.
            let ret = unsafe { bindings::genl_unregister_family(self.family.get()) };
            debug_assert_eq!(ret, 0);
        }
    }
}
