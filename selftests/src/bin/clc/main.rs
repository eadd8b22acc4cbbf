// SPDX-License-Identifier: GPL-2.0
//! CLC messages against real sockets, from a packet-level peer that cuts them anywhere, glues them
//! to the program's bytes, stops half way, lies about lengths, or goes away: no byte of CLC may
//! reach the program, none of the program's may be lost, and the listener must go on.
//!
//! `clc [--family inet,smc] [--ip ..] [PREFIX..]`  With `--family tcp` what the peer sends as CLC
//! is ordinary data and must arrive as such: that validates the points.

mod client;
mod listener;
mod server;

fn main() {
    st::point::main(&[client::LIST, server::LIST, listener::LIST], 8);
}
