// SPDX-License-Identifier: GPL-2.0
//! A TCP peer made of packets: it does what the test says, not what a TCP should. It sits on `vb`
//! of [`crate::net::wire`], where no IP stack answers for it. The wire loses nothing, so it does
//! not retransmit.

use crate::errno::{cvt, R};
use crate::family::Ip;
use crate::fd::Fd;
use crate::guest::limit;
use crate::net::{A4, A6, B4, B6, MAC_A, MAC_B};
use crate::packet::{self, Seg, Sums, ACK, FIN, PSH, RST, SYN};
use crate::sys;
use std::ffi::CString;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A packet socket on a device.
pub struct Wire(Fd);

/// Frames taken by one call; what is longer than [`Frames::SIZE`] is cut off.
pub struct Frames {
    bytes: Vec<[u8; Frames::SIZE]>,
    lens: [usize; Frames::MOST],
    taken: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            bytes: vec![[0; Frames::SIZE]; Frames::MOST],
            lens: [0; Frames::MOST],
            taken: 0,
        }
    }
}

impl Frames {
    /// Frames a call takes at most.
    pub const MOST: usize = 32;
    /// Bytes of a frame.
    pub const SIZE: usize = 2048;

    /// The frames of the last call.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let frames = self.bytes.iter().zip(self.lens);
        frames
            .take(self.taken)
            .map(|(b, n)| &b[..n.min(Frames::SIZE)])
    }
}

impl Wire {
    /// On `dev` of the current namespace; sees every frame in both directions.
    pub fn open(dev: &str) -> R<Wire> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let s = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(all))?;
        let name = CString::new(dev).expect("device name");
        // SAFETY: plain data and valid pointers.
        unsafe {
            let mut a: libc::sockaddr_ll = std::mem::zeroed();
            a.sll_family = libc::AF_PACKET as u16;
            a.sll_protocol = all;
            a.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let n = std::mem::size_of_val(&a) as u32;
            cvt(i64::from(libc::bind(s.raw(), (&raw const a).cast(), n)))?;
        }
        let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20);
        Ok(Wire(s))
    }

    /// The next TCP segment within `ms` ([`limit`]) that `want` accepts.
    pub fn next(&self, ms: u64, want: impl Fn(&Seg) -> bool) -> Option<Seg> {
        self.next_until(Instant::now() + Duration::from_millis(limit(ms)), want)
    }

    /// The same until `end`.
    pub fn next_until(&self, end: Instant, want: impl Fn(&Seg) -> bool) -> Option<Seg> {
        let mut b = vec![0u8; 1 << 17];
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_millis() as i32;
            if sys::poll1(self.0.raw(), libc::POLLIN, left).unwrap_or(0) == 0 {
                return None;
            }
            let Ok(n) = sys::recv(self.0.raw(), &mut b, 0) else {
                continue;
            };
            if let Some(s) = packet::parse(&b[..n as usize]) {
                if want(&s) {
                    return Some(s);
                }
            }
        }
    }

    /// The next frame within `ms`, of whatever kind.
    pub fn next_frame<'b>(&self, buf: &'b mut [u8], ms: u64) -> Option<&'b [u8]> {
        if sys::poll1(self.0.raw(), libc::POLLIN, ms as i32).unwrap_or(0) == 0 {
            return None;
        }
        let n = sys::recv(self.0.raw(), buf, 0).ok()?;
        buf.get(..n as usize)
    }

    /// All frames that wait, at most [`Frames::MOST`], after at most `ms` for the first.
    pub fn next_frames(&self, frames: &mut Frames, ms: u64) {
        frames.taken = 0;
        if sys::poll1(self.0.raw(), libc::POLLIN, ms as i32).unwrap_or(0) == 0 {
            return;
        }
        let mut iov: [libc::iovec; Frames::MOST] = std::array::from_fn(|i| libc::iovec {
            iov_base: frames.bytes[i].as_mut_ptr().cast(),
            iov_len: Frames::SIZE,
        });
        // SAFETY: `mmsghdr` is plain data.
        let mut heads: [libc::mmsghdr; Frames::MOST] = unsafe { std::mem::zeroed() };
        for (head, iov) in heads.iter_mut().zip(&mut iov) {
            head.msg_hdr.msg_iov = iov;
            head.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each of the messages names one buffer of its own, which outlives the call.
        let n = unsafe {
            libc::recvmmsg(
                self.0.raw(),
                heads.as_mut_ptr(),
                Frames::MOST as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        frames.taken = usize::try_from(n).unwrap_or(0);
        for (len, head) in frames.lens.iter_mut().zip(&heads) {
            *len = head.msg_len as usize;
        }
    }

    /// Sends a frame.
    pub fn put_frame(&self, f: &[u8]) {
        // SAFETY: buffer and length agree.
        unsafe { libc::send(self.0.raw(), f.as_ptr().cast(), f.len(), 0) };
    }

    /// Sends a segment from `vb` to `va`.
    pub fn put(&self, s: &Seg) {
        self.put_frame(&packet::build(MAC_B, MAC_A, s));
    }
}

/// The address of the packet end (`peer`) or of the kernel's end of the wire.
pub fn wire_addr(peer: bool, ip: Ip) -> IpAddr {
    match (peer, ip) {
        (true, Ip::V6) => B6.into(),
        (false, Ip::V6) => A6.into(),
        (true, _) => B4.into(),
        (false, _) => A4.into(),
    }
}

/// The packet end's second address.
pub fn second_addr(ip: Ip) -> IpAddr {
    other_addr(ip, 3)
}

/// The packet end's address that ends in `last`; the kernel's end has to be told its MAC address.
pub fn other_addr(ip: Ip, last: u8) -> IpAddr {
    match wire_addr(true, ip) {
        IpAddr::V4(a) => {
            let [a, b, c, _] = a.octets();
            [a, b, c, last].into()
        }
        IpAddr::V6(a) => {
            let mut octets = a.octets();
            octets[15] = last;
            octets.into()
        }
    }
}

/// An address of network number `n` behind the packet end: another one for IPv4, another prefix of 64 bits for
/// IPv6. The kernel's end has to be told the way and the MAC address.
pub fn network_addr(ip: Ip, n: u8) -> IpAddr {
    match wire_addr(true, ip) {
        IpAddr::V4(a) => {
            let [a, ..] = a.octets();
            [a, 200, n, 1].into()
        }
        IpAddr::V6(a) => {
            let mut octets = a.octets();
            octets[6..8].copy_from_slice(&[0x20, n]);
            octets.into()
        }
    }
}

/// One connection of the packet end.
pub struct Peer<'a> {
    wire: &'a Wire,
    /// This end.
    pub me: SocketAddr,
    /// The kernel's end.
    pub other: SocketAddr,
    /// Next sequence number to send.
    pub snd: u32,
    /// Next sequence number expected.
    pub rcv: u32,
    /// Bytes received in order and not yet taken.
    pub buf: Vec<u8>,
    /// The kernel's end sent a FIN.
    pub fin: bool,
    /// The kernel's end sent a RST.
    pub rst: bool,
    /// The SYN or SYN-ACK that was received.
    pub syn: Seg,
}

/// Options a modern stack would send: MSS 1460.
pub const MSS: [u8; 4] = [2, 4, 5, 0xb4];

impl<'a> Peer<'a> {
    fn new(wire: &'a Wire, me: SocketAddr, syn: Seg) -> Peer<'a> {
        let rcv = syn.seq.wrapping_add(1);
        let other = syn.src;
        Peer {
            wire,
            me,
            other,
            snd: 0x7700_0000,
            rcv,
            buf: vec![],
            fin: false,
            rst: false,
            syn,
        }
    }

    fn seg(&self, flags: u8, opts: &[u8], data: &[u8]) -> Seg {
        Seg {
            src: self.me,
            dst: self.other,
            seq: self.snd,
            ack: if flags & ACK != 0 { self.rcv } else { 0 },
            flags,
            win: 0xfff0,
            opts: opts.to_vec(),
            data: data.to_vec(),
            sums: Sums::Good,
        }
    }

    /// Waits for a SYN to `port` of the packet end, and does not answer it.
    pub fn wait_syn(wire: &'a Wire, ip: Ip, port: u16, ms: u64) -> Option<Peer<'a>> {
        Peer::wait_syn_at(wire, SocketAddr::new(wire_addr(true, ip), port), ms)
    }

    /// The same for a port of another address of the packet end.
    pub fn wait_syn_at(wire: &'a Wire, me: SocketAddr, ms: u64) -> Option<Peer<'a>> {
        let s = wire.next(ms, |s| s.dst == me && s.flags & (SYN | ACK) == SYN)?;
        Some(Peer::new(wire, me, s))
    }

    /// Sends the SYN-ACK with these options (MSS is added), and waits for the ACK.
    pub fn syn_ack(&mut self, opts: &[u8]) -> bool {
        let o = [&MSS[..], opts].concat();
        self.wire.put(&self.seg(SYN | ACK, &o, &[]));
        self.snd = self.snd.wrapping_add(1);
        let (me, snd, from) = (self.me, self.snd, self.other);
        match self.wire.next(2000, |s| {
            s.dst == me && s.src == from && s.flags & SYN == 0 && s.flags & (ACK | RST) != 0
        }) {
            Some(s) if s.flags & RST == 0 && s.ack == snd => {
                self.take(&s);
                true
            }
            _ => false,
        }
    }

    /// Connects to a port of the kernel's end with these options in the SYN (MSS is added).
    pub fn connect(wire: &'a Wire, ip: Ip, from: u16, port: u16, opts: &[u8]) -> Option<Peer<'a>> {
        let me = SocketAddr::new(wire_addr(true, ip), from);
        Peer::connect_from(wire, me, SocketAddr::new(wire_addr(false, ip), port), opts)
    }

    /// The same from an address of its own.
    pub fn connect_from(
        wire: &'a Wire,
        me: SocketAddr,
        other: SocketAddr,
        opts: &[u8],
    ) -> Option<Peer<'a>> {
        Peer::connect_numbered(wire, me, other, 0x1100_0000, opts)
    }

    /// The same with this initial sequence number.
    pub fn connect_numbered(
        wire: &'a Wire,
        me: SocketAddr,
        other: SocketAddr,
        number: u32,
        opts: &[u8],
    ) -> Option<Peer<'a>> {
        let o = [&MSS[..], opts].concat();
        let mut s = Seg {
            src: me,
            dst: other,
            seq: number,
            ack: 0,
            flags: SYN,
            win: 0xfff0,
            opts: o,
            data: vec![],
            sums: Sums::Good,
        };
        // As TCP does, for a SYN is dropped while the accept queue is full.
        let end = Instant::now() + Duration::from_millis(limit(2000));
        let again = Duration::from_millis(limit(50));
        let a = loop {
            wire.put(&s);
            let answer = wire.next_until(end.min(Instant::now() + again), |s| {
                s.dst == me && s.src == other && s.flags & SYN != 0
            });
            match answer {
                Some(answer) => break answer,
                None if Instant::now() < end => (),
                None => return None,
            }
        };
        s.flags = ACK;
        let mut p = Peer::new(wire, me, a);
        p.snd = s.seq.wrapping_add(1);
        p.put(ACK, &[]);
        Some(p)
    }

    /// Sends a segment with these flags; data and FIN move the sequence on.
    pub fn put(&mut self, flags: u8, data: &[u8]) {
        self.wire.put(&self.seg(flags, &[], data));
        self.snd = self
            .snd
            .wrapping_add(data.len() as u32 + u32::from(flags & FIN));
    }

    /// Sends data, in segments of at most 1400 bytes.
    pub fn send(&mut self, data: &[u8]) {
        for c in data.chunks(1400) {
            self.put(ACK | PSH, c);
        }
    }

    /// Sends data in segments cut at the given sizes, over and over.
    pub fn send_cut(&mut self, data: &[u8], cuts: &[usize]) {
        let (mut at, mut i) = (0, 0);
        while at < data.len() {
            let n = cuts[i % cuts.len()].clamp(1, 1400).min(data.len() - at);
            self.put(ACK | PSH, &data[at..at + n]);
            at += n;
            i += 1;
        }
    }

    /// FIN.
    pub fn send_fin(&mut self) {
        self.put(FIN | ACK, &[]);
    }

    /// RST.
    pub fn send_rst(&mut self) {
        self.put(RST | ACK, &[]);
    }

    /// Answers the SYN by ICMP or ICMPv6, "destination unreachable" with this code.
    pub fn send_unreachable(&self, code: u8) {
        let frame = packet::unreachable(MAC_B, MAC_A, &self.syn, code);
        self.wire.put_frame(&frame);
    }

    /// Files a received segment; true if something new needs an ACK.
    fn take(&mut self, s: &Seg) -> bool {
        if s.flags & RST != 0 {
            self.rst = true;
            return false;
        }
        let skip = self.rcv.wrapping_sub(s.seq) as usize;
        if skip > s.data.len() {
            return !s.data.is_empty(); // old or from the future: acknowledge what is known
        }
        let new = &s.data[skip..];
        self.buf.extend(new);
        self.rcv = self.rcv.wrapping_add(new.len() as u32);
        if s.flags & FIN != 0 && !self.fin {
            self.fin = true;
            self.rcv = self.rcv.wrapping_add(1);
        }
        !s.data.is_empty() || s.flags & FIN != 0
    }

    /// Receives until `done` or `ms` ([`limit`]) are over; acknowledges what comes.
    pub fn pump(&mut self, ms: u64, done: impl Fn(&Peer) -> bool) -> bool {
        self.pump_until(Instant::now() + Duration::from_millis(limit(ms)), done)
    }

    /// The same until `end`.
    pub fn pump_until(&mut self, end: Instant, done: impl Fn(&Peer) -> bool) -> bool {
        while !done(self) {
            let (me, other) = (self.me, self.other);
            match self.wire.next_until(end, |s| s.dst == me && s.src == other) {
                Some(s) if self.take(&s) => self.put(ACK, &[]),
                Some(_) => {}
                None => return done(self),
            }
        }
        true
    }

    /// Takes `n` bytes, or `None` if they do not come within `ms`.
    pub fn recv(&mut self, n: usize, ms: u64) -> Option<Vec<u8>> {
        self.pump(ms, |p| p.buf.len() >= n || p.rst || p.fin);
        (self.buf.len() >= n).then(|| self.buf.drain(..n).collect())
    }
}
