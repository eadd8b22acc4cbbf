// SPDX-License-Identifier: GPL-2.0

//! The file side of a socket: `struct socket`.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use crate::{
    errno,
    net::{
        args::{Addr, GetOption, Message, Poll, Splice},
        sock::{OwnedSock, Sock, SockGuard},
        stock::{syn, tables}, //
    },
    sys::word::full_barrier, //
};
use core::ptr::{self, NonNull};
use kernel::{error::to_result, ffi, prelude::*, types::Opaque};
use smc_bindings as bindings;

/// A `struct socket` (C's "BSD socket") as an operation of its table sees it: open, and with a TCP
/// [`Sock`] behind it.
///
/// The `native_*` methods are what TCP would do with the same call.
///
/// # Invariants
///
/// Wraps a `struct socket` that is part of a `struct socket_alloc`, is not being freed, and whose
/// `sk` is a TCP sock for as long as a reference exists (but see [`BsdSocket::adopt`]).
#[repr(transparent)]
pub struct BsdSocket(Opaque<bindings::socket>);

// SAFETY: The kernel calls the operations of one socket from many CPUs at once.
unsafe impl Sync for BsdSocket {}

impl BsdSocket {
    /// Wraps a C pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is a `struct socket` made by `sock_alloc` that stays open during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut bindings::socket) -> &'a Self {
        // SAFETY: `BsdSocket` is transparent; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// Returns the C pointer.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::socket {
        self.0.get()
    }

    /// Returns the TCP connection behind the file.
    #[inline]
    pub fn sock(&self) -> &Sock {
        // SAFETY: By the type invariant `sk` is a TCP sock, and the socket holds a reference.
        unsafe { Sock::from_raw((*self.as_ptr()).sk.cast()) }
    }

    /// Returns whether a thread waits for the socket or polls it. One that begins at this moment may be missed.
    pub fn has_waiters(&self) -> bool {
        // SAFETY: The socket is valid, and its wait queue a part of it.
        unsafe { bindings::waitqueue_active_helper(self.wait_head()) }
    }

    pub(crate) fn wait_head(&self) -> *mut bindings::wait_queue_head {
        // SAFETY: Only an address is computed.
        unsafe { &raw mut (*self.as_ptr()).wq.wait }
    }

    #[inline]
    fn native(&self) -> &'static bindings::proto_ops {
        tables::native(self.sock().family())
    }

    /// Returns whether neither connect() nor listen() nor accept() has touched the socket.
    pub fn is_unconnected(&self) -> bool {
        // SAFETY: The socket is valid; the state is read without the lock, and the operations that
        // depend on it check it again under the lock.
        let state = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).state) };
        state == bindings::socket_state_SS_UNCONNECTED
    }

    /// Returns whether the socket was made by the overlay's own address family, and not as a protocol of
    /// `AF_INET` or `AF_INET6`. An accepted socket is what its listener is.
    pub fn is_own_family(&self) -> bool {
        // SAFETY: The socket is open.
        unsafe { tables::row_of(self.as_ptr()) }.is_some_and(|row| row < tables::FAMILIES)
    }

    /// Says which of the options of [`syn::Policy`] the socket's SYN, or its SYN-ACKs, carry: at most
    /// [`syn::CHOICE_MAX`]. A new socket has 0, as an accepted one.
    pub fn set_choice(&self, choice: u8) {
        // SAFETY: The socket is open.
        unsafe { syn::choose(self.as_ptr(), choice) };
    }

    /// Returns what [`BsdSocket::set_choice`] has set; `None` once the socket is left to TCP.
    pub fn choice(&self) -> Option<u8> {
        // SAFETY: The socket is open.
        unsafe { syn::choice_of(self.as_ptr()) }
    }

    /// Switches to the table that leaves everything but the end of the socket to TCP.
    ///
    /// Operations already under way finish with the table they began with.
    pub fn become_native(&self) {
        tables::set_native(self.as_ptr());
        // A module that takes the stream from now on finds TCP's functions.
        self.sock().release_stream();
    }

    /// Starts connecting without waiting, watching for the answer's TCP options.
    ///
    /// See [`syn::answered`] for what the peer said once the connection stands.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` when the SYN is out; TCP's errors otherwise.
    pub fn start_connect(&self, addr: &Addr<'_>) -> Result {
        let sock = self.sock();
        let guard = sock.lock();
        let flags = bindings::O_NONBLOCK as ffi::c_int;
        // SAFETY: The socket lock is held, as the function wants; `addr` is a kernel copy of an
        // address of the length given.
        let ret = to_result(unsafe {
            bindings::__inet_stream_connect(self.as_ptr(), addr.as_ptr(), addr.len(), flags, 0)
        });
        if sock.state() == super::sock::tcp_state::SYN_SENT {
            // The SYN-ACK cannot have been looked at: incoming packets wait for the lock.
            syn::watch_answer(&guard);
        }
        ret
    }

    /// Makes a connect() that has succeeded fail after all: the socket is unconnected again.
    ///
    /// Returns the error to report: the one that waits on the socket, or `ECONNABORTED`.
    pub fn fail_connect(&self) -> Error {
        let guard = self.sock().lock();
        let sk = guard.sock().as_ptr();
        // SAFETY: The socket lock is held, and the table is live. This is what TCP does when a
        // connection attempt fails.
        unsafe {
            let mut error = ptr::replace(&raw mut (*sk).sk_err, 0);
            if error == bindings::EPIPE as ffi::c_int {
                // A reset after a FIN sets EPIPE; a program that has sent nothing expects ECONNRESET.
                error = bindings::ECONNRESET as ffi::c_int;
            }
            (*self.as_ptr()).state = bindings::socket_state_SS_UNCONNECTED;
            (*sk).sk_disconnects = (*sk).sk_disconnects.wrapping_add(1);
            if let Some(disconnect) = (*guard.sock().prot()).disconnect {
                if disconnect(sk, 0) != 0 {
                    (*self.as_ptr()).state = bindings::socket_state_SS_DISCONNECTING;
                }
            }
            if error == 0 {
                errno::ECONNABORTED.into()
            } else {
                Error::from_errno(error.wrapping_neg())
            }
        }
    }

    /// Makes the file of a connection that TCP has made connecting again: it is not the program's yet.
    pub fn go_on_connecting(&self) {
        let guard = self.sock().lock();
        // SAFETY: The socket is open, and its state changes under the lock that is held.
        unsafe {
            if (*self.as_ptr()).state == bindings::socket_state_SS_CONNECTED {
                (*self.as_ptr()).state = bindings::socket_state_SS_CONNECTING;
            }
        }
        drop(guard);
    }

    /// Waits for a connection attempt that is under way, as connect() on a blocking socket does.
    ///
    /// # Errors
    ///
    /// `EALREADY` when the time is over; `EINTR`, `ERESTARTSYS`, TCP's errors.
    pub fn finish_connect(&self, addr: &Addr<'_>, nonblock: bool) -> Result {
        let guard = self.sock().lock();
        let flags = if nonblock { bindings::O_NONBLOCK } else { 0 };
        // SAFETY: The socket lock is held, as the function wants, which may release it while it waits;
        // `addr` is a kernel copy of an address of the length given.
        let ret = to_result(unsafe {
            bindings::__inet_stream_connect(
                self.as_ptr(),
                addr.as_ptr(),
                addr.len(),
                flags as ffi::c_int,
                0,
            )
        });
        drop(guard);
        ret
    }

    /// Calls TCP's `connect`.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_connect(&self, addr: &Addr<'_>, flags: i32) -> Result {
        let op = self.native().connect.ok_or(EINVAL)?;
        // SAFETY: The socket is open, and `addr` is a kernel copy.
        to_result(unsafe { op(self.as_ptr(), addr.as_ptr(), addr.len(), flags) })
    }

    /// Calls TCP's `listen`.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_listen(&self, backlog: i32) -> Result {
        let op = self.native().listen.ok_or(EINVAL)?;
        // SAFETY: The socket is open.
        to_result(unsafe { op(self.as_ptr(), backlog) })
    }

    /// Calls TCP's `getsockopt`.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_getsockopt(&self, option: &GetOption<'_>) -> Result {
        let op = self.native().getsockopt.ok_or(EINVAL)?;
        // SAFETY: TCP's function with the arguments that the user has given for this socket.
        to_result(unsafe {
            op(
                self.as_ptr(),
                option.level,
                option.name,
                option.value,
                option.len,
            )
        })
    }

    /// Calls TCP's `shutdown`.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_shutdown(&self, how: i32) -> Result {
        let op = self.native().shutdown.ok_or(EINVAL)?;
        // SAFETY: The socket is open.
        to_result(unsafe { op(self.as_ptr(), how) })
    }

    /// Calls TCP's `poll`; also registers the poller on the socket's wait queue.
    pub fn native_poll(&self, poll: &Poll<'_>) -> u32 {
        match self.native().poll {
            // SAFETY: The socket is open, and `poll` holds what the caller of poll was given.
            Some(op) => unsafe { op(poll.file(), self.as_ptr(), poll.table()) },
            None => 0,
        }
    }

    /// Calls TCP's `poll` for a poller that [`Self::register`] has registered.
    pub fn native_events(&self, poll: &Poll<'_>) -> u32 {
        match self.native().poll {
            // SAFETY: The socket is open, and `poll` holds what the caller of poll was given. Without a table TCP
            // registers nobody and leaves nothing out.
            Some(op) => unsafe { op(poll.file(), self.as_ptr(), ptr::null_mut()) },
            None => 0,
        }
    }

    /// Registers the poller on the socket's wait queue: who changes what is asked for after this call, and then
    /// looks for somebody to wake, finds him.
    #[inline]
    pub fn register(&self, poll: &Poll<'_>) {
        if !self.enlist(poll) {
            // He is on the queue already, or does not wait.
            full_barrier();
        }
    }

    /// Registers the poller, if he is to be, as TCP's `poll` does; returns whether he was. If so, a full barrier stands
    /// between that and what is looked at next. If not, he is on the queue already, and whoever wakes finds him there,
    /// or he does not wait: then no barrier is needed, as epoll and poll() order the wake-ups and the calls of this
    /// themselves.
    #[inline]
    pub fn enlist(&self, poll: &Poll<'_>) -> bool {
        let registers = poll.registers();
        if registers {
            // SAFETY: The socket is open, and `poll` holds what the caller of poll was given.
            unsafe { bindings::socket_poll_wait(poll.file(), self.as_ptr(), poll.table()) };
        }
        registers
    }

    /// Calls TCP's `sendmsg`.
    ///
    /// # Errors
    ///
    /// TCP's.
    #[inline]
    pub fn native_sendmsg(&self, msg: &mut Message<'_>) -> Result<usize> {
        let op = self.native().sendmsg.ok_or(EINVAL)?;
        // SAFETY: The socket is open, and `msg` is what the caller of sendmsg was given.
        let ret = unsafe { op(self.as_ptr(), msg.as_ptr(), msg.len()) };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// TCP's; `EAGAIN` when there is no room.
    #[inline(always)]
    pub fn native_sendmsg_now(&self, msg: &mut Message<'_>) -> Result<usize> {
        let len = msg.len();
        self.native_sendmsg_with(msg, len, bindings::MSG_DONTWAIT)
    }

    /// Goes on with a `sendmsg` of which `sent` bytes are sent; returns how many are by this. A broken pipe raises no
    /// signal.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_sendmsg_rest(&self, msg: &mut Message<'_>, sent: usize) -> Result<usize> {
        let left = msg.len().saturating_sub(sent);
        self.native_sendmsg_with(msg, left, bindings::MSG_NOSIGNAL)
    }

    /// Calls TCP's `sendmsg` for `len` bytes, which are left of the message, with `more` flags.
    #[inline(always)]
    fn native_sendmsg_with(&self, msg: &mut Message<'_>, len: usize, more: u32) -> Result<usize> {
        let op = self.native().sendmsg.ok_or(EINVAL)?;
        let raw = msg.as_ptr();
        // SAFETY:
        // - The socket is open, and `msg` is what the caller of sendmsg was given, of which so much is left.
        // - Nobody else uses it meanwhile, as it is borrowed, so its flags can be put back.
        let ret = unsafe {
            let before = (*raw).msg_flags;
            (*raw).msg_flags = before | more;
            let ret = op(self.as_ptr(), raw, len);
            (*raw).msg_flags = before;
            ret
        };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// Calls TCP's `recvmsg` without waiting.
    ///
    /// # Errors
    ///
    /// TCP's; `EAGAIN` when there is nothing.
    #[inline(always)]
    pub fn native_recvmsg_now(&self, msg: &mut Message<'_>) -> Result<usize> {
        let op = self.native().recvmsg.ok_or(EINVAL)?;
        let flags = msg.flags() | bindings::MSG_DONTWAIT as ffi::c_int;
        // SAFETY: The socket is open, and `msg` is what the caller of recvmsg was given.
        let ret = unsafe { op(self.as_ptr(), msg.as_ptr(), msg.len(), flags) };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// Calls TCP's `recvmsg`.
    ///
    /// # Errors
    ///
    /// TCP's.
    #[inline]
    pub fn native_recvmsg(&self, msg: &mut Message<'_>) -> Result<usize> {
        let op = self.native().recvmsg.ok_or(EINVAL)?;
        // SAFETY: The socket is open, and `msg` is what the caller of recvmsg was given.
        let ret = unsafe { op(self.as_ptr(), msg.as_ptr(), msg.len(), msg.flags()) };
        to_result(ret)?;
        Ok(ret as usize)
    }

    /// Calls TCP's `splice_read`.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn native_splice(&self, splice: &mut Splice<'_>) -> Result<usize> {
        let op = self.native().splice_read.ok_or(EINVAL)?;
        // SAFETY: The socket is open, and `splice` holds what the caller was given.
        let ret = unsafe {
            op(
                self.as_ptr(),
                splice.position(),
                splice.pipe(),
                splice.len(),
                splice.flags(),
            )
        };
        if ret < 0 {
            return Err(Error::from_errno(ret as i32));
        }
        Ok(ret as usize)
    }

    /// Returns whether the file is in non-blocking mode, for calls that do not say it themselves.
    pub fn is_nonblocking(&self) -> bool {
        // SAFETY: The socket is open, and if it has a file, then that lives as long; its flags are
        // read without a lock everywhere.
        unsafe {
            let file: *mut bindings::file = (*self.as_ptr()).file.cast();
            !file.is_null()
                && ptr::read_volatile(&raw const (*file).f_flags) & bindings::O_NONBLOCK != 0
        }
    }

    /// Serves `splice_read` through our own `recvmsg`, with a copy.
    ///
    /// # Errors
    ///
    /// Errors of `recvmsg`; `ENOMEM`.
    pub fn copy_splice(&self, splice: &mut Splice<'_>) -> Result<usize> {
        // SAFETY: The socket is open; splice is called on its file, which thus lives.
        let file = unsafe { (*self.as_ptr()).file };
        if file.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The file lives during the splice; the other arguments are what the caller of splice_read was given.
        let ret = unsafe {
            bindings::copy_splice_read(
                file,
                splice.position(),
                splice.pipe().cast(),
                splice.len(),
                splice.flags(),
            )
        };
        if ret < 0 {
            return Err(Error::from_errno(ret as i32));
        }
        Ok(ret as usize)
    }

    /// Makes `child` the connection behind this socket, which accept() is about to hand out.
    ///
    /// `listener` is the socket that accept() was called on. The copy of the SYN, which TCP may have kept, stays if the
    /// user `keeps_syn`.
    pub fn adopt(&self, listener: &BsdSocket, child: OwnedSock, keeps_syn: bool) {
        let sk = child.into_raw();
        // SAFETY: accept() gives a new `struct socket` without `sk`, and `sk` was owned by us alone
        // and is locked around the graft, as `inet_accept` does, and so that the copy may be freed.
        unsafe {
            bindings::lock_sock(sk);
            if !keeps_syn {
                syn::drop_saved_syn(sk);
            }
            bindings::__inet_accept(listener.as_ptr(), self.as_ptr(), sk);
            bindings::release_sock(sk);
        }
    }
}

impl SockGuard<'_> {
    /// Returns the file side, while it is open.
    #[inline]
    pub fn socket(&self) -> Option<&BsdSocket> {
        // SAFETY: The sock is valid.
        let socket = unsafe { (*self.sock().as_ptr()).sk_socket };
        if socket.is_null() {
            return None;
        }
        // SAFETY: TCP orphans a sock (sets the pointer to null) under the lock that is held here,
        // before its `struct socket` is freed.
        Some(unsafe { BsdSocket::from_raw(socket) })
    }
}

/// A socket without a file, which gives a connection a wait queue before accept() does.
///
/// Dropping it resets the connection.
///
/// # Invariants
///
/// Points to a `struct socket` with TCP's operations that we alone use and whose `sk` is a TCP sock.
pub struct OwnedBsdSocket(NonNull<bindings::socket>);

// SAFETY: It owns its object, which may be used from any CPU.
unsafe impl Send for OwnedBsdSocket {}
// SAFETY: See `BsdSocket`.
unsafe impl Sync for OwnedBsdSocket {}

impl OwnedBsdSocket {
    /// Gives `child` a socket.
    ///
    /// # Errors
    ///
    /// `ENFILE` or `ENOMEM`; `child` is then closed.
    pub fn new(child: OwnedSock) -> Result<Self> {
        let socket = Self::empty(child.family())?;
        // SAFETY: The new socket has no `sk` and is known to nobody else; `sk` was owned by us.
        Ok(unsafe { Self::graft(socket, child.into_raw()) })
    }

    /// Returns a socket with TCP's operations for this family, and without a sock.
    fn empty(family: u16) -> Result<NonNull<bindings::socket>> {
        let mut socket = ptr::null_mut();
        // SAFETY: `socket` is valid for writing a pointer.
        to_result(unsafe {
            bindings::sock_create_lite(
                i32::from(family),
                bindings::sock_type_SOCK_STREAM as ffi::c_int,
                bindings::IPPROTO_TCP as ffi::c_int,
                &mut socket,
            )
        })?;
        // SAFETY: The socket is ours alone.
        unsafe { (*socket).ops = tables::native(family) };
        NonNull::new(socket).ok_or(ENOMEM)
    }

    /// Gives a socket its sock.
    ///
    /// # Safety
    ///
    /// `socket` comes from [`OwnedBsdSocket::empty`] for the family of `sk`, a TCP sock that has no socket and that the
    /// caller gives away.
    unsafe fn graft(socket: NonNull<bindings::socket>, sk: *mut bindings::sock) -> Self {
        let raw = socket.as_ptr();
        // SAFETY: By the caller's promise nobody else knows the socket, and the sock is valid; it is locked around the
        // graft.
        unsafe {
            // The graft gives the sock the inode's owner, which is us.
            bindings::socket_set_owner(raw, sk);
            bindings::lock_sock(sk);
            bindings::sock_graft(sk, raw);
            bindings::release_sock(sk);
            (*raw).state = bindings::socket_state_SS_CONNECTED;
        }
        // INVARIANT: Established above.
        Self(socket)
    }

    /// Takes over a socket that was just made.
    ///
    /// # Safety
    ///
    /// It has TCP's operations and a TCP sock, and nobody else knows it.
    pub(crate) unsafe fn from_new(socket: NonNull<bindings::socket>) -> Self {
        // INVARIANT: The caller's promise.
        Self(socket)
    }

    /// Moves the connection of a socket that is being closed to a new one; the old one has none afterwards.
    ///
    /// # Safety
    ///
    /// `old` has a TCP sock, and is being released: nobody uses it any more but the caller, in process context.
    ///
    /// # Errors
    ///
    /// `ENFILE` or `ENOMEM`; `old` has its sock then.
    pub(crate) unsafe fn take_over(old: *mut bindings::socket) -> Result<Self> {
        // SAFETY: `old` has a sock, by the caller's promise.
        let family = unsafe { BsdSocket::from_raw(old) }.sock().family();
        let socket = Self::empty(family)?;
        // SAFETY:
        // - `old` has a sock and is used by nobody else, by the caller's promise. Its waiters have been told that its queue
        //   ends, or are told now. Who finds it by its sock has that locked: `graft` waits for him, as TCP's release does.
        // - `graft` puts the new socket and its wait queue in the place of the old ones under both locks, so that no caller
        //   of TCP finds the sock without them: tcp_sendmsg_locked() uses both without a look where it has no room.
        // - The reference that the old socket has to the sock becomes the new one's.
        unsafe {
            let sk: *mut bindings::sock = (*old).sk.cast();
            bindings::wake_up_pollfree(old);
            let new = Self::graft(socket, sk);
            (*old).sk = ptr::null_mut();
            Ok(new)
        }
    }

    /// Closes the connection as a program's close() would: in good order, unless bytes were not read. As there is no
    /// program to wait, `SO_LINGER` with a time counts for nothing: its wait would be a worker's.
    pub fn close(self) {
        self.sock().release_stream();
        let socket = self.0.as_ptr();
        let lingers_not = self.sock().lingers_not();
        core::mem::forget(self);
        // SAFETY: We own the socket, and its operations are TCP's; the sock's flags change under its lock.
        unsafe {
            if !lingers_not {
                let sk: *mut bindings::sock = (*socket).sk.cast();
                bindings::lock_sock(sk);
                bindings::sk_linger_off(sk);
                bindings::release_sock(sk);
            }
            // In this order, on which `WaitHook` relies.
            bindings::wake_up_pollfree(socket);
            bindings::sock_release(socket);
        }
    }

    /// Takes the connection out again; the socket is freed.
    pub fn into_sock(self) -> OwnedSock {
        self.take()
    }

    fn take(&self) -> OwnedSock {
        let socket = self.0.as_ptr();
        // SAFETY: We alone use the socket, and its `sk` is a sock we own. TCP's callbacks read
        // `sk_wq` under RCU alone and may still use the wait queue when it has left the sock: the
        // socket is freed by RCU, like every inode. The waiters that remain are hooks, which
        // `wake_up_pollfree` removes.
        unsafe {
            let sk: *mut bindings::sock = (*socket).sk.cast();
            // In this order, on which `WaitHook` relies.
            bindings::wake_up_pollfree(socket);
            ungraft(socket);
            (*socket).sk = ptr::null_mut();
            OwnedSock::from_raw(sk)
        }
    }
}

/// Takes the sock out of its `struct socket`, but for the pointer there.
///
/// # Safety
///
/// `socket` has a sock and is not used by anybody else; process context.
pub(super) unsafe fn ungraft(socket: *mut bindings::socket) {
    // SAFETY: The sock is valid; its pointers to the socket and the wait queue change under both locks.
    unsafe {
        let sk: *mut bindings::sock = (*socket).sk.cast();
        bindings::lock_sock(sk);
        bindings::sk_callback_write_lock(sk);
        bindings::sk_set_socket(sk, ptr::null_mut());
        bindings::sk_clear_wait_queue(sk);
        bindings::sk_callback_write_unlock(sk);
        bindings::release_sock(sk);
    }
}

impl core::ops::Deref for OwnedBsdSocket {
    type Target = BsdSocket;

    fn deref(&self) -> &BsdSocket {
        // SAFETY: By the type invariant.
        unsafe { BsdSocket::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedBsdSocket {
    fn drop(&mut self) {
        // SAFETY: We own the socket, so reading the field is no race.
        if unsafe { !(*self.0.as_ptr()).sk.is_null() } {
            drop(self.take());
        }
        // SAFETY: We own the socket, it has no sock any more, and no hook is on its wait queue.
        unsafe { bindings::sock_release(self.0.as_ptr()) };
    }
}
