// SPDX-License-Identifier: GPL-2.0
//! A live test: one SMC connection to a service, and what became of it.

use crate::absent;
use crate::diag::{self, Mode, Socket, State};
use crate::error::{Error, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, sockopt, AddressFamily, Protocol, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const AF_SMC: u16 = 43;
/// `IPPROTO_SMC`, for internet sockets.
const IPPROTO_SMC: u32 = 256;
/// `SMCPROTO_SMC6`, for sockets of `AF_SMC` that are of IPv6; for IPv4 it is 0.
const SMCPROTO_SMC6: u32 = 1;
/// Time for which the kernel's list may still show a new connection as being made.
const SETTLE: Duration = Duration::from_millis(20);

/// Makes an SMC stream socket of the kind an address needs: of `AF_SMC` if there is that, which negotiates SMC before
/// data whatever `net.smc.path` says, and so finds out whether it can be.
///
/// # Errors
/// `NotThere` if the kernel has neither kind of SMC socket.
pub fn socket(address: &SocketAddr, flags: SocketFlags) -> Result<OwnedFd> {
    let (family, smc) = match address {
        SocketAddr::V4(_) => (AddressFamily::INET, None),
        SocketAddr::V6(_) => (AddressFamily::INET6, NonZeroU32::new(SMCPROTO_SMC6)),
    };
    let flags = flags | SocketFlags::CLOEXEC;
    let own = AddressFamily::from_raw(AF_SMC);
    let smc = smc.map(Protocol::from_raw);
    let made = net::socket_with(own, SocketType::STREAM, flags, smc);
    let made = made.or_else(|_| {
        let inet = NonZeroU32::new(IPPROTO_SMC).map(Protocol::from_raw);
        net::socket_with(family, SocketType::STREAM, flags, inet)
    });
    made.map_err(|_| Error::NotThere(absent::line()))
}

/// Connects to a service, sends nothing, and returns how the kernel lists the connection.
///
/// # Errors
/// `NotThere` without SMC; `Io` with the address if there is no such service, or it does not
/// answer in time.
pub fn connect(address: SocketAddr, patience: Duration) -> Result<Socket> {
    let fd = socket(&address, SocketFlags::NONBLOCK)?;
    let failed = |errno: Errno| {
        let error = io::Error::from(errno);
        Error::Io(io::Error::new(error.kind(), format!("{address}: {error}")))
    };
    let end = Instant::now() + patience;
    match net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(failed(errno)),
    }
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
        match poll(&mut polled, Some(&timespec(left))) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
            Ok(0) => return Err(failed(Errno::TIMEDOUT)),
            Ok(_) => break,
        }
    }
    sockopt::socket_error(&fd)
        .and_then(|result| result)
        .map_err(failed)?;
    loop {
        let listed = listed(&fd)?;
        if listed.state != State::INIT && listed.mode != Mode::Undecided {
            return Ok(listed);
        }
        if Instant::now() >= end {
            return Err(failed(Errno::TIMEDOUT));
        }
        std::thread::sleep(SETTLE);
    }
}

/// A socket of this process as the kernel lists it.
///
/// # Errors
/// See [`diag::dump`].
pub fn listed(fd: &OwnedFd) -> Result<Socket> {
    let inode = rustix::fs::fstat(fd).map_err(io::Error::from)?.st_ino;
    let mut sockets = diag::dump()?.into_iter();
    sockets
        .find(|socket| socket.inode == inode)
        .ok_or(Error::Malformed("a socket that is not listed"))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
