// SPDX-License-Identifier: GPL-2.0

//! A TCP connection: `struct sock`.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

mod busy_poll;
mod charge;
mod count;
mod identity;
mod options;
mod path;
mod shared;
mod stamp;
mod stream;
mod subnets;
mod wake;

pub use charge::Charge;
pub use identity::priority_of;
pub use path::InitialNumbers;
pub use shared::{GivenBack, Shareable, SharedSock};

use crate::errno::{self, Errno};
use crate::sys::word::read_barrier;
use core::ptr::{self, NonNull};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::aref::{ARef, AlwaysRefCounted},
    types::Opaque, //
};
use smc_bindings as bindings;

/// `TCP_CLOSE` and its siblings, as `sk_state` holds them.
pub mod tcp_state {
    use smc_bindings as bindings;

    /// Connected.
    pub const ESTABLISHED: u8 = bindings::TCP_ESTABLISHED as u8;
    /// A SYN is out, no answer yet.
    pub const SYN_SENT: u8 = bindings::TCP_SYN_SENT as u8;
    /// A SYN came in and was answered.
    pub const SYN_RECV: u8 = bindings::TCP_SYN_RECV as u8;
    /// Connected, and the peer has sent its FIN.
    pub const CLOSE_WAIT: u8 = bindings::TCP_CLOSE_WAIT as u8;
    /// Not connected.
    pub const CLOSE: u8 = bindings::TCP_CLOSE as u8;
    /// Waiting for connections.
    pub const LISTEN: u8 = bindings::TCP_LISTEN as u8;
}

/// A reference-counted TCP socket of the kernel, without its `struct socket`.
///
/// It may outlive the file descriptor: operations on a closed one fail as TCP makes them fail.
///
/// # Invariants
///
/// Wraps a `struct sock` whose protocol is TCP, whose `sk_prot` is TCP's or derived from TCP's, and
/// whose `sk_refcnt` is above zero for as long as a reference to this type exists.
///
/// # Examples
///
/// ```
/// use kapi::{
///     errno,
///     net::sock::{tcp_state, Sock}, //
/// };
/// use kernel::sync::aref::ARef;
///
/// /// A connection that is to end when its protocol does.
/// struct Watched(ARef<Sock>);
///
/// impl Watched {
///     /// Keeps the connection, if there is one: it may now outlive its file.
///     fn new(sock: &Sock) -> Option<Self> {
///         sock.is_established().then(|| Self(ARef::from(sock)))
///     }
///
///     fn end(&self) {
///         if self.0.abort_with(errno::ECONNRESET) {
///             assert_eq!(self.0.state(), tcp_state::CLOSE);
///         }
///     }
///
///     /// Runs `f` while nothing arrives and no other thread changes the connection.
///     fn alone<R>(&self, f: impl FnOnce(&Sock) -> R) -> R {
///         let guard = self.0.lock();
///         f(guard.sock())
///     }
/// }
/// # use kernel::prelude::*;
/// # let pair = crate::tcp::Pair::new()?;
/// # let (sock, peer) = (pair.client(), pair.server());
///
/// let watched = Watched::new(sock).ok_or(errno::ENOTCONN)?;
/// assert!(watched.alone(|sock| sock.is_established()));
///
/// watched.end();
/// assert!(Watched::new(sock).is_none());
/// # crate::wait(|| !peer.is_established())?;
/// # assert!(peer.has_the_error(errno::ECONNRESET));
/// # Ok::<(), Error>(())
/// ```
#[repr(transparent)]
pub struct Sock(Opaque<bindings::sock>);

// SAFETY: `struct sock` is made to be used from several CPUs; all methods here take the locks that
// the fields they touch need.
unsafe impl Send for Sock {}
// SAFETY: Methods of `&Sock` take the locks of the fields that they touch, or read single words that the kernel, too,
// reads without a lock.
unsafe impl Sync for Sock {}

// SAFETY: `sock_hold` and `sock_put` count `sk_refcnt`, and the sock lives while it is above zero.
unsafe impl AlwaysRefCounted for Sock {
    fn inc_ref(&self) {
        // SAFETY: By the type invariant the count is above zero.
        unsafe { bindings::sock_hold(self.as_ptr()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns one count and gives it up.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) };
    }
}

impl Sock {
    /// Wraps a C pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is a TCP `struct sock` and stays referenced during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut bindings::sock) -> &'a Self {
        // SAFETY: `Sock` is transparent over `struct sock`; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// Returns the C pointer, for FFI of another crate; nothing safe follows it.
    #[inline]
    pub fn as_ptr(&self) -> *mut bindings::sock {
        self.0.get()
    }

    #[inline]
    pub(crate) fn prot(&self) -> *const bindings::proto {
        // SAFETY: The sock is valid; `sk_prot` may be replaced concurrently (by a ULP or
        // IPV6_ADDRFORM), hence the volatile read, and every value it takes is a live table.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).__sk_common.skc_prot).cast_const() }
    }

    /// Returns the TCP state; one of [`tcp_state`].
    #[inline]
    pub fn state(&self) -> u8 {
        // SAFETY: The sock is valid. `skc_state` is read without the lock on purpose, as
        // `inet_sk_state_load` does.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).__sk_common.skc_state) }
    }

    /// Returns whether a three-way handshake has been completed and no RST has ended the connection.
    #[inline]
    pub fn is_established(&self) -> bool {
        !matches!(
            self.state(),
            tcp_state::CLOSE | tcp_state::SYN_SENT | tcp_state::SYN_RECV | tcp_state::LISTEN
        )
    }

    /// Returns how many bytes have been given to TCP to send and how many have arrived, by TCP's
    /// own count: a moment's view, in which a FIN of ours that is still to be sent counts as a
    /// byte. A connect() to no address sets it back.
    pub fn stream_bytes(&self) -> (u64, u64) {
        let tp: *const bindings::tcp_sock = self.as_ptr().cast();
        // SAFETY: The sock is valid and, as `Sock` promises, one of TCP. The numbers are read without the
        // lock, each at once; TCP counts the ones that are read before the barrier after the others.
        let (again, next, all, end) = unsafe {
            let again = ptr::read_volatile(&raw const (*tp).bytes_retrans);
            let next = ptr::read_volatile(&raw const (*tp).snd_nxt);
            read_barrier();
            (
                again,
                next,
                ptr::read_volatile(&raw const (*tp).bytes_sent),
                ptr::read_volatile(&raw const (*tp).write_seq),
            )
        };
        // Each byte once. A connect() to no address clears both.
        let sent = all.saturating_sub(again);
        // Sequence numbers that have been given away and are still to be sent.
        let unsent = end.wrapping_sub(next);
        // A dissolved connection leaves the next sequence number far ahead of what was sent.
        let unsent = if self.is_established() { unsent } else { 0 };
        // TCP counts the peer's FIN, and sets the flag after that. It does not come back.
        let (ended, received) = loop {
            let ended = self.has_seen_fin();
            // SAFETY: The sock is TCP's and valid. TCP writes the field under its lock; it is read at once.
            let received = unsafe { ptr::read_volatile(&raw const (*tp).bytes_received) };
            read_barrier();
            if self.has_seen_fin() == ended {
                break (ended, received);
            }
        };
        (
            sent.wrapping_add(u64::from(unsent)),
            received.saturating_sub(u64::from(ended)),
        )
    }

    /// Returns the number of the asynchronous error that waits to be fetched (`sk_err`), 0 for none.
    #[inline]
    fn pending_error(&self) -> i32 {
        // SAFETY: The sock is valid; `sk_err` is an int that is read without the lock everywhere.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_err) }
    }

    /// Returns whether an asynchronous error waits to be fetched.
    #[inline]
    pub fn has_error(&self) -> bool {
        self.pending_error() != 0
    }

    /// Returns the asynchronous error that waits to be fetched.
    pub fn error(&self) -> Option<errno::Errno> {
        errno::Errno::pending(self.pending_error())
    }

    /// Returns whether the asynchronous error that waits to be fetched is `err`.
    #[inline]
    pub fn has_the_error(&self, err: errno::Errno) -> bool {
        self.pending_error() == err.number()
    }

    /// Returns whether the peer's FIN has come (`SOCK_DONE`). If so, what is read next is from after that.
    #[inline]
    pub fn has_seen_fin(&self) -> bool {
        // SAFETY: The sock is valid; the flag is a bit that is read without the lock.
        let ended = unsafe { bindings::sk_is_done(self.as_ptr()) };
        if ended {
            read_barrier();
        }
        ended
    }

    /// Returns whether a socket file belongs to it: not when that is closed.
    pub(crate) fn has_file(&self) -> bool {
        // SAFETY: The sock is valid; only the pointer's value is used.
        let file = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_socket) };
        if file.is_null() {
            // close() has cleared it under this lock, which those had before who found it there. While there is
            // a file the lock is not waited for: a program may make its owner sleep for a page of its memory.
            drop(self.lock());
        }
        !file.is_null()
    }

    /// Returns whether the sock has a wait queue: from the time that a socket has it until that is being closed. Within an
    /// RCU section the queue lives until the end of that, then.
    pub(crate) fn has_wait_queue(&self) -> bool {
        // SAFETY: The sock is valid; only the pointer's value is used.
        unsafe { bindings::sk_has_wait_queue(self.as_ptr()) }
    }

    /// Returns `AF_INET` or `AF_INET6`.
    #[inline]
    pub fn family(&self) -> u16 {
        // SAFETY: The sock is valid and the family changes only by IPV6_ADDRFORM, atomically.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).__sk_common.skc_family) }
    }

    /// Takes the socket lock (`lock_sock`); sleeps.
    #[inline]
    pub fn lock(&self) -> SockGuard<'_> {
        // SAFETY: The sock is valid, and methods of this type are called in process context.
        unsafe { bindings::lock_sock(self.as_ptr()) };
        SockGuard(self)
    }

    /// Takes one connection from a listening socket's queue, without waiting.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is none, `EINVAL` when the socket does not listen.
    pub fn accept(&self) -> Result<OwnedSock> {
        let mut arg = bindings::proto_accept_arg {
            flags: bindings::O_NONBLOCK as ffi::c_int,
            err: 0,
            is_empty: 0,
            kern: false,
        };
        // SAFETY: The table is live, see `prot`.
        let accept = unsafe { (*self.prot()).accept }.ok_or(errno::EOPNOTSUPP)?;
        // SAFETY: The sock is valid and `arg` is initialised.
        let child = unsafe { accept(self.as_ptr(), &mut arg) };
        match NonNull::new(child) {
            // INVARIANT: `accept` gives up the child; nobody else knows it.
            Some(child) => Ok(OwnedSock(child)),
            None => Err(Error::from_errno(if arg.err < 0 {
                arg.err
            } else {
                -(bindings::EAGAIN as i32)
            })),
        }
    }

    /// Returns whether a listening socket has connections in its queue.
    #[inline]
    pub fn accept_pending(&self) -> bool {
        // SAFETY: The sock is valid; the queue head is read with READ_ONCE.
        self.state() == tcp_state::LISTEN && unsafe { !bindings::reqsk_queue_empty(self.as_ptr()) }
    }

    /// Returns the backlog of listen(): one connection less than may wait for accept().
    pub fn backlog(&self) -> usize {
        // SAFETY: The sock is valid; read without the lock as TCP does.
        let most = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_max_ack_backlog) };
        most as usize
    }

    /// Sets the error that the next call, or `SO_ERROR`, reports, and wakes all waiters and pollers.
    pub fn report_error(&self, err: errno::Errno) {
        self.set_error(err);
        self.wake_error();
    }

    /// Sets the error that the next call, or `SO_ERROR`, reports. Any context; [`Sock::wake_error`] is
    /// to follow.
    pub fn set_error(&self, err: errno::Errno) {
        // SAFETY: The sock is valid; `sk_err` is written without the lock by softirqs, too.
        unsafe { ptr::write_volatile(&raw mut (*self.as_ptr()).sk_err, err.number()) };
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Result {
        // SAFETY: The sock is valid.
        to_result(unsafe { bindings::sk_take_error(self.as_ptr()) })
    }

    /// Ends the connection at once: the peer gets a reset, the user the error that waits for him. One
    /// that he has taken already does not come again.
    pub fn abort(&self) {
        let error = self.pending_error();
        // SAFETY: The sock is valid; the function takes the lock itself.
        unsafe { bindings::tcp_abort(self.as_ptr(), error) };
    }

    /// Returns the error of a send that cannot go on: the pending one, else `EPIPE` with SIGPIPE.
    pub fn stream_error(&self, no_signal: bool) -> Error {
        let flags = if no_signal { bindings::MSG_NOSIGNAL } else { 0 };
        let epipe = -(bindings::EPIPE as ffi::c_int);
        // SAFETY: The sock is valid; process context, where a signal can be sent.
        Error::from_errno(unsafe {
            bindings::sk_stream_error(self.as_ptr(), flags as ffi::c_int, epipe)
        })
    }

    /// Returns whether something has arrived in TCP's stream and was not read; the end counts.
    #[inline]
    pub fn has_unread(&self) -> bool {
        // SAFETY: The sock is valid, and so only an address within it is computed.
        let queue = unsafe { &raw const (*self.as_ptr()).sk_receive_queue };
        // SAFETY: A queue begins with the pointer to its first packet, a word that is read without the lock, as by
        // `skb_queue_empty_lockless()`; only its value is used.
        let first = unsafe { ptr::read_volatile(queue.cast::<*const bindings::sk_buff_head>()) };
        // An empty one points to itself.
        !ptr::eq(first, queue)
    }

    /// Returns about how many bytes of TCP's stream were not read; the end counts as one.
    pub fn unread(&self) -> usize {
        // SAFETY: The sock is valid; both numbers are read with READ_ONCE.
        unsafe { bindings::sk_unread(self.as_ptr()) as usize }
    }

    /// Ends a connection, or an attempt at one, at once: the peer gets a RST, and whoever waits for
    /// the socket, or asks for `SO_ERROR`, gets `error`. Without a connection nothing happens, and
    /// the result is false. What has been received and not been read is thrown away: it was never
    /// meant for a program.
    pub fn abort_with(&self, error: Errno) -> bool {
        // SAFETY: The sock is valid, and its lock is not held. The result says whether there was
        // something to end.
        let ended = unsafe { bindings::tcp_abort(self.as_ptr(), error.number()) } == 0;
        let guard = self.lock();
        if self.state() == tcp_state::CLOSE {
            let sk = guard.sock().as_ptr();
            let tp: *mut bindings::tcp_sock = sk.cast();
            // SAFETY: The sock is TCP's, and its lock is held; in this state nothing arrives. The number is
            // read without the lock, too.
            unsafe {
                bindings::sk_purge_received(sk);
                ptr::write_volatile(&raw mut (*tp).copied_seq, (*tp).rcv_nxt);
            }
        }
        ended
    }

    /// Returns the shutdown bits: 1 receive, 2 send.
    #[inline]
    pub fn shutdown_mask(&self) -> u8 {
        // SAFETY: The sock is valid; read without the lock as `tcp_poll` does.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_shutdown) }
    }

    pub(crate) fn net(&self) -> *mut bindings::net {
        // SAFETY: The sock is valid and its namespace is fixed.
        unsafe { bindings::sock_net(self.as_ptr()) }
    }
}

/// The socket lock, held.
pub struct SockGuard<'a>(&'a Sock);

impl SockGuard<'_> {
    /// Returns the locked socket.
    #[inline]
    pub fn sock(&self) -> &Sock {
        self.0
    }

    /// Has TCP wait a moment with acknowledgements, or no longer, so that they go with what is said
    /// in reply instead of in packets of their own. A new connection does not.
    pub fn delay_acks(&self, on: bool) {
        // SAFETY: The sock is TCP's, and its lock is held.
        unsafe { bindings::tcp_delay_acks(self.0.as_ptr(), on) };
    }
}

impl Drop for SockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `Sock::lock` took the lock, in this context.
        unsafe { bindings::release_sock(self.0.as_ptr()) };
    }
}

/// A connection that has no `struct socket` yet and belongs to us alone.
///
/// Dropping it resets the connection, as closing a listener does with those not yet accepted.
///
/// # Invariants
///
/// Points to a TCP `struct sock` as it left an accept queue: referenced by us and not orphaned, and
/// with no `struct socket`.
pub struct OwnedSock(NonNull<bindings::sock>);

// SAFETY: It is a counted reference to an object that may be used from any CPU, see `Sock`.
unsafe impl Send for OwnedSock {}
// SAFETY: A shared reference only gives out a `&Sock`, which is `Sync`.
unsafe impl Sync for OwnedSock {}

impl OwnedSock {
    /// Takes ownership of a connection.
    ///
    /// # Safety
    ///
    /// The type invariant holds for `ptr`, and the caller gives up its reference.
    pub(crate) unsafe fn from_raw(ptr: *mut bindings::sock) -> Self {
        // INVARIANT: The caller's promise.
        // SAFETY: A valid sock is not null.
        Self(unsafe { NonNull::new_unchecked(ptr) })
    }

    /// Gives up ownership without closing.
    pub(crate) fn into_raw(self) -> *mut bindings::sock {
        let ptr = self.0.as_ptr();
        core::mem::forget(self);
        ptr
    }

    /// Returns a counted reference to the connection.
    pub fn sock(&self) -> ARef<Sock> {
        ARef::from(&**self)
    }
}

impl core::ops::Deref for OwnedSock {
    type Target = Sock;

    fn deref(&self) -> &Sock {
        // SAFETY: By the type invariant the sock is valid while `self` lives.
        unsafe { Sock::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedSock {
    fn drop(&mut self) {
        let prot = self.prot();
        {
            let guard = self.lock();
            // SAFETY: The table is live, see `Sock::prot`; every TCP table has `disconnect`.
            if let Some(disconnect) = unsafe { (*prot).disconnect } {
                // SAFETY: The sock is valid and locked.
                unsafe { disconnect(guard.sock().as_ptr(), bindings::O_NONBLOCK as ffi::c_int) };
            }
        }
        // SAFETY: The table is live, see `Sock::prot`; every TCP table has `close`.
        if let Some(close) = unsafe { (*prot).close } {
            // SAFETY: By the type invariant this is the one owner, so `close` is called once. It
            // orphans the sock and drops the reference that the accept queue had given us.
            unsafe { close(self.0.as_ptr(), 0) };
        }
    }
}
