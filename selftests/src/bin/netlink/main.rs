// SPDX-License-Identifier: GPL-2.0
//! A program for SMC's netlink interface that knows the kernel's headers alone: every command of
//! `SMC_GEN_NETLINK` and `SMC_PNETID`, by `linux/smc.h`, and what `sock_diag` tells, by
//! `linux/smc_diag.h`. Both modules must pass, so that their answers have the same shapes.
//!
//! `netlink`: in both guests of a pair, with a connection over SMC-R between them that is up while
//! each asks its own module. `netlink --dump`: dumps while sockets come and go. Between the namespaces
//! of one guest, what the answers mean: `netlink --states`, of sockets that are closed; `netlink
//! --values`, after known traffic. `netlink --groups`: dumps while groups come and go. `netlink --fuzz ROUNDS
//! [--seed N]`: random requests to the family of the policy. `netlink --strangers`: what others hear.

mod asks;
mod buffers;
mod calls;
mod commands;
mod counted;
mod dump;
mod ends;
mod facts;
mod fuzz;
mod groups;
mod judge;
mod shape;
mod sockets;
mod states;
mod strangers;

use st::args::Args;
use st::errno::R;
use st::family::{Ip, AF_SMC};
use st::fd::Fd;
use st::guest::{self, Role};
use st::ktap::Ktap;
use st::{net, sys};

/// Port of the connection.
const PORT: u16 = 7100;
/// Port of a plain TCP server, for a fallback.
const PLAIN: u16 = 7101;

/// A point of `--values` and its name; it gets the listener.
type Value = (&'static str, fn(&Fd) -> Result<(), String>);

/// Holds a guest's sockets while it asks.
pub struct Held {
    /// A listener, at the server.
    pub listener: Option<Fd>,
    /// The connection over SMC-R.
    pub smc: Fd,
    /// One that fell back.
    pub tcp: Fd,
    /// The plain TCP server and its connections, without which that would end.
    _plain: Vec<Fd>,
}

fn barrier(name: &str) -> Result<(), String> {
    net::sh(&format!("rsmc-barrier {name}"))
}

fn connect(role: Role) -> R<Held> {
    let smc = || sys::socket(AF_SMC, libc::SOCK_STREAM, 0);
    let listen = |fd: Fd, port| -> R<Fd> {
        // The test before may have used it.
        sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        sys::bind(fd.raw(), &guest::sockaddr(false, Ip::V4, port))?;
        sys::listen(fd.raw(), 8)?;
        Ok(fd)
    };
    let other = |port| guest::sockaddr(true, Ip::V4, port);
    let in_time = |ready: Result<(), String>| ready.expect("the other guest");
    if role == Role::Server {
        let plain = listen(sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?, PLAIN)?;
        let listener = listen(smc()?, PORT)?;
        in_time(barrier("listening"));
        let connection = sys::accept(listener.raw())?;
        // A socket of plain TCP, and one of ours that falls back to it.
        let theirs = sys::accept(plain.raw())?;
        let tcp = smc()?;
        sys::connect(tcp.raw(), &guest::sockaddr(false, Ip::V4, PLAIN))?;
        return Ok(Held {
            listener: Some(listener),
            smc: connection,
            tcp,
            _plain: vec![plain, theirs],
        });
    }
    in_time(barrier("listening"));
    let connection = smc()?;
    sys::connect(connection.raw(), &other(PORT))?;
    let tcp = smc()?;
    sys::connect(tcp.raw(), &other(PLAIN))?;
    Ok(Held {
        listener: None,
        smc: connection,
        tcp,
        _plain: vec![],
    })
}

/// Checks the meaning of the numbers, between the namespaces of one guest.
fn values(k: &mut Ktap) {
    const POINTS: &[Value] = &[
        ("system", facts::system),
        ("counted", facts::counted),
        ("groups", facts::groups),
        ("links", facts::links),
        ("devices", facts::devices),
        ("cursors", facts::cursors),
        ("fallbacks", facts::fallbacks),
        ("buffers", buffers::by_sysctl),
        ("connections", counted::connections),
        ("sizes", counted::sizes),
        ("large", counted::large),
        ("nodelay", counted::nodelay),
        ("splice", counted::splice),
        ("got_less", calls::got_less),
        ("got_nothing", calls::got_nothing),
        ("sent_less", calls::sent_less),
        ("urgent", calls::urgent),
        ("cork", calls::cork),
        ("peek", calls::peek),
    ];
    ends::prepare().expect("prepare");
    let listener = ends::listener().expect("listener");
    for (name, point) in POINTS {
        k.outcome(name, point(&listener));
    }
}

fn main() {
    let args = Args::get();
    if args.opt("dump").is_some() {
        let mut k = Ktap::plan(1);
        k.outcome("sockets_come_and_go", dump::run());
        std::process::exit(k.finish());
    }
    if args.opt("groups").is_some() {
        let mut k = Ktap::plan(1);
        k.outcome("groups_come_and_go", groups::run());
        std::process::exit(k.finish());
    }
    if args.opt("fuzz").is_some() {
        let mut k = Ktap::plan(1);
        let rounds = args.num("fuzz", 1) / guest::less().max(1);
        k.outcome("policy", fuzz::run(args.num("seed", 20), rounds));
        std::process::exit(k.finish());
    }
    let mut k = Ktap::open();
    if args.opt("states").is_some() {
        states::run(&mut k);
        std::process::exit(k.finish());
    }
    if args.opt("strangers").is_some() {
        strangers::run(&mut k);
        std::process::exit(k.finish());
    }
    if args.opt("values").is_some() {
        values(&mut k);
        std::process::exit(k.finish());
    }
    // The C module has no EID by itself.
    let _ = commands::add_eid("RSMC-DEFAULT");
    let held = connect(guest::role(&args)).expect("connections");
    for (name, point) in commands::LIST {
        k.outcome(name, point());
    }
    k.outcome("sock_diag", sockets::listed(&held));
    k.outcome("sock_diag_by_one_flag", asks::one_flag(&held));
    k.outcome("sock_diag_unprivileged", asks::unprivileged(&held));
    k.outcome("pnetid_by_name", asks::one_pnet());
    let ended = barrier("asked");
    k.outcome("both_asked", ended);
    std::process::exit(k.finish());
}
