// SPDX-License-Identifier: GPL-2.0

//! One end of a handshake whose peer says anything, in either version: version 1 is spoken only where it was offered,
//! where the server's endpoint has agreed, and with a station; the endpoint is never asked for it with version 2 in
//! common; and what this end says can be read.
//!
//! The input is read as a sequence of fields; a missing byte is zero. The first byte says which end it is and what it has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::{
    handshake::{
        driver::{Driver, Progress},
        endpoint::{Endpoint, StreamError},
        *, //
    },
    llc::responder::LlcEvent,
    reason::Reason,
    time::{Instant, Span},
    wire::{
        bufsize::BufSize,
        clc::{
            fce::Limits,
            proposal::{Ipv4Prefix, Prefixes},
            *, //
        },
        ids::*,
        llc::{link::ConfirmLink, Frame, Message as Llc},
    },
};

#[path = "../input.rs"]
mod input;

use input::Src;

impl Src<'_> {
    fn proposal(&mut self) -> Proposal {
        let mut p = Proposal::EMPTY;
        p.version = 1 + self.u8() % 3;
        p.path_v1 = Path::from_bits(self.u8());
        if p.version > 1 {
            p.path_v2 = Path::of(self.flag(), false);
        }
        p.gid = Gid(self.bytes());
        p.mac = Mac(self.bytes());
        p.prefix_block.ipv4 = Ipv4Prefix {
            addr: self.bytes(),
            len: self.u8(),
        };
        p.v2_ext.release = self.u8() % 16;
        p.v2_ext.roce_gid = Gid([self.u8(); 16]);
        p.v2_ext.max_conns = self.u8();
        p.v2_ext.max_links = self.u8();
        if self.flag() {
            assert!(p.v2_ext.eids.push(policy::DEFAULT_UEID));
        }
        p
    }

    fn agreement(&mut self) -> Agreement {
        let version = 1 + self.u8() % 3;
        let first_contact = self.flag();
        let end = RdmaEnd {
            mac: Mac(self.bytes()),
            rmbe_idx: self.u8(),
            token: AlertToken(u32::from(self.u8())),
            size: BufSize::from_code(self.u8()),
            mtu: Mtu::from_code(self.u8()),
            addr: u64::from_be_bytes(self.bytes()),
            ..RdmaEnd::default()
        };
        let fce = (version > 1 && first_contact).then(|| FirstContact {
            direct: true,
            os: Os::LINUX,
            hostname: [b' '; 32],
            release: self.u8() % 3,
            limits: Some(Limits {
                max_conns: self.u8(),
                max_links: self.u8(),
                ..Limits::default()
            }),
        });
        Agreement {
            version,
            first_contact,
            end: End::R(end),
            eid: match version {
                1 => Eid::NONE,
                _ => policy::DEFAULT_UEID,
            },
            fce,
        }
    }
}

/// This end.
struct Alone {
    now: Instant,
    stream: Vec<u8>,
    shut: bool,
    event: Option<LlcEvent>,
    lost: bool,
    first_contact: bool,
    is_client: bool,
    offers_v1: bool,
    /// What a server's endpoint says of version 1, and whether it was asked.
    v1: Result<(), Reason>,
    asked: bool,
    /// Version that is spoken.
    speaks: Option<u8>,
}

impl Endpoint for Alone {
    type Buffer = [u8; MAX_LEN];
    type Proposal = Box<Proposal>;

    fn now(&self) -> Instant {
        self.now
    }

    fn buffer(&self) -> Option<Self::Buffer> {
        Some([0; MAX_LEN])
    }

    fn proposal(&self) -> Option<Box<Proposal>> {
        Some(Box::default())
    }

    fn admits(&mut self, _: &Step) -> bool {
        true
    }

    fn send(&mut self, message: &[u8]) -> bool {
        let header = Header::parse(message.first_chunk().expect("a header")).expect("a header");
        assert_eq!(usize::from(header.length), message.len());
        match header.kind {
            MsgType::Proposal => {
                let p = Proposal::parse(message).expect("a proposal");
                assert_eq!(p.path_v1.has_r(), self.offers_v1);
            }
            MsgType::Accept => {
                let a = Agreement::parse_accept(message).expect("an accept");
                assert_eq!(Some(a.version), self.speaks);
            }
            MsgType::Confirm => {
                let c = Confirm::parse(message).expect("a confirm");
                assert_eq!(Some(c.agreement.version), self.speaks);
            }
            MsgType::Decline => {
                Decline::parse(message).expect("a decline");
            }
        }
        true
    }

    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        let n = self.peek(buf)?;
        self.stream.drain(..n);
        Ok(n)
    }

    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        if self.stream.is_empty() && !self.shut {
            return Err(StreamError::Empty);
        }
        let n = buf.len().min(self.stream.len());
        buf[..n].copy_from_slice(&self.stream[..n]);
        Ok(n)
    }

    fn is_shut(&self) -> bool {
        self.shut
    }

    fn take_v1(&mut self, _: &Prefixes) -> Result<(), Reason> {
        assert!(!self.is_client && !self.asked);
        self.asked = true;
        self.v1
    }

    fn acquire(&mut self, want: &Want, _: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason> {
        self.speaks = Some(want.key.version);
        if want.key.version == V1 {
            assert!(want.key.peer_mac.is_station() && want.direct);
            assert_eq!(want.extensions, Extensions::NONE);
            match self.is_client {
                true => assert!(self.offers_v1),
                false => assert!(self.asked && self.v1.is_ok() && !want.key.peer_gid.is_zero()),
            }
        } else {
            assert!(!self.asked && want.key.peer_mac.is_zero());
        }
        Ok(Some(Acquired {
            end: RdmaEnd {
                rmbe_idx: 1,
                token: AlertToken(7),
                mtu: Mtu::from_code(3),
                mac: Mac([2; 6]),
                ..RdmaEnd::default()
            },
            first_contact: want.first_contact.unwrap_or(self.first_contact),
            direct: true,
        }))
    }

    fn adopt(&mut self, _: bool, _: Mtu, peer: &RdmaEnd) -> Result<(), Reason> {
        assert!(self.speaks != Some(V1) || peer.mac.is_station());
        Ok(())
    }

    fn to_rts(&mut self) -> Result<(), Reason> {
        Ok(())
    }

    fn send_llc(&mut self, frame: &Frame, full: bool) -> Result<(), Reason> {
        let message = Llc::parse(frame).expect("a message");
        let v1 = self.speaks == Some(V1);
        assert_eq!(message.header.is_v2(), !v1);
        assert!(!v1 || !full);
        Ok(())
    }

    fn take_llc(&mut self) -> Option<LlcEvent> {
        self.event.take()
    }

    fn is_link_lost(&self) -> bool {
        self.lost
    }

    fn expose(&mut self) {}

    fn agreed(&mut self, _: &Agreement) {}

    fn declined(&mut self) {}
}

fuzz_target!(|data: &[u8]| {
    let mut src = Src(data);
    let what = src.u8();
    let has = |bit: u8| what >> bit & 1 == 1;
    let mut own = Policy::new(PeerId([1; 8]), b"host");
    if has(1) {
        own.clear_eids();
    }
    let mut end = Alone {
        now: Instant(1),
        stream: Vec::new(),
        shut: false,
        event: None,
        lost: false,
        first_contact: has(2),
        is_client: has(0),
        offers_v1: has(3),
        v1: match has(4) {
            true => Ok(()),
            false => Err(Reason::PrefixMismatch),
        },
        asked: false,
        speaks: None,
    };
    let eligibility = Eligibility {
        option: true,
        refuse: has(5).then_some(Reason::NoDevice),
    };
    let port = Port {
        gid: Gid([1; 16]),
        mac: Mac([2; 6]),
        v1: end.offers_v1.then_some(V1Offer {
            gid: Gid([3; 16]),
            prefixes: Prefixes::NONE,
        }),
    };
    let mut driver = match end.is_client {
        true if eligibility.refuse.is_none() && (end.offers_v1 || !has(1)) => {
            Driver::client(&own, port, &eligibility)
        }
        // It would offer nothing.
        true => return,
        false => Driver::server(&own, &eligibility, end.now),
    };
    for _ in 0..12 {
        if let Progress::Done(_) = driver.advance(&mut end) {
            return;
        }
        let mut buf = [0; MAX_LEN];
        let written = match src.u8() % 8 {
            0 => src.proposal().emit(&mut buf),
            1 => src.agreement().emit_accept(&mut buf),
            2 | 3 => {
                let confirm = Confirm {
                    agreement: src.agreement(),
                    gids: Default::default(),
                };
                confirm.emit(&mut buf)
            }
            4 => Decline::new(src.u8(), Reason::Internal, PeerId([9; 8])).emit(&mut buf),
            5 => {
                end.event = Some(LlcEvent::ConfirmLink {
                    message: ConfirmLink::default(),
                    no_eyecatcher: src.flag(),
                });
                Ok(0)
            }
            6 => {
                end.lost |= src.flag();
                end.shut |= src.flag();
                Ok(0)
            }
            _ => {
                end.now = end.now.after(Span::from_secs(u64::from(src.u8() % 8)));
                Ok(0)
            }
        };
        end.stream.extend(&buf[..written.unwrap_or(0)]);
    }
});
