// SPDX-License-Identifier: GPL-2.0
//! A hostile SMC-R peer: made of packets, it shakes hands as it should, in either role, and then
//! breaks every rule it can by LLC, CDC, RDMA and silence. The connection or the link may end,
//! with an error and soon; nothing may hang, and an honest connection on the same device, which
//! every point keeps busy, must not notice.
//!
//! `hostile [--family inet,smc] [--ip v4,v6] [PREFIX..]`, or `crowd` instead of the prefixes, or prefixes that begin
//! with `promotion`: what has to run alone. Needs `rdma_rxe` and `/usr/bin/rdma`.

mod attempts;
mod bystander;
mod cdc;
mod confirm;
mod crowd;
mod escapes;
mod groups;
mod handshake;
mod honest;
mod host;
mod immediate;
mod link;
mod llc;
mod promotion;
mod setup;
mod silent;
mod spoilt;
mod terms;
mod worlds;

use honest::Honest;
use host::{Host, Role};
use st::point::T;

/// Runs a point with a host in this role, beside an honest connection.
fn with(t: &mut T, role: Role, f: fn(&mut T, &mut Host)) {
    let honest = match Honest::start(t) {
        Ok(h) => h,
        Err(e) => return t.check(&e, false),
    };
    let mut host = Host::new(t, role);
    f(t, &mut host);
    drop(host);
    honest.finish(t);
}

/// Points from functions, once in each role of the hostile host.
#[macro_export]
macro_rules! both {
    ($($f:ident),* $(,)?) => {
        /// The points of this file.
        pub const LIST: &[st::point::Point] = &[$(
            st::point::Point {
                name: concat!("client.", stringify!($f)),
                run: |t| $crate::with(t, $crate::host::Role::Client, $f),
            },
            st::point::Point {
                name: concat!("server.", stringify!($f)),
                run: |t| $crate::with(t, $crate::host::Role::Server, $f),
            },
        )*];
    };
}

fn main() {
    if std::env::args().any(|arg| arg == "crowd") {
        st::point::main(&[crowd::LIST], 1);
    }
    if std::env::args().any(|arg| arg.starts_with("promotion")) {
        st::point::main(&promotion::LISTS, 1);
    }
    st::point::main(
        &[
            cdc::LIST,
            immediate::LIST,
            llc::LIST,
            link::LIST,
            groups::LIST,
            setup::LIST,
            spoilt::LIST,
            confirm::LIST,
            attempts::LIST,
            silent::LIST,
            terms::LIST,
            worlds::LIST,
            escapes::LIST,
        ],
        4,
    );
}
