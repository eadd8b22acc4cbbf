// SPDX-License-Identifier: GPL-2.0

//! The stream of a connection whose two ends are in this kernel.
//!
//! It begins as plain TCP. When both ends have met ([`rendezvous`]) each direction may leave TCP for a ring in
//! memory (`direction.rs`) and come back, at a position of TCP's stream that both know. A byte is copied into
//! the ring (`put.rs`) and out of it (`take.rs`), by the two programs themselves. Connection, errors, end
//! and options stay TCP's: a FIN follows the last byte of the ring, and a reset ends both.

mod cut_check;
mod direction;
mod facts;
mod fast_path;
mod idle;
mod leave;
mod pair;
mod put;
mod rendezvous;
mod stay;
mod take;

pub(crate) use self::{
    fast_path::{receive_quickly, send_quickly},
    idle::Registration,
    pair::Local,
    rendezvous::{Rendezvous, RENDEZVOUS}, //
};
