// SPDX-License-Identifier: GPL-2.0
//! Priorities of an interface for which nothing is dropped (PFC), by DCB netlink (`<linux/dcbnl.h>`), which any
//! user may ask.

use crate::error::Result;
use crate::netlink::socket::Netlink;
use crate::netlink::wire::{self, Request};

const RTM_GETDCB: u16 = 78;
/// `DCB_CMD_IEEE_GET`.
const IEEE_GET: u8 = 21;
const IFNAME: u16 = 1;
const IEEE: u16 = 13;
const IEEE_PFC: u16 = 2;
/// `sizeof(struct dcbmsg)`; attributes follow.
const HEADER: usize = 4;

/// A bit for each priority, lowest first.
///
/// # Errors
/// `Refused` where the driver does not tell.
pub fn of(interface: &str) -> Result<Option<u8>> {
    let mut name = interface.as_bytes().to_vec();
    name.push(0);
    let request = Request::new(RTM_GETDCB, wire::NLM_F_ACK, &[0, IEEE_GET, 0, 0]);
    let request = request.attribute(IFNAME, &name);
    let replies = Netlink::open(None)?.ask("asking for priority flow control", &request)?;
    Ok(replies.iter().find_map(|reply| read(&reply.payload)))
}

/// Reads `pfc_en`, the second byte of `struct ieee_pfc`.
fn read(payload: &[u8]) -> Option<u8> {
    let inside = |bytes, kind| {
        let mut all = wire::attributes(bytes).flatten();
        all.find(|attribute| attribute.kind == kind)
            .map(|attribute| attribute.payload)
    };
    let pfc = inside(inside(payload.get(HEADER..)?, IEEE)?, IEEE_PFC)?;
    pfc.get(1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities() {
        let mut pfc = [0u8; 136];
        (pfc[0], pfc[1]) = (8, 0b1000);
        let nested = [wire::attribute(1, &[0; 4]), wire::attribute(IEEE_PFC, &pfc)].concat();
        let all = [
            vec![0, IEEE_GET, 0, 0],
            wire::attribute(IFNAME, b"eth0\0"),
            wire::attribute(IEEE, &nested),
        ];
        assert_eq!(read(&all.concat()), Some(8));
        assert_eq!(read(&[0, IEEE_GET]), None);
        assert_eq!(read(&[0, IEEE_GET, 0, 0]), None);
    }
}
