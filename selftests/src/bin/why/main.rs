// SPDX-License-Identifier: GPL-2.0
//! Every reason to fall back that can be brought about here is, and `rsmc ss`, `stats` and `why`
//! must tell it, in words and with advice; `tools/told.py` asks them.
//!
//! `why [--family inet] [--ip v4] [PREFIX..]`: points `tcp.` need no RDMA, `rdma.` make a
//! soft-RoCE device of their own, `fault.` also load `/rsmc/kmod/verb_fault.ko`.
//!
//! Reasons that the module gives in none of the points:
//! * `NOACTLINK`: a link dies between the choice of a group and the connection's place in it, which
//!   takes some microseconds.
//! * `IPSEC`: only the distribution's kernel has IPsec; `paths/ipsec.sh`.
//! * What belongs to something that the module does not have: `NOSMCDDEV`, `NOISM2SUPP`,
//!   `NOV2DEXT`, `NOSEID`, `NOSMCD2DEV`, `ISMVLANERR`, `MAX_DMB` (SMC-D), `VERSMISMAT`,
//!   `GETVLANERR` (SMC version 1), `TIMEOUT_AL` (a second link), `CNFERR`,
//!   `NOSMCRDEV` (it says `NOSMCDEV`).
//!
//! All of these are said by a peer that declines, as every other code is.

/// A point by name.
macro_rules! point {
    ($name:literal, $run:expr) => {
        st::point::Point {
            name: $name,
            run: $run,
        }
    };
}

mod fault;
#[path = "../hostile/host.rs"]
#[allow(dead_code)] // Its connections do more for `hostile`.
mod host;
mod rdma;
mod tcp;
mod told;

fn main() {
    st::point::main(&[tcp::LIST, rdma::LIST, fault::LIST], 1);
}
