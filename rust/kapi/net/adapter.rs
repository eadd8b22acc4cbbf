// SPDX-License-Identifier: GPL-2.0

//! The C side of [`Overlay`]: one trampoline for each operation.

mod data;
mod readers;

use data::{closing, Slot};

use crate::{
    errno,
    net::{
        args::{Addr, GetOption, Message, Poll, SetOption, Splice},
        overlay::{Handled, HasTied, Overlay},
        socket::{BsdSocket, OwnedBsdSocket},
        stock::{creators, syn, tables}, //
    }, //
};
use core::{marker::PhantomData, ptr};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable,
    uaccess::{UserPtr, UserSlice}, //
};
use smc_bindings as bindings;

pub(crate) struct Adapter<T: Overlay>(PhantomData<T>);

// "An operation runs on an open socket" means here and in `data`: TCP's release has not returned. The
// file may be closed by then: sockmap's worker sends with nothing but a reference to its psock, and
// is waited for by `sock_map_close`, within TCP's release. So `sk` and what hangs in the private
// pointer live until that has returned; see `release`.
impl<T: Overlay> Adapter<T> {
    /// # Safety
    ///
    /// Called by the kernel alone. The core calls it once for a socket, when its last file has
    /// gone: no system call runs on it any more. What finds the socket by its locked sock may run
    /// until TCP's release has taken it from there.
    unsafe extern "C" fn release(sock: *mut bindings::socket) -> ffi::c_int {
        // SAFETY: The core calls release once, on a socket whose last file reference has gone.
        let socket = unsafe { BsdSocket::from_raw(sock) };
        // SAFETY: `sk` is null only when creation failed before TCP gave one.
        if unsafe { (*sock).sk.is_null() } {
            return 0;
        }
        let native = tables::native(socket.sock().family());
        // No data is hung there from now on.
        // SAFETY: The socket is part of a `socket_alloc`.
        let raw = unsafe { bindings::socket_private_xchg(sock, closing()) };
        // SAFETY: Taken out just now.
        let rest = if let Slot::Filled(data) = unsafe { Self::interpret(raw) } {
            // `reclaim` leaves it alone from now on.
            data.tied().end();
            T::release(&data, socket)
        } else {
            creators::disown(socket);
            None
        };
        creators::count(socket, -1);
        syn::end(socket.sock());
        // SAFETY: The wait queue ends with the socket; hooks on it must leave.
        unsafe { bindings::wake_up_pollfree(sock) };
        let taken = rest.is_some_and(|rest| {
            // SAFETY: The socket has a sock, and is being released: its last file has gone, and the hooks on it have left.
            let socket = unsafe { OwnedBsdSocket::take_over(sock) };
            let taken = socket.is_ok();
            T::goes_on(rest, socket.ok());
            taken
        });
        let ret = match native.release {
            Some(release) if !taken => {
                // One that goes on stays claimed until it is closed: what its TCP brings is not a sockmap's.
                socket.sock().release_stream();
                // SAFETY: TCP's release, called once.
                unsafe { release(sock) }
            }
            _ => 0,
        };
        if !raw.is_null() {
            // SAFETY: The pointer comes from `attach` (release runs once, so it was not the mark of
            // an earlier one), and is taken back only here. No operation runs any more that could
            // have seen it.
            drop(unsafe { <Arc<T::Data> as ForeignOwnable>::from_foreign(raw) });
        }
        ret
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `addr` a kernel copy of `len` bytes.
    unsafe extern "C" fn connect(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: ffi::c_int,
        flags: ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            // SAFETY: The core passes a kernel copy of `len` bytes in a `sockaddr_storage`.
            let addr = unsafe { Addr::new(addr, len) };
            T::connect(&*Self::data(socket)?, socket, &addr, flags)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `addr` a kernel copy of `len` bytes.
    unsafe extern "C" fn bind(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            let native = tables::native(socket.sock().family()).bind.ok_or(EINVAL)?;
            // SAFETY: TCP's function with the arguments it would have had.
            to_result(unsafe { native(sock, addr, len) })?;
            // A first use, of which others see the address. Without memory they do at the next.
            let _ = Self::data(socket);
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began.
    unsafe extern "C" fn listen(sock: *mut bindings::socket, backlog: ffi::c_int) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            T::listen(&*Self::data(socket)?, socket, backlog)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, `new` one that the caller has just allocated and that has no `sk`, and `arg` is
    /// valid.
    unsafe extern "C" fn accept(
        sock: *mut bindings::socket,
        new: *mut bindings::socket,
        arg: *mut kernel::bindings::proto_accept_arg,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The sockets are open during an operation; the new one has no `sk` yet, which
            // `Overlay::accept` can only change through `BsdSocket::adopt`.
            let (socket, new) = unsafe { (BsdSocket::from_raw(sock), BsdSocket::from_raw(new)) };
            let arg: *mut bindings::proto_accept_arg = arg.cast();
            // SAFETY: The core passes a valid argument.
            let nonblock = unsafe { (*arg).flags } as u32 & bindings::O_NONBLOCK != 0;
            // `kernel_accept` gives the new socket its table only afterwards; what it is shows before. On
            // an error it must find none: with one it would give back a reference to the module that
            // it has not taken.
            // SAFETY: The new socket is open, and until `accept` below nobody but this call has it.
            let lent = unsafe { (*new.as_ptr()).ops.is_null() };
            if lent {
                // SAFETY: Both sockets are open, and nobody else has the new one. The listener's table lies in a
                // module that the listener keeps loaded.
                unsafe {
                    let ops = ptr::read_volatile(&raw const (*sock).ops);
                    bindings::socket_set_ops(new.as_ptr(), ops);
                }
            }
            let accepted =
                Self::data(socket).and_then(|data| T::accept(&data, socket, new, nonblock));
            if lent && accepted.is_err() {
                // SAFETY: The new socket is open. Without a connection nobody else has seen it.
                unsafe { bindings::socket_set_ops(new.as_ptr(), ptr::null()) };
            }
            let data = accepted?;
            creators::count(new, 1);
            Self::attach(new, data)?;
            // accept() has a zero here and does not look at it. io_uring has not.
            // SAFETY: The core's argument stays valid, and is this call's alone, until the call returns.
            if unsafe { (*arg).is_empty } != 0 {
                let more = Self::existing(socket).is_some_and(|data| T::accepts_more(&data));
                // SAFETY: The core's argument stays valid, and is this call's alone, until the call returns.
                unsafe { (*arg).is_empty = ffi::c_int::from(!more) };
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began; `file` is its file or null, `table` is null or the caller's.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        sock: *mut bindings::socket,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The socket is open during an operation.
        let socket = unsafe { BsdSocket::from_raw(sock) };
        // SAFETY: The arguments of a poll under way.
        let poll = unsafe { Poll::new(file, table) };
        match Self::existing(socket) {
            Some(data) => T::poll(&data, socket, &poll),
            // Not used yet: nothing distinguishes it from a TCP socket.
            None => socket.native_poll(&poll),
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began.
    unsafe extern "C" fn shutdown(sock: *mut bindings::socket, how: ffi::c_int) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            match Self::existing(socket) {
                Some(data) => T::shutdown(&data, socket, how)?,
                None => socket.native_shutdown(how)?,
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began; `arg` is the program's.
    unsafe extern "C" fn ioctl(
        sock: *mut bindings::socket,
        command: ffi::c_uint,
        arg: ffi::c_ulong,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            if let Some(data) = Self::existing(socket) {
                if let Some(answer) = T::ioctl(&data, socket, command)? {
                    UserSlice::new(UserPtr::from_addr(arg), core::mem::size_of::<i32>())
                        .writer()
                        .write(&answer)?;
                    return Ok(0);
                }
            }
            let native = tables::native(socket.sock().family()).ioctl.ok_or(ENOTTY)?;
            // SAFETY: TCP's function with the arguments it would have had.
            Ok(unsafe { native(sock, command, arg) })
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `msg` a message of `len` bytes that is the caller's for this call.
    unsafe extern "C" fn sendmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            // SAFETY: The message is the caller's, for this call.
            let mut msg = unsafe { Message::new(msg, len, (*msg).msg_flags as ffi::c_int) };
            let sent = T::sendmsg(&*Self::data(socket)?, socket, &mut msg)?;
            Ok(sent as ffi::c_int)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `msg` a message of `len` bytes that is the caller's for this call.
    unsafe extern "C" fn recvmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            // SAFETY: The message is the caller's, for this call.
            let mut msg = unsafe { Message::new(msg, len, flags) };
            let received = T::recvmsg(&*Self::data(socket)?, socket, &mut msg)?;
            Ok(received as ffi::c_int)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `name` has room for a `sockaddr_storage`.
    unsafe extern "C" fn getname(
        sock: *mut bindings::socket,
        name: *mut bindings::sockaddr,
        peer: ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            // Some in the kernel ask with 2 for a peer that may be gone.
            if peer == 1 && Self::existing(socket).is_some_and(|data| !T::has_peer(&data)) {
                return Err(errno::ENOTCONN.into());
            }
            let native = tables::native(socket.sock().family())
                .getname
                .ok_or(EINVAL)?;
            // SAFETY: TCP's function with the arguments it would have had.
            Ok(unsafe { native(sock, name, peer) })
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began; `pos` and `pipe` are the caller's.
    unsafe extern "C" fn splice_read(
        sock: *mut bindings::socket,
        pos: *mut bindings::loff_t,
        pipe: *mut kernel::bindings::pipe_inode_info,
        len: usize,
        flags: ffi::c_uint,
    ) -> isize {
        // SAFETY: The socket is open during an operation.
        let socket = unsafe { BsdSocket::from_raw(sock) };
        let mut splice = Splice {
            pos,
            pipe,
            len,
            flags,
            _data: PhantomData,
        };
        let result = Self::data(socket).and_then(|data| T::splice(&data, socket, &mut splice));
        match result {
            Ok(moved) => moved as isize,
            Err(err) => err.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began.
    unsafe extern "C" fn splice_eof(sock: *mut bindings::socket) {
        // SAFETY: The socket is open during an operation.
        let socket = unsafe { BsdSocket::from_raw(sock) };
        if Self::existing(socket).is_some_and(|data| T::splice_ended(&data)) {
            return;
        }
        if let Some(native) = tables::native(socket.sock().family()).splice_eof {
            // SAFETY: TCP's function with the arguments it would have had.
            unsafe { native(sock) };
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began, and `value` has `len` bytes, of the program or of the kernel as it says itself.
    unsafe extern "C" fn setsockopt(
        sock: *mut bindings::socket,
        level: ffi::c_int,
        name: ffi::c_int,
        value: bindings::sockptr_t,
        len: ffi::c_uint,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            let option = SetOption {
                level,
                name,
                value,
                len,
                _data: PhantomData,
            };
            match T::set_option(&*Self::data(socket)?, socket, &option)? {
                Handled::Done => return Ok(0),
                Handled::Native => (),
                Handled::Leave => Self::give_back(socket),
            }
            let native = tables::native(socket.sock().family())
                .setsockopt
                .ok_or(EINVAL)?;
            // SAFETY: TCP's function with the arguments it would have had.
            Ok(unsafe { native(sock, level, name, value, len) })
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sock` is an open socket that had this operations table when the
    /// call began; `value` and `len` are the program's.
    unsafe extern "C" fn getsockopt(
        sock: *mut bindings::socket,
        level: ffi::c_int,
        name: ffi::c_int,
        value: *mut ffi::c_char,
        len: *mut ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: The socket is open during an operation.
            let socket = unsafe { BsdSocket::from_raw(sock) };
            let option = GetOption {
                level,
                name,
                value,
                len,
                _data: PhantomData,
            };
            match T::get_option(&*Self::data(socket)?, socket, &option)? {
                Handled::Done => (),
                Handled::Native | Handled::Leave => socket.native_getsockopt(&option)?,
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sk` is locked, and its `struct socket`, by which this function
    /// was found, has not been taken from it.
    unsafe extern "C" fn set_rcvlowat(
        sk: *mut kernel::bindings::sock,
        value: ffi::c_int,
    ) -> ffi::c_int {
        from_result(|| {
            let full: *mut bindings::sock = sk.cast();
            // SAFETY: The caller has the socket locked and found this function by its `struct
            // socket`. close() takes that away, and what hangs in it, under the lock only.
            let socket = unsafe { BsdSocket::from_raw((*full).sk_socket) };
            let native = tables::native(socket.sock().family())
                .set_rcvlowat
                .ok_or(EINVAL)?;
            // SAFETY: TCP's function with the arguments it would have had.
            to_result(unsafe { native(sk, value) })?;
            if let Some(data) = Self::existing(socket) {
                T::low_water_changed(&data);
            }
            Ok(0)
        })
    }

    /// Fills the operations tables with the entries of this adapter; `owner` is the module.
    ///
    /// # Safety
    ///
    /// As [`tables::fill`].
    pub(crate) unsafe fn fill(owner: *mut bindings::module) {
        // SAFETY: The caller's promise.
        unsafe {
            tables::fill(
                |family| Self::active(family, owner),
                |family| Self::passive(family, owner),
            );
        }
    }

    fn passive(family: u16, owner: *mut bindings::module) -> bindings::proto_ops {
        bindings::proto_ops {
            owner,
            release: Some(Self::release),
            accept: Some(Self::accept),
            setsockopt: Some(Self::setsockopt),
            getsockopt: Some(Self::getsockopt),
            ..*tables::native(family)
        }
    }

    fn active(family: u16, owner: *mut bindings::module) -> bindings::proto_ops {
        bindings::proto_ops {
            bind: Some(Self::bind),
            connect: Some(Self::connect),
            listen: Some(Self::listen),
            getname: Some(Self::getname),
            poll: Some(Self::poll),
            ioctl: Some(Self::ioctl),
            shutdown: Some(Self::shutdown),
            sendmsg: Some(Self::sendmsg),
            recvmsg: Some(Self::recvmsg),
            splice_read: Some(Self::splice_read),
            splice_eof: Some(Self::splice_eof),
            set_rcvlowat: Some(Self::set_rcvlowat),
            read_sock: Some(Self::read_sock),
            read_skb: Some(Self::read_skb),
            sendmsg_locked: None,
            ..Self::passive(family, owner)
        }
    }
}
