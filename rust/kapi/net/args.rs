// SPDX-License-Identifier: GPL-2.0

//! The arguments of socket operations, as their callers passed them.

use crate::net::sockaddr::SockAddr;
use core::{marker::PhantomData, mem::size_of};
use kernel::{
    ffi,
    iov::{IovIterDest, IovIterSource},
    prelude::*,
    uaccess::{UserPtr, UserSlice}, //
};
use smc_bindings as bindings;

/// A socket address that the core has copied into kernel memory.
///
/// # Invariants
///
/// `ptr` is readable for `len` bytes, rounded up to a `sockaddr_storage`.
pub struct Addr<'a> {
    ptr: *mut bindings::sockaddr_unsized,
    len: i32,
    _data: PhantomData<&'a [u8]>,
}

impl Addr<'_> {
    /// # Safety
    ///
    /// The type invariant holds for the arguments, during the lifetime.
    pub(crate) unsafe fn new(ptr: *mut bindings::sockaddr_unsized, len: i32) -> Self {
        Self {
            ptr,
            len,
            _data: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::sockaddr_unsized {
        self.ptr
    }

    #[inline]
    pub(crate) fn len(&self) -> i32 {
        self.len
    }

    /// Returns the address family; `None` when the address is too short to have one.
    pub fn family(&self) -> Option<u16> {
        if usize::try_from(self.len).ok()? < size_of::<bindings::sa_family_t>() {
            return None;
        }
        // SAFETY: By the type invariant and the check above.
        Some(unsafe { (*self.ptr).sa_family })
    }

    /// Returns the IPv4 or IPv6 address; `None` for another one, or one that is too short.
    pub fn inet(&self) -> Option<SockAddr> {
        let len = usize::try_from(self.len).ok()?;
        let family = u32::from(self.family()?);
        // SAFETY: By the type invariant and the lengths; nothing in them is aligned to more than the
        // storage is.
        unsafe {
            if family == bindings::AF_INET && len >= size_of::<bindings::sockaddr_in>() {
                return Some(SockAddr::from_in(&*self.ptr.cast()));
            }
            // As `SIN6_LEN_RFC2133`: without the scope.
            if family == bindings::AF_INET6 && len >= size_of::<bindings::sockaddr_in6>() - 4 {
                return Some(SockAddr::from_in6(&*self.ptr.cast()));
            }
        }
        None
    }

    /// Returns whether this asks to dissolve a connection.
    pub fn is_unspec(&self) -> bool {
        self.family() == Some(bindings::AF_UNSPEC as u16)
    }
}

/// A place among the control messages of a `recvmsg`; see [`Message::control`].
pub struct Control {
    place: *mut ffi::c_void,
    room: usize,
    cut: u32,
}

/// The message of `sendmsg` and `recvmsg`.
///
/// # Invariants
///
/// `msg` is valid and not used by anybody else during `'a`, and its iterator had `len` bytes when this was made: the kernel
/// calls sendmsg() and recvmsg() with `msg_data_left()`.
pub struct Message<'a> {
    msg: *mut bindings::msghdr,
    len: usize,
    flags: i32,
    _data: PhantomData<&'a mut bindings::msghdr>,
}

impl<'a> Message<'a> {
    /// # Safety
    ///
    /// The type invariant holds for `msg`.
    pub(crate) unsafe fn new(msg: *mut bindings::msghdr, len: usize, flags: i32) -> Self {
        Self {
            msg,
            len,
            flags,
            _data: PhantomData,
        }
    }

    pub(crate) fn as_ptr(&mut self) -> *mut bindings::msghdr {
        self.msg
    }

    /// Returns how many bytes are to be transferred.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the `MSG_` flags.
    #[inline]
    pub fn flags(&self) -> i32 {
        self.flags
    }

    /// Returns whether `flag`, one of `MSG_`, is set.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags as u32 & flag != 0
    }

    /// Returns the bytes to send. Only for a message of `sendmsg`.
    #[inline]
    pub fn source(&mut self) -> &mut IovIterSource<'a> {
        // SAFETY: The iterator of a message is valid while the message is, and `from_raw` checks
        // its direction.
        unsafe { IovIterSource::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    /// Gives back the last `bytes` that were taken from [`Message::source`], at most all: the next ones taken are the same
    /// again.
    #[cold]
    pub fn put_back(&mut self, bytes: usize) {
        let len = self.len();
        let source = self.source();
        let taken = len.saturating_sub(source.len());
        // SAFETY: By the type invariant there were `len` bytes at first, so at least these were taken since then.
        unsafe { source.revert(bytes.min(taken)) };
    }

    /// Returns the place of received bytes. Only for a message of `recvmsg`.
    #[inline]
    pub fn dest(&mut self) -> &mut IovIterDest<'a> {
        // SAFETY: The iterator of a message is valid while the message is, and `from_raw` checks
        // its direction.
        unsafe { IovIterDest::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    /// Returns the place of the next control message of a `recvmsg`, for [`Message::rewind`].
    pub fn control(&self) -> Control {
        // SAFETY: By the type invariant.
        unsafe {
            Control {
                place: (*self.msg).__bindgen_anon_1.msg_control,
                room: (*self.msg).msg_controllen,
                cut: (*self.msg).msg_flags & bindings::MSG_CTRUNC,
            }
        }
    }

    /// Takes back the control messages that were added since `control` was asked for, of this message.
    pub fn rewind(&mut self, control: &Control) {
        // SAFETY: By the type invariant. These are values that the fields had: what is written there next
        // goes where the last ones went.
        unsafe {
            (*self.msg).__bindgen_anon_1.msg_control = control.place;
            (*self.msg).msg_controllen = control.room;
            (*self.msg).msg_flags &= !bindings::MSG_CTRUNC;
            (*self.msg).msg_flags |= control.cut;
        }
    }

    /// Returns whether received bytes go into pages that the kernel has named, as splice() does it. Buffers
    /// that are registered with io_uring are pages, too, but its recv() asks for what is left.
    pub fn fills_pages(&self) -> bool {
        // SAFETY: By the type invariant.
        let kind = unsafe { (*self.msg).msg_iter.iter_type };
        u32::from(kind) == bindings::iter_type_ITER_BVEC && !self.wants_left()
    }

    /// Returns whether there are control messages in a `sendmsg`, or room for such in a `recvmsg`.
    #[inline]
    pub fn has_control(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { (*self.msg).msg_controllen != 0 }
    }

    /// Returns whether the caller of `recvmsg`, io_uring, is to be told how many bytes are left.
    #[inline]
    pub fn wants_left(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { (*self.msg).msg_get_inq() }
    }

    /// Tells the caller of `recvmsg` how many bytes are left; an end that follows them counts as one.
    #[inline]
    pub fn set_left(&mut self, left: u32) {
        // SAFETY: By the type invariant.
        unsafe { (*self.msg).msg_inq = ffi::c_int::try_from(left).unwrap_or(ffi::c_int::MAX) };
    }

    /// Copies bytes to the receiver.
    ///
    /// # Errors
    ///
    /// `EFAULT` when not all could be copied.
    pub fn put(&mut self, bytes: &[u8]) -> Result {
        if self.dest().copy_to_iter(bytes) == bytes.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Tells the caller of `recvmsg` something, for example that urgent data was read.
    pub fn set_result_flag(&mut self, flag: u32) {
        // SAFETY: By the type invariant.
        unsafe { (*self.msg).msg_flags |= flag };
    }
}

/// `MSG_` and `EPOLL` constants under their C names.
pub mod flags {
    use smc_bindings as bindings;

    /// Do not wait.
    pub const MSG_DONTWAIT: u32 = bindings::MSG_DONTWAIT;
    /// Connect and send in one call.
    pub const MSG_FASTOPEN: u32 = bindings::MSG_FASTOPEN;
    /// Look without taking.
    pub const MSG_PEEK: u32 = bindings::MSG_PEEK;
    /// The bytes are pages, of which references may be kept.
    pub const MSG_SPLICE_PAGES: u32 = bindings::MSG_SPLICE_PAGES;
    /// Tell on the error queue when the bytes are no longer needed.
    pub const MSG_ZEROCOPY: u32 = bindings::MSG_ZEROCOPY;
    /// More will follow.
    pub const MSG_MORE: u32 = bindings::MSG_MORE;
    /// No SIGPIPE.
    pub const MSG_NOSIGNAL: u32 = bindings::MSG_NOSIGNAL;
    /// Return the real length, or discard.
    pub const MSG_TRUNC: u32 = bindings::MSG_TRUNC;
    /// Wait for all.
    pub const MSG_WAITALL: u32 = bindings::MSG_WAITALL;
    /// Urgent data.
    pub const MSG_OOB: u32 = bindings::MSG_OOB;
    /// Read the error queue.
    pub const MSG_ERRQUEUE: u32 = bindings::MSG_ERRQUEUE;
    /// Urgent data.
    pub const EPOLLPRI: u32 = bindings::EPOLLPRI_RAW;
    /// Something can be read.
    pub const EPOLLIN: u32 = bindings::EPOLLIN_RAW;
    /// Normal data can be read.
    pub const EPOLLRDNORM: u32 = bindings::EPOLLRDNORM_RAW;
    /// Something can be written.
    pub const EPOLLOUT: u32 = bindings::EPOLLOUT_RAW;
    /// Normal data can be written.
    pub const EPOLLWRNORM: u32 = bindings::EPOLLWRNORM_RAW;
    /// An error waits.
    pub const EPOLLERR: u32 = bindings::EPOLLERR_RAW;
    /// Both directions are closed.
    pub const EPOLLHUP: u32 = bindings::EPOLLHUP_RAW;
    /// The peer has closed its direction.
    pub const EPOLLRDHUP: u32 = bindings::EPOLLRDHUP_RAW;
}

/// Arguments of `poll`: the file and the table to register on.
pub struct Poll<'a> {
    file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
    _data: PhantomData<&'a ()>,
}

impl Poll<'_> {
    /// # Safety
    ///
    /// The pointers are those of a `poll` operation under way.
    pub(crate) unsafe fn new(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> Self {
        Self {
            file,
            table,
            _data: PhantomData,
        }
    }

    /// Returns whether the caller wants to know of one of these events; others may be told all the same.
    #[inline]
    pub fn wants(&self, events: u32) -> bool {
        // SAFETY: If not null, the caller's table lives during the operation. Without one all events are wanted.
        self.table.is_null() || unsafe { (*self.table)._key } & events != 0
    }

    /// Returns whether the caller is to be woken, and not only told what is there.
    #[inline]
    pub(crate) fn registers(&self) -> bool {
        // SAFETY: If not null, the caller's table lives during the operation. Without a function there
        // is nothing to register by.
        !self.table.is_null() && unsafe { (*self.table)._qproc.is_some() }
    }

    pub(crate) fn file(&self) -> *mut bindings::file {
        self.file
    }

    pub(crate) fn table(&self) -> *mut bindings::poll_table_struct {
        self.table
    }
}

/// Arguments of `splice_read`.
pub struct Splice<'a> {
    pub(crate) pos: *mut bindings::loff_t,
    pub(crate) pipe: *mut kernel::bindings::pipe_inode_info,
    pub(crate) len: usize,
    pub(crate) flags: u32,
    pub(crate) _data: PhantomData<&'a ()>,
}

impl Splice<'_> {
    pub(crate) fn position(&self) -> *mut bindings::loff_t {
        self.pos
    }

    pub(crate) fn pipe(&self) -> *mut kernel::bindings::pipe_inode_info {
        self.pipe
    }

    /// Returns how many bytes are wanted.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the `SPLICE_F_` flags. They concern the pipe; for the socket see
    /// [`BsdSocket::is_nonblocking`](super::socket::BsdSocket::is_nonblocking).
    pub fn flags(&self) -> u32 {
        self.flags
    }
}

/// A socket option to set: level, name and value.
pub struct SetOption<'a> {
    pub(crate) level: i32,
    pub(crate) name: i32,
    pub(crate) value: bindings::sockptr_t,
    pub(crate) len: u32,
    pub(crate) _data: PhantomData<&'a ()>,
}

impl SetOption<'_> {
    /// Returns the level, for example `SOL_SOCKET`.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// Returns the option's number within its level.
    pub fn name(&self) -> i32 {
        self.name
    }

    /// Reads the value as an int.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is shorter than an int, `EFAULT` when it cannot be read.
    pub fn int(&self) -> Result<i32> {
        let mut value = 0i32;
        if (self.len as usize) < size_of::<i32>() {
            return Err(EINVAL);
        }
        // SAFETY: `value` is an int's worth of memory, and the source has at least as many bytes.
        let ret = unsafe {
            bindings::copy_from_sockptr((&raw mut value).cast(), self.value, size_of::<i32>())
        };
        if ret != 0 {
            return Err(EFAULT);
        }
        Ok(value)
    }
}

/// A socket option to get: level, name, and the user's buffer.
pub struct GetOption<'a> {
    pub(crate) level: i32,
    pub(crate) name: i32,
    pub(crate) value: *mut ffi::c_char,
    pub(crate) len: *mut ffi::c_int,
    pub(crate) _data: PhantomData<&'a ()>,
}

impl GetOption<'_> {
    /// Returns the level, for example `SOL_SOCKET`.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// Returns the option's number within its level.
    pub fn name(&self) -> i32 {
        self.name
    }

    /// Changes a number of 64 bits at an offset of the answer, if the answer is that long.
    ///
    /// # Errors
    ///
    /// `EFAULT` when user memory cannot be used.
    pub fn change(&self, at: usize, change: impl FnOnce(u64) -> u64) -> Result {
        let len_ptr = UserPtr::from_ptr(self.len.cast());
        let len: i32 = UserSlice::new(len_ptr, size_of::<i32>()).reader().read()?;
        let end = at.checked_add(size_of::<u64>()).ok_or(EINVAL)?;
        if usize::try_from(len).map_err(|_| EINVAL)? < end {
            return Ok(());
        }
        let place = UserPtr::from_ptr(self.value.wrapping_add(at).cast());
        let number: u64 = UserSlice::new(place, size_of::<u64>()).reader().read()?;
        UserSlice::new(place, size_of::<u64>())
            .writer()
            .write(&change(number))
    }

    /// Reads the beginning of the user's buffer into `bytes`. Returns how much of it the buffer has.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative length, `EFAULT` when user memory cannot be used.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize> {
        let len_ptr = UserPtr::from_ptr(self.len.cast());
        let len: i32 = UserSlice::new(len_ptr, size_of::<i32>()).reader().read()?;
        let len = usize::try_from(len).map_err(|_| EINVAL)?.min(bytes.len());
        if let Some(part) = bytes.get_mut(..len) {
            UserSlice::new(UserPtr::from_ptr(self.value.cast()), len)
                .reader()
                .read_slice(part)?;
        }
        Ok(len)
    }

    /// Copies as much of `bytes` as fits and tells the user how much that is.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative length, `EFAULT` when user memory cannot be used.
    pub fn put(&self, bytes: &[u8]) -> Result {
        let len_ptr = UserPtr::from_ptr(self.len.cast());
        let len: i32 = UserSlice::new(len_ptr, size_of::<i32>()).reader().read()?;
        let len = usize::try_from(len).map_err(|_| EINVAL)?.min(bytes.len());
        let part = bytes.get(..len).unwrap_or(bytes);
        UserSlice::new(UserPtr::from_ptr(self.value.cast()), len)
            .writer()
            .write_slice(part)?;
        UserSlice::new(len_ptr, size_of::<i32>())
            .writer()
            .write(&(len as i32))
    }
}
