// SPDX-License-Identifier: GPL-2.0

//! A socket of the family from socket() to close(): its state, and its changes by connect(),
//! listen() and accept().

pub(crate) mod accept;
pub(crate) mod by_tcp;
mod candidates;
pub(crate) mod connect;
pub(crate) mod crossing;
mod fifo;
pub(crate) mod listen;
mod listener;
pub(crate) mod path;
pub(crate) mod promotion;
mod rewritten;
mod smc_sock;
mod state;
mod strict;
mod work;

pub(crate) use candidates::{Candidates, CANDIDATES};
pub(crate) use promotion::{Closing, Dialer, Orphanage, CLOSINGS, DIALERS};
pub(crate) use smc_sock::{Registry, Roster, SmcSock};
pub(crate) use state::Phase;
