// SPDX-License-Identifier: GPL-2.0
//! The system calls, `errno` and the environment: all that is unsafe in this library.
//!
//! `socket` is entered through syscall(2), never through the next library's `socket`: no `dlsym`
//! (it allocates and locks), and no dependence on the order of loading.

use crate::absence::Absence;
use crate::config::Config;
use crate::decide::{may_fall_through, means_absent, Request, AF_SMC};
use crate::report::Line;
use core::ffi::{c_char, c_int, CStr};
use core::mem::size_of;

/// Option level of SMC sockets (`SOL_SMC` of `<linux/socket.h>`).
const SOL_SMC: c_int = 286;
/// rsmc's socket option by which a connection that would fall back to TCP fails instead (int).
const RSMC_STRICT: c_int = 101;

static ABSENCE: Absence = Absence::new();

/// Makes the socket the program wants: SMC if the request is for TCP and the kernel can, the
/// program's own request otherwise. Returns the descriptor or an errno; on success `errno` is
/// left as it was.
pub(crate) fn run(wanted: Request, config: &Config) -> Result<c_int, c_int> {
    let Some(smc) = wanted.as_smc(config.family) else {
        return open(wanted);
    };
    let saved = errno();
    if !config.strict && ABSENCE.is_fresh(now()) {
        let fd = open(wanted)?;
        if config.debug {
            tell(
                wanted,
                "is TCP, because SMC was absent a moment ago, descriptor ",
                fd,
            );
        }
        set_errno(saved);
        return Ok(fd);
    }
    match open(smc) {
        Ok(fd) => {
            prepare(fd, config);
            if config.debug {
                tell(wanted, made_as(smc), fd);
            }
            set_errno(saved);
            Ok(fd)
        }
        Err(refusal) if may_fall_through(refusal) && !config.strict => {
            let fd = open(wanted)?;
            // TCP of the same family is there, so it is SMC that the kernel lacks.
            if means_absent(refusal) {
                ABSENCE.remember(now());
            }
            if config.debug {
                tell(
                    wanted,
                    "is TCP, because SMC was refused with errno ",
                    refusal,
                );
            }
            set_errno(saved);
            Ok(fd)
        }
        Err(refusal) => {
            if config.debug {
                tell(wanted, "failed: SMC was refused with errno ", refusal);
            }
            Err(refusal)
        }
    }
}

/// Options of a new SMC socket. Failures are ignored: sizes are a wish, and a kernel whose SMC has
/// no strict option (the in-tree module) is still asked for SMC.
fn prepare(fd: c_int, config: &Config) {
    if config.strict {
        set_option(fd, SOL_SMC, RSMC_STRICT, 1);
    }
    // Both are at most i32::MAX (`config::size`).
    if config.sndbuf != 0 {
        set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            config.sndbuf as c_int,
        );
    }
    if config.rcvbuf != 0 {
        set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            config.rcvbuf as c_int,
        );
    }
}

fn open(request: Request) -> Result<c_int, c_int> {
    // SAFETY: socket(2) takes three integers and touches no memory of ours.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_socket,
            request.domain,
            request.kind,
            request.protocol,
        )
    };
    if fd < 0 {
        return Err(errno());
    }
    // A descriptor number is an int.
    Ok(fd as c_int)
}

fn set_option(fd: c_int, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes at `&value`, which lives through the call.
    unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        );
    }
}

fn made_as(smc: Request) -> &'static str {
    if smc.domain == AF_SMC {
        "is SMC (AF_SMC), descriptor "
    } else {
        "is SMC (IPPROTO_SMC), descriptor "
    }
}

fn tell(wanted: Request, outcome: &str, number: c_int) {
    // SAFETY: getpid takes nothing and cannot fail.
    let pid = unsafe { libc::getpid() };
    let family = if wanted.domain == libc::AF_INET6 {
        "AF_INET6"
    } else {
        "AF_INET"
    };
    let mut line = Line::new()
        .text("rsmc[")
        .number(pid)
        .text("]: socket(")
        .text(family)
        .text(", SOCK_STREAM, ")
        .number(wanted.protocol)
        .text(") ")
        .text(outcome)
        .number(number);
    let bytes = line.end();
    // SAFETY: `bytes` is valid for `bytes.len()` bytes through the call.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Seconds of the monotonic clock, coarse: read without entering the kernel.
fn now() -> u32 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel or the vDSO writes one timespec to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    // Differences are what is used: wrapping after 136 years is no matter.
    time.tv_sec as u32
}

fn errno() -> c_int {
    // SAFETY: the C library returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as in `errno`; only this thread reads or writes it.
    unsafe { *libc::__errno_location() = value }
}

extern "C" {
    /// The C library's pointer to the environment; null before it is set up.
    static environ: *const *const c_char;
}

/// Settings from the C library's environment, for a call that comes before our constructor.
pub(crate) fn read_environment() -> Config {
    // SAFETY: reads one pointer of the C library. Nothing can change it concurrently: this runs
    // only until the constructor has stored the settings, when the process has one thread.
    read(unsafe { environ })
}

/// Settings from a null-terminated array of C strings (or from nothing, if it is null).
fn read(mut lines: *const *const c_char) -> Config {
    let mut config = Config::DEFAULT;
    if lines.is_null() {
        return config;
    }
    loop {
        // SAFETY: `lines` is not past the array's terminating null, because the loop ends there.
        let line = unsafe { *lines };
        if line.is_null() {
            return config;
        }
        // SAFETY: each entry before the null is a C string that lives through the program's start.
        config.take(unsafe { CStr::from_ptr(line) });
        // SAFETY: the entry just read was not the terminator, so the next one is inside the array.
        lines = unsafe { lines.add(1) };
    }
}

/// Runs when the library is loaded, before `main` and before the program can start a thread.
#[cfg(not(test))]
extern "C" fn load() {
    read_environment().store();
}

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static LOAD: extern "C" fn() = load;

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn environment_arrays() {
        assert_eq!(read(ptr::null()), Config::DEFAULT);
        let lines = [
            c"RSMC_STRICT=1".as_ptr(),
            c"RSMC_SNDBUF=16k".as_ptr(),
            ptr::null(),
            c"RSMC_DEBUG=1".as_ptr(),
        ];
        let config = read(lines.as_ptr());
        assert!(config.strict && !config.debug);
        assert_eq!(config.sndbuf, 16384);
    }

    #[test]
    fn errno_is_kept_on_success_and_set_on_failure() {
        set_errno(77);
        let wanted = Request {
            domain: libc::AF_INET,
            kind: libc::SOCK_STREAM,
            protocol: 0,
        };
        let fd = run(wanted, &Config::DEFAULT).expect("a TCP socket at the least");
        assert_eq!(errno(), 77);
        // SAFETY: `fd` is ours and used no more.
        unsafe { libc::close(fd) };
        let wrong = Request {
            domain: -1,
            ..wanted
        };
        assert_eq!(run(wrong, &Config::DEFAULT), Err(libc::EAFNOSUPPORT));
    }
}
