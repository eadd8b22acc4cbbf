// SPDX-License-Identifier: GPL-2.0
//! A box on the way that changes the length of what a client has said, as NAT does for FTP or SIP: from there on the two
//! ends count the bytes of TCP's stream differently, and the box keeps that from both. Such a connection cannot leave TCP at
//! a position that both name alike. It is reset, and no byte is read in a wrong place.

use super::seen::{Counted, PATHBREACH};
use super::snat::{commands, mac};
use super::*;
use st::errno::Errno;
use st::packet::{self, Seg, ACK};
use st::rawpeer::Wire;
use std::sync::atomic::AtomicBool;

/// The client's port, and the box's address on the wire.
const PORT: u16 = 4001;
const BOX: [u8; 6] = [2, 0x78, 0, 0, 0, 9];
/// Bytes of a message.
const LEN: usize = 64;
/// A socket's `TCP_USER_TIMEOUT` in milliseconds, after which bytes that do not come are given up: the least that counts.
const PATIENCE: i32 = 5000;

/// Keeps the connection's packets from the two kernels unless they come from the box.
struct Rules;

impl Rules {
    fn new(server: u16) -> Result<Self, String> {
        let this = Self;
        for (ns, from, to) in [("b", PORT, server), ("a", server, PORT)] {
            let lines = format!(
                "add table ip box
                 add chain ip box in {{ type filter hook prerouting priority -300; }}
                 add rule ip box in tcp sport {from} tcp dport {to} ether saddr != {} drop",
                mac(BOX)
            );
            commands(Some(ns), "nft", &lines)?;
        }
        Ok(this)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        for ns in ["a", "b"] {
            let _ = commands(Some(ns), "nft", "delete table ip box");
        }
    }
}

/// What the box does to the client's first message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It gets a byte more.
    Longer,
    /// It loses its last byte.
    Shorter,
}

/// Numbers of the client's stream on its two sides.
struct Shift {
    change: Change,
    /// The sequence number behind the message, as the client has it.
    behind: Option<u32>,
}

impl Shift {
    fn by(&self) -> u32 {
        match self.change {
            Change::Longer => 1,
            Change::Shorter => u32::MAX,
        }
    }

    /// Changes a segment of the client's.
    fn for_server(&mut self, seg: &mut Seg) {
        let end = seg.seq.wrapping_add(seg.data.len() as u32);
        if !seg.data.is_empty() && self.behind.is_none_or(|behind| behind == end) {
            self.behind = Some(end);
            match self.change {
                Change::Longer => seg.data.push(b'!'),
                Change::Shorter => drop(seg.data.pop()),
            }
        } else if self.behind.is_some_and(|behind| is_at(behind, seg.seq)) {
            seg.seq = seg.seq.wrapping_add(self.by());
        }
    }

    /// Changes one of the server's.
    fn for_client(&self, seg: &mut Seg) {
        let seen = |behind: u32| is_at(behind.wrapping_add(self.by()), seg.ack);
        if seg.flags & ACK != 0 && self.behind.is_some_and(seen) {
            seg.ack = seg.ack.wrapping_sub(self.by());
        }
    }
}

/// Tells whether a sequence number is this one or a later one.
fn is_at(mark: u32, seq: u32) -> bool {
    seq.wrapping_sub(mark) as i32 >= 0
}

/// Carries the connection's packets from one side to the other while `over` is not set.
fn carry(wires: [&Wire; 2], server: u16, change: Change, over: &AtomicBool) {
    let mut shift = Shift {
        change,
        behind: None,
    };
    let mut buf = vec![0; 1 << 17];
    while !over.load(Relaxed) {
        for (way, wire) in wires.into_iter().enumerate() {
            let Some(frame) = wire.next_frame(&mut buf, 1) else {
                continue;
            };
            let (Some(to), Some(from)) = (frame.get(..6), frame.get(6..12)) else {
                continue;
            };
            let to = <[u8; 6]>::try_from(to).expect("an address");
            let Some(mut seg) = packet::parse(frame).filter(|_| from != BOX) else {
                continue;
            };
            // What the side's own kernel sends.
            match (seg.src.port(), seg.dst.port()) {
                (PORT, port) if port == server && way == 0 => shift.for_server(&mut seg),
                (port, PORT) if port == server && way == 1 => shift.for_client(&mut seg),
                _ => continue,
            }
            wire.put_frame(&packet::build(BOX, to, &seg));
        }
    }
}

/// A connection through the box, and the bytes that the server reads of the client's first message.
fn rewritten(change: Change) -> Outcome {
    after(8);
    let counted = Counted::now();
    let (listener, to) = listener();
    let _rules = Rules::new(to.port())?;
    let wire = |ns, dev: &'static str| {
        let wire = within(ns, move || Wire::open(dev));
        wire.map_err(|e| format!("packets: {e}"))
    };
    let wires = [wire("a", "va")?, wire("b", "vb")?];
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| carry([&wires[0], &wires[1]], to.port(), change, &over));
        let done = through_box(&listener, to, change, &counted);
        over.store(true, Relaxed);
        done
    })
}

fn through_box(listener: &Fd, to: SocketAddr, change: Change, counted: &Counted) -> Outcome {
    let client = within("a", move || {
        let fd = st::card::socket();
        let from = guest::sockaddr(false, family::Ip::V4, PORT);
        sys::bind(fd.raw(), &from)?;
        sys::connect(fd.raw(), &to).map(|_| fd)
    })
    .map_err(|e| format!("connect: {e}"))?;
    let server = sys::accept(listener.raw()).map_err(|e| format!("accept: {e}"))?;
    let limit = guest::limit(60_000) as i64;
    for fd in [&client, &server] {
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let _ = sys::set_timeo(fd.raw(), name, limit);
        }
        let option = libc::TCP_USER_TIMEOUT;
        sys::setopt(fd.raw(), libc::IPPROTO_TCP, option, PATIENCE)
            .map_err(|e| format!("TCP_USER_TIMEOUT: {e}"))?;
    }
    let mut bytes = [0; LEN];
    fill(7, 0, &mut bytes);
    sys::send_all(client.raw(), &bytes).map_err(|e| format!("send: {e}"))?;
    let mut seen = bytes.to_vec();
    match change {
        Change::Longer => seen.push(b'!'),
        Change::Shorter => drop(seen.pop()),
    }
    let got = sys::recv_all(server.raw(), seen.len()).map_err(|e| format!("recv: {e}"))?;
    wanted("the box's bytes", got == seen, got)?;
    let error = until_reset(&client, &server)?;
    println!("# {error}");
    let info = smcinfo::info(server.raw()).map_err(|e| format!("info: {e}"))?;
    wanted("reason", info.reason == PATHBREACH, info)?;
    counted.is(
        "counted",
        &format!("reason ROLE {PATHBREACH:#010x}"),
        [0, 1],
    )
}

/// Exchanges messages until a call fails. Returns its error.
fn until_reset(client: &Fd, server: &Fd) -> Result<Errno, String> {
    let told = |error: Errno| match error.0 {
        libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE => Ok(error),
        _ => Err(format!("not reset: {error}")),
    };
    let mut at = LEN as u64;
    for _ in 0..20_000 {
        for (from, to) in [(client, server), (server, client)] {
            let mut bytes = [0; LEN];
            fill(7, at, &mut bytes);
            if let Err(error) = sys::send_all(from.raw(), &bytes) {
                return told(error);
            }
            match sys::recv_all(to.raw(), LEN) {
                Ok(got) if got == bytes => at += LEN as u64,
                Ok(got) if got.len() < LEN => return Err(format!("an end at {at}")),
                Ok(_) => return Err(format!("wrong bytes at {at}")),
                Err(error) => return told(error),
            }
        }
    }
    Err("not reset".into())
}

/// The server has more of the client's bytes than the client's cut says.
pub(super) fn longer() -> Outcome {
    rewritten(Change::Longer)
}

/// The server never gets all the bytes before the client's cut.
pub(super) fn shorter() -> Outcome {
    rewritten(Change::Shorter)
}
