// SPDX-License-Identifier: GPL-2.0
//! What stands between clients and a server: load balancers whose answers go another way, or that rewrite
//! addresses, and firewalls that limit connections.
//!
//! The client is here, `balancer` forwards, `server` serves; client and server have a second link of their own.

use crate::load::{clients, compare, many, socket, Server, Way};
use crate::realm::{sh, Realm};
use st::family::{Family, Ip};
use st::point::T;
use st::sys;
use std::net::{IpAddr, SocketAddr};

const CLIENT: &str = "10.80.1.1";
const SERVER: &str = "10.80.2.1";
/// The service's address: of the server's loopback device, or of nobody.
const SERVICE: &str = "10.80.9.9";
const PORT: u16 = 7800;

struct Site {
    balancer: Realm,
    server: Realm,
}

impl Site {
    fn new() -> Site {
        let (balancer, server) = (Realm::new(), Realm::new());
        let (b, s) = (balancer.tid, server.tid);
        sh(&format!(
            "ip link add c0 type veth peer name b0 netns {b}
             ip link add c1 type veth peer name s1 netns {s}
             ip addr add {CLIENT}/24 dev c0
             ip addr add 10.80.3.1/24 dev c1
             ip link set c0 up
             ip link set c1 up
             ip route add 10.80.2.0/24 via 10.80.1.2
             ip route add {SERVICE}/32 via 10.80.1.2"
        ))
        .expect("client");
        balancer
            .sh(&format!(
                "ip link add b1 type veth peer name s0 netns {s}
                 ip addr add 10.80.1.2/24 dev b0
                 ip addr add 10.80.2.2/24 dev b1
                 ip link set b0 up
                 ip link set b1 up
                 ip route add {SERVICE}/32 via {SERVER}
                 sysctl -qw net.ipv4.ip_forward=1"
            ))
            .expect("balancer");
        server
            .sh(&format!(
                "ip addr add {SERVER}/24 dev s0
                 ip addr add 10.80.3.2/24 dev s1
                 ip addr add {SERVICE}/32 dev lo
                 ip link set s0 up
                 ip link set s1 up
                 ip route add 10.80.1.0/24 via 10.80.2.2"
            ))
            .expect("server");
        Site { balancer, server }
    }

    fn serve(&self, family: Family) -> Server {
        self.server.within(move || {
            let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
            Server::new(family, Ip::V4, any, 64)
        })
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), PORT)
}

/// Only IPv4 has all of it here.
fn is_for(t: &mut T) -> bool {
    let is = t.ip == Ip::V4;
    if !is {
        t.say("skip: addresses of IPv4");
    }
    is
}

/// Checks of the service, and clients that ask it.
fn used(t: &mut T, site: &Site, to: SocketAddr) {
    compare(t, |_, client, server| {
        let s = site.serve(server);
        let checks = clients(client, Ip::V4, &to, Way::Close, many(60));
        let resets = clients(client, Ip::V4, &to, Way::Reset, many(60));
        let asked = clients(client, Ip::V4, &to, Way::Ask, many(60));
        (checks, resets, asked, s.end())
    });
}

/// The balancer passes packets on as they are; the server has the service's address, and answers directly.
pub fn direct_return(t: &mut T) {
    if !is_for(t) {
        return;
    }
    let site = Site::new();
    site.server
        .sh("ip route replace 10.80.1.0/24 via 10.80.3.1")
        .expect("the way back");
    used(t, &site, at(SERVICE));
    // What went by the balancer went one way.
    let forwarded = |device: &'static str| {
        site.balancer.within(move || {
            let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
            let line = all.lines().find(|line| line.trim().starts_with(device));
            let words = line.map(|line| line.split_whitespace().nth(10).unwrap_or("").to_owned());
            words.and_then(|w| w.parse::<u64>().ok()).unwrap_or(0)
        })
    };
    let (to, back) = (forwarded("b1:"), forwarded("b0:"));
    t.check(
        &format!("{to} packets to the server, {back} back"),
        to > 100 && back < to / 4,
    );
}

/// The balancer rewrites both addresses: the service's becomes the server's, the client's its own.
pub fn nat(t: &mut T) {
    if !is_for(t) {
        return;
    }
    let site = Site::new();
    let rules = format!(
        "nft add table ip t
         nft add chain ip t pre {{ type nat hook prerouting priority -100 ; }}
         nft add chain ip t post {{ type nat hook postrouting priority 100 ; }}
         nft add rule ip t pre ip daddr {SERVICE} tcp dport {PORT} dnat to {SERVER}
         nft add rule ip t post oifname b1 masquerade"
    );
    if let Err(e) = site.balancer.sh(&rules) {
        return t.say(&format!("skip: {e}"));
    }
    // Nobody has the service's address now.
    site.server
        .sh(&format!("ip addr del {SERVICE}/32 dev lo"))
        .expect("address");
    used(t, &site, at(SERVICE));
}

/// Connections that are kept open until `count` have been tried; how many there are, and the errors.
fn held(family: Family, to: &SocketAddr, count: usize) -> (usize, Vec<String>) {
    let mut open = Vec::new();
    let mut errors = Vec::new();
    for _ in 0..count {
        let s = socket(family, Ip::V4);
        match sys::connect(s.raw(), to) {
            Ok(_) => open.push(s),
            Err(e) => errors.push(e.to_string()),
        }
    }
    (open.len(), errors)
}

fn limited(t: &mut T, limit: &str) {
    if !is_for(t) {
        return;
    }
    let site = Site::new();
    let rules = format!(
        "nft add table inet t
         nft add chain inet t in {{ type filter hook input priority 0 ; }}
         nft add rule inet t in tcp dport {PORT} ct state new {limit} reject with tcp reset"
    );
    if let Err(e) = site.server.sh(&rules) {
        return t.say(&format!("skip: {e}"));
    }
    let refused = std::cell::Cell::new(0);
    compare(t, |_, client, server| {
        // What the limit counts begins anew.
        for line in ["nft delete table inet t", "conntrack -F"] {
            let _ = site.server.sh(line);
        }
        site.server.sh(&rules).expect("rules");
        let s = site.serve(server);
        let seen = held(client, &at(SERVER), 12);
        refused.set(seen.1.len());
        (seen, s.end())
    });
    t.check("the limit was reached", refused.get() > 0);
}

/// So many new connections in a time.
pub fn rate(t: &mut T) {
    limited(t, "limit rate over 1/hour burst 5 packets");
}

/// So many at a time.
pub fn count(t: &mut T) {
    limited(t, "ct count over 5");
}
