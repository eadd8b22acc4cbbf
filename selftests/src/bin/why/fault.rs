// SPDX-License-Identifier: GPL-2.0
//! Reasons of a host whose RDMA device has no more of something; `verb_fault` says so for it.

use crate::host::{Host, Role};
use crate::rdma::Device;
use crate::told;
use st::fd::Fd;
use st::point::{Point, T};
use st::{clc, net};

/// Points of `fault.`.
pub const LIST: &[Point] = &[
    point!("fault.client", |t| fails(t, Role::Server)),
    point!("fault.server", |t| fails(t, Role::Client)),
];

/// A verb that fails for the module at either end, and the reason. The server's queue pair is
/// connected after its accept, so that the client only learns that the link did not come up.
const VERBS: [(&str, &str); 3] = [
    ("create_qp", "MEM"),
    ("alloc_mr", "ERR_REGBUF"),
    ("modify_qp", "ERR_RDYLNK"),
];

/// The module `verb_fault`.
struct Module;

impl Module {
    fn arm(what: &str) {
        let _ = std::fs::write("/sys/module/verb_fault/parameters/arm", what);
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        Module::arm("off");
        let _ = net::sh("rmmod verb_fault");
    }
}

fn fails(t: &mut T, role: Role) {
    let loaded = net::sh("insmod /rsmc/kmod/verb_fault.ko");
    t.is("verb_fault", loaded, Ok(()));
    let _module = Module;
    let device = Device::new(t);
    let mut h = Host::new(t, role);
    for (verb, name) in VERBS {
        h.fresh();
        Module::arm(&format!("{verb} {} 1 1000", device.0));
        let (fd, tcp) = contact(t, &mut h, name);
        Module::arm("off");
        told::own(t, role, &fd, name);
        drop(tcp);
    }
}

/// A first contact that ends with this decline.
fn contact(t: &mut T, h: &mut Host, name: &str) -> (Fd, st::rawpeer::Peer<'static>) {
    let (mut tcp, fd) = h.tcp(t);
    let me = h.end();
    if h.role == Role::Server {
        let _ = clc::read(&mut tcp, 4000);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1))));
    } else {
        tcp.send(&clc::proposal_v2(&me, 1));
    }
    let mut m = clc::read(&mut tcp, 4000).unwrap_or_default();
    if clc::header(&m).map(|h| h.ty) == Some(clc::ACCEPT) {
        tcp.send(&clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1))));
        m = clc::read(&mut tcp, 4000).unwrap_or_default();
    }
    t.is(name, clc::diagnosis(&m), Some(told::code(name)));
    tcp.send(b"program");
    let fd = fd.or_else(|| h.accept(&tcp)).expect("a socket");
    (fd, tcp)
}
