// SPDX-License-Identifier: GPL-2.0
//! Which `socket()` calls become SMC sockets, and when a refused one may become TCP after all.
//!
//! Pure functions of their arguments; everything that talks to the kernel is in `sys`.

use libc::c_int;

/// Address family of SMC sockets (`AF_SMC` of `<linux/socket.h>`).
pub const AF_SMC: c_int = 43;
/// `AF_SMC` protocol for IPv4 underneath (`SMCPROTO_SMC`).
pub const SMCPROTO_SMC: c_int = 0;
/// `AF_SMC` protocol for IPv6 underneath (`SMCPROTO_SMC6`).
pub const SMCPROTO_SMC6: c_int = 1;
/// SMC as a protocol of `AF_INET` and `AF_INET6` (`IPPROTO_SMC` of `<linux/in.h>`).
pub const IPPROTO_SMC: c_int = 256;
/// The bits of socket(2)'s `type` that name the type; the others are `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const TYPE_MASK: c_int = 0xf;

/// The kind of SMC socket to ask the kernel for (`RSMC_FAMILY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`/`AF_INET6` with `IPPROTO_SMC`: address-family filters still see an internet socket.
    Inet,
    /// `AF_SMC`, the only form kernels before 6.11 know.
    Smc,
    /// Leave every socket alone.
    Off,
}

/// The three arguments of socket(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Address family (`AF_…`).
    pub domain: c_int,
    /// Socket type (`SOCK_…`), with flags.
    pub kind: c_int,
    /// Protocol of that family, 0 for its default.
    pub protocol: c_int,
}

impl Request {
    /// The SMC request to make instead of this one, or `None` if it is not a TCP stream socket.
    ///
    /// Flags in the type (`SOCK_CLOEXEC`, `SOCK_NONBLOCK`) are kept. Only protocol 0 and
    /// `IPPROTO_TCP` count as TCP: a program that asked for MPTCP or SCTP by number gets that.
    pub fn as_smc(self, family: Family) -> Option<Request> {
        let v6 = match self.domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return None,
        };
        if self.kind & TYPE_MASK != libc::SOCK_STREAM {
            return None;
        }
        if self.protocol != 0 && self.protocol != libc::IPPROTO_TCP {
            return None;
        }
        match family {
            Family::Off => None,
            Family::Inet => Some(Request {
                protocol: IPPROTO_SMC,
                ..self
            }),
            Family::Smc => Some(Request {
                domain: AF_SMC,
                protocol: if v6 { SMCPROTO_SMC6 } else { SMCPROTO_SMC },
                ..self
            }),
        }
    }
}

/// True if `errno`, given for an SMC socket, says that SMC is not to be had here, so that the
/// program's own TCP request may be made instead.
///
/// * `EPROTONOSUPPORT`: no `IPPROTO_SMC` in this kernel (module not loaded).
/// * `EAFNOSUPPORT`: no `AF_SMC`, or a service's `RestrictAddressFamilies=` forbids it.
/// * `ESOCKTNOSUPPORT`: the kernel has internet sockets but no stream type under this protocol.
/// * `EINVAL`: protocol numbers above 255 are out of range for kernels before 5.6.
/// * `EACCES`, `EPERM`: a sandbox (seccomp, SELinux, cgroup BPF) refuses the family or protocol.
/// * `ENOSYS`: what some seccomp profiles answer for arguments they do not list.
///
/// Everything else is about resources (`EMFILE`, `ENFILE`, `ENOMEM`, `ENOBUFS`, …). It is the
/// answer to the program: retrying would hide the shortage or make a TCP socket by luck of timing.
pub fn may_fall_through(errno: c_int) -> bool {
    matches!(
        errno,
        libc::EPROTONOSUPPORT
            | libc::EAFNOSUPPORT
            | libc::ESOCKTNOSUPPORT
            | libc::EINVAL
            | libc::EACCES
            | libc::EPERM
            | libc::ENOSYS
    )
}

/// True if `errno` is what a kernel without SMC says, after it looked for a module to load.
pub fn means_absent(errno: c_int) -> bool {
    matches!(
        errno,
        libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::*;

    fn ask(domain: c_int, kind: c_int, protocol: c_int) -> Request {
        Request {
            domain,
            kind,
            protocol,
        }
    }

    #[test]
    fn tcp_becomes_ipproto_smc_and_keeps_flags() {
        for domain in [AF_INET, AF_INET6] {
            for protocol in [0, IPPROTO_TCP] {
                for flags in [0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK] {
                    let kind = SOCK_STREAM | flags;
                    assert_eq!(
                        ask(domain, kind, protocol).as_smc(Family::Inet),
                        Some(ask(domain, kind, 256))
                    );
                }
            }
        }
    }

    #[test]
    fn tcp_becomes_af_smc_by_ip_version() {
        assert_eq!(
            ask(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0).as_smc(Family::Smc),
            Some(ask(43, SOCK_STREAM | SOCK_CLOEXEC, 0))
        );
        assert_eq!(
            ask(AF_INET6, SOCK_STREAM, IPPROTO_TCP).as_smc(Family::Smc),
            Some(ask(43, SOCK_STREAM, 1))
        );
    }

    #[test]
    fn everything_else_is_left_alone() {
        for family in [Family::Inet, Family::Smc] {
            for request in [
                ask(AF_UNIX, SOCK_STREAM, 0),
                ask(AF_NETLINK, SOCK_RAW, 0),
                ask(AF_INET, SOCK_DGRAM, 0),
                ask(AF_INET, SOCK_RAW, IPPROTO_TCP),
                ask(AF_INET6, SOCK_SEQPACKET, IPPROTO_SCTP),
                ask(AF_INET, SOCK_STREAM, IPPROTO_MPTCP),
                ask(AF_INET, SOCK_STREAM, IPPROTO_SCTP),
                ask(AF_INET, SOCK_STREAM, 256),
                ask(AF_SMC, SOCK_STREAM, 0),
                ask(AF_INET, 0, 0),
                ask(AF_INET, SOCK_STREAM, -1),
                ask(-1, SOCK_STREAM, 0),
            ] {
                assert_eq!(request.as_smc(family), None, "{request:?}");
            }
        }
    }

    #[test]
    fn off_means_off() {
        assert_eq!(ask(AF_INET, SOCK_STREAM, 0).as_smc(Family::Off), None);
    }

    #[test]
    fn refusals_fall_through_and_shortages_do_not() {
        for errno in [
            EPROTONOSUPPORT,
            EAFNOSUPPORT,
            ESOCKTNOSUPPORT,
            EINVAL,
            EACCES,
            EPERM,
            ENOSYS,
        ] {
            assert!(may_fall_through(errno), "{errno}");
        }
        for errno in [EMFILE, ENFILE, ENOMEM, ENOBUFS, EINTR, EIO, 0] {
            assert!(!may_fall_through(errno), "{errno}");
        }
    }
}
