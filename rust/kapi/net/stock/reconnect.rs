// SPDX-License-Identifier: GPL-2.0

//! Attempts to connect that begin anew.

use super::syn;
use crate::{
    errno::Errno,
    net::{
        sock::{tcp_state, Sock, SockGuard},
        socket::BsdSocket, //
    }, //
};
use core::{
    mem::size_of,
    ptr, //
};
use kernel::ffi;
use smc_bindings as bindings;

/// Room for an address of any kind, aligned as one.
type Storage = [u64; bindings::SIZEOF_SOCKADDR_STORAGE / size_of::<u64>()];

impl Sock {
    /// Returns how often something was sent again, by TCP's own count. Of a connection on which nothing was
    /// sent but the SYN: how often that was.
    #[inline]
    pub fn sent_again(&self) -> u32 {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is TCP's; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*tp).total_retrans) }
    }

    /// Returns the error with which TCP has ended a connection attempt, if the program does not know it yet.
    pub fn unheard_end(&self) -> Option<Errno> {
        let ended = self.state() == tcp_state::CLOSE;
        ended.then(|| self.error()).flatten()
    }

    /// Forgets what ICMP has said of an attempt that is to begin anew. TCP queues that for IPv4 whether the program has
    /// asked for it (`IP_RECVERR`) or not, and poll() says `EPOLLERR` for as long as it is there.
    pub fn forget_icmp(&self) {
        // SAFETY: The sock is valid; the helper takes the queue's lock.
        unsafe { bindings::sk_drop_icmp_errors(self.as_ptr()) };
    }
}

impl SockGuard<'_> {
    /// Begins an attempt anew that TCP has ended, with what `choice` says; see
    /// [`BsdSocket::set_choice`]. It must be one of a connect() that has returned, and the program must not
    /// know of its end yet. Returns false if there is none; an attempt that cannot begin leaves it as
    /// it was. Those who wait for the socket are woken meanwhile, as TCP resets it.
    ///
    /// BPF programs that a control group has for connect() see the address as the first attempt's programs have
    /// rewritten it, and `current` may be a worker. A flow label given with an IPv6 address is not looked up again.
    pub fn connect_again(&self, choice: u8) -> bool {
        let Some(socket) = self.socket() else {
            return false;
        };
        let sk = self.sock().as_ptr();
        // SAFETY: The socket is open, and its state changes under the lock that is held.
        let state = unsafe { (*socket.as_ptr()).state };
        let Some(error) = self.sock().unheard_end() else {
            return false;
        };
        if state != bindings::socket_state_SS_CONNECTING {
            return false;
        }
        let (mut address, len) = self.peer_address();
        self.sock().forget_icmp();
        // SAFETY: The lock is held, and the table is live. This is what TCP does when the program asks for the
        // result of the attempt; the error is what it would have been told.
        let begun = unsafe {
            ptr::write_volatile(&raw mut (*sk).sk_err, 0);
            (*socket.as_ptr()).state = bindings::socket_state_SS_UNCONNECTED;
            (*sk).sk_disconnects = (*sk).sk_disconnects.wrapping_add(1);
            match (*self.sock().prot()).disconnect {
                Some(disconnect) if disconnect(sk, 0) == 0 => {
                    socket.set_choice(choice);
                    self.begin(socket, &mut address, len)
                }
                _ => false,
            }
        };
        if !begun {
            // SAFETY: The socket is open, and the lock under which its state changes is held. This is the state in
            // which TCP had left it.
            unsafe { (*socket.as_ptr()).state = bindings::socket_state_SS_CONNECTING };
            self.sock().set_error(error);
        }
        begun
    }

    /// Sends a SYN. Returns whether that is out.
    fn begin(&self, socket: &BsdSocket, address: &mut Storage, len: usize) -> bool {
        // SAFETY: The socket lock is held, as the function wants; the address is in a buffer that has room for
        // any. With this flag it does not wait.
        unsafe {
            bindings::__inet_stream_connect(
                socket.as_ptr(),
                address.as_mut_ptr().cast(),
                len as ffi::c_int,
                bindings::O_NONBLOCK as ffi::c_int,
                0,
            )
        };
        let out = self.sock().state() == tcp_state::SYN_SENT;
        if out {
            syn::watch_answer(self);
        }
        out
    }

    /// Returns the address that the attempt went to, and its length.
    fn peer_address(&self) -> (Storage, usize) {
        let sk = self.sock().as_ptr();
        let mut storage: Storage = [0; size_of::<Storage>() / size_of::<u64>()];
        let family = self.sock().family();
        // SAFETY: The sock is valid and locked, so its addresses stay; the storage has room for either kind, and is
        // aligned to more than they are.
        let len = unsafe {
            if family == bindings::AF_INET6 as u16 {
                let to: *mut bindings::sockaddr_in6 = storage.as_mut_ptr().cast();
                (*to).sin6_family = family;
                (*to).sin6_port = bindings::sk_dport(sk);
                (*to).sin6_addr = *bindings::sk_v6_daddr(sk);
                // TCP has bound a socket with a link-local peer to the interface.
                (*to).sin6_scope_id = self.sock().bound_interface();
                size_of::<bindings::sockaddr_in6>()
            } else {
                let to: *mut bindings::sockaddr_in = storage.as_mut_ptr().cast();
                (*to).sin_family = family;
                (*to).sin_port = bindings::sk_dport(sk);
                (*to).sin_addr.s_addr = bindings::sk_daddr(sk);
                size_of::<bindings::sockaddr_in>()
            }
        };
        (storage, len)
    }
}
