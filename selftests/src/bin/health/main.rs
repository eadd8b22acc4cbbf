// SPDX-License-Identifier: GPL-2.0
//! What stands before servers, and looks after them: health checks that open a connection and close it at once,
//! port scans, floods of SYNs, load balancers, firewalls with limits. The same is done to a plain TCP listener
//! and to one of the family, by clients of either kind; what the clients and the server have seen must be the
//! same, and nothing may be left of it.
//!
//! `health [--family inet,smc] [--ip v4,v6] [PREFIX..]`

mod checks;
mod load;
mod realm;
mod scans;
mod ways;

use st::point::Point;

macro_rules! point {
    ($name:literal, $run:expr) => {
        Point {
            name: $name,
            run: $run,
        }
    };
}

const LIST: &[Point] = &[
    point!("checks.closed", checks::closed),
    point!("checks.reset", checks::reset),
    point!("checks.together", checks::together),
    point!("scans.half_open", scans::half_open),
    point!("scans.flood", scans::flood),
    point!("scans.cookies", scans::cookies),
    point!("ways.direct_return", ways::direct_return),
    point!("ways.nat", ways::nat),
    point!("ways.rate", ways::rate),
    point!("ways.count", ways::count),
];

fn main() {
    st::point::main(&[LIST], 1);
}
