// SPDX-License-Identifier: GPL-2.0
//! One end of a reliable connection made of packets: what an RDMA device does for a queue pair,
//! done by hand, so that a test can also do what no device would. It sits on `vb` of
//! [`crate::net::wire`]; a thread of its own acknowledges, collects and retransmits.

use crate::family::Ip;
use crate::net::{MAC_A, MAC_B};
use crate::rawpeer::{wire_addr, Frames, Wire};
use crate::roce::{self, op, reth, Packet};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a packet's payload.
const MTU: usize = 1024;
/// Packets under way at a time.
const WINDOW: usize = 16;
const PSN: u32 = 0xff_ffff;

/// A piece that the peer has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where to.
    pub addr: u64,
    /// By which key.
    pub rkey: u32,
    /// The bytes.
    pub data: Vec<u8>,
    /// With which immediate.
    pub immediate: Option<u32>,
}

/// Something the peer did, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A SEND.
    Message(Vec<u8>),
    /// A WRITE.
    Written(Written),
}

/// Fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All acknowledged.
    Acked,
    /// Refused for good, with the code of the NAK.
    Nak(u8),
    /// No answer in time.
    Silence,
}

struct State {
    peer: Option<(u32, u32)>,
    next: u32,
    waiting: VecDeque<Packet>,
    unacked: VecDeque<Packet>,
    moved: Instant,
    resend: Option<Instant>,
    nak: Option<u8>,
    // The receiving side.
    expected: u32,
    messages: u32,
    partial: Vec<u8>,
    at: Option<(u64, u32)>,
    arrived: VecDeque<Arrived>,
    answers: bool,
    busy: bool,
    // The answer to the frames of this look; a later one stands for those before it.
    owed: Option<Packet>,
    stop: bool,
}

struct Shared {
    wire: Wire,
    ip: Ip,
    qpn: u32,
    state: Mutex<State>,
    news: Condvar,
}

/// The end.
pub struct Rc {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn packet(&self, qpn: u32, psn: u32, opcode: u8, ask: bool, body: Vec<u8>) -> Packet {
        Packet {
            src: wire_addr(true, self.ip),
            dst: wire_addr(false, self.ip),
            opcode,
            qpn,
            psn,
            ask,
            body,
        }
    }

    fn put(&self, p: &Packet) {
        self.wire.put_frame(&roce::build(MAC_B, MAC_A, p));
    }

    fn pump(&self, s: &mut State) {
        while s.unacked.len() < WINDOW && s.nak.is_none() {
            let Some(p) = s.waiting.pop_front() else {
                break;
            };
            self.put(&p);
            s.unacked.push_back(p);
        }
    }

    fn acknowledged(&self, s: &mut State, p: &Packet) {
        let Some(&syndrome) = p.body.first() else {
            return;
        };
        // A NAK acknowledges everything before its packet.
        let through = match syndrome >> 5 {
            0 => p.psn,
            _ => p.psn.wrapping_sub(1) & PSN,
        };
        while let Some(first) = s.unacked.front() {
            if (through.wrapping_sub(first.psn) & PSN) >= 0x80_0000 {
                break;
            }
            s.unacked.pop_front();
            s.moved = Instant::now();
        }
        match syndrome {
            0x20..=0x3f => s.resend = Some(Instant::now() + Duration::from_millis(2)),
            0x60 => s.resend = Some(Instant::now()),
            0x61.. => s.nak = Some(syndrome & 0x1f),
            _ => (),
        }
        self.pump(s);
    }

    fn take(&self, s: &mut State, p: Packet) {
        if p.opcode == op::ACK {
            self.acknowledged(s, &p);
            return;
        }
        let Some((qpn, _)) = s.peer else { return };
        if !s.answers {
            return;
        }
        if s.busy {
            // Receiver not ready, to be asked again after 0.01 ms.
            self.answer(s, qpn, s.expected, 0x21);
            return;
        }
        let ahead = p.psn.wrapping_sub(s.expected) & PSN;
        if ahead != 0 {
            // Old ones are acknowledged again, a gap is reported.
            let (psn, syndrome) = if ahead >= 0x80_0000 {
                (s.expected.wrapping_sub(1) & PSN, 0x1f)
            } else {
                (s.expected, 0x60)
            };
            self.answer(s, qpn, psn, syndrome);
            return;
        }
        s.expected = (s.expected + 1) & PSN;
        let mut body = &p.body[..];
        if p.is_first() {
            s.partial.clear();
            s.at = None;
            if p.is_write() && body.len() >= 16 {
                let addr = u64::from_be_bytes(body[..8].try_into().expect("8 bytes"));
                let rkey = u32::from_be_bytes(body[8..12].try_into().expect("4 bytes"));
                s.at = Some((addr, rkey));
                body = &body[16..];
            }
        }
        let mut immediate = None;
        if p.has_write_immediate() && body.len() >= 4 {
            immediate = Some(u32::from_be_bytes(body[..4].try_into().expect("4 bytes")));
            body = &body[4..];
        }
        s.partial.extend(body);
        if p.is_last() {
            s.messages = (s.messages + 1) & PSN;
            let data = std::mem::take(&mut s.partial);
            match s.at.take() {
                // By that the peer has the end told of what it has sent before. A device tells nobody of it.
                Some(_) if data.is_empty() && immediate.is_none() => (),
                Some((addr, rkey)) => s.arrived.push_back(Arrived::Written(Written {
                    addr,
                    rkey,
                    data,
                    immediate,
                })),
                None => s.arrived.push_back(Arrived::Message(data)),
            }
        }
        if p.ask || p.is_last() {
            self.answer(s, qpn, p.psn, 0x1f);
        }
    }

    /// Notes an acknowledgement of everything before or through `psn`.
    fn answer(&self, s: &mut State, qpn: u32, psn: u32, syndrome: u8) {
        let body = (s.messages | (u32::from(syndrome) << 24))
            .to_be_bytes()
            .to_vec();
        s.owed = Some(self.packet(qpn, psn, op::ACK, false, body));
    }

    fn tick(&self, s: &mut State) {
        let now = Instant::now();
        let late = !s.unacked.is_empty() && now > s.moved + Duration::from_millis(200);
        if s.nak.is_none() && (late || s.resend.is_some_and(|at| now >= at)) {
            s.resend = None;
            s.moved = now;
            for p in &s.unacked {
                self.put(p);
            }
        }
    }

    fn run(&self) {
        let (me, mut frames) = (wire_addr(true, self.ip), Frames::default());
        loop {
            // All frames that wait in one call, with one answer: where each call costs a stalled
            // machine's patience, the other end's retries would run out in the queue.
            self.wire.next_frames(&mut frames, 2);
            let mut s = self.lock();
            if s.stop {
                return;
            }
            for p in frames.iter().filter_map(roce::parse) {
                if p.qpn == self.qpn && p.dst == me {
                    self.take(&mut s, p);
                    self.news.notify_all();
                }
            }
            if let Some(p) = s.owed.take() {
                self.put(&p);
            }
            self.tick(&mut s);
        }
    }
}

impl Rc {
    /// An end with this queue pair number, whose first packet will have the sequence number `psn`.
    pub fn new(ip: Ip, qpn: u32, psn: u32) -> Rc {
        let shared = Arc::new(Shared {
            wire: Wire::open("vb").expect("packet socket"),
            ip,
            qpn,
            state: Mutex::new(State {
                peer: None,
                next: psn,
                waiting: VecDeque::new(),
                unacked: VecDeque::new(),
                moved: Instant::now(),
                resend: None,
                nak: None,
                expected: 0,
                messages: 0,
                partial: vec![],
                at: None,
                arrived: VecDeque::new(),
                answers: true,
                busy: false,
                owed: None,
                stop: false,
            }),
            news: Condvar::new(),
        });
        let other = shared.clone();
        Rc {
            shared,
            thread: Some(std::thread::spawn(move || other.run())),
        }
    }

    /// Names the other end and its first sequence number.
    pub fn connect(&self, qpn: u32, psn: u32) {
        let mut s = self.shared.lock();
        s.peer = Some((qpn, psn));
        s.expected = psn;
    }

    /// From now on every request is answered with "receiver not ready".
    pub fn never_ready(&self) {
        self.shared.lock().busy = true;
    }

    /// Returns whether it has been connected.
    pub fn connected(&self) -> bool {
        self.shared.lock().peer.is_some()
    }

    /// From now on nothing that arrives is answered (false), or again (true).
    pub fn answers(&self, on: bool) {
        self.shared.lock().answers = on;
    }

    fn queue(&self, s: &mut State, opcode: u8, ask: bool, body: Vec<u8>) {
        let qpn = s.peer.expect("connected").0;
        let p = self.shared.packet(qpn, s.next, opcode, ask, body);
        s.next = (s.next + 1) & PSN;
        if s.unacked.is_empty() && s.waiting.is_empty() {
            s.moved = Instant::now();
        }
        s.waiting.push_back(p);
    }

    /// Queues one packet as it is.
    pub fn packet(&self, opcode: u8, body: &[u8]) {
        let mut s = self.shared.lock();
        self.queue(&mut s, opcode, true, body.to_vec());
        self.shared.pump(&mut s);
    }

    fn message(&self, head: &[u8], data: &[u8], ops: [u8; 4]) {
        let [first, middle, last, only] = ops;
        let mut s = self.shared.lock();
        let n = data.len().div_ceil(MTU).max(1);
        for i in 0..n {
            let opcode = match (i, n - 1 - i) {
                (0, 0) => only,
                (0, _) => first,
                (_, 0) => last,
                _ => middle,
            };
            let mut body = if i == 0 { head.to_vec() } else { vec![] };
            body.extend(&data[i * MTU..data.len().min((i + 1) * MTU)]);
            self.queue(&mut s, opcode, i + 1 == n, body);
        }
        self.shared.pump(&mut s);
    }

    /// Queues a SEND.
    pub fn send(&self, data: &[u8]) {
        let ops = [
            op::SEND_FIRST,
            op::SEND_MIDDLE,
            op::SEND_LAST,
            op::SEND_ONLY,
        ];
        self.message(&[], data, ops);
    }

    /// Queues a WRITE.
    pub fn write(&self, addr: u64, rkey: u32, data: &[u8]) {
        let ops = [
            op::WRITE_FIRST,
            op::WRITE_MIDDLE,
            op::WRITE_LAST,
            op::WRITE_ONLY,
        ];
        self.message(&reth(addr, rkey, data.len() as u32), data, ops);
    }

    /// Queues a WRITE of one packet with an immediate.
    pub fn write_immediate(&self, addr: u64, rkey: u32, data: &[u8], immediate: u32) {
        assert!(data.len() <= MTU);
        let mut body = reth(addr, rkey, data.len() as u32);
        body.extend(immediate.to_be_bytes());
        body.extend(data);
        self.packet(op::WRITE_ONLY_IMM, &body);
    }

    /// Sends a frame of the connection that is in no sequence, once.
    pub fn stray(&self, opcode: u8, psn: u32, body: &[u8], spoil: bool) {
        let s = self.shared.lock();
        let Some((qpn, _)) = s.peer else { return };
        let p = self
            .shared
            .packet(qpn, psn & PSN, opcode, true, body.to_vec());
        let mut f = roce::build(MAC_B, MAC_A, &p);
        if spoil {
            let last = f.len() - 1;
            f[last] ^= 0x55;
        }
        self.shared.wire.put_frame(&f);
    }

    /// The sequence number of the next packet.
    pub fn psn(&self) -> u32 {
        self.shared.lock().next
    }

    /// Waits until everything has been answered for.
    pub fn flush(&self, ms: u64) -> Fate {
        let end = Instant::now() + Duration::from_millis(ms * crate::guest::slow());
        let mut s = self.shared.lock();
        loop {
            if let Some(code) = s.nak {
                return Fate::Nak(code);
            }
            if s.unacked.is_empty() && s.waiting.is_empty() {
                return Fate::Acked;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Fate::Silence;
            }
            s = self
                .shared
                .news
                .wait_timeout(s, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The next thing that arrived.
    pub fn next(&self, ms: u64) -> Option<Arrived> {
        self.next_until(crate::guest::until(ms))
    }

    /// The same until then.
    pub fn next_until(&self, end: Instant) -> Option<Arrived> {
        let mut s = self.shared.lock();
        loop {
            if let Some(a) = s.arrived.pop_front() {
                return Some(a);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            s = self
                .shared
                .news
                .wait_timeout(s, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Forgets what has arrived.
    pub fn drain(&self) -> Vec<Arrived> {
        self.shared.lock().arrived.drain(..).collect()
    }
}

impl Drop for Rc {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}
