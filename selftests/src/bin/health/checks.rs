// SPDX-License-Identifier: GPL-2.0
//! Health checks: connections that are closed or reset as soon as they stand.

use crate::load::{clients, compare, many, Server, Way};
use st::addr;
use st::family::{Family, Ip};
use st::point::T;
use std::net::SocketAddr;

fn any(ip: Ip) -> SocketAddr {
    SocketAddr::new(addr::loopback(ip), 0)
}

/// Many such connections, one after the other; then the server still answers.
fn rounds(t: &mut T, way: Way) {
    let ip = t.ip;
    compare(t, |_, client, server| {
        let s = Server::new(server, ip, any(ip), 64);
        let told = clients(client, ip, &s.at, way, many(200));
        let asked = clients(client, ip, &s.at, Way::Ask, 5);
        (told, asked, s.end())
    });
}

pub fn closed(t: &mut T) {
    rounds(t, Way::Close);
}

pub fn reset(t: &mut T) {
    rounds(t, Way::Reset);
}

/// Checks, and clients that ask something, at the same time.
pub fn together(t: &mut T) {
    let ip = t.ip;
    let count = many(80);
    compare(t, |_, client, server| {
        let s = Server::new(server, ip, any(ip), 256);
        let at = s.at;
        let ways = [
            (Family::Tcp, Way::Close),
            (Family::Tcp, Way::Reset),
            (client, Way::Ask),
            (client, Way::Close),
        ];
        let threads = ways
            .map(|(family, way)| std::thread::spawn(move || clients(family, ip, &at, way, count)));
        let told = threads.map(|thread| thread.join().expect("clients"));
        (told, s.end())
    });
}
