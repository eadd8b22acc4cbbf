// SPDX-License-Identifier: GPL-2.0
//! Sockets as sock_diag reports them.

pub mod began;
pub mod connection;
mod message;
mod socket;

pub use message::parse;
#[cfg(test)]
pub(crate) use message::tests as messages;
pub use socket::{End, Fallback, Mode, Socket, State};

use crate::absent;
use crate::error::{Error, Result};
use crate::netlink::socket::Netlink;
use crate::netlink::wire::{self, Request};
use rustix::io::Errno;
use rustix::net::netlink;

/// `SOCK_DIAG_BY_FAMILY`: message type of request and replies.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `AF_SMC`, the family to ask for; replies of `IPPROTO_SMC` sockets may say `AF_INET`/`AF_INET6`.
const AF_SMC: u8 = 43;
/// `sizeof(struct smc_diag_req)`.
const REQUEST_SIZE: usize = 52;
/// The attributes that are only given when asked for, as bits of the request: `SMC_DIAG_CONNINFO`,
/// `SMC_DIAG_LGRINFO`, `SMC_DIAG_DMBINFO`, and what only rsmc knows: the age, and connections that began as TCP.
const EXTENSIONS: u8 = 0b1000_1011;
/// Where the request has them.
const EXTENSIONS_AT: usize = 3;

/// All SMC sockets of this network namespace.
///
/// # Errors
/// `NotThere` with the module to load if the kernel cannot list SMC sockets.
pub fn dump() -> Result<Vec<Socket>> {
    let mut body = [0u8; REQUEST_SIZE];
    body[0] = AF_SMC;
    body[EXTENSIONS_AT] = EXTENSIONS;
    let request = Request::new(SOCK_DIAG_BY_FAMILY, wire::NLM_F_DUMP, &body);
    let mut netlink = match Netlink::open(netlink::SOCK_DIAG) {
        Ok(netlink) => netlink,
        Err(error) if error.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) => {
            return Err(Error::NotThere(
                "this kernel has no sock_diag (CONFIG_INET_DIAG)".into(),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let replies = match netlink.ask("listing sockets", &request) {
        Err(Error::Refused(_, Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP)) => {
            return Err(Error::NotThere(not_listed()));
        }
        other => other?,
    };
    let mut sockets = Vec::new();
    for reply in replies {
        if reply.kind == SOCK_DIAG_BY_FAMILY {
            let socket = parse(&reply.payload);
            sockets.push(socket.ok_or(Error::Malformed("a short socket message"))?);
        }
    }
    Ok(sockets)
}

fn not_listed() -> String {
    if has_smc_protocol() {
        "SMC is loaded but does not list its sockets; with the in-tree module: modprobe smc_diag"
            .into()
    } else {
        absent::line()
    }
}

/// True if the kernel has registered SMC protocols.
pub fn has_smc_protocol() -> bool {
    std::fs::read_to_string("/proc/net/protocols").is_ok_and(|text| lists_smc(&text))
}

fn lists_smc(protocols: &str) -> bool {
    let mut names = protocols
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.any(|name| matches!(name, "SMC" | "SMC6" | "INET_SMC" | "INET6_SMC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_rows() {
        assert!(lists_smc("protocol size\nTCP 1\nINET_SMC  900  0\n"));
        assert!(!lists_smc("protocol size\nTCP 1\nSMCX 2\n"));
    }
}
