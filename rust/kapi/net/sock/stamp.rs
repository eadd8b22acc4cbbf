// SPDX-License-Identifier: GPL-2.0

//! `SO_TIMESTAMP`, `SO_TIMESTAMPNS` and their `_NEW` forms: when received bytes have arrived.

use super::Sock;
use crate::net::args::Message;
use core::mem::size_of_val;
use kernel::ffi;
use smc_bindings as bindings;

impl Sock {
    /// Tells whether the program wants to know when bytes arrive. `SO_TIMESTAMPING` does not count.
    #[inline]
    pub fn wants_stamps(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMP)
    }

    /// Adds the control message to `msg`, one of `recvmsg`, that says when its bytes have arrived, in
    /// the form that the program chose; `nanos`: nanoseconds since 1970. Where there is no room for
    /// it, `MSG_CTRUNC` says so.
    #[cold]
    pub fn put_stamp(&self, msg: &mut Message<'_>, nanos: u64) {
        let second = u64::from(bindings::NSEC_PER_SEC);
        let (whole, rest) = (nanos / second, nanos % second);
        let new = self.has_flag(bindings::sock_flags_SOCK_TSTAMP_NEW);
        let (kind, rest) = match (self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMPNS), new) {
            (true, true) => (bindings::SO_TIMESTAMPNS_NEW, rest),
            (true, false) => (bindings::SO_TIMESTAMPNS_OLD, rest),
            (false, true) => (bindings::SO_TIMESTAMP_NEW, rest / 1000),
            (false, false) => (bindings::SO_TIMESTAMP_OLD, rest / 1000),
        };
        // On a 64-bit machine all four are seconds and a fraction, of eight bytes each.
        let mut stamp = [whole, rest];
        // SAFETY: The message is valid and ours; the data is as long as it is said to be and is only
        // copied. A program of 32 bits is `put_cmsg`'s to care for.
        unsafe {
            bindings::put_cmsg(
                msg.as_ptr(),
                bindings::SOL_SOCKET as ffi::c_int,
                kind as ffi::c_int,
                size_of_val(&stamp) as ffi::c_int,
                stamp.as_mut_ptr().cast(),
            );
        }
    }
}
