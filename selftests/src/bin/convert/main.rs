// SPDX-License-Identifier: GPL-2.0
//! `net.smc.tcp2smc`: sockets of programs that ask for TCP and get SMC.
//!
//! `convert --family tcp [--ip v4,v6] [PREFIX..]`, or `convert unload`

mod auto;
mod policy;
mod sockets;
mod unload;
mod writers;

use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::{net, smcinfo, sys};

/// The sysctl.
const TCP2SMC: &str = "net.smc.tcp2smc";

/// Sets the sysctl in the current namespace, or says that this kernel cannot convert sockets.
fn turn(value: u32) {
    if let Err(e) = net::sysctl(TCP2SMC, &value.to_string()) {
        println!("skip: {TCP2SMC}: {e}");
        std::process::exit(1);
    }
}

fn domain(ip: Ip) -> i32 {
    match ip {
        Ip::V4 => libc::AF_INET,
        _ => libc::AF_INET6,
    }
}

/// A socket as a program that knows nothing of SMC makes it.
fn plain(ip: Ip) -> Fd {
    sys::socket(domain(ip), libc::SOCK_STREAM, 0).expect("socket")
}

/// Whether a socket is one of the family.
fn is_smc(fd: &Fd) -> bool {
    match smcinfo::info(fd.raw()) {
        Ok(_) => true,
        Err(Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => false,
        Err(e) => panic!("RSMC_INFO: {e}"),
    }
}

fn main() {
    if st::args::Args::get()
        .words
        .first()
        .is_some_and(|word| word == "unload")
    {
        std::process::exit(unload::main());
    }
    st::point::main(&[sockets::LIST, policy::LIST, auto::LIST, writers::LIST], 1)
}
