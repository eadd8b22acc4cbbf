// SPDX-License-Identifier: GPL-2.0
//! Fallback reasons in words, and what to do about each.

use serde::Serialize;
use smc_proto::reason::Reason;

/// A reason code for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The code as eight hexadecimal digits, as other SMC tools print it.
    pub code: String,
    /// Short name.
    pub name: &'static str,
    /// One sentence.
    pub text: String,
}

impl Told {
    /// The words for a code.
    pub fn new(code: u32) -> Self {
        Self {
            code: hex(code),
            name: name(code),
            text: text(code),
        }
    }
}

/// A code as eight hexadecimal digits with their prefix.
pub fn hex(code: u32) -> String {
    format!("{code:#010x}")
}

/// The short name of a code.
pub fn name(code: u32) -> &'static str {
    match code {
        0 => "NONE",
        code => Reason::from_code(code).name(),
    }
}

/// The code that a user named: by its short name, or in hexadecimal digits.
///
/// # Errors
/// A line that says what is expected.
pub fn from_text(text: &str) -> Result<u32, String> {
    let named = Reason::ALL
        .iter()
        .find(|reason| reason.name().eq_ignore_ascii_case(text));
    if let Some(reason) = named {
        return Ok(reason.code());
    }
    let digits = text.trim_start_matches("0x");
    u32::from_str_radix(digits, 16).map_err(|_| {
        "no such reason: a name such as PEERNOSMC, or a code such as 0x03010000".to_string()
    })
}

/// A code in one sentence without a full stop.
pub fn text(code: u32) -> String {
    match Reason::from_code(code) {
        Reason::Other(0) => "No reason was given".into(),
        Reason::Other(code) => format!("Unknown reason {}", hex(code)),
        known => known.explain().into(),
    }
}

/// Returns advice on a reason, in one or two sentences; empty only for 0, which is none.
pub fn advice(code: u32) -> &'static str {
    match Reason::from_code(code) {
        Reason::PeerNotSmc => {
            "Load an SMC module on the peer and start its program with `rsmc run`. If it does use \
             SMC, something on the path removes TCP option 254."
        }
        Reason::NoDevice | Reason::NoRdmaDevice => {
            "Check with `rdma link` that an RDMA port is active on the connection's network \
             interface; if it is on another one, join them with `rsmc pnet add`. The port needs \
             an address (RoCE v2 GID) of the connection's kind."
        }
        Reason::NoUserEid | Reason::NoSystemEid => {
            "Give both hosts one common UEID with `rsmc ueid add`."
        }
        Reason::PeerDeclined => {
            "The cure is on the peer: `rsmc ss` shows the code it sent, its own `rsmc why` \
             explains it."
        }
        Reason::Busy => {
            "The server's program was stopped or is too slow, and its queue of connections has \
             overflowed: `ss -lt` on the server shows the queue. Give listen() a larger backlog \
             (sysctl net.core.somaxconn limits it)."
        }
        Reason::NoMemory => {
            "Free memory, or use smaller buffers: sysctls net.smc.wmem and net.smc.rmem, or \
             `rsmc run --sndbuf --rcvbuf`. The RDMA device may be out of queue pairs: see `rdma \
             resource`."
        }
        Reason::NoIsmDevice | Reason::NoIsmV2 | Reason::NoIsmV2Device => {
            "SMC-D needs an ISM device of the right version in common (on IBM Z). For SMC-R give \
             both hosts an RDMA port; see `rsmc dev`."
        }
        Reason::NoIsmV2Extension => {
            "The peer offers no SMC-D version 2. For SMC-R give it an RDMA port on the network of \
             this connection."
        }
        Reason::DmbLimit => "Close connections or use smaller receive buffers (net.smc.rmem).",
        Reason::Ipsec => {
            "SMC data would not be encrypted. Exclude these hosts from IPsec to use SMC."
        }
        Reason::PrefixMismatch | Reason::NoV2Extension | Reason::VersionMismatch => {
            "SMC version 1 needs both hosts in one IP subnet; across subnets, and with rsmc \
             always, both need version 2 with a common UEID."
        }
        Reason::Release => {
            "One side broke the rules for agreeing on a release of version 2. Update the older \
             of the two SMC implementations."
        }
        Reason::RmbeEyecatcher => {
            "One side runs an old SMC that marks its buffers with eyecatchers, which Linux does \
             not do. Update it."
        }
        Reason::UnsupportedOption => {
            "Switch TCP fast open off in the program (it is the usual cause), or SO_TIMESTAMPING, or the filter \
             that it attaches. Nothing is wrong: there it is TCP that serves it."
        }
        Reason::Attached => {
            "A BPF program puts the host's sockets into a sockmap when they connect (`bpftool map`, \
             `bpftool cgroup tree`), or a kernel service has taken this one. Leave these connections \
             out there to use SMC."
        }
        Reason::PathOff => {
            "Local paths are off (`sysctl net.smc.path_local`), or the two ends are in different network \
             namespaces: set it to 2 in both to allow that."
        }
        Reason::PathAttached => {
            "The program asks for time stamps, has a filter on the socket, or something of the kind, which \
             only TCP's own stream serves. Nothing is wrong."
        }
        Reason::PathElsewhere => {
            "A proxy or a firewall between the two ends keeps two TCP connections, or changes sequence \
             numbers. Nothing is wrong."
        }
        Reason::PathRemote => {
            "After so many segments as `sysctl net.smc.path_promote` says it is promoted to SMC-R; at 0 it never is. With \
             `net.smc.path` at 1 the connection would have used SMC-R from its beginning."
        }
        Reason::PathEnds => "Nothing: a connection that ends is not promoted.",
        Reason::PathRefused => {
            "`rsmc why` on the other host says why that did not agree: it has no RDMA device for this network, or \
             something about its socket needs TCP. It is tried again when the connection has carried more."
        }
        Reason::PathUnreached => {
            "The kernels speak over a TCP connection of their own to the server's address and port. So the server has to \
             listen still, at `net.smc.path` 2, and no load balancer may give its connections to other hosts."
        }
        Reason::PathSoftware => {
            "Nothing is wrong: over soft-RoCE and siw connections are slower than TCP. To try SMC-R over them, \
             `sysctl net.smc.path=1` on one of the hosts has new connections use it from their beginning; \
             `net.smc.path_software=1` on both promotes them."
        }
        Reason::PathReturned => {
            "Nothing was lost. The kernel log says which link that was, and why; new connections use the next one."
        }
        Reason::PathLeft => {
            "Nothing was lost, and it is promoted again when it pays. `net.smc.path_idle` is the time without a byte \
             after which connections go back to TCP, `rsmc demote` has them do so at once."
        }
        Reason::PathWorse => {
            "Most answers on the link come later than TCP's: it loses packets, or its way is longer. The link is tested once \
             a second; when most answers are in time again, connections are promoted again."
        }
        Reason::Policy => {
            "`rsmc policy` lists the rules, and `rsmc policy test` says which one decides about a socket."
        }
        Reason::Neighbour => {
            "`rsmc why` says what was seen of the peer and for how long that counts; `rsmc why --forget` has it \
             tried again with the next connection."
        }
        Reason::LinkFailed => {
            "TCP gets through to this peer and RDMA does not, or its large packets alone do not: let UDP port 4791 pass \
             on the way, in packets as large as the RDMA port's MTU, and then `rsmc why --forget` on both hosts."
        }
        Reason::OptionLost | Reason::OptionReset => {
            "A firewall or another box on the way lets no SYN pass that has TCP option 254, or an experimental \
             one: have it let them pass, and then `rsmc why --forget`. Until then connections to this peer send none."
        }
        Reason::Unpaid => {
            "`rsmc policy learned` shows what was found; SMC is offered again after a while. A rule with `allow` \
             for this port or peer offers it always."
        }
        Reason::PathBreach => {
            "Something in the kernel beside this module wrote into the TCP connection, or the module, here or at \
             the other host, has a bug: the kernel log has a line about it. `sysctl net.smc.path_local=0` keeps connections \
             within this host on TCP, and `path_promote=0` those with others."
        }
        Reason::VlanLookup | Reason::IsmVlan => {
            "Look at the VLAN interfaces of both hosts (`ip -d link`): the connection's must \
             exist where the SMC device is."
        }
        Reason::NoRoute | Reason::NoIndirect => {
            "Check the routes to the RDMA devices' addresses: SMC-R version 2 across subnets \
             needs RoCE v2 GIDs that reach each other, both directly or both through a gateway."
        }
        Reason::ConfirmLinkTimeout | Reason::AddLinkTimeout => {
            "TCP works but RDMA between the hosts does not: check that UDP port 4791 passes, and \
             the MTU on the whole path."
        }
        Reason::Configuration => {
            "See the sysctls in net.smc and the PNET table (`rsmc pnet`). limit_smc_hs makes a \
             busy listener use TCP."
        }
        Reason::ModeMismatch => {
            "One side has only SMC-D, the other only SMC-R, or a version that the other does not \
             speak. Give both an RDMA port and SMC version 2."
        }
        Reason::MaxConnections | Reason::MaxLinks => {
            "Compare net.smc.smcr_max_conns_per_lgr and smcr_max_links_per_lgr of both hosts."
        }
        Reason::NoActiveLink | Reason::NoServerLink | Reason::SyncError => {
            "Usually the trace of a link that just failed; later connections build a new one. If \
             it stays, look at the RDMA devices' state (`rsmc dev`)."
        }
        Reason::Internal
        | Reason::RtokenError
        | Reason::ReadyLinkError
        | Reason::RegisterBufferError => {
            "See the kernel log of both hosts, and the state of the RDMA devices (`rsmc dev`)."
        }
        Reason::Other(0) => "",
        Reason::Other(_) => {
            "The peer's SMC is newer than this program, or another one: look the code up in its \
             documentation."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words() {
        let told = Told::new(0x0301_0000);
        assert_eq!((told.code.as_str(), told.name), ("0x03010000", "PEERNOSMC"));
        assert!(told.text.contains("did not offer SMC"));
        assert_eq!(text(0), "No reason was given");
        assert_eq!(name(0), "NONE");
        assert_eq!(text(0x1234), "Unknown reason 0x00001234");
    }

    #[test]
    fn codes_by_name_or_number() {
        assert_eq!(from_text("peernosmc"), Ok(0x0301_0000));
        assert_eq!(from_text("0x03030000"), Ok(0x0303_0000));
        assert_eq!(from_text("03030000"), Ok(0x0303_0000));
        assert!(from_text("nothing").is_err() && from_text("").is_err());
    }

    #[test]
    fn every_reason_has_words_and_advice() {
        for code in Reason::ALL
            .iter()
            .map(|reason| reason.code())
            .chain([0x1234])
        {
            let (text, advice) = (text(code), advice(code));
            assert!(text.len() > 10 && !text.ends_with('.'), "{code:#x}: {text}");
            assert!(
                advice.len() > 20 && advice.ends_with('.'),
                "{code:#x}: {advice}"
            );
            assert!(!advice.contains("  "), "{code:#x}: {advice}");
        }
        let known: HashSet<_> = Reason::ALL
            .iter()
            .map(|reason| text(reason.code()))
            .collect();
        assert_eq!(
            known.len(),
            Reason::ALL.len(),
            "two reasons with the same words"
        );
        assert_eq!(advice(0), "");
    }
}
