// SPDX-License-Identifier: GPL-2.0
//! `rsmc demote`: promoted connections go back to TCP (command 10 of `RSMC_POLICY`).

use crate::cli::DemoteArgs;
use crate::error::{Error, Result};
use crate::netlink::genl::Family;
use crate::netlink::wire::NLM_F_ACK;
use crate::{absent, diag};
use rustix::io::Errno;
use std::net::IpAddr;

const DEMOTE: u8 = 10;
const ADDRESS: u16 = 8;
const COOKIE: u16 = 10;

/// Has them go back.
///
/// # Errors
/// `NotThere` without the module or the command, `Table` if there is no such connection, or the kernel's.
pub fn run(args: &DemoteArgs) -> Result<()> {
    let missing = || match diag::has_smc_protocol() {
        true => "the loaded SMC module promotes no connections".into(),
        false => absent::line(),
    };
    let mut family = Family::find("RSMC_POLICY", 1, missing)?;
    let mut request = family.command(DEMOTE, NLM_F_ACK);
    if let Some(peer) = args.peer {
        let address = match peer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        request = request.attribute(ADDRESS, &address.octets());
    }
    if let Some(cookie) = args.cookie {
        request = request.attribute(COOKIE, &cookie.to_ne_bytes());
    }
    match family.ask("sending connections back to TCP", &request) {
        Err(Error::Refused(_, Errno::NOENT)) => Err(Error::Table(
            "there is no such connection that is promoted and may go back".into(),
        )),
        Err(Error::Refused(_, Errno::OPNOTSUPP | Errno::INVAL)) => Err(Error::NotThere(
            "the loaded SMC module does not know this command".into(),
        )),
        other => other.map(|_| ()),
    }
}
