// SPDX-License-Identifier: GPL-2.0
//! A peer made of packets, that answers SYNs as the test says.

use super::{is_remembered, is_tcp, remembered, rsmc, time, Of};
use super::{NEIGHBOUR, NOSMCDEV, OPTIONLOST, OPTIONRESET, PEERNOSMC};
use crate::point;
use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::packet::{self, SMC_OPTION};
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer, Wire, MSS};
use st::{addr, clc, net, sys};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Points of `wire`.
pub const LIST: &[Point] = &[
    point!("wire.silence", silence),
    point!("wire.silence_blocking", silence_blocking),
    point!("wire.silence_again", silence_again),
    point!("wire.two_ports", two_ports),
    point!("wire.late_answer", late_answer),
    point!("wire.late_identity", late_identity),
    point!("wire.lost_syns", lost_syns),
    point!("wire.given_up", given_up),
    point!("wire.echo", echo),
    point!("wire.reset", reset),
    point!("wire.reset_blocking", reset_blocking),
    point!("wire.reset_told", reset_told),
    point!("wire.icmp", icmp),
    point!("wire.icmp_blocking", icmp_blocking),
    point!("wire.icmp_refused", icmp_refused),
    point!("wire.closed", closed),
    point!("wire.closed_blocking", closed_blocking),
    point!("wire.one_tries", one_tries),
    point!("wire.routes", routes),
    point!("wire.strict", strict),
    point!("wire.off", off),
    point!("wire.whose", whose),
    point!("wire.rewritten", rewritten),
];

/// Port of the packet end.
const PORT: u16 = 7777;

fn peer(t: &T) -> SocketAddr {
    let ip = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    SocketAddr::new(ip, PORT)
}

/// Seconds for which peers are remembered in these tests, ten times the default: on a loaded machine more than a minute
/// may pass before the next connection.
const LONG: u64 = 36_000;
/// The same after the first silence, a 64th.
const FIRST: u64 = LONG.div_ceil(64);

fn wire() -> Wire {
    time(LONG);
    Wire::open("vb").expect("packet socket")
}

fn start_at(t: &T, port: u16) -> Fd {
    let fd = t.socket();
    sys::nonblock(fd.raw(), true);
    let done = sys::connect(fd.raw(), &SocketAddr::new(peer(t).ip(), port));
    assert_eq!(done, Err(Errno(libc::EINPROGRESS)));
    fd
}

fn start(t: &T) -> Fd {
    start_at(t, PORT)
}

/// The next SYN, and whether it has an option of ours.
fn syn<'a>(t: &mut T, wire: &'a Wire) -> (Peer<'a>, bool) {
    syn_at(t, wire, PORT)
}

fn syn_at<'a>(t: &mut T, wire: &'a Wire, port: u16) -> (Peer<'a>, bool) {
    let peer = Peer::wait_syn(wire, t.ip, port, 5000 * st::guest::slow()).expect("no SYN");
    t.check("sums", peer.syn.sums != packet::Sums::Bad);
    let options = packet::options(&peer.syn.opts).unwrap_or_default();
    let ours = options.iter().filter(|option| option.0 >= 253).count();
    t.check(
        &format!("both or none: {options:02x?}"),
        [0, 2].contains(&ours),
    );
    (peer, ours != 0)
}

/// The next SYN, which has the option.
fn offered<'a>(t: &mut T, wire: &'a Wire, what: &str) -> Peer<'a> {
    let (peer, ours) = syn(t, wire);
    t.check(what, ours);
    peer
}

/// The SYNs up to the one without an option; none of them is answered.
fn silent<'a>(t: &mut T, wire: &'a Wire) -> Peer<'a> {
    silent_at(t, wire, PORT)
}

fn silent_at<'a>(t: &mut T, wire: &'a Wire, port: u16) -> Peer<'a> {
    let first = Instant::now();
    let mut seen = vec![];
    loop {
        let (peer, ours) = syn_at(t, wire, port);
        seen.push((ours, peer.syn.seq));
        if !ours || seen.len() > 4 {
            let wanted: Vec<_> = [true, true, false].map(|ours| (ours, peer.syn.seq)).into();
            t.is("option and sequence number of the SYNs", seen, wanted);
            let took = first.elapsed();
            t.check(
                &format!("after {took:?}"),
                took < Duration::from_secs(20 * st::guest::slow()),
            );
            return peer;
        }
    }
}

/// The program's bytes, and none else, reach the peer and come back.
fn talk(t: &mut T, fd: &Fd, peer: &mut Peer) {
    let open = sys::poll_until(fd.raw(), libc::POLLOUT, 4000 * st::guest::slow());
    t.is(
        "events",
        open & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP),
        libc::POLLOUT,
    );
    t.is(
        "SO_ERROR",
        sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR),
        Ok(0),
    );
    sys::nonblock(fd.raw(), false);
    t.is(
        "send",
        sys::send(fd.raw(), b"from the program", 0).ok(),
        Some(16),
    );
    let got = peer.recv(16, 3000);
    t.is("peer hears", got.as_deref(), Some(&b"from the program"[..]));
    peer.send(b"from the peer");
    let got = sys::recv_vec(fd.raw(), 64, 0);
    t.is("program hears", got.ok(), Some(b"from the peer".to_vec()));
}

/// The next connection sends no option and is quick.
fn next_goes_without(t: &mut T, wire: &Wire) {
    let fd = start(t);
    let (mut other, ours) = syn(t, wire);
    t.check("no option any more", !ours);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, NEIGHBOUR);
    talk(t, &fd, &mut other);
}

/// Forgotten by command, a peer is sent the option.
fn forgotten_is_tried(t: &mut T, wire: &Wire) {
    let to = peer(t);
    let address = to.ip().to_canonical();
    t.is("another one", rsmc("why 192.0.2.1 --forget").0, 5);
    t.is(
        "forget",
        rsmc(&format!("why {address} --forget")),
        (0, String::new()),
    );
    t.is("twice", rsmc(&format!("why {address} --forget")).0, 5);
    t.is("forgotten", remembered(&to), None);
    let _fd = start(t);
    let (_, ours) = syn(t, wire);
    t.check("tried again", ours);
}

const SILENT: &str = "does not answer SYNs with the SMC option";

fn silence(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    let mut other = silent(t, &wire);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, OPTIONLOST);
    talk(t, &fd, &mut other);
    is_remembered(t, &peer(t), Of::Port, "silence", FIRST, SILENT);
    next_goes_without(t, &wire);
    forgotten_is_tried(t, &wire);
}

/// connect() of a blocking socket, in another thread; `meet` plays the peer.
fn blocking(t: &mut T, meet: impl FnOnce(&mut T, RawFd)) -> (Fd, Result<i64, Errno>) {
    let fd = t.socket();
    let (raw, to) = (fd.raw(), peer(t));
    let waits = std::thread::spawn(move || sys::connect(raw, &to));
    meet(t, raw);
    let done = waits.join().expect("connect");
    (fd, done)
}

fn silence_blocking(t: &mut T) {
    let wire = wire();
    let mut other = None;
    let (fd, done) = blocking(t, |t, _| {
        let mut met = silent(t, &wire);
        t.check("ACK", met.syn_ack(&[]));
        other = Some(met);
    });
    t.is("connect", done, Ok(0));
    is_tcp(t, &fd, OPTIONLOST);
    talk(t, &fd, &mut other.expect("a peer"));
    is_remembered(t, &peer(t), Of::Port, "silence", FIRST, SILENT);
    next_goes_without(t, &wire);
}

/// A queue of connections may have been full. The connection that tries when a 64th of the time is over finds the
/// same: so it is the option.
fn silence_again(t: &mut T) {
    let wire = wire();
    time(64);
    for seconds in [1, 64] {
        let fd = start(t);
        let mut other = silent(t, &wire);
        t.check("ACK", other.syn_ack(&[]));
        is_tcp(t, &fd, OPTIONLOST);
        let left = remembered(&peer(t)).map_or(0, |record| record.seconds);
        let least = if seconds == 1 { 0 } else { 2 };
        t.check(
            &format!("{left} s of {seconds}"),
            (least..=seconds).contains(&left),
        );
        sys::sleep_ms(1100);
    }
    next_goes_without(t, &wire);
}

/// A second port that is silent, too, makes it the address; before that all others are sent the option.
fn two_ports(t: &mut T) {
    let wire = wire();
    let mut fds = vec![];
    for port in [PORT, PORT + 1] {
        let fd = start_at(t, port);
        let mut other = silent_at(t, &wire, port);
        t.check("ACK", other.syn_ack(&[]));
        is_tcp(t, &fd, OPTIONLOST);
        fds.push(fd);
    }
    let third = SocketAddr::new(peer(t).ip(), PORT + 2);
    is_remembered(t, &third, Of::Address, "silence", LONG, SILENT);
    let fd = start_at(t, third.port());
    let (mut other, ours) = syn_at(t, &wire, third.port());
    t.check("no option", !ours);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, NEIGHBOUR);
    forgotten_is_tried(t, &wire);
}

/// A BPF program sends the connections to a service's address to the peer, which is silent: remembered for both, so
/// the next one does not wait.
fn rewritten(t: &mut T) {
    const SERVICE: [u8; 4] = [203, 0, 113, 9];
    if t.ip != Ip::V4 {
        return;
    }
    let _rewriting = match st::cgroup::Rewriting::to(net::B4.into()) {
        Ok(rewriting) => rewriting,
        Err(e) => return t.say(&format!("skip: {e}")),
    };
    let wire = wire();
    let service = SocketAddr::new(SERVICE.into(), PORT);
    let begin = |t: &T| {
        let fd = t.socket();
        sys::nonblock(fd.raw(), true);
        let done = sys::connect(fd.raw(), &service);
        assert_eq!(done, Err(Errno(libc::EINPROGRESS)));
        fd
    };
    let fd = begin(t);
    let mut other = silent(t, &wire);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, OPTIONLOST);
    talk(t, &fd, &mut other);
    is_remembered(t, &peer(t), Of::Port, "silence", FIRST, SILENT);
    is_remembered(t, &service, Of::Port, "silence", FIRST, SILENT);
    let fd = begin(t);
    let (mut other, ours) = syn(t, &wire);
    t.check("no option any more", !ours);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, NEIGHBOUR);
    talk(t, &fd, &mut other);
}

/// The peer has got the first SYN, and its SYN-ACK was lost; it says SMC when the third one comes.
fn late_answer(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    let mut other = silent(t, &wire);
    t.check("ACK", other.syn_ack(&SMC_OPTION));
    // There is no device: the client declines, in CLC, as the peer expects.
    let m = clc::read(&mut other, 4000).unwrap_or_default();
    t.is("CLC", clc::header(&m).map(|h| h.ty), Some(clc::DECLINE));
    is_tcp(t, &fd, NOSMCDEV);
    talk(t, &fd, &mut other);
    t.is("remembered", remembered(&peer(t)), None);
}

/// The same of a host with this module, that answers with its identity: here another host's.
fn late_identity(t: &mut T) {
    net::sysctl("net.smc.path", "2").expect("sysctl");
    let wire = wire();
    let fd = start(t);
    let first = syn(t, &wire).0;
    let options = packet::options(&first.syn.opts).unwrap_or_default();
    let own = options.iter().find(|option| option.0 == 253);
    let mut identity = own.expect("an identity").1.clone();
    // An answer, of another host; the client has said besides that it takes TCP at first.
    identity[4] = (identity[4] & 0xf0) | 1;
    identity[5] ^= 0x55;
    offered(t, &wire, "second");
    let (mut other, ours) = syn(t, &wire);
    t.check("third", !ours);
    t.check("ACK", other.syn_ack(&identity));
    talk(t, &fd, &mut other);
    // It began as TCP, and has no device to be promoted over.
    t.is("kind", super::kind(&fd), Some((3, NOSMCDEV)));
    t.is("remembered", remembered(&peer(t)), None);
}

/// A SYN is lost, and then the peer answers: it is a good one, and SMC's.
fn lost_syns(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    offered(t, &wire, "first");
    let (mut other, ours) = syn(t, &wire);
    t.check("second", ours);
    t.check("ACK", other.syn_ack(&SMC_OPTION));
    let m = clc::read(&mut other, 4000).unwrap_or_default();
    t.is("CLC", clc::header(&m).map(|h| h.ty), Some(clc::DECLINE));
    is_tcp(t, &fd, NOSMCDEV);
    t.is("remembered", remembered(&peer(t)), None);
}

/// A program that gives up before the third SYN: its next attempt goes without, for a while.
fn given_up(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    offered(t, &wire, "first");
    drop(fd);
    t.is("after one SYN", remembered(&peer(t)), None);
    let fd = start(t);
    offered(t, &wire, "first again");
    offered(t, &wire, "second");
    drop(fd);
    is_remembered(t, &peer(t), Of::Port, "silence", FIRST, SILENT);
    next_goes_without(t, &wire);
    // Whoever gives up decides about no other service of the host.
    let _fd = start_at(t, PORT + 1);
    let (_, ours) = syn_at(t, &wire, PORT + 1);
    t.check("another port", ours);
}

fn echo(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    let (mut other, ours) = syn(t, &wire);
    t.check("option", ours);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    is_tcp(t, &fd, PEERNOSMC);
    talk(t, &fd, &mut other);
    is_remembered(
        t,
        &peer(t),
        Of::Address,
        "echo",
        LONG,
        "sends any TCP option back",
    );
    next_goes_without(t, &wire);
    forgotten_is_tried(t, &wire);
}

const RESETS: &str = "resets SYNs with the SMC option";

/// Refuses a SYN with the option, as `refuse` does, and answers the one that comes then.
fn refuses_option<'a>(t: &mut T, wire: &'a Wire, refuse: impl FnOnce(&mut Peer<'a>)) -> Peer<'a> {
    let (mut first, ours) = syn(t, wire);
    t.check("option", ours);
    refuse(&mut first);
    let (mut second, ours) = syn(t, wire);
    t.check("then none", !ours);
    // So it did not wait until TCP repeats a SYN.
    t.check("another attempt", second.syn.seq != first.syn.seq);
    t.check("ACK", second.syn_ack(&[]));
    second
}

fn resets<'a>(t: &mut T, wire: &'a Wire) -> Peer<'a> {
    refuses_option(t, wire, Peer::send_rst)
}

fn reset(t: &mut T) {
    let wire = wire();
    // A program may have begun to listen between the two SYNs: once more, and a third time.
    for _ in 0..3 {
        t.is("remembered", remembered(&peer(t)), None);
        let fd = start(t);
        let mut other = resets(t, &wire);
        is_tcp(t, &fd, OPTIONRESET);
        talk(t, &fd, &mut other);
    }
    is_remembered(t, &peer(t), Of::Port, "reset", LONG, RESETS);
    next_goes_without(t, &wire);
    forgotten_is_tried(t, &wire);
}

fn reset_blocking(t: &mut T) {
    let wire = wire();
    for _ in 0..3 {
        let mut other = None;
        let (fd, done) = blocking(t, |t, _| other = Some(resets(t, &wire)));
        t.is("connect", done, Ok(0));
        is_tcp(t, &fd, OPTIONRESET);
        talk(t, &fd, &mut other.expect("a peer"));
    }
    is_remembered(t, &peer(t), Of::Port, "reset", LONG, RESETS);
    next_goes_without(t, &wire);
}

/// The program waits in epoll, by edges, and hears nothing of the reset.
fn reset_told(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    // SAFETY: no pointers; then one event of ours.
    let (epoll, added) = unsafe {
        let epoll = Fd::new(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
            u64: 0,
        };
        let added = libc::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, fd.raw(), &mut event);
        (epoll, added)
    };
    t.is("epoll_ctl", added, 0);
    let raw = epoll.raw();
    let waits = std::thread::spawn(move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event of ours.
        unsafe { libc::epoll_wait(raw, &mut event, 1, 20_000) };
        event.events
    });
    let mut other = resets(t, &wire);
    let events = waits.join().expect("epoll");
    t.is("events", events, libc::EPOLLOUT as u32);
    is_tcp(t, &fd, OPTIONRESET);
    talk(t, &fd, &mut other);
}

/// Codes of "destination unreachable" that mean network, host, port and what a firewall forbids, and TCP's error.
fn unreachable(t: &T) -> &'static [(u8, i32)] {
    match t.ip {
        Ip::V6 => &[
            (0, libc::ENETUNREACH),
            (1, libc::EACCES),
            (3, libc::EHOSTUNREACH),
            (4, libc::ECONNREFUSED),
            (5, libc::EACCES),
        ],
        _ => &[
            (0, libc::ENETUNREACH),
            (1, libc::EHOSTUNREACH),
            (3, libc::ECONNREFUSED),
            (10, libc::EHOSTUNREACH),
            (13, libc::EHOSTUNREACH),
        ],
    }
}

/// Answers a SYN of `fd` by ICMP when no thread has the socket's lock. TCP passes over an error that comes earlier, and
/// sends the SYN again; a peer that answers at once would come so early.
fn forbid(fd: RawFd, syn: &Peer, code: u8) {
    // Waits for the lock.
    sys::setopt(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0).expect("SO_KEEPALIVE");
    syn.send_unreachable(code);
}

fn forbids<'a>(t: &mut T, wire: &'a Wire, fd: RawFd, code: u8) -> Peer<'a> {
    refuses_option(t, wire, |first| forbid(fd, first, code))
}

/// A firewall answers SYNs with the option by ICMP: an answer to the option, as a reset is.
fn icmp(t: &mut T) {
    let wire = wire();
    for (n, &(code, _)) in unreachable(t).iter().enumerate() {
        t.is(&format!("{code}: remembered"), remembered(&peer(t)), None);
        let fd = start(t);
        let mut other = forbids(t, &wire, fd.raw(), code);
        is_tcp(t, &fd, OPTIONRESET);
        talk(t, &fd, &mut other);
        if n == 2 {
            is_remembered(t, &peer(t), Of::Port, "reset", LONG, RESETS);
            next_goes_without(t, &wire);
            forgotten_is_tried(t, &wire);
        }
    }
}

fn icmp_blocking(t: &mut T) {
    let wire = wire();
    let (code, _) = unreachable(t)[1];
    let mut other = None;
    let (fd, done) = blocking(t, |t, fd| other = Some(forbids(t, &wire, fd, code)));
    t.is("connect", done, Ok(0));
    is_tcp(t, &fd, OPTIONRESET);
    talk(t, &fd, &mut other.expect("a peer"));
}

/// Both SYNs are answered so: the program has TCP's error, once, and nothing is remembered.
fn icmp_refused(t: &mut T) {
    let wire = wire();
    for &(code, error) in unreachable(t) {
        let fd = start(t);
        for wanted in [true, false] {
            let (other, ours) = syn(t, &wire);
            t.is(&format!("{code}: option"), ours, wanted);
            forbid(fd.raw(), &other, code);
        }
        let events = sys::poll_until(fd.raw(), libc::POLLERR, 4000 * st::guest::slow());
        t.check(
            &format!("{code}: events {}", sys::events(events.into())),
            events & libc::POLLERR != 0 && events & libc::POLLHUP != 0,
        );
        for wanted in [error, 0] {
            let seen = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
            t.is(&format!("{code}: SO_ERROR"), seen, Ok(wanted));
        }
        t.is(&format!("{code}: remembered"), remembered(&peer(t)), None);
        let again = wire.next(300, |s| s.dst.port() == PORT);
        t.check("no third SYN", again.is_none());
    }
}

/// Refuses both SYNs, with the option and without.
fn refuses(t: &mut T, wire: &Wire) {
    for wanted in [true, false] {
        let (mut other, ours) = syn(t, wire);
        t.is("option", ours, wanted);
        other.send_rst();
    }
    let more = wire.next(300, |s| s.dst.port() == PORT);
    t.check("no third one", more.is_none());
}

/// A closed port is refused as ever, and says nothing about the peer.
fn closed(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    refuses(t, &wire);
    let events = sys::poll_until(fd.raw(), libc::POLLERR, 4000 * st::guest::slow());
    t.check(
        &format!("events {}", sys::events(events.into())),
        events & libc::POLLERR != 0 && events & libc::POLLHUP != 0,
    );
    let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    t.is("SO_ERROR", error, Ok(libc::ECONNREFUSED));
    t.is("remembered", remembered(&peer(t)), None);
    // The socket may be used again, and its option is sent again.
    let _ = sys::connect(fd.raw(), &peer(t));
    let done = sys::connect(fd.raw(), &peer(t));
    t.check(&format!("again: {done:?}"), done.is_err());
    let (mut other, ours) = syn(t, &wire);
    t.check("with the option", ours);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, PEERNOSMC);
    talk(t, &fd, &mut other);
}

fn closed_blocking(t: &mut T) {
    let wire = wire();
    let (fd, done) = blocking(t, |t, _| refuses(t, &wire));
    t.is("connect", done, Err(Errno(libc::ECONNREFUSED)));
    t.is("remembered", remembered(&peer(t)), None);
    drop(fd);
    let _fd = start(t);
    offered(t, &wire, "with the option");
}

/// When the time is over one connection tries, and those that begin meanwhile do not.
fn one_tries(t: &mut T) {
    let wire = wire();
    time(2);
    let _fd = start(t);
    let (mut other, _) = syn(t, &wire);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    // Seconds, rounded up, and the work of the connection that is left.
    sys::sleep_ms(2500);
    let left = remembered(&peer(t)).map(|record| record.seconds);
    t.is("left", left, Some(0));
    let mut fds = vec![];
    for wanted in [true, false, false] {
        fds.push(start(t));
        let (met, ours) = syn(t, &wire);
        t.is("option", ours, wanted);
        if wanted {
            other = met;
        }
    }
    // It is as good as others now.
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fds[0], PEERNOSMC);
    t.is("forgiven", remembered(&peer(t)), None);
    let _fd = start(t);
    offered(t, &wire, "with the option");
}

/// New routes: one may try after a 64th of the time.
fn routes(t: &mut T) {
    let wire = wire();
    time(128);
    // The devices' own addresses are routes, too, and come with a delay.
    sys::sleep_ms(4000);
    let _fd = start(t);
    let (mut other, _) = syn(t, &wire);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    sys::sleep_ms(3000);
    next_goes_without(t, &wire);
    let change = match t.ip {
        Ip::V6 => "ip -6 route add fd78::/64 dev va",
        _ => "ip route add 192.0.2.0/24 dev va",
    };
    t.is("route", net::sh(change), Ok(()));
    let _fd = start(t);
    offered(t, &wire, "tried");
}

/// A program that accepts no TCP asks every time.
fn strict(t: &mut T) {
    let wire = wire();
    let _fd = start(t);
    let (mut other, _) = syn(t, &wire);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    let end = st::guest::until(1000);
    while remembered(&peer(t)).is_none() && std::time::Instant::now() < end {
        sys::sleep_ms(10);
    }
    net::sysctl("net.smc.strict", "1").expect("sysctl");
    let fd = start(t);
    let (mut other, ours) = syn(t, &wire);
    t.check("with the option", ours);
    other.send_rst();
    let more = wire.next(300, |s| s.dst.port() == PORT);
    t.check("no second one", more.is_none());
    let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    t.is("SO_ERROR", error, Ok(libc::ECONNREFUSED));
}

/// Nothing is remembered, and a refusal is one; the third SYN is sent without the option all the same.
fn off(t: &mut T) {
    let wire = wire();
    time(0);
    let _fd = start(t);
    let (mut other, _) = syn(t, &wire);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    let fd = start(t);
    let (mut other, ours) = syn(t, &wire);
    t.check("with the option", ours);
    other.send_rst();
    let more = wire.next(300, |s| s.dst.port() == PORT);
    t.check("no second one", more.is_none());
    let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    t.is("SO_ERROR", error, Ok(libc::ECONNREFUSED));
    let fd = start(t);
    let mut other = silent(t, &wire);
    t.check("ACK", other.syn_ack(&[]));
    is_tcp(t, &fd, OPTIONLOST);
    t.is("remembered", remembered(&peer(t)), None);
}

/// Each namespace has its own, and only its administrators change it.
fn whose(t: &mut T) {
    let wire = wire();
    let fd = start(t);
    let (mut other, _) = syn(t, &wire);
    let back = other.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", other.syn_ack(&back));
    is_tcp(t, &fd, PEERNOSMC);
    let sh = |line: &str| {
        let done = std::process::Command::new("sh").args(["-c", line]).output();
        let done = done.expect("sh");
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stdout).into_owned(),
        )
    };
    let nobody = "setpriv --reuid=65534 --clear-groups";
    let (status, _) = sh(&format!("{nobody} --inh-caps=-all rsmc why --forget"));
    t.is("nobody", status, Some(4));
    let (status, said) = sh(&format!(
        "{nobody} unshare -Urn sh -c 'rsmc why --forget && grep -c neighbour /proc/net/smc_fallback'"
    ));
    t.is("in a container", (status, said.as_str()), (Some(1), "0\n"));
    t.check("ours stays", remembered(&peer(t)).is_some());
    t.is("administrator", rsmc("why --forget").0, 0);
    t.is("forgotten", remembered(&peer(t)), None);
}
