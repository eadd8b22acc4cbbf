// SPDX-License-Identifier: GPL-2.0
//! Asks `sock_diag` for sockets of the family, by `linux/smc_diag.h` alone: the same question to
//! either module.

use crate::errno::{cvt, Errno, R};
use crate::family::AF_SMC;
use crate::netlink::{attributes, word, Attribute, Netlink};

/// Length of `struct smc_diag_req`.
const REQUEST: usize = 52;
/// Length of `struct smc_diag_msg`.
const MESSAGE: usize = 64;

/// A socket as it is listed.
pub struct Socket {
    /// The fixed part.
    pub fixed: Vec<u8>,
    /// The attributes after it.
    pub attributes: Vec<Attribute>,
}

/// All sockets of the calling thread's network namespace, in the order of the dump, with their
/// inodes; with these extensions, and these flags in the request besides `NLM_F_REQUEST`.
///
/// # Errors
///
/// The kernel's answer, or `EBADMSG` for one that makes no sense.
pub fn all(extensions: u8, flags: i32) -> R<Vec<(u64, Socket)>> {
    const BY_FAMILY: u16 = 20;
    let mut request = vec![AF_SMC as u8, 0, 0, extensions];
    request.resize(REQUEST, 0);
    let netlink = Netlink::open(libc::NETLINK_SOCK_DIAG)?;
    let messages = netlink.ask_so(BY_FAMILY, flags, 1 << 16, &request)?;
    let socket = |m: Vec<u8>| {
        let inode = u64::from(word(&m, 56)?) | (u64::from(word(&m, 60)?) << 32);
        let (fixed, rest) = m.split_at_checked(MESSAGE).ok_or(Errno(libc::EBADMSG))?;
        let (fixed, attributes) = (fixed.to_vec(), attributes(rest)?);
        Ok((inode, Socket { fixed, attributes }))
    };
    messages.into_iter().map(socket).collect()
}

/// The inode of a file.
///
/// # Errors
///
/// The kernel's.
pub fn inode(fd: i32) -> R<u64> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    cvt(unsafe { libc::fstat(fd, &mut s) }.into())?;
    Ok(s.st_ino)
}

/// `diag_mode` of a socket in the calling thread's network namespace: 0 SMC-R, 1 TCP, 2 SMC-D;
/// `None` if no socket of the family has its inode.
///
/// # Errors
///
/// As [`all`].
pub fn mode(fd: i32) -> R<Option<u8>> {
    let wanted = inode(fd)?;
    let sockets = all(0, libc::NLM_F_DUMP)?;
    let found = sockets.iter().find(|s| s.0 == wanted);
    Ok(found.map(|s| s.1.fixed[2]))
}
