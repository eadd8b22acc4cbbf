// SPDX-License-Identifier: GPL-2.0
//! Listens on the wire between the namespaces and counts what SMC does there.

use st::clc;
use st::packet;
use st::rawpeer::Wire;
use st::roce::{self, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Packets to one queue pair.
#[derive(Debug, Default, Clone)]
pub struct Stream {
    /// Sequence numbers of requests, retransmissions counted once.
    psns: BTreeSet<u32>,
    /// Messages that are RDMA WRITEs, and their bytes.
    pub writes: u64,
    pub bytes: u64,
    /// WRITEs of nothing, by which a host has its device tell of the end of what it has sent before; in none of the above.
    pub empty: u64,
    /// WRITEs that announced themselves by an immediate.
    pub immediates: u64,
    /// CDC messages.
    pub cdc: u64,
    /// CDC messages that follow a WRITE, and WRITEs that were not announced at all.
    pub announced: u64,
    pub bare: u64,
    /// The most WRITEs before one CDC message.
    pub most: u64,
    run: u64,
    /// LLC messages by type, with 0x80 for responses.
    pub llc: BTreeMap<u8, u64>,
    /// Keys that WRITEs named.
    pub keys: BTreeSet<u32>,
}

/// Packets on the wire.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// By the receiving queue pair, whose numbers are its device's own.
    pub streams: BTreeMap<(IpAddr, u32), Stream>,
    /// Keys named by accepts and confirms, and how many of these there were.
    pub named: BTreeSet<u32>,
    pub agreements: u64,
    /// Of these, first contacts.
    pub first_contacts: u64,
    /// Clients whose proposal was seen, and how often they have acknowledged something since without
    /// a word; those that have confirmed.
    proposed: BTreeMap<SocketAddr, u64>,
    confirmed: BTreeSet<SocketAddr>,
}

impl Stream {
    fn take(&mut self, p: &Packet) {
        if p.opcode == roce::op::ACK || !self.psns.insert(p.psn) {
            return;
        }
        let nothing = p.is_first() && p.body.get(12..16) == Some(&[0; 4]);
        if p.is_write() && nothing && !p.has_write_immediate() {
            self.empty += 1;
        } else if p.is_write() {
            self.bytes += p.body.len() as u64;
            if p.is_first() {
                self.bytes -= 16;
                self.writes += 1;
                self.run += 1;
                self.most = self.most.max(self.run);
                if let Some(k) = p.body.get(8..12) {
                    let k = k.try_into().expect("4 bytes");
                    self.keys.insert(u32::from_be_bytes(k));
                }
            }
            if p.has_write_immediate() {
                self.bytes -= 4;
                self.immediates += 1;
                self.run = 0;
            }
        } else if p.is_send() && p.is_first() {
            let (ty, flags) = (p.body.first().copied(), p.body.get(3).copied());
            match (ty, flags) {
                (Some(0xfe), _) => {
                    self.cdc += 1;
                    self.announced += u64::from(self.run > 0);
                    self.run = 0;
                }
                (Some(ty), Some(flags)) => {
                    *self.llc.entry((ty & 15) | (flags & 0x80)).or_default() += 1;
                    self.bare += self.run;
                    self.run = 0;
                }
                _ => (),
            }
        }
    }

    /// Returns whether no packet was missed.
    fn whole(&self) -> bool {
        // Numbers wrap at 24 bits: one gap at most in a sorted list, if both ends are there.
        let v: Vec<u32> = self.psns.iter().copied().collect();
        let gaps = v.windows(2).filter(|w| w[1] != w[0] + 1).count();
        gaps == 0 || (gaps == 1 && v[0] == 0 && v[v.len() - 1] == 0xff_ffff)
    }
}

impl Seen {
    fn frame(&mut self, f: &[u8]) {
        if let Some(p) = roce::parse(f) {
            self.streams.entry((p.dst, p.qpn)).or_default().take(&p);
        } else if let Some(s) = packet::parse(f) {
            let d = &s.data[..];
            let h = clc::header(d);
            match h.as_ref().map(|h| h.ty) {
                Some(clc::PROPOSAL) => drop(self.proposed.insert(s.src, 0)),
                Some(clc::CONFIRM) => drop(self.confirmed.insert(s.src)),
                None if d.is_empty() && !self.confirmed.contains(&s.src) => {
                    if let Some(n) = self.proposed.get_mut(&s.src) {
                        *n += 1;
                    }
                }
                _ => (),
            }
            let agreed = |h: clc::Header| matches!(h.ty, clc::ACCEPT | clc::CONFIRM);
            if h.is_some_and(|h| agreed(h) && h.len == d.len()) {
                if let Some(e) = clc::End::parse(d) {
                    self.agreements += 1;
                    self.named.insert(e.rkey);
                    self.first_contacts += u64::from(d[7] & 8 != 0);
                }
            }
        }
    }

    /// LLC messages of a type, in all directions.
    pub fn llc(&self, ty: u8) -> u64 {
        self.streams.values().filter_map(|s| s.llc.get(&ty)).sum()
    }

    /// Acknowledgements that clients have sent in packets of their own between proposal and confirm.
    pub fn bare_acks(&self) -> u64 {
        self.proposed.values().sum()
    }

    /// Queue pairs that got requests.
    pub fn pairs(&self) -> usize {
        self.streams.values().filter(|s| !s.psns.is_empty()).count()
    }

    /// The stream with the most WRITEs.
    pub fn busiest(&self) -> Stream {
        self.streams
            .values()
            .max_by_key(|s| s.writes)
            .cloned()
            .unwrap_or_default()
    }
}

/// A listener under way.
pub struct Tap {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Tap {
    /// Listens on `dev` of the current namespace.
    pub fn start(dev: &str) -> Result<Tap, String> {
        let wire = Wire::open(dev).map_err(|e| format!("packet socket: {e}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let end = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut seen, mut buf) = (Seen::default(), vec![0; 1 << 17]);
            loop {
                // What came before the end is taken to the last frame.
                let ending = end.load(Ordering::Acquire);
                match wire.next_frame(&mut buf, 20) {
                    Some(f) => seen.frame(f),
                    None if ending => return seen,
                    None => (),
                }
            }
        });
        Ok(Tap { stop, thread })
    }

    /// Returns the packets that were seen; an error if something was missed.
    pub fn finish(self) -> Result<Seen, String> {
        st::guest::pause(100);
        self.stop.store(true, Ordering::Release);
        let seen = self.thread.join().map_err(|_| "the tap panicked")?;
        match seen.streams.iter().find(|s| !s.1.whole()) {
            Some((to, _)) => Err(format!("packets to queue pair {to:?} were missed")),
            None => Ok(seen),
        }
    }
}
