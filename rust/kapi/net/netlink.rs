// SPDX-License-Identifier: GPL-2.0

//! Netlink messages: reading the attributes of a request, writing those of an answer.
//!
//! C header: [`include/net/netlink.h`](srctree/include/net/netlink.h)

use crate::net::{netns::Net, sock::Sock};
use core::{marker::PhantomData, ptr};
use kernel::{error::to_result, ffi, prelude::*};
use smc_bindings as bindings;

/// Length of an attribute's header.
const HEADER: usize = 4;

/// Position of a dump, kept between the pieces of it. All zero at the beginning.
pub type Position = [u64; 6];

/// The attributes of a request, as they came from user space.
#[derive(Clone, Copy)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the contents of the last attribute of type `kind`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when a length does not fit.
    pub fn get(&self, kind: u16) -> Result<Option<&'a [u8]>> {
        let mut found = None;
        let mut rest = *self;
        while let Some((it, contents)) = rest.take()? {
            if it == kind {
                found = Some(contents);
            }
        }
        Ok(found)
    }

    /// Returns the attributes that are the contents of one.
    pub fn nested(contents: &'a [u8]) -> Self {
        Self(contents)
    }

    /// Takes the first attribute; `None` at the end.
    ///
    /// # Errors
    ///
    /// `EINVAL` when its length does not fit.
    pub fn take(&mut self) -> Result<Option<(u16, &'a [u8])>> {
        let Some([a, b, c, d]) = self.0.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_ne_bytes([*a, *b]));
        let contents = self.0.get(HEADER..len).ok_or(EINVAL)?;
        let kind = u16::from_ne_bytes([*c, *d]) & bindings::NLA_TYPE_MASK as u16;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Ok(Some((kind, contents)))
    }

    /// As [`Attributes::get`], without the NUL byte that ends a string and what follows it.
    ///
    /// # Errors
    ///
    /// `EINVAL` when a length does not fit, `ERANGE` when the string has more than `max` bytes.
    pub fn string(&self, kind: u16, max: usize) -> Result<Option<&'a [u8]>> {
        let Some(bytes) = self.get(kind)? else {
            return Ok(None);
        };
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        if end > max {
            return Err(ERANGE);
        }
        Ok(bytes.get(..end))
    }
}

/// An answer under way: a buffer that takes messages until it is full.
pub struct Answer<'a> {
    skb: *mut bindings::sk_buff,
    /// The request.
    request: *const bindings::sk_buff,
    portid: u32,
    seq: u32,
    /// The type of the messages.
    kind: u16,
    flags: u16,
    /// Header of each message in generic netlink, `command` and `version`.
    generic: Option<[u8; 4]>,
    /// True once there is a message in it.
    used: bool,
    _data: PhantomData<&'a mut ()>,
}

impl Answer<'_> {
    /// # Safety
    ///
    /// `skb` can be written to, and `request` read, by this thread for as long as this lives.
    pub(crate) unsafe fn new(
        skb: *mut bindings::sk_buff,
        request: *const bindings::sk_buff,
        nlh: &bindings::nlmsghdr,
        generic: Option<[u8; 4]>,
    ) -> Self {
        Self {
            skb,
            request,
            // SAFETY: The caller's promise; a netlink message has its control block.
            portid: unsafe { bindings::netlink_portid(request) },
            seq: nlh.nlmsg_seq,
            kind: nlh.nlmsg_type,
            flags: bindings::NLM_F_MULTI as u16,
            generic,
            used: false,
            _data: PhantomData,
        }
    }

    /// Says, in generic netlink, which command's answer the next messages are, where that is not
    /// the request's.
    pub fn answers(&mut self, command: u8) {
        if let Some([named, ..]) = &mut self.generic {
            *named = command;
        }
    }

    /// Begins a message with a fixed part.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when it does not fit any more; a dump returns that and is called again.
    pub fn message(&mut self, fixed: &[u8]) -> Result<Message<'_>> {
        let generic = self.generic.as_ref().map_or(&[][..], |header| header);
        let kind = self.kind;
        // SAFETY: See `put`.
        let nlh = unsafe { self.put(kind, &[generic, fixed]) }?;
        Ok(Message {
            skb: self.skb,
            nlh,
            used: &mut self.used,
        })
    }

    /// Writes the message that ends an answer of several.
    pub(crate) fn done(&mut self) -> Result {
        let kind = bindings::NLMSG_DONE as u16;
        // SAFETY: See `put`.
        let nlh = unsafe { self.put(kind, &[&0u32.to_ne_bytes()]) }?;
        // SAFETY: The message was begun above.
        unsafe { bindings::nlmsg_end(self.skb, nlh) };
        Ok(())
    }

    /// # Safety
    ///
    /// None but that the result is a message under way, which must be ended or cancelled first.
    unsafe fn put(&self, kind: u16, parts: &[&[u8]]) -> Result<*mut bindings::nlmsghdr> {
        let len = parts
            .iter()
            .fold(0usize, |sum, part| sum.saturating_add(part.len()));
        // SAFETY: The buffer can be written to; the function checks that there is room.
        let nlh = unsafe {
            bindings::nlmsg_put(
                self.skb,
                self.portid,
                self.seq,
                ffi::c_int::from(kind),
                ffi::c_int::try_from(len).map_err(|_| EMSGSIZE)?,
                ffi::c_int::from(self.flags),
            )
        };
        if nlh.is_null() {
            return Err(EMSGSIZE);
        }
        // SAFETY: `len` bytes of payload follow the header, which is a multiple of 4 long.
        let mut to = unsafe { nlh.add(1).cast::<u8>() };
        for part in parts {
            // SAFETY: There is room for `len` bytes, and the parts are `len` bytes together.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        Ok(nlh)
    }

    /// Returns the id of a socket's owner, as the asker's user namespace knows it.
    pub fn uid(&self, sock: &Sock) -> u32 {
        // SAFETY: The sock is valid, and the request is a message from a netlink socket, which
        // lives while its message is answered.
        unsafe { bindings::sk_uid_for(sock.as_ptr(), self.request) }
    }

    /// Returns whether the asker has `CAP_NET_ADMIN` in the initial user namespace, and had it when it opened the
    /// netlink socket.
    pub fn is_for_admin(&self) -> bool {
        // SAFETY: The request is a message from a netlink socket and lives while it is answered; this
        // is process context, in the task that asks.
        unsafe { bindings::netlink_asks_as_admin(self.request) }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.used
    }
}

/// Runs `fill` for one piece of a dump.
///
/// # Safety
///
/// The arguments are those of a dump callback.
pub(crate) unsafe fn piece(
    skb: *mut bindings::sk_buff,
    cb: *mut bindings::netlink_callback,
    generic: Option<[u8; 4]>,
    fill: impl FnOnce(&Net, &mut Position, &mut Answer<'_>) -> Result,
) -> ffi::c_int {
    // SAFETY: The caller's promise: `cb` is ours during the call, and `args` is what the union was
    // zeroed as and what this function alone writes. The buffer belongs to the netlink socket that
    // is read from, which holds its namespace.
    let (net, args, mut answer) = unsafe {
        (
            Net::from_raw(bindings::sock_net((*skb).sk.cast())),
            &mut (*cb).__bindgen_anon_1.args,
            Answer::new(skb, (*cb).skb, &*(*cb).nlh, generic),
        )
    };
    let mut position = Position::default();
    for (to, from) in position.iter_mut().zip(args.iter()) {
        *to = *from as u64;
    }
    let result = fill(net, &mut position, &mut answer);
    for (to, from) in args.iter_mut().zip(position) {
        *to = from as ffi::c_long;
    }
    match result {
        Err(err) if !answer.is_used() => err.to_errno(),
        // SAFETY: The buffer is valid.
        _ => unsafe { (*skb).len as ffi::c_int },
    }
}

/// A message being written. Dropping it without [`Message::end`] takes it back.
pub struct Message<'a> {
    skb: *mut bindings::sk_buff,
    nlh: *mut bindings::nlmsghdr,
    used: &'a mut bool,
}

impl Message<'_> {
    /// Adds an attribute.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when it does not fit any more.
    pub fn put(&mut self, kind: u16, contents: &[u8]) -> Result {
        let len = ffi::c_int::try_from(contents.len()).map_err(|_| EMSGSIZE)?;
        // SAFETY: The buffer is ours, and the function checks that there is room.
        to_result(unsafe {
            bindings::nla_put(
                self.skb,
                ffi::c_int::from(kind),
                len,
                contents.as_ptr().cast(),
            )
        })
    }

    /// Adds a string with the NUL byte that belongs to it.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when it does not fit any more, or has more than 255 bytes.
    pub fn put_string(&mut self, kind: u16, text: &[u8]) -> Result {
        let mut bytes = [0; 256];
        let len = text.len();
        if len >= bytes.len() {
            return Err(EMSGSIZE);
        }
        for (to, from) in bytes.iter_mut().zip(text) {
            *to = *from;
        }
        self.put(kind, bytes.get(..=len).unwrap_or(&[]))
    }

    /// Adds a number of 64 bits, aligned by an attribute of type `pad` if need be.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when it does not fit any more.
    pub fn put_u64(&mut self, kind: u16, number: u64, pad: u16) -> Result {
        // SAFETY: The buffer can be written to; the function checks that there is room, and reads the
        // eight bytes of `number`.
        to_result(unsafe {
            bindings::nla_put_64bit(
                self.skb,
                ffi::c_int::from(kind),
                size_of::<u64>() as ffi::c_int,
                ptr::from_ref(&number).cast(),
                ffi::c_int::from(pad),
            )
        })
    }

    /// Adds a number in four bytes, or in eight if it needs them (`nla_put_uint`).
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` when it does not fit any more.
    pub fn put_uint(&mut self, kind: u16, number: u64) -> Result {
        match u32::try_from(number) {
            Ok(number) => self.put(kind, &number.to_ne_bytes()),
            Err(_) => self.put(kind, &number.to_ne_bytes()),
        }
    }

    /// Adds an attribute that holds what `fill` adds.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`; those of `fill`. The message is then of no use any more.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self) -> Result) -> Result {
        // SAFETY: The buffer can be written to; the function checks that there is room.
        let start = unsafe { bindings::nla_nest_start(self.skb, ffi::c_int::from(kind)) };
        if start.is_null() {
            return Err(EMSGSIZE);
        }
        fill(self)?;
        // SAFETY: `start` is in the buffer, which has not been moved.
        unsafe { bindings::nla_nest_end(self.skb, start) };
        Ok(())
    }

    /// Finishes the message.
    pub fn end(self) {
        // SAFETY: The message was begun in this buffer.
        unsafe { bindings::nlmsg_end(self.skb, self.nlh) };
        *self.used = true;
        core::mem::forget(self);
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // SAFETY: The message was begun in this buffer, and it is the last one there.
        unsafe { bindings::nlmsg_cancel(self.skb, self.nlh) };
    }
}
