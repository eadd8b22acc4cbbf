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

/// What can be done about a reason, in one or two sentences; empty if there is nothing to say.
pub fn advice(code: u32) -> &'static str {
    match Reason::from_code(code) {
        Reason::PeerNotSmc => {
            "Load an SMC module on the peer and start its program with `rsmc run`. If it does use \
             SMC, something on the path removes TCP option 254."
        }
        Reason::NoDevice | Reason::NoRdmaDevice => {
            "Check with `rdma link` that an RDMA port is active on the connection's network \
             interface; if it is on another one, join them with `rsmc pnet add`. SMC-R over \
             RoCE v2 needs an IPv4 connection."
        }
        Reason::NoUserEid | Reason::NoSystemEid => {
            "Give both hosts one common UEID with `rsmc ueid add`."
        }
        Reason::PeerDeclined => {
            "The peer's own reason is in its `rsmc ss` or `rsmc why`; this side's `rsmc ss` shows \
             the code it sent."
        }
        Reason::NoMemory => {
            "Free memory, or use smaller buffers: sysctls net.smc.wmem and net.smc.rmem, or \
             `rsmc run --sndbuf --rcvbuf`."
        }
        Reason::DmbLimit => "Close connections or use smaller receive buffers (net.smc.rmem).",
        Reason::Ipsec => {
            "SMC data would not be encrypted. Exclude these hosts from IPsec to use SMC."
        }
        Reason::PrefixMismatch | Reason::NoV2Extension | Reason::VersionMismatch => {
            "SMC version 1 needs both hosts in one IP subnet; across subnets both need version 2 \
             with a common UEID."
        }
        Reason::UnsupportedOption => {
            "Switch TCP fast open off in the program (it is the usual cause)."
        }
        Reason::NoRoute | Reason::NoIndirect => {
            "Check routes and GIDs of the RDMA devices: SMC-R version 2 across subnets needs \
             RoCE v2 GIDs that reach each other."
        }
        Reason::ConfirmLinkTimeout | Reason::AddLinkTimeout => {
            "TCP works but RDMA between the hosts does not: check that UDP port 4791 passes, and \
             the MTU on the whole path."
        }
        Reason::Configuration => {
            "See the sysctls in net.smc and the PNET table (`rsmc pnet`). limit_smc_hs makes a \
             busy listener use TCP."
        }
        Reason::ModeMismatch => "One side has only SMC-D and the other only SMC-R.",
        Reason::MaxConnections | Reason::MaxLinks => {
            "Compare net.smc.smcr_max_conns_per_lgr and smcr_max_links_per_lgr of both hosts."
        }
        Reason::NoActiveLink | Reason::NoServerLink | Reason::SyncError => {
            "Usually the trace of a link that just failed; later connections build a new one. If \
             it stays, look at the RDMA devices' state."
        }
        Reason::Internal
        | Reason::RtokenError
        | Reason::ReadyLinkError
        | Reason::RegisterBufferError => "See the kernel log of both hosts.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn frequent_reasons_have_advice() {
        for reason in [
            Reason::PeerNotSmc,
            Reason::NoDevice,
            Reason::NoUserEid,
            Reason::PeerDeclined,
        ] {
            assert!(!advice(reason.code()).is_empty());
        }
        for reason in Reason::ALL {
            assert!(!advice(reason.code()).contains("  "), "{reason}");
        }
    }
}
