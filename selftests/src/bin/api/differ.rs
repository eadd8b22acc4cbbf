// SPDX-License-Identifier: GPL-2.0
//! Lists what a program sees differently when its connection is SMC-R, each with its reason; for
//! programmers in Documentation/programmer.md. Anything else fails.

/// Where a scenario's connections lead when there is a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// To SMC-R, every one.
    Smc,
    /// To TCP, whatever devices there are.
    Tcp,
    /// To SMC-R first and then to TCP: a socket that has left SMC does not come back to it.
    Both,
}

const OTHERS: &[(&str, Path)] = &[
    ("connect_tcp_listener", Path::Tcp),
    ("connect_from_tcp", Path::Tcp),
    ("connect_to_itself", Path::Tcp),
    ("connect_unspec", Path::Both),
    ("connect_unspec_unread", Path::Both),
    ("blocked_recv_disconnect", Path::Both),
    ("flags_fastopen", Path::Tcp),
    ("tcp_fastopen_connect", Path::Tcp),
    ("tcp_fastopen_listen", Path::Tcp),
    ("tcp_md5_key", Path::Tcp),
    ("replace_ulp_unconnected", Path::Both),
    ("replace_repair_unconnected", Path::Tcp),
    ("replace_filter_before", Path::Tcp),
    ("replace_stamping_before", Path::Tcp),
];

/// Where the scenario's connections lead.
pub fn path(scenario: &str) -> Path {
    OTHERS
        .iter()
        .find(|x| x.0 == scenario)
        .map_or(Path::Smc, |x| x.1)
}

/// Scenarios that spoil their namespace for others.
const ALONE: &[&str] = &["tcp_keepalive"];

/// Returns whether the scenario needs a namespace of its own.
pub fn is_alone(scenario: &str) -> bool {
    ALONE.contains(&scenario)
}

/// Scenario, label, value here, reason.
pub type Row = (&'static str, &'static str, &'static str, &'static str);

/// Differences over SMC-R.
pub const SMC: &[Row] = &[
    ("poll_states", "send", "EPIPE", CLOSED),
    ("poll_states", "reset", "IN|OUT|RDNORM|WRNORM|RDHUP", CLOSED),
    ("shut_rdwr", "peer send", "EPIPE", CLOSED),
    (
        "shut_rdwr",
        "peer poll",
        "IN|OUT|RDNORM|WRNORM|RDHUP",
        CLOSED,
    ),
    ("splice_eof", "send", "EPIPE", CLOSED),
    ("ring_shutdown_close", "send", "EPIPE", CLOSED),
    (
        "ring_shutdown_close",
        "reset",
        "IN|OUT|RDNORM|WRNORM|RDHUP",
        CLOSED,
    ),
    ("sigio_data", "send", "EPIPE", CLOSED),
    ("sigio_data", "reset", "IN|RDNORM", CLOSED),
    ("shut_rdwr", "own peername", "ok", ANSWER),
    ("oob_separate", "after", "EAGAIN", URGENT),
    ("oob_separate", "after the mark", "EAGAIN", URGENT),
    ("oob_inline", "after", "EAGAIN", URGENT),
    ("oob_inline", "from the mark", "!", URGENT),
    ("opts_tcp_level_connected", "QUICKACK before", "0", IDLE),
    ("opts_ipv6_level", "MULTICAST_HOPS before", "64", HOPS),
    ("opts_ipv6_level", "MULTICAST_HOPS read", "64", HOPS),
    ("stamps_arrival", "time", "right", STAMP),
    ("data_bad_pointers", "half bad recvmsg", "4", FAULT),
    ("data_bad_pointers", "rest", "5678", FAULT),
    ("blocked_recv_disconnect", "recv", "EOF", LEFT),
    ("blocked_recv_disconnect", "recv", "ECONNRESET", LEFT),
    ("tcp_keepalive", "SO_ERROR", "ECONNABORTED", LINK),
    ("opts_ipv6_level", "ADDRFORM", "EBUSY", TAKEN),
    ("opts_ipv6_level", "SO_DOMAIN", "10", TAKEN),
    ("replace_ulp_connected", "client", "EBUSY", TAKEN),
    ("replace_ulp_connected", "server", "EBUSY", TAKEN),
    ("replace_repair_connected", "on", "EBUSY", TAKEN),
];

const CLOSED: &str =
    "the peer's message says that its socket is closed, so the first send fails already; \
    TCP learns it by the answer to that send";
const ANSWER: &str = "the peer's send fails there, so it is not answered by a reset";
const URGENT: &str = "nothing is sent after an urgent byte before the peer has read it";
const IDLE: &str = "it is about the TCP connection beneath, which is idle";
const HOPS: &str = "with IPV6_RECVHOPLIMIT TCP keeps there the hop limit of the last segment, \
    which may be a late acknowledgement of the handshake";
const STAMP: &str = "TCP gives the time of the FIN, which joins the segment before it";
const LEFT: &str =
    "who reads from a connection that another thread dissolves sees an end of file, or its abort, \
    whichever comes first";
const FAULT: &str = "what fits into the good part of the memory is received, the rest stays";
const TAKEN: &str = "bytes that go by RDMA cannot become TCP's again";
const LINK: &str = "the device notices first that its port is down";

/// Differences over a local path.
pub const LOCAL: &[Row] = &[
    ("flags_more", "held back", "1", HELD),
    ("tcp_cork_holds", "held", "IN|OUT|RDNORM|WRNORM", HELD),
    ("ioctl_outq", "held", "0", HELD),
    ("ioctl_outq", "held", "1", HELD),
    ("ioctl_outq", "held, not sent", "0", HELD),
    ("opts_tcp_level_connected", "QUICKACK before", "0", IDLE),
    ("opts_tcp_level_connected", "QUICKACK before", "1", IDLE),
    ("stamps_forms", "time", "too late", READ),
    ("stamps_arrival", "time", "too late", READ),
    ("data_bad_pointers", "half bad recvmsg", "4", FAULT),
    ("data_bad_pointers", "rest", "5678", FAULT),
    ("linger_full", "linger time", "too early", HERE),
];

const HELD: &str = "a local path holds nothing back: MSG_MORE and TCP_CORK are hints";
const READ: &str = "bytes that came before the program asked for their times have that of the read";
const HERE: &str = "what is in the ring has arrived: SO_LINGER does not wait for the reader";

/// The reason why `value` is right at this place, if it is in the `table`.
pub fn find(table: &[Row], scenario: &str, label: &str, value: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|x| x.0 == scenario && x.1 == label && x.2 == value)
        .map(|x| x.3)
}
