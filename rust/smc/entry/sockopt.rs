// SPDX-License-Identifier: GPL-2.0

//! Socket options: the family's own, and those of TCP that concern it.

use crate::{
    entry::{
        replacing,
        tcp_info::{self, Moved},
        zerocopy_receive, //
    },
    host::{fallback::Role, stats::Stat},
    socket::{connect, path, Phase, SmcSock}, //
    stream::{local::Local, Stream},
};

use kapi::{
    errno,
    net::{
        args::{GetOption, SetOption},
        overlay::Handled,
        sock::tcp_state as tcp,
        socket::BsdSocket,
        uapi::{
            IPPROTO_IP,
            IPPROTO_IPV6,
            IPPROTO_TCP,
            IPV6_2292HOPOPTS,
            IPV6_ADDRFORM,
            IPV6_HOPOPTS,
            IP_OPTIONS,
            SMC_LIMIT_HS,
            SOL_SMC,
            TCP_AO_ADD_KEY,
            TCP_CORK,
            TCP_FASTOPEN,
            TCP_FASTOPEN_CONNECT,
            TCP_FASTOPEN_KEY,
            TCP_FASTOPEN_NO_COOKIE,
            TCP_INFO,
            TCP_INQ,
            TCP_MD5SIG,
            TCP_MD5SIG_EXT,
            TCP_NODELAY,
            TCP_REPAIR,
            TCP_REPAIR_ON,
            TCP_SAVE_SYN,
            TCP_ULP,
            TCP_ZEROCOPY_RECEIVE, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::reason::Reason;

/// Mode of the connection and reason of its fallback, see [`Info`]; our own extension.
const RSMC_INFO: i32 = 100;
/// Strict mode, see `socket/strict.rs`; our own extension.
const RSMC_STRICT: i32 = 101;
/// Order of TCP and SMC: a value of the sysctl `path`, or -1 for the namespace's; our own extension.
const RSMC_PATH: i32 = 102;
/// Values of the first word of [`RSMC_INFO`].
pub(crate) mod mode {
    /// SMC-R.
    pub(super) const SMC: u32 = 0;
    /// TCP.
    pub(crate) const FALLBACK: u32 = 1;
    /// Memory that both ends share: what C shows of its loopback device, SMC-D.
    pub(super) const LOCAL: u32 = 2;
    /// TCP, on a connection that began so.
    pub(super) const PATH: u32 = 3;
    /// Not decided, or not a connection.
    pub(crate) const UNDECIDED: u32 = 255;
}

/// States as `sock_diag` shows them.
pub(crate) mod state {
    /// A connection.
    pub(crate) const ACTIVE: u32 = 1;
    /// Neither connected nor listening.
    pub(crate) const INIT: u32 = 2;
    /// Closed.
    pub(crate) const CLOSED: u32 = 7;
    /// Listening.
    pub(crate) const LISTEN: u32 = 10;
}

/// Handles setsockopt().
///
/// # Errors
///
/// `ENOPROTOOPT` for unknown SMC options, `EINVAL` for a switch that is neither 0 nor 1, `EPROTONOSUPPORT` for
/// what strict mode forbids, `EBUSY` for what needs a stream that is TCP's.
pub(crate) fn set(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    option: &SetOption<'_>,
) -> Result<Handled> {
    match (option.level(), option.name()) {
        (SOL_SMC, SMC_LIMIT_HS) => {
            this.limit_hs.set(u32::from(option.int()? != 0));
            Ok(Handled::Done)
        }
        (SOL_SMC, RSMC_STRICT) => {
            let strict = switch(option)?;
            let state = this.state.lock();
            if let (1, Phase::Fallback(fallback)) = (strict, &*state) {
                if fallback.role == Role::Client {
                    // It is too late.
                    return Err(errno::EPROTONOSUPPORT.into());
                }
            }
            this.strict.set(u32::from(strict != 0));
            Ok(Handled::Done)
        }
        (SOL_SMC, RSMC_PATH) => {
            // It counts at the next connect() or listen().
            match option.int()? {
                path @ -1..=2 => this.set_path(path),
                _ => return Err(EINVAL),
            }
            Ok(Handled::Done)
        }
        (SOL_SMC, _) => Err(errno::ENOPROTOOPT.into()),
        (
            IPPROTO_TCP,
            TCP_FASTOPEN | TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_KEY | TCP_FASTOPEN_NO_COOKIE,
        ) => {
            // SMC does not support TCP handshakes changed by these options; one that is under way is not.
            if !connect::is_undecided(this) {
                connect::give_up(this, socket, Reason::UnsupportedOption)?;
            }
            Ok(Handled::Native)
        }
        // It looks at TCP's queues, and sets them.
        (IPPROTO_TCP, TCP_REPAIR) => {
            connect::give_up(this, socket, Reason::UnsupportedOption)?;
            if this.smc().is_some() && option.int()? == TCP_REPAIR_ON {
                return Err(EBUSY);
            }
            if path::may_leave(this) {
                path::leave(this, socket)?;
            }
            Ok(Handled::Native)
        }
        (IPPROTO_TCP, TCP_SAVE_SYN) => {
            let value = option.int()?;
            if !(0..=2).contains(&value) {
                return Err(EINVAL);
            }
            this.user_save_syn.set(value as u32);
            if let Phase::Listening(listener) = &*this.state.lock() {
                listener.keep_saved_syn.set(value as u32);
                if value == 0 {
                    // The family still needs it.
                    return Ok(Handled::Done);
                }
            }
            Ok(Handled::Native)
        }
        (IPPROTO_TCP, TCP_NODELAY | TCP_CORK) => {
            let on = option.int()? != 0;
            if let Some(conn) = this.written_smc() {
                let nodelay = option.name() == TCP_NODELAY;
                // Both send what was held back.
                if on == nodelay {
                    conn.push();
                    let stat = if nodelay { Stat::NoDelay } else { Stat::Corked };
                    conn.stats().add(stat, 1);
                }
            }
            Ok(Handled::Native)
        }
        (IPPROTO_TCP, TCP_INQ) => {
            if let Some(local) = this.local() {
                local.wants_count();
            }
            Ok(Handled::Native)
        }
        (IPPROTO_TCP, TCP_MD5SIG | TCP_MD5SIG_EXT | TCP_AO_ADD_KEY)
        | (IPPROTO_IP, IP_OPTIONS)
        | (IPPROTO_IPV6, IPV6_HOPOPTS | IPV6_2292HOPOPTS) => {
            // TCP's packets are to carry them.
            if let Some(local) = this.local() {
                local.bind_to_tcp();
            }
            if let Some(remote) = this.remote() {
                remote.bind_to_tcp();
            }
            Ok(Handled::Native)
        }
        (IPPROTO_TCP, TCP_ULP) => replacing::ulp(this, socket, option),
        (IPPROTO_IPV6, IPV6_ADDRFORM) => replacing::addrform(this, socket, option),
        _ => Ok(Handled::Native),
    }
}

/// Returns the value of an option that must be 0 or 1.
fn switch(option: &SetOption<'_>) -> Result<i32> {
    match option.int()? {
        value @ 0..=1 => Ok(value),
        _ => Err(EINVAL),
    }
}

/// Handles getsockopt().
///
/// # Errors
///
/// `ENOPROTOOPT` for unknown SMC options; `EFAULT`; TCP's.
pub(crate) fn get(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    option: &GetOption<'_>,
) -> Result<Handled> {
    match (option.level(), option.name()) {
        (SOL_SMC, RSMC_INFO) => {
            let mut bytes = [0; 16];
            for (to, word) in bytes.chunks_exact_mut(4).zip(info(this)) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            option.put(&bytes)?;
            Ok(Handled::Done)
        }
        (SOL_SMC, SMC_LIMIT_HS) => {
            option.put(&this.limit_hs.get().to_ne_bytes())?;
            Ok(Handled::Done)
        }
        (SOL_SMC, RSMC_PATH) => {
            option.put(&this.path().to_ne_bytes())?;
            Ok(Handled::Done)
        }
        (SOL_SMC, RSMC_STRICT) => {
            option.put(&this.strict.get().to_ne_bytes())?;
            Ok(Handled::Done)
        }
        (SOL_SMC, _) => Err(errno::ENOPROTOOPT.into()),
        (IPPROTO_TCP, TCP_SAVE_SYN) => {
            option.put(&this.user_save_syn.get().to_ne_bytes())?;
            Ok(Handled::Done)
        }
        (IPPROTO_TCP, TCP_INFO) => {
            tcp_info::get(socket, option, Moved::of(this))?;
            Ok(Handled::Done)
        }
        // TCP's looks for the data in its queue. On a local path none gets past what that call has seen.
        (IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) => {
            // TCP's takes bytes as a read does.
            let inside = this.state.door.enter();
            if inside.is_some() {
                socket.native_getsockopt(option)?;
                return Ok(Handled::Done);
            }
            let Some(stream) = this.stream() else {
                return Ok(Handled::Native);
            };
            if let Stream::Local(local) = stream {
                let by_tcp = || socket.native_getsockopt(option);
                if let Some(answer) = local.while_reading_tcp(by_tcp) {
                    return answer.map(|()| Handled::Done);
                }
            }
            let (unread, ended) = stream.unread();
            zerocopy_receive::get(option, unread, ended)?;
            Ok(Handled::Done)
        }
        _ => Ok(Handled::Native),
    }
}

/// State of a socket for user space: the words of [`RSMC_INFO`].
pub(crate) struct Info {
    /// One of [`mode`].
    pub(crate) mode: u32,
    /// The code of the reason for a fallback, or for strict mode's refusal of one.
    pub(crate) reason: u32,
    /// The diagnosis of the peer's decline; 0 without one.
    pub(crate) peer_diagnosis: u32,
    /// One of [`state`].
    pub(crate) state: u32,
}

impl Info {
    /// Returns the present state of `socket`.
    pub(crate) fn of(socket: &SmcSock) -> Self {
        let [mode, reason, peer_diagnosis, state] = info(socket);
        Self {
            mode,
            reason,
            peer_diagnosis,
            state,
        }
    }
}

/// Returns the words of [`RSMC_INFO`]: mode, reason, the peer's diagnosis, state.
fn info(this: &SmcSock) -> [u32; 4] {
    match &*this.state.lock() {
        Phase::Init | Phase::Connecting => {
            // Reason for which strict mode ended the last connect().
            let reason = this.refusal.get();
            [mode::UNDECIDED, reason, 0, state::INIT]
        }
        Phase::Listening(_) => [mode::UNDECIDED, 0, 0, state::LISTEN],
        // The protocol's states have the numbers that `sock_diag` shows.
        Phase::Smc(conn) | Phase::Dissolved(conn) => {
            let breach = Reason::PathBreach.code();
            let broken = this.remote().filter(|remote| remote.reason() == breach);
            let reason = broken.map_or(0, |_| breach);
            [mode::SMC, reason, 0, conn.state_number()]
        }
        Phase::Fallback(fallback) => {
            let state = if this.sock.state() == tcp::LISTEN {
                state::LISTEN
            } else if this.sock.is_established() || fallback.role == Role::Server {
                state::ACTIVE
            } else {
                state::INIT
            };
            [
                mode::FALLBACK,
                fallback.reason.code(),
                fallback.peer_diagnosis,
                state,
            ]
        }
        Phase::Path(path) => {
            let mode = match this.local() {
                Some(local) if local.is_moved() => mode::LOCAL,
                _ => mode::PATH,
            };
            let waits = match this.remote() {
                Some(remote) => remote.reason(),
                None if path.remote => Reason::PathRemote.code(),
                None => 0,
            };
            let broken = this.local().is_some_and(Local::is_broken);
            let reason = match broken {
                true => Reason::PathBreach.code(),
                false => path.tcp_only.map_or(waits, |reason| reason.code()),
            };
            [mode, reason, 0, state::ACTIVE]
        }
        Phase::Closed => [mode::UNDECIDED, 0, 0, state::CLOSED],
    }
}
