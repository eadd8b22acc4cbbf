// SPDX-License-Identifier: GPL-2.0

//! TCP connections that the kernel makes itself, beside a program's, to speak with the peer's kernel.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/net/sock.h`](srctree/include/net/sock.h)

use crate::net::{
    args::Addr,
    sock::{tcp_state, Sock},
    sockaddr::SockAddr,
    socket::OwnedBsdSocket,
    stock::syn, //
};
use core::ptr::{self, NonNull};
use kernel::{error::to_result, ffi, prelude::*};
use smc_bindings as bindings;

/// An address as C's functions take it.
#[repr(C)]
union Storage {
    v4: bindings::sockaddr_in,
    v6: bindings::sockaddr_in6,
}

impl Storage {
    /// Writes `addr` down, IPv4 if it is that or mapped. Returns its length, too.
    fn of(addr: &SockAddr) -> (Self, ffi::c_int) {
        let port = addr.port.to_be();
        match addr.v4() {
            Some(ip) => {
                let mut v4 = bindings::sockaddr_in {
                    sin_family: bindings::AF_INET as u16,
                    sin_port: port,
                    ..Default::default()
                };
                v4.sin_addr.s_addr = u32::from_ne_bytes(ip);
                (
                    Self { v4 },
                    size_of::<bindings::sockaddr_in>() as ffi::c_int,
                )
            }
            None => {
                let mut v6 = bindings::sockaddr_in6 {
                    sin6_family: bindings::AF_INET6 as u16,
                    sin6_port: port,
                    ..Default::default()
                };
                v6.sin6_addr.in6_u.u6_addr8 = addr.ip;
                (
                    Self { v6 },
                    size_of::<bindings::sockaddr_in6>() as ffi::c_int,
                )
            }
        }
    }

    fn as_ptr(&mut self) -> *mut bindings::sockaddr_unsized {
        ptr::from_mut(self).cast()
    }
}

/// Begins a connection of the kernel's to the peer of `like`, from the same address and interface, with the same mark
/// and user, so that it takes the same way. Its SYN has what [`syn::Policy`] says for [`syn::OWN_CHOICE`]; what the
/// SYN-ACK has answered, [`syn::answered`] tells. Dropping it resets it, at once: nothing of it outlives its namespace if
/// `like` does not. Sleeps.
///
/// # Errors
///
/// `EADDRNOTAVAIL` where a program's socket may have an address that others may not; TCP's.
pub fn begin(like: &Sock) -> Result<OwnedBsdSocket> {
    let (local, peer) = (like.local_addr(), like.peer_addr());
    let family = match peer.v4() {
        Some(_) => bindings::AF_INET,
        None => bindings::AF_INET6,
    };
    let mut socket = ptr::null_mut();
    // SAFETY: The namespace lives as long as `like`, and `socket` is valid for writing a pointer.
    to_result(unsafe {
        bindings::sock_create_kern(
            like.net(),
            family as ffi::c_int,
            bindings::sock_type_SOCK_STREAM as ffi::c_int,
            bindings::IPPROTO_TCP as ffi::c_int,
            &mut socket,
        )
    })?;
    let socket = NonNull::new(socket).ok_or(EINVAL)?;
    // SAFETY: A socket of TCP's with its own table, that nobody else knows.
    let socket = unsafe { OwnedBsdSocket::from_new(socket) };
    // SAFETY: Both socks are valid and TCP's, and nobody else uses the new one.
    unsafe { bindings::sock_take_way_of(socket.sock().as_ptr(), like.as_ptr()) };
    let (mut from, len) = Storage::of(&SockAddr { port: 0, ..local });
    // SAFETY: The socket is open, and `from` is an address of that length.
    to_result(unsafe { bindings::kernel_bind(socket.as_ptr(), from.as_ptr(), len) })?;
    socket.set_choice(syn::OWN_CHOICE);
    let (mut to, len) = Storage::of(&peer);
    // SAFETY: `to` is an address of that length, and lives during the call.
    let addr = unsafe { Addr::new(to.as_ptr(), len) };
    match socket.start_connect(&addr) {
        Err(_) if socket.sock().state() == tcp_state::SYN_SENT => Ok(socket),
        Ok(()) => Ok(socket),
        Err(_) if socket.sock().is_established() => Ok(socket),
        Err(err) => Err(err),
    }
}
