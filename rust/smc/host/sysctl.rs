// SPDX-License-Identifier: GPL-2.0

//! `/proc/sys/net/smc`: names, defaults and ranges are those of C, but for `strict`, `immediate`,
//! `hook_idle_ms`, `drain_time`, `max_drains`, `tcp2smc`, `neighbour_time`, `auto_pause`, `peer_groups`, `traffic_class` and those that begin with
//! `path`, which are ours.

use crate::host::convert;
use kapi::net::{
    netns::Net,
    sysctl::{Entry, Range, Table}, //
};
use kernel::prelude::*;

/// Settings in the directory, in the order of [`ENTRIES`].
#[derive(Clone, Copy)]
#[allow(
    dead_code,
    reason = "some belong to parts of the family that are yet to come"
)]
pub(crate) enum Sysctl {
    /// Bytes held back, at most, while an answer is outstanding; a `u32`.
    AutocorkingSize,
    /// Size of the send buffer of a new socket, in bytes.
    Wmem,
    /// Size of the receive buffer of a new socket, in bytes.
    Rmem,
    /// Size up to which a send buffer grows where the peer's receive buffer has grown, in bytes.
    WmemMax,
    /// Size up to which a receive buffer grows where the peer has this module, too, in bytes.
    RmemMax,
    /// Memory of buffers: 0 physically contiguous, 1 virtually, 2 either.
    BufType,
    /// Idle time after which a link is tested, in seconds; 0 for never.
    TestlinkTime,
    /// Most links of a link group.
    MaxLinks,
    /// Most connections of a link group.
    MaxConns,
    /// Send work requests of a link.
    MaxSendWr,
    /// Receive work requests of a link.
    MaxRecvWr,
    /// `SMC_LIMIT_HS` of a new socket.
    LimitHs,
    /// `RSMC_STRICT` of a new socket.
    Strict,
    /// 1 to offer peers with this module WRITEs with immediate, which announce themselves.
    Immediate,
    /// Time that the SYN hooks stay when no socket needs them, in milliseconds.
    HookIdle,
    /// Time that a closed connection with data waits for a peer that takes none, in seconds.
    DrainTime,
    /// Most closed connections with data for their peers.
    MaxDrains,
    /// 0 CLC before data; 1 TCP first where both ends may share memory; 2 TCP first with every host that has
    /// this module. `RSMC_PATH` of a new socket.
    Path,
    /// Paths within this kernel: 0 none, 1 within the namespace, 2 to other namespaces that say so, too.
    PathLocal,
    /// Size up to which a local path's rings grow, in bytes.
    PathRing,
    /// Most memory of one user's rings on local paths, in pages; 0 for a sixteenth of the machine's.
    PathUserPages,
    /// TCP sockets that become sockets of the family: 0 none, 1 all, 2 those that the policy allows, 3 all
    /// but those that it denies.
    Tcp2Smc,
    /// Time for which a peer that does not bear the option is sent none at first, in seconds; 0 for none.
    NeighbourTime,
    /// Time for which a service whose connections do not pay is not offered SMC at first by a rule with
    /// `auto`, in seconds.
    AutoPause,
    /// The byte of the IP header of RDMA packets that says how they are treated on the way; -1 for that of the
    /// connection's socket.
    TrafficClass,
    /// Most link groups that connections of this host to one peer are spread over.
    PeerGroups,
    /// Data segments of both directions after which a connection between two hosts that has begun as TCP is promoted to
    /// SMC-R; 0 for never.
    PathPromote,
    /// 1 to promote connections over devices that are software, too.
    PathSoftware,
    /// Time after which a promoted connection that nothing moves on goes back to TCP, in seconds; 0 for never.
    PathIdle,
    /// For tests: local paths change carriers after this number of messages at most; 0 for never.
    PathFlip,
}

const fn entry(name: &'static CStr, default: i32, min: i32, max: i32) -> Entry {
    Entry {
        name,
        default,
        range: Range::Int(min, max),
    }
}

/// Smallest buffer.
const MIN_BUF: i32 = 16 * 1024;
const MAX_BUF: i32 = i32::MAX / 2;
const MAX_WR: i32 = 2048;

/// Number of files.
const COUNT: usize = 30;

static ENTRIES: [Entry; COUNT] = [
    Entry {
        name: c"autocorking_size",
        default: 64 * 1024,
        range: Range::Unsigned,
    },
    entry(c"wmem", 64 * 1024, MIN_BUF, MAX_BUF),
    entry(c"rmem", 64 * 1024, MIN_BUF, MAX_BUF),
    entry(c"wmem_max", 1 << 20, 0, MAX_BUF),
    entry(c"rmem_max", 1 << 20, 0, MAX_BUF),
    entry(c"smcr_buf_type", 0, 0, 2),
    // So many seconds that their milliseconds are an int. (C takes negative ones, too.)
    entry(c"smcr_testlink_time", 30, 0, i32::MAX / 1000),
    entry(c"smcr_max_links_per_lgr", 2, 1, 2),
    entry(c"smcr_max_conns_per_lgr", 255, 16, 255),
    entry(c"smcr_max_send_wr", 16, 2, MAX_WR),
    entry(c"smcr_max_recv_wr", 48, 2, MAX_WR),
    entry(c"limit_smc_hs", 0, 0, 1),
    entry(c"strict", 0, 0, 1),
    entry(c"immediate", 1, 0, 1),
    entry(c"hook_idle_ms", 30_000, 10, 3_600_000),
    entry(c"drain_time", 60, 1, 3600),
    entry(c"max_drains", 4096, 0, 1 << 20),
    entry(c"path", 2, 0, 2),
    entry(c"path_local", 1, 0, 2),
    entry(c"path_ring", 1 << 20, 1 << 14, 1 << 24),
    entry(c"path_user_pages", 0, 0, i32::MAX),
    Entry {
        name: c"tcp2smc",
        default: 0,
        range: Range::Switched(0, 3, convert::change),
    },
    entry(c"neighbour_time", 3600, 0, 7 * 24 * 3600),
    entry(c"auto_pause", 60, 1, 3600),
    entry(c"traffic_class", -1, -1, 255),
    entry(c"peer_groups", 8, 1, 8),
    entry(c"path_promote", 32, 0, 1 << 30),
    entry(c"path_software", 0, 0, 1),
    entry(c"path_idle", 60, 0, 7 * 24 * 3600),
    entry(c"path_flip", 0, 0, 1 << 20),
];

/// Values of a namespace.
pub(crate) struct Sysctls(Table<COUNT>);

impl Sysctls {
    /// Creates the files.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also when the files exist.
    pub(crate) fn new(net: &Net) -> Result<Self> {
        Ok(Self(Table::new(net, c"net/smc", &ENTRIES)?))
    }

    /// Returns a value.
    #[inline]
    pub(crate) fn get(&self, which: Sysctl) -> i32 {
        self.0.get(which as usize)
    }

    /// Sets a value that is a switch.
    pub(crate) fn set(&self, which: Sysctl, on: bool) {
        self.0.set(which as usize, i32::from(on));
    }

    /// Removes the files; the values stay. Does not wait for writers that wait for the redirection.
    pub(crate) fn remove(&self) {
        self.0.close();
        convert::wake_writers();
        self.0.remove();
    }
}
