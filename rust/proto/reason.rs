// SPDX-License-Identifier: GPL-2.0

//! Decline and fallback reasons, in codes and words.
//!
//! The same 32-bit codes travel in DECLINE messages ("peer diagnosis") and are
//! shown to users as the fallback reason. Values are those of the C
//! implementation (`net/smc/smc_clc.h`), which continues RFC 7609's list; BUSY
//! is our own, beside MEM, and a number like others to who does not know it.

use core::fmt;

/// Defines [`Reason`] from rows of variant, code, short name, sentence.
macro_rules! reasons {
    ($( $variant:ident = $code:literal, $name:literal, $text:literal; )*) => {
        /// A decline or fallback reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(
                #[doc = $text]
                $variant,
            )*
            /// A code this implementation does not know, kept as it came.
            Other(u32),
        }

        impl Reason {
            /// All known reasons, by ascending code.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The code on the wire and in user interfaces.
            pub const fn code(self) -> u32 {
                match self {
                    $( Reason::$variant => $code, )*
                    Reason::Other(code) => code,
                }
            }

            /// The reason with this code.
            pub const fn from_code(code: u32) -> Reason {
                match code {
                    $( $code => Reason::$variant, )*
                    _ => Reason::Other(code),
                }
            }

            /// A short stable name for tables and machine-readable output: what
            /// follows `SMC_CLC_DECL_` in the C implementation.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Reason::$variant => $name, )*
                    Reason::Other(_) => "OTHER",
                }
            }

            /// One sentence for people, without a full stop.
            pub const fn explain(self) -> &'static str {
                match self {
                    $( Reason::$variant => $text, )*
                    Reason::Other(_) => "The peer gave a reason that this version does not know",
                }
            }
        }
    };
}

reasons! {
    NoMemory = 0x0101_0000, "MEM",
        "Not enough memory for the resources of an SMC connection";
    Busy = 0x0101_00ff, "BUSY",
        "The server's program does not accept connections, and its queue is full";
    ConfirmLinkTimeout = 0x0201_0000, "TIMEOUT_CL",
        "The peer did not confirm the new RDMA link in time";
    AddLinkTimeout = 0x0202_0000, "TIMEOUT_AL",
        "The peer did not answer in time when a second RDMA link was added";
    Configuration = 0x0300_0000, "CNFERR",
        "The configuration does not allow SMC for this connection";
    PeerNotSmc = 0x0301_0000, "PEERNOSMC",
        "The peer did not offer SMC in its TCP handshake";
    Ipsec = 0x0302_0000, "IPSEC",
        "The connection is protected by IPsec, which SMC would bypass";
    NoDevice = 0x0303_0000, "NOSMCDEV",
        "No device for SMC, neither RDMA nor ISM, serves this connection";
    NoIsmDevice = 0x0303_0001, "NOSMCDDEV",
        "No ISM device (SMC-D) serves this connection";
    NoRdmaDevice = 0x0303_0002, "NOSMCRDEV",
        "No RDMA device (SMC-R) serves this connection";
    NoIsmV2 = 0x0303_0003, "NOISM2SUPP",
        "The ISM hardware has no version 2 support";
    NoV2Extension = 0x0303_0004, "NOV2EXT",
        "The peer's proposal lacks the version 2 extension";
    NoIsmV2Extension = 0x0303_0005, "NOV2DEXT",
        "The peer's proposal lacks the SMC-D version 2 extension";
    NoSystemEid = 0x0303_0006, "NOSEID",
        "The peer sent no system EID";
    NoIsmV2Device = 0x0303_0007, "NOSMCD2DEV",
        "No SMC-D version 2 device serves this connection";
    NoUserEid = 0x0303_0008, "NOUEID",
        "Both sides have no user EID in common";
    Release = 0x0303_0009, "RELEASEERR",
        "The sides did not agree on a release of SMC version 2";
    MaxConnections = 0x0303_000a, "MAXCONNERR",
        "The sides did not agree on the number of connections per link group";
    MaxLinks = 0x0303_000b, "MAXLINKERR",
        "The sides did not agree on the number of links per link group";
    ModeMismatch = 0x0304_0000, "MODEUNSUPP",
        "The sides have no SMC mode (R or D) in common";
    RmbeEyecatcher = 0x0305_0000, "RMBE_EC",
        "The peer insists on eyecatchers in its receive buffers";
    UnsupportedOption = 0x0306_0000, "OPTUNSUPP",
        "The program uses something of TCP that SMC does not have: fast open, repair, stamps or a filter of packets";
    Attached = 0x0306_00ff, "ATTACHED",
        "Another part of the kernel, such as a BPF sockmap, has taken the socket's data over";
    PathOff = 0x0306_0100, "PATHOFF",
        "Settings keep the connection on TCP: path_local, or the two ends' namespaces";
    PathAttached = 0x0306_0101, "PATHATTACHED",
        "Something about the socket needs TCP's own stream, such as a filter, time stamps or a signature";
    PathElsewhere = 0x0306_0102, "PATHELSEWHERE",
        "The connection's other end is not in this kernel: a proxy, or a firewall that changes sequence numbers";
    PathRemote = 0x0306_0103, "PATHREMOTE",
        "The connection began as TCP with another host that has this module, and has not carried enough yet to be worth promoting to SMC-R";
    PathBreach = 0x0306_0104, "PATHBREACH",
        "Bytes went by TCP while the connection had left that, and it was reset";
    Policy = 0x0306_0105, "POLICY",
        "A rule of the policy keeps the socket, or this peer, on TCP";
    Neighbour = 0x0306_0106, "NEIGHBOUR",
        "The peer, or the path to it, has not borne the SMC option before, so none was sent";
    OptionLost = 0x0306_0107, "OPTIONLOST",
        "SYNs with the SMC option stayed without an answer, and one without it was answered";
    OptionReset = 0x0306_0108, "OPTIONRESET",
        "A SYN with the SMC option was reset, and one without it was answered";
    Unpaid = 0x0306_0109, "AUTO",
        "Connections to this service live too briefly, or move too little, to pay, as a rule with `auto` has found";
    LinkFailed = 0x0306_010a, "LINKFAILED",
        "RDMA did not get through to this peer before, or broke soon, so no link to it is begun for a while";
    PathEnds = 0x0306_010b, "PATHENDS",
        "One direction of the connection had ended before it was promoted to SMC-R";
    PathRefused = 0x0306_010c, "PATHREFUSED",
        "The connection was to be promoted to SMC-R, and the other host did not agree";
    PathUnreached = 0x0306_010d, "PATHUNREACHED",
        "The connection was to be promoted to SMC-R, and the other host's kernel was not reached at the server's address and port";
    PathSoftware = 0x0306_010e, "PATHSOFTWARE",
        "The RDMA device is software, over which connections are not promoted: path_software";
    PathReturned = 0x0306_010f, "PATHRETURNED",
        "The connection had been promoted to SMC-R, its link was lost, and it went on by TCP";
    PathLeft = 0x0306_0110, "PATHLEFT",
        "The connection had been promoted to SMC-R and went on by TCP: it was idle, memory was short, or an administrator asked for that";
    PathWorse = 0x0306_0111, "PATHWORSE",
        "The connection was to be promoted to SMC-R, or had been, and the link answered later than TCP";
    PrefixMismatch = 0x0307_0000, "DIFFPREFIX",
        "The sides are not in the same IP subnet, which SMC version 1 needs";
    VlanLookup = 0x0308_0000, "GETVLANERR",
        "The VLAN of the connection could not be determined";
    IsmVlan = 0x0309_0000, "ISMVLANERR",
        "The VLAN could not be registered with the ISM device";
    NoActiveLink = 0x030a_0000, "NOACTLINK",
        "The link group to the peer has no active link";
    NoServerLink = 0x030b_0000, "NOSRVLINK",
        "The server chose a link that this side does not know";
    VersionMismatch = 0x030c_0000, "VERSMISMAT",
        "The sides have no SMC version in common";
    DmbLimit = 0x030d_0000, "MAX_DMB",
        "The ISM device has no more room for receive buffers";
    NoRoute = 0x030e_0000, "NOROUTE",
        "There is no route to the peer's RDMA device";
    NoIndirect = 0x030f_0000, "NOINDIRECT",
        "One side reaches the other through a gateway, the other one directly";
    SyncError = 0x0400_0000, "SYNCERR",
        "The sides disagree about which link groups exist";
    PeerDeclined = 0x0500_0000, "PEERDECL",
        "The peer declined SMC for this connection";
    Internal = 0x0999_0000, "INTERR",
        "Internal error";
    RtokenError = 0x0999_0001, "ERR_RTOK",
        "Internal error: the peer's memory key could not be stored";
    ReadyLinkError = 0x0999_0002, "ERR_RDYLNK",
        "Internal error: the RDMA link could not be brought up";
    RegisterBufferError = 0x0999_0003, "ERR_REGBUF",
        "Internal error: the receive buffer could not be registered with the RDMA device";
}

impl Reason {
    /// True for codes this implementation knows.
    pub const fn is_known(self) -> bool {
        !matches!(self, Reason::Other(_))
    }
}

impl From<u32> for Reason {
    fn from(code: u32) -> Self {
        Reason::from_code(code)
    }
}

impl From<Reason> for u32 {
    fn from(reason: Reason) -> Self {
        reason.code()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {}", self.code(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn codes_are_unique_sorted_and_round_trip() {
        for pair in Reason::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
        }
        for r in Reason::ALL {
            assert_eq!(Reason::from_code(r.code()), *r);
            assert!(r.is_known());
            assert!(!r.name().is_empty() && !r.explain().ends_with('.'));
        }
        assert_eq!(Reason::ALL.len(), 56);
        assert_eq!(Reason::from_code(0x1234_5678), Reason::Other(0x1234_5678));
        assert_eq!(Reason::Other(7).code(), 7);
        assert_eq!(Reason::NoDevice.to_string(), "0x03030000 NOSMCDEV");
    }
}
