// SPDX-License-Identifier: GPL-2.0
//! Three hosts behind one address: `one` and `two`, whose packets `a` routes and gives its own address (nftables' SNAT),
//! and `a` itself. The server in `b` sees them all come from there. Each has its own connections promoted, and nothing
//! joins what is another one's.

use super::seen::Counted;
use super::*;
use st::card::{self, Devices};
use st::clc;
use st::net::{MAC_A, MAC_B};
use st::packet::{ACK, SYN};
use st::rawpeer::{Peer, Wire};
use std::net::IpAddr;
use std::process::Command;

/// The server did not agree.
const PATHREFUSED: u32 = 0x0306_010c;

/// A host behind the address.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    ns: &'static str,
    netdev: &'static str,
    card: &'static str,
    addr: [u8; 4],
}

const ONE: Hidden = Hidden {
    ns: "one",
    netdev: "v1",
    card: "card_1",
    addr: [10, 81, 1, 2],
};
const TWO: Hidden = Hidden {
    ns: "two",
    netdev: "v2",
    card: "card_2",
    addr: [10, 81, 2, 2],
};

/// An address of `two`'s network that no kernel has; packets to it come to `v2`.
const FORGER: [u8; 4] = [10, 81, 2, 9];
/// The port that both hosts connect from: one of them gets another one on its way.
const PORT: u16 = 4000;

/// Both hosts, as long as this lives.
struct Hosts;

pub(super) fn commands(ns: Option<&str>, program: &str, lines: &str) -> Outcome {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let enter: &[&str] = match ns {
            Some(ns) => &["netns", "exec", ns, program],
            None => &[],
        };
        let mut command = Command::new(if ns.is_some() { "ip" } else { program });
        let done = command.args(enter).args(line.split(' ')).output();
        let done = done.map_err(|e| format!("{program}: {e}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        wanted(line, done.status.success(), said)?;
    }
    Ok(())
}

pub(super) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Hosts {
    /// Makes them; `routed` if the server knows the way to their own addresses, as RDMA wants it.
    fn new(routed: bool) -> Result<Self, String> {
        let this = Self;
        // A link group with hosts that there were before goes with its device.
        let server = Devices::of("b");
        let anew = server
            .delete("card_b")
            .and_then(|()| server.add("card_b", "vb"));
        anew.map_err(|e| format!("card_b: {e}"))?;
        for (host, number) in [(ONE, 1), (TWO, 2)] {
            let (ns, netdev) = (host.ns, host.netdev);
            let (here, there) = match number {
                2 => (mac(MAC_A), mac(MAC_B)),
                _ => ("02:78:00:00:00:01".into(), "02:78:00:00:00:02".into()),
            };
            let net = format!("10.81.{number}");
            let lines = format!(
                "netns add {ns}
                 link add {netdev} address {there} netns {ns} type veth peer name r{number} address {here} netns a
                 -netns a addr add {net}.1/24 dev r{number}
                 -netns a link set r{number} up
                 -netns {ns} link set lo up
                 -netns {ns} addr add {net}.2/24 dev {netdev}
                 -netns {ns} link set {netdev} up
                 -netns {ns} route add default via {net}.1"
            );
            commands(None, "ip", &lines)?;
            Devices::of(ns)
                .add(host.card, netdev)
                .map_err(|e| format!("{}: {e}", host.card))?;
        }
        let forger = IpAddr::from(FORGER);
        let neighbour = format!("neigh add {forger} lladdr {} dev r2", mac(MAC_B));
        commands(Some("a"), "ip", &neighbour)?;
        commands(Some("a"), "sysctl", "-qw net.ipv4.ip_forward=1")?;
        commands(
            Some("a"),
            "nft",
            "add table ip hide
             add chain ip hide out { type nat hook postrouting priority 100; }
             add rule ip hide out oifname va ip saddr 10.81.0.0/16 snat to 10.77.0.1",
        )?;
        if routed {
            commands(Some("b"), "ip", "route add 10.81.0.0/16 via 10.77.0.1")?;
        }
        for (name, value) in [("path", 2), ("path_software", 1), ("neighbour_time", 0)] {
            set(&["one", "two", "a", "b"], name, value);
        }
        Ok(this)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = commands(Some("a"), "nft", "delete table ip hide");
        let _ = commands(Some("a"), "sysctl", "-qw net.ipv4.ip_forward=0");
        let _ = commands(Some("b"), "ip", "route del 10.81.0.0/16");
        for (host, number) in [(ONE, 1), (TWO, 2)] {
            if std::path::Path::new("/run/netns").join(host.ns).exists() {
                let _ = Devices::of(host.ns).delete(host.card);
            }
            let _ = commands(Some("a"), "ip", &format!("link delete r{number}"));
            let _ = commands(None, "ip", &format!("netns delete {}", host.ns));
        }
    }
}

/// A connection of a hidden host, and where its stream is.
struct Behind {
    host: Hidden,
    pair: Pair,
    at: u64,
    /// The server's peer.
    seen: SocketAddr,
    /// Initial sequence numbers, as the server's side of the router has them.
    client: u32,
    server: u32,
}

impl Behind {
    fn connect(
        host: Hidden,
        listener: &Fd,
        to: SocketAddr,
        from: u16,
        at: u64,
    ) -> Result<Self, String> {
        let wire = within("b", || Wire::open("vb")).map_err(|e| format!("packets: {e}"))?;
        let client = within(host.ns, move || {
            let fd = st::card::socket();
            sys::bind(fd.raw(), &SocketAddr::new(host.addr.into(), from))?;
            sys::connect(fd.raw(), &to).map(|_| fd)
        })
        .map_err(|e| format!("{}: connect: {e}", host.ns))?;
        let server = sys::accept(listener.raw()).map_err(|e| format!("accept: {e}"))?;
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let _ = sys::set_timeo(server.raw(), name, 60_000 * guest::slow() as i64);
        }
        let seen = sys::peername(server.raw()).map_err(|e| format!("peer: {e}"))?;
        wanted(
            "behind it",
            seen.ip() == guest::addr(false, family::Ip::V4),
            seen,
        )?;
        let number = |flags: u8, of: SocketAddr, to: SocketAddr| {
            let it = wire.next(3000, |s| {
                s.flags & (SYN | ACK) == flags && s.src == of && s.dst == to
            });
            it.map(|s| s.seq).ok_or("no SYN was seen")
        };
        let (client_number, server_number) = (number(SYN, seen, to)?, number(SYN | ACK, to, seen)?);
        let this = Self {
            host,
            pair: Pair { client, server },
            at,
            seen,
            client: client_number,
            server: server_number,
        };
        let modes = (mode(&this.pair.client), mode(&this.pair.server));
        wanted("begins as TCP", modes == (PATH, PATH), modes)?;
        Ok(this)
    }

    /// Messages both ways.
    fn talk(&mut self, rounds: u64) -> Outcome {
        let Self { host, pair, at, .. } = self;
        for _ in 0..rounds {
            exchange(&pair.client, &pair.server, at, 64)
                .and_then(|()| exchange(&pair.server, &pair.client, at, 900))
                .map_err(|e| format!("{}: {e}", host.ns))?;
        }
        Ok(())
    }

    fn is_tcp(&self) -> bool {
        (mode(&self.pair.client), mode(&self.pair.server)) == (PATH, PATH)
    }
}

/// Has all of them say messages in turn until those that are to be are SMC-R at both ends.
fn until_all_moved(all: &mut [&mut Behind]) -> Outcome {
    for _ in 0..4000 {
        for one in all.iter_mut() {
            one.talk(1)?;
        }
        if all.iter().all(|one| moved(&one.pair)) {
            return Ok(());
        }
    }
    let seen: Vec<_> = all
        .iter()
        .map(|one| (one.host.ns, one.pair.info()))
        .collect();
    Err(format!("not moved: {seen:x?}"))
}

/// Waits until both ends are TCP's again.
fn until_tcp(one: &Behind) -> Outcome {
    for _ in 0..guest::limit(8000) {
        if one.is_tcp() {
            return Ok(());
        }
        sys::sleep_ms(1);
    }
    Err(format!("not TCP's again: {:x?}", one.pair.info()))
}

/// The growth of what a card counts as moved while something is done.
fn bytes_of(host: Hidden, act: impl FnOnce() -> Outcome) -> Result<u64, String> {
    let before = card::counted(host.card, "bytes");
    act()?;
    Ok(card::counted(host.card, "bytes") - before)
}

/// What a host's namespace has counted of its promotions as a client: those that were done.
fn done_in(ns: &'static str) -> u64 {
    let all = within(ns, smcinfo::counters).expect("counters");
    all.get("promotion_done client").copied().unwrap_or(0)
}

/// Both hosts and the router have connections to one listener, from one address: each is promoted by its own host's
/// device. When one host loses its device, its connection alone goes back to TCP.
pub(super) fn promoted() -> Outcome {
    let before = smcinfo::references();
    shares(true)?;
    smcinfo::settled(before, 20_000)
}

/// The same where the server has no way to the hosts' own addresses, by which RDMA has to reach them.
pub(super) fn unrouted() -> Outcome {
    let before = smcinfo::references();
    shares(false)?;
    smcinfo::settled(before, 20_000)
}

fn shares(routed: bool) -> Outcome {
    let _hosts = Hosts::new(routed)?;
    set(&["one", "two", "a", "b"], "path_promote", 8);
    let (listener, to) = listener();
    let mut one = Behind::connect(ONE, &listener, to, PORT, 0)?;
    let mut two = Behind::connect(TWO, &listener, to, PORT, 1 << 40)?;
    wanted(
        "ports",
        one.seen.port() != two.seen.port(),
        (one.seen, two.seen),
    )?;
    let mut third = (connect(&listener, to)?, 1 << 50);
    let counted = Counted::now();
    until_moved(&third.0, &mut third.1)?;
    if !routed {
        return no_way(one, two, &counted);
    }
    until_all_moved(&mut [&mut one, &mut two])?;
    let done = counted.grown("promotion_done ROLE");
    wanted("promotions", done == [1, 3], done)?;
    for host in [ONE, TWO] {
        wanted(host.ns, done_in(host.ns) == 1, done_in(host.ns))?;
    }
    // Each by its own host's device, which counts what it sends.
    let by_one = bytes_of(ONE, || one.talk(50))?;
    let idle = bytes_of(TWO, || one.talk(50))?;
    let by_two = bytes_of(TWO, || two.talk(50))?;
    wanted(
        "by its own device",
        by_one >= 3200 && by_two >= 3200,
        (by_one, by_two),
    )?;
    wanted("and by no other", idle < 3200, idle)?;
    // One of them loses its device.
    let devices = Devices::of(ONE.ns);
    devices
        .delete(ONE.card)
        .map_err(|e| format!("delete: {e}"))?;
    let gone = until_tcp(&one)
        .and_then(|()| one.talk(50))
        .and_then(|()| two.talk(50))
        .and_then(|()| exchange(&third.0.client, &third.0.server, &mut third.1, 900));
    devices
        .add(ONE.card, ONE.netdev)
        .map_err(|e| format!("add: {e}"))?;
    gone?;
    wanted("TCP", one.is_tcp(), one.pair.info())?;
    wanted(
        "SMC-R still",
        moved(&two.pair) && moved(&third.0),
        two.pair.info(),
    )?;
    until_all_moved(&mut [&mut one, &mut two])?;
    wanted("once more", done_in(ONE.ns) == 2, done_in(ONE.ns))?;
    wanted("not once more", done_in(TWO.ns) == 1, done_in(TWO.ns))
}

/// The server cannot reach the hosts' devices: it refuses, and says why. Once it knows the way they are promoted.
fn no_way(mut one: Behind, mut two: Behind, counted: &Counted) -> Outcome {
    let end = guest::until(20_000);
    loop {
        one.talk(1)?;
        two.talk(1)?;
        if counted.grown("promotion_failed ROLE")[1] >= 2 {
            break;
        }
        let late = Instant::now() > end;
        wanted("an answer", !late, counted.all_grown())?;
    }
    let tcp = one.is_tcp() && two.is_tcp();
    wanted("TCP", tcp, (one.pair.info(), two.pair.info()))?;
    for one in [&one, &two] {
        let (client, server) = one.pair.info();
        wanted("reason", client.reason == PATHREFUSED, (client, server))?;
    }
    let done = counted.grown("promotion_done ROLE");
    wanted("the third alone", done == [1, 1], done)?;
    for ns in [ONE.ns, TWO.ns] {
        wanted(ns, done_in(ns) == 0, done_in(ns))?;
    }
    commands(Some("b"), "ip", "route add 10.81.0.0/16 via 10.77.0.1")?;
    until_all_moved(&mut [&mut one, &mut two])?;
    let done = counted.grown("promotion_done ROLE");
    wanted("all of them", done == [1, 3], done)
}

/// The identity of another kernel, in the SYN of a side connection.
const SIDE: [u8; 12] = [253, 12, b'r', b's', 0x14, 0x77, 1, 2, 3, 4, 5, 6];
/// How the answer to it begins.
const ANSWERED: [u8; 5] = [253, 12, b'r', b's', 0x15];

/// A side connection from behind the address, of a host that is neither of both.
fn side(wire: &'static Wire, to: SocketAddr, port: u16) -> Result<Peer<'static>, String> {
    let from = SocketAddr::new(FORGER.into(), port);
    let side = Peer::connect_from(wire, from, to, &SIDE).ok_or("no SYN-ACK")?;
    let options = st::packet::options(&side.syn.opts).unwrap_or_default();
    let answered = options.iter().any(|option| option.1.starts_with(&ANSWERED));
    wanted("a side connection", answered, &side.syn.opts)?;
    Ok(side)
}

/// What the first message of a side connection says.
fn join(client: u32, server: u32) -> Vec<u8> {
    [
        &b"RSMCJOIN\x01\0\0\0"[..],
        &client.to_be_bytes(),
        &server.to_be_bytes(),
        &[0; 4],
    ]
    .concat()
}

/// What a host with a device says next.
fn proposal() -> Vec<u8> {
    let me = clc::End {
        peer_id: [0x77, 1, 2, 0x77, 0, 0, 0, 2],
        gid: std::net::Ipv4Addr::from(FORGER).to_ipv6_mapped().octets(),
        mac: MAC_B,
        qpn: 0x5000,
        rkey: 0x0077_0042,
        idx: 1,
        token: 0x7700_0000,
        size: 2,
        mtu: 3,
        addr: 0x0007_7000_0000_0000,
        psn: 0x1234,
    };
    clc::proposal_v2(&me, 1)
}

/// Side connections from behind the address that name the numbers of a connection of another host: halves of two, and
/// guesses, are ended at once and told nothing. One that has seen both numbers is answered, as the server cannot tell it
/// from the right one; without a device that makes no SMC-R connection, and the host whose connection it is promotes that
/// afterwards.
pub(super) fn forged() -> Outcome {
    let before = smcinfo::references();
    {
        let _hosts = Hosts::new(true)?;
        // The server's ends wait for side connections soon, and the clients make none until later.
        after(8);
        set(&["one", "two"], "path_promote", 2000);
        let (listener, to) = listener();
        let mut one = Behind::connect(ONE, &listener, to, PORT, 0)?;
        let mut two = Behind::connect(TWO, &listener, to, PORT, 1 << 40)?;
        one.talk(20)?;
        two.talk(20)?;
        let wire = within("two", || Wire::open("v2")).map_err(|e| format!("packets: {e}"))?;
        let wire: &'static Wire = Box::leak(Box::new(wire));
        let proposal = proposal();
        let counted = Counted::now();
        let cases = [
            ("one's and two's", one.client, two.server, false),
            ("two's and one's", two.client, one.server, false),
            ("exchanged", one.server, one.client, false),
            ("the next", one.client.wrapping_add(1), one.server, false),
            ("none", 0, 0, false),
            ("one's", one.client, one.server, true),
            ("two's", two.client, two.server, true),
        ];
        let (mut port, mut heard) = (5000, 0);
        for (what, client, server, right) in cases {
            for bytes in [&[][..], &[0x55; 100], &proposal] {
                port += 1;
                let mut side = side(wire, to, port)?;
                side.send(&join(client, server));
                side.send(bytes);
                if right && bytes == proposal {
                    let said = clc::read(&mut side, 4000).unwrap_or_default();
                    let accepts = clc::header(&said).map(|header| header.ty) == Some(clc::ACCEPT);
                    wanted("an accept", accepts, said)?;
                }
                if right {
                    side.send_fin();
                }
                let ends = side.pump(9000 * guest::slow(), |p| p.rst || p.fin);
                wanted(what, ends && side.buf.is_empty(), &side.buf)?;
                side.send_rst();
                heard += u64::from(right);
                one.talk(3)?;
                two.talk(3)?;
                let tcp = one.is_tcp() && two.is_tcp();
                wanted(what, tcp, (one.pair.info(), two.pair.info()))?;
            }
        }
        let begun = counted.grown("promotion_begun ROLE");
        wanted(
            "heard are those with both numbers",
            begun == [0, heard],
            begun,
        )?;
        let done = counted.grown("promotion_done ROLE");
        wanted("nothing has joined", done == [0, 0], done)?;
        sys::nonblock(listener.raw(), true);
        let more = sys::accept(listener.raw()).map(|fd| fd.raw());
        wanted("no program gets one", more.is_err(), more)?;
        until_all_moved(&mut [&mut one, &mut two])?;
        let done = counted.grown("promotion_done ROLE");
        wanted("promoted by their hosts", done == [0, 2], done)?;
    }
    smcinfo::settled(before, 20_000)
}
