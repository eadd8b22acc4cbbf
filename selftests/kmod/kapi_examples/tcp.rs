// SPDX-License-Identifier: GPL-2.0

//! Sockets of the initial namespace, and connections between them over its loopback device.

use core::ptr::{self, NonNull};
use kapi::net::sock::{OwnedSock, Sock};
use kernel::{error::to_result, prelude::*};
use smc_bindings as bindings;

/// A stream socket.
///
/// # Invariants
///
/// Points to a socket that `__sock_create` has made, whose `sk` is a TCP sock, and which is released when
/// this is dropped.
pub(crate) struct Socket(NonNull<bindings::socket>);

/// The address 127.0.0.1 with a port.
fn loopback(port: u16) -> bindings::sockaddr_in {
    let mut addr = bindings::sockaddr_in {
        sin_family: bindings::AF_INET as u16,
        sin_port: port.to_be(),
        ..Default::default()
    };
    addr.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    addr
}

impl Socket {
    /// Makes a socket of TCP over IPv4, or of a family that lays something over it.
    pub(crate) fn new(family: i32) -> Result<Self> {
        let mut socket = ptr::null_mut();
        // SAFETY: The initial namespace always exists, and `socket` can hold a pointer.
        to_result(unsafe {
            bindings::__sock_create(
                &raw mut bindings::init_net,
                family,
                bindings::sock_type_SOCK_STREAM as i32,
                0,
                &mut socket,
                0,
            )
        })?;
        // INVARIANT: Just made; both kinds of family give it a TCP sock.
        NonNull::new(socket).map(Self).ok_or(ENOMEM)
    }

    /// Returns the TCP connection behind it.
    pub(crate) fn sock(&self) -> &Sock {
        // SAFETY: By the type invariant `sk` is a TCP sock, which the socket holds; `Sock` is transparent.
        unsafe { &*(*self.0.as_ptr()).sk.cast() }
    }

    /// Makes a socket that listens at a port of the kernel's choice.
    pub(crate) fn listening() -> Result<Self> {
        let this = Self::new(bindings::AF_INET as i32)?;
        let mut addr = loopback(0);
        // SAFETY: The socket is ours, and the address has that many bytes.
        unsafe {
            to_result(bindings::kernel_bind(
                this.0.as_ptr(),
                (&raw mut addr).cast(),
                size_of_val(&addr) as i32,
            ))?;
            to_result(bindings::kernel_listen(this.0.as_ptr(), 1))?;
        }
        Ok(this)
    }

    /// Connects to one that listens; the connection's other end.
    pub(crate) fn connect(&self, listening: &Self) -> Result<OwnedSock> {
        let mut addr = loopback(listening.sock().local_addr().port);
        // SAFETY: The socket is ours, and the address has that many bytes.
        to_result(unsafe {
            bindings::kernel_connect(
                self.0.as_ptr(),
                (&raw mut addr).cast(),
                size_of_val(&addr) as i32,
                0,
            )
        })?;
        crate::wait(|| listening.sock().accept_pending())?;
        listening.sock().accept()
    }

    /// Sends bytes as a program does; returns how many were taken.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize> {
        let mut vec = bindings::kvec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut msg = bindings::msghdr::default();
        // SAFETY: The socket is ours, and `vec` describes `bytes`, which are only read.
        let sent = unsafe {
            bindings::kernel_sendmsg(self.0.as_ptr(), &mut msg, &mut vec, 1, bytes.len())
        };
        to_result(sent)?;
        Ok(sent as usize)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is ours, and released once.
        unsafe { bindings::sock_release(self.0.as_ptr()) };
    }
}

/// A connection, of TCP.
pub(crate) struct Pair {
    client: Socket,
    server: OwnedSock,
}

impl Pair {
    /// Connects two sockets.
    pub(crate) fn new() -> Result<Self> {
        let listening = Socket::listening()?;
        let client = Socket::new(bindings::AF_INET as i32)?;
        let server = client.connect(&listening)?;
        Ok(Self { client, server })
    }

    /// Returns the end that connected.
    pub(crate) fn client(&self) -> &Sock {
        self.client.sock()
    }

    /// Returns the end that was accepted.
    pub(crate) fn server(&self) -> &Sock {
        &self.server
    }
}
