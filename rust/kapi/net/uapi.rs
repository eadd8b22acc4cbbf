// SPDX-License-Identifier: GPL-2.0

//! Numbers of the system calls' interface, as the kernel's headers have them.

use core::mem::{offset_of, size_of};
use smc_bindings as bindings;

macro_rules! numbers {
    ($header:literal, $type:ty: $($name:ident = $value:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of `", $header, "`.")]
            pub const $name: $type = bindings::$value as $type;
        )*
    };
}

numbers!("linux/socket.h", i32:
    AF_INET = AF_INET,
    AF_INET6 = AF_INET6,
    AF_SMC = AF_SMC,
    SOL_SMC = SOL_SMC,
);
numbers!("linux/net.h", i32:
    SHUT_RD = sock_shutdown_cmd_SHUT_RD,
    SHUT_WR = sock_shutdown_cmd_SHUT_WR,
    SHUT_RDWR = sock_shutdown_cmd_SHUT_RDWR,
);
numbers!("uapi/asm-generic/fcntl.h", i32: O_NONBLOCK = O_NONBLOCK);
numbers!("uapi/linux/sockios.h", u32:
    SIOCATMARK = SIOCATMARK,
    SIOCINQ = SIOCINQ_RAW,
    SIOCOUTQ = SIOCOUTQ_RAW,
    SIOCOUTQNSD = SIOCOUTQNSD,
);
numbers!("uapi/linux/smc_diag.h", u16:
    SMC_DIAG_CONNINFO = SMC_DIAG_CONNINFO,
    SMC_DIAG_LGRINFO = SMC_DIAG_LGRINFO,
    SMC_DIAG_SHUTDOWN = SMC_DIAG_SHUTDOWN,
    SMC_DIAG_FALLBACK = SMC_DIAG_FALLBACK,
);
numbers!("uapi/linux/smc_diag.h", u8:
    SMC_DIAG_MODE_SMCR = SMC_DIAG_MODE_SMCR,
    SMC_DIAG_MODE_FALLBACK_TCP = SMC_DIAG_MODE_FALLBACK_TCP,
);
numbers!("uapi/linux/smc.h", i32: SMC_LIMIT_HS = SMC_LIMIT_HS);
numbers!("uapi/linux/in.h", i32:
    IPPROTO_IP = IPPROTO_IP,
    IPPROTO_TCP = IPPROTO_TCP,
    IPPROTO_IPV6 = IPPROTO_IPV6,
    IP_OPTIONS = IP_OPTIONS,
);
numbers!("uapi/linux/in6.h", i32:
    IPV6_ADDRFORM = IPV6_ADDRFORM,
    IPV6_2292HOPOPTS = IPV6_2292HOPOPTS,
    IPV6_HOPOPTS = IPV6_HOPOPTS,
);
numbers!("uapi/linux/tcp.h", i32:
    TCP_NODELAY = TCP_NODELAY,
    TCP_CORK = TCP_CORK,
    TCP_INFO = TCP_INFO,
    TCP_MD5SIG = TCP_MD5SIG,
    TCP_REPAIR = TCP_REPAIR,
    TCP_REPAIR_ON = TCP_REPAIR_ON,
    TCP_FASTOPEN = TCP_FASTOPEN,
    TCP_SAVE_SYN = TCP_SAVE_SYN,
    TCP_FASTOPEN_CONNECT = TCP_FASTOPEN_CONNECT,
    TCP_ULP = TCP_ULP,
    TCP_MD5SIG_EXT = TCP_MD5SIG_EXT,
    TCP_FASTOPEN_KEY = TCP_FASTOPEN_KEY,
    TCP_FASTOPEN_NO_COOKIE = TCP_FASTOPEN_NO_COOKIE,
    TCP_ZEROCOPY_RECEIVE = TCP_ZEROCOPY_RECEIVE,
    TCP_INQ = TCP_INQ,
    TCP_AO_ADD_KEY = TCP_AO_ADD_KEY,
);

/// Offsets in `struct tcp_info` of `uapi/linux/tcp.h`.
pub mod tcp_info {
    use super::{bindings::tcp_info, offset_of};

    /// `tcpi_bytes_acked`, of 64 bits.
    pub const BYTES_ACKED: usize = offset_of!(tcp_info, tcpi_bytes_acked);
    /// `tcpi_bytes_received`, of 64 bits.
    pub const BYTES_RECEIVED: usize = offset_of!(tcp_info, tcpi_bytes_received);
    /// `tcpi_bytes_sent`, of 64 bits.
    pub const BYTES_SENT: usize = offset_of!(tcp_info, tcpi_bytes_sent);
}

/// Size and offsets of `struct tcp_zerocopy_receive` of `uapi/linux/tcp.h`.
pub mod tcp_zerocopy_receive {
    use super::{bindings::tcp_zerocopy_receive, offset_of, size_of};

    /// The whole.
    pub const SIZE: usize = size_of::<tcp_zerocopy_receive>();
    /// `length`: how much was mapped.
    pub const LENGTH: usize = offset_of!(tcp_zerocopy_receive, length);
    /// `recv_skip_hint`: how much is to be read.
    pub const SKIP_HINT: usize = offset_of!(tcp_zerocopy_receive, recv_skip_hint);
    /// `inq`: how much there is. The oldest form of the struct ends before it.
    pub const INQ: usize = offset_of!(tcp_zerocopy_receive, inq);
    /// `err`: the socket's error.
    pub const ERR: usize = offset_of!(tcp_zerocopy_receive, err);
    /// `copybuf_len`: how much was copied.
    pub const COPYBUF_LEN: usize = offset_of!(tcp_zerocopy_receive, copybuf_len);
    /// `msg_flags`: those of a control message.
    pub const MSG_FLAGS: usize = offset_of!(tcp_zerocopy_receive, msg_flags);
}
