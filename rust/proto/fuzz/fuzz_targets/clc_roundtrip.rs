// SPDX-License-Identifier: GPL-2.0

//! Any message that can be built: either it is refused by `emit`, or it comes
//! back as it was.
//!
//! The input is read as a sequence of fields; a missing byte is zero.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::{
    reason::Reason,
    wire::{
        bufsize::BufSize,
        clc::{
            fce::Limits,
            proposal::*,
            *, //
        },
        ids::*,
        list::List,
    },
};

#[path = "../input.rs"]
mod input;

use input::Src;

impl Src<'_> {
    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }

    fn list<T: Copy + Default, const N: usize>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> T,
    ) -> List<T, N> {
        let mut list = List::new();
        for _ in 0..usize::from(self.u8()) % (N + 1) {
            assert!(list.push(item(self)));
        }
        list
    }

    fn gid_chid(&mut self) -> GidChid {
        GidChid {
            gid: IsmGid(self.u64()),
            chid: Chid(self.u16()),
        }
    }

    fn proposal(&mut self) -> Proposal {
        let mut p = Proposal {
            version: self.u8() % 17,
            path_v1: Path::from_bits(self.u8()),
            path_v2: Path::from_bits(self.u8()),
            peer_id: PeerId(self.bytes()),
            gid: Gid(self.bytes()),
            mac: Mac(self.bytes()),
            has_area: self.flag(),
            ..Proposal::EMPTY
        };
        if p.has_area {
            p.vendor = self.bytes();
        }
        if p.path_v1.has_d() {
            p.ism_v1 = self.gid_chid();
        }
        if p.path_v1 != Path::None {
            p.prefix_block = Prefixes {
                ipv4: Ipv4Prefix {
                    addr: self.bytes(),
                    len: self.u8(),
                },
                ipv6: self.list(|s| Ipv6Prefix {
                    addr: s.bytes(),
                    len: s.u8(),
                }),
            };
        }
        if p.path_v2 != Path::None {
            p.v2_ext = V2Ext {
                release: self.u8() % 17,
                has_seid: self.flag(),
                roce_gid: Gid(self.bytes()),
                max_conns: self.u8(),
                max_links: self.u8(),
                features: self.u16(),
                eids: self.list(|s| Eid(s.bytes())),
            };
        }
        if p.path_v2.has_d() {
            p.ism_v2_ext = IsmV2Ext {
                seid: Eid(self.bytes()),
                gids: self.list(Src::gid_chid),
            };
        }
        p
    }

    fn end(&mut self) -> End {
        if self.flag() {
            End::R(RdmaEnd {
                peer_id: PeerId(self.bytes()),
                gid: Gid(self.bytes()),
                mac: Mac(self.bytes()),
                qpn: Qpn::new(self.u32()),
                rkey: Rkey(self.u32()),
                rmbe_idx: self.u8(),
                token: AlertToken(self.u32()),
                size: BufSize::from_code(self.u8()),
                mtu: Mtu::from_code(self.u8()),
                addr: self.u64(),
                psn: Psn::new(self.u32()),
            })
        } else {
            End::D(IsmEnd {
                gid: IsmGid(self.u64()),
                token: DmbToken(self.u64()),
                dmbe_idx: self.u8(),
                size: BufSize::from_code(self.u8()),
                group: GroupId(self.u32()),
                chid: Chid(self.u16()),
                gid_ext: IsmGid(self.u64()),
            })
        }
    }

    fn fce(&mut self) -> FirstContact {
        FirstContact {
            direct: self.flag(),
            os: Os(self.u8() & 15),
            release: self.u8() % 17,
            hostname: self.bytes(),
            limits: self.flag().then(|| Limits {
                max_conns: self.u8(),
                max_links: self.u8(),
                features: self.u16(),
                vendor: self.u32(),
            }),
        }
    }

    fn agreement(&mut self) -> Agreement {
        Agreement {
            version: self.u8() % 17,
            first_contact: self.flag(),
            end: self.end(),
            eid: Eid(self.bytes()),
            fce: self.flag().then(|| self.fce()),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut s = Src(data);
    let mut buf = [0; 700];
    match s.u8() % 4 {
        0 => {
            let m = s.proposal();
            if let Ok(n) = m.emit(&mut buf) {
                // Version 1 has no second path type to come back.
                assert_eq!(Proposal::parse(&buf[..n]), Ok(m));
            }
        }
        1 => {
            let m = s.agreement();
            if let Ok(n) = m.emit_accept(&mut buf) {
                assert_eq!(Agreement::parse_accept(&buf[..n]), Ok(m));
            }
        }
        2 => {
            let m = Confirm {
                agreement: s.agreement(),
                gids: s.list(|s| Gid(s.bytes())),
            };
            if let Ok(n) = m.emit(&mut buf) {
                assert_eq!(Confirm::parse(&buf[..n]), Ok(m));
            }
        }
        _ => {
            let version = s.u8() % 17;
            let m = Decline {
                version,
                out_of_sync: s.flag(),
                peer_id: PeerId(s.bytes()),
                reason: Reason::from_code(s.u32()),
                os: Os(s.u8() & 15),
                more: if version > 1 {
                    [s.u32(), s.u32(), s.u32(), s.u32()]
                } else {
                    [0; 4]
                },
            };
            if let Ok(n) = m.emit(&mut buf) {
                assert_eq!(Decline::parse(&buf[..n]), Ok(m));
            }
            // What is left are more reasons.
            while !s.0.is_empty() {
                let code = s.u32();
                assert_eq!(Reason::from_code(code).code(), code);
            }
        }
    }
});
