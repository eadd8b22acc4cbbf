// SPDX-License-Identifier: GPL-2.0
//! Asks `sock_diag` for a socket of the family, by `linux/smc_diag.h` alone: the same question
//! to either module.

use crate::errno::{cvt, Errno, R};
use crate::sys;

/// Length of a netlink header.
const HEADER: usize = 16;
/// Length of `struct smc_diag_msg`.
const MESSAGE: usize = 64;

fn request() -> Vec<u8> {
    let mut m = Vec::new();
    m.extend((HEADER as u32 + 56).to_ne_bytes());
    m.extend(20u16.to_ne_bytes()); // SOCK_DIAG_BY_FAMILY
    m.extend((libc::NLM_F_REQUEST as u16 | libc::NLM_F_DUMP as u16).to_ne_bytes());
    m.extend([0; 8]);
    m.push(43); // AF_SMC
    m.resize(HEADER + 56, 0);
    m
}

fn inode(fd: i32) -> R<u64> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    cvt(unsafe { libc::fstat(fd, &mut s) }.into())?;
    Ok(s.st_ino)
}

/// `diag_mode` of a socket in the calling thread's network namespace: 0 SMC-R, 1 TCP, 2 SMC-D;
/// `None` if no socket of the family has its inode.
pub fn mode(fd: i32) -> R<Option<u8>> {
    let wanted = inode(fd)?;
    let s = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)?;
    sys::send(s.raw(), &request(), 0)?;
    let mut found = None;
    loop {
        let data = sys::recv_vec(s.raw(), 1 << 16, 0)?;
        let mut rest = &data[..];
        while rest.len() >= HEADER {
            let word = |at: usize| {
                u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
            };
            let (length, kind) = (word(0) as usize, word(4) as u16);
            if i32::from(kind) == libc::NLMSG_DONE {
                return Ok(found);
            }
            if i32::from(kind) == libc::NLMSG_ERROR || length < HEADER || length > rest.len() {
                return Err(Errno(libc::EPROTO));
            }
            if length >= HEADER + MESSAGE {
                let low = u64::from(word(HEADER + 56));
                if low | (u64::from(word(HEADER + 60)) << 32) == wanted {
                    found = Some(rest[HEADER + 2]);
                }
            }
            rest = &rest[rest.len().min((length + 3) & !3)..];
        }
    }
}
