// SPDX-License-Identifier: GPL-2.0
//! Checks the wire: the SMC option in SYN and SYN-ACK, byte by byte, where it belongs and
//! nowhere else. The program looks with a packet socket; the other end of the wire is either a
//! packet-level peer that answers as the test says, or (on loopback) the kernel itself.
//!
//! `capture [--family inet,smc] [--ip ..] [PREFIX..]`   `--family tcp` checks that plain TCP never
//! carries the option: then every point about SMC turns into its opposite.

mod client;
mod paths;
mod plain;
mod server;

fn main() {
    st::point::main(&[client::LIST, server::LIST, plain::LIST, paths::LIST], 8);
}
