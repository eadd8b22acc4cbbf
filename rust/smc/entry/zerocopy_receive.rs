// SPDX-License-Identifier: GPL-2.0

//! `TCP_ZEROCOPY_RECEIVE` on a socket whose bytes are in no page of TCP's.
//!
//! The answer is the one that TCP gives when what is next cannot be mapped: nothing was, and this number of bytes is
//! to be read by recvmsg(). Programs have to expect it, as bytes come in pages only by luck.

use kapi::net::{
    args::GetOption,
    uapi::tcp_zerocopy_receive::{
        COPYBUF_LEN,
        ERR,
        INQ,
        LENGTH,
        MSG_FLAGS,
        SIZE,
        SKIP_HINT, //
    }, //
};
use kernel::{page::PAGE_SIZE, prelude::*};

/// Answers that `there` bytes can be read; `ended` says that no others will follow.
///
/// # Errors
///
/// `EINVAL` for an address that no page begins at, or too little room for the answer; `EIO` at the end of the
/// stream; `EFAULT`.
pub(super) fn get(option: &GetOption<'_>, there: usize, ended: bool) -> Result {
    let mut fields = [0; SIZE];
    // The oldest form ends with the hint.
    if option.read(&mut fields)? < SKIP_HINT {
        return Err(EINVAL);
    }
    // The address comes first.
    let address = fields.first_chunk().map_or(0, |a| u64::from_ne_bytes(*a));
    if address % PAGE_SIZE as u64 != 0 {
        return Err(EINVAL);
    }
    if there == 0 && ended {
        return Err(EIO);
    }
    let there = u32::try_from(there).unwrap_or(u32::MAX);
    for (at, value) in [
        (LENGTH, 0),
        (SKIP_HINT, there),
        (INQ, there),
        (ERR, 0),
        (COPYBUF_LEN, 0),
        (MSG_FLAGS, 0),
    ] {
        if let Some(field) = fields.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *field = value.to_ne_bytes();
        }
    }
    option.put(&fields)
}
