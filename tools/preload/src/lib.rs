// SPDX-License-Identifier: GPL-2.0
//! `librsmc_preload.so`: makes the TCP stream sockets of an unmodified program SMC sockets.
//!
//! Loaded with `LD_PRELOAD` (normally by `rsmc run`), it overrides exactly one C library function,
//! `socket()`. Everything else a program does with the descriptor goes straight to the kernel.
//!
//! Contents: the decision which calls to rewrite ([`decide`]), the settings taken from the
//! environment ([`config`]), a short memory that SMC is absent ([`absence`]), debug lines ([`report`]) and the few system calls (`sys`).
//! Not allowed here: allocation, locks, `dlsym`, anything of `std`, or any panic. `socket()` may be
//! called from a signal handler, between `fork` and `exec`, by many threads at once, and by
//! another library's constructor before ours has run.
//!
//! # Environment
//! | variable | values | meaning |
//! | --- | --- | --- |
//! | `RSMC_FAMILY` | `inet` (default), `smc`, `off` | which kind of SMC socket to make |
//! | `RSMC_STRICT` | `1` | no TCP: neither here nor after the handshake |
//! | `RSMC_DEBUG` | `1` | one line on standard error for each call that was looked at |
//! | `RSMC_SNDBUF`, `RSMC_RCVBUF` | bytes, `k`/`m` suffix | `SO_SNDBUF`, `SO_RCVBUF` of each new SMC socket |
//!
//! The variables are read once, when the library is loaded: a program that wipes its environment
//! later (nginx does) keeps its sockets.
#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]

// Only for its panic handler; nothing of it is used (and nothing here can panic).
#[cfg(not(test))]
extern crate std as _;

pub mod absence;
pub mod config;
pub mod decide;
pub mod report;
mod sys;

use config::Config;
use decide::Request;
use libc::c_int;

/// The C library's `socket()`, with TCP stream sockets made as SMC sockets where the kernel can.
///
/// Same arguments, same return value and `errno` as socket(2). On success `errno` is left as it was.
///
/// # Safety
/// None of its own: it takes three integers. It is `unsafe extern "C"` by convention of the symbol.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let wanted = Request {
        domain,
        kind,
        protocol,
    };
    match sys::run(wanted, &Config::current()) {
        Ok(fd) => fd,
        Err(errno) => {
            sys::set_errno(errno);
            -1
        }
    }
}
