// SPDX-License-Identifier: GPL-2.0

//! Making `socket(AF_INET[6], SOCK_STREAM, …)` of programs that ask for TCP a socket of the overlay.
//!
//! The kernel passes what a program asks for through `update_socket_protocol`, which exists to be
//! changed. Sockets that the kernel makes for itself do not come by there, nor do those of io_uring
//! (`IORING_OP_SOCKET`).

use crate::{
    net::{family, netns::Net},
    sys::{
        module::ModuleRef,
        redirect::Redirect, //
    }, //
};
use core::marker::PhantomData;
use kernel::{ffi, prelude::*};
use smc_bindings as bindings;

/// A protocol that a program asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// TCP, by its number or as the default.
    Tcp,
    /// Multipath TCP.
    Mptcp,
}

/// The decision which sockets are converted.
pub trait Convert: 'static {
    /// Returns whether the socket that the current task is making in its namespace becomes one of the
    /// overlay.
    fn converts(net: &Net, asked: Asked) -> bool;
}

/// Converts sockets while it is on, and at most for as long as it lives.
pub struct Conversion<T: Convert> {
    redirect: Pin<KBox<Redirect>>,
    _type: PhantomData<T>,
}

// SAFETY: A redirection may be used on any thread, and nothing of the type `T` is kept.
unsafe impl<T: Convert> Send for Conversion<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Convert> Sync for Conversion<T> {}

impl<T: Convert> Conversion<T> {
    /// Prepares to convert sockets. The overlay's family must be registered until after the end of it.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` on a kernel that cannot redirect calls (`CONFIG_DYNAMIC_FTRACE_WITH_ARGS`), `EINVAL`
    /// on one without the function; `ENOMEM`.
    pub fn new() -> Result<Self> {
        let target: extern "C" fn(_, _, _) -> _ = update_socket_protocol::<T>;
        // SAFETY: The signature is that of the kernel's function. It has a count of the module while it does
        // what may sleep.
        let redirect = unsafe { Redirect::new(c"update_socket_protocol", target as *const ()) }?;
        Ok(Self {
            redirect,
            _type: PhantomData,
        })
    }

    /// Begins to convert sockets. May sleep, also for others who use ftrace.
    ///
    /// # Errors
    ///
    /// `EBUSY` when another module has redirected the kernel's function, or while ftrace is turned off (`sysctl
    /// kernel.ftrace_enabled`); `ENOMEM`.
    pub fn on(&mut self) -> Result {
        self.redirect.as_mut().on()
    }

    /// Ends that. May sleep for long, and others who use ftrace wait as long.
    pub fn off(&mut self) {
        self.redirect.as_mut().off();
    }
}

/// Returns the protocol that a socket gets whose program asks for `protocol`.
extern "C" fn update_socket_protocol<T: Convert>(
    family: ffi::c_int,
    kind: ffi::c_int,
    protocol: ffi::c_int,
) -> ffi::c_int {
    let inet = matches!(family as u32, bindings::AF_INET | bindings::AF_INET6);
    let stream = kind & bindings::SOCK_TYPE_MASK as ffi::c_int
        == bindings::sock_type_SOCK_STREAM as ffi::c_int;
    let asked = match protocol as u32 {
        0 | bindings::IPPROTO_TCP => Asked::Tcp,
        bindings::IPPROTO_MPTCP => Asked::Mptcp,
        _ => return protocol,
    };
    if !inet || !stream {
        return protocol;
    }
    // Unloading waits for tasks that run here, but not for one that has been put to sleep: by a lock on a
    // real-time kernel, or by freeing what it was the last to use. So the module is kept meanwhile. Once it is
    // being unloaded the socket could not be made any more.
    let Some(module) = ModuleRef::take() else {
        return protocol;
    };
    // SAFETY: A task that makes a socket by a system call has a namespace, and keeps it during the call.
    let net = unsafe { Net::from_raw(bindings::current_net()) };
    match family::converted_protocol() {
        // The kernel goes on to make the socket, and could not if the module began to go now: socket() would fail.
        // So the module is kept until the program runs again. Without memory for that the socket is TCP's.
        Some(number) if T::converts(net, asked) && module.until_return().is_ok() => number.into(),
        _ => protocol,
    }
}
