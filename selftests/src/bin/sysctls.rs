// SPDX-License-Identifier: GPL-2.0
//! The directory `net/smc` of `/proc/sys`: every file with its default, what it takes and what it
//! refuses, that namespaces have their own, and that nothing is left of it.
//!
//! Unloads the module and loads it again. (Not called `sysctl`, which is a program that scripts use.)

use st::child::{self, End};
use st::errno::Errno;
use st::ktap::Ktap;
use st::{net, sys};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

const DIR: &str = "/proc/sys/net/smc";

/// Name, default, smallest and greatest value.
const FILES: [(&str, i64, i64, i64); 30] = [
    ("auto_pause", 60, 1, 3600),
    ("autocorking_size", 65_536, 0, 0xffff_ffff),
    ("drain_time", 60, 1, 3600),
    ("hook_idle_ms", 30_000, 10, 3_600_000),
    ("immediate", 1, 0, 1),
    ("limit_smc_hs", 0, 0, 1),
    ("max_drains", 4096, 0, 1 << 20),
    ("neighbour_time", 3600, 0, 604_800),
    ("path", 2, 0, 2),
    ("path_flip", 0, 0, 1 << 20),
    ("path_idle", 60, 0, 7 * 24 * 3600),
    ("path_local", 1, 0, 2),
    ("path_promote", 32, 0, 1 << 30),
    ("path_ring", 1 << 20, 1 << 14, 1 << 24),
    ("path_software", 0, 0, 1),
    ("path_user_pages", 0, 0, i32::MAX as i64),
    ("peer_groups", 8, 1, 8),
    ("rmem", 65_536, 16_384, 0x3fff_ffff),
    ("rmem_max", 1 << 20, 0, 0x3fff_ffff),
    ("smcr_buf_type", 0, 0, 2),
    ("smcr_max_conns_per_lgr", 255, 16, 255),
    ("smcr_max_links_per_lgr", 2, 1, 2),
    ("smcr_max_recv_wr", 48, 2, 2048),
    ("smcr_max_send_wr", 16, 2, 2048),
    ("smcr_testlink_time", 30, 0, 2_147_483),
    ("strict", 0, 0, 1),
    ("tcp2smc", 0, 0, 3),
    ("traffic_class", -1, -1, 255),
    ("wmem", 65_536, 16_384, 0x3fff_ffff),
    ("wmem_max", 1 << 20, 0, 0x3fff_ffff),
];

/// Whether the kernel lets a module redirect one of its functions, which `tcp2smc` needs.
fn redirects() -> bool {
    fs::exists("/proc/sys/kernel/ftrace_enabled").unwrap_or(false)
}

type Outcome = Result<(), String>;

fn path(name: &str) -> String {
    format!("{DIR}/{name}")
}

fn get(name: &str) -> Result<String, String> {
    let text = fs::read_to_string(path(name)).map_err(|e| format!("{name}: {e}"))?;
    Ok(text.trim_end().to_owned())
}

/// Writes as `echo` would, in one call.
fn put(name: &str, value: &str) -> Result<(), Errno> {
    let result = File::options()
        .write(true)
        .open(path(name))
        .and_then(|mut file| file.write_all(format!("{value}\n").as_bytes()));
    result.map_err(|e| Errno(e.raw_os_error().unwrap_or(-1)))
}

fn is(what: &str, got: &str, want: &str) -> Outcome {
    match got == want {
        true => Ok(()),
        false => Err(format!("{what}: {got}, wanted {want}")),
    }
}

/// All files and no other.
fn names() -> Outcome {
    let entries = fs::read_dir(DIR).map_err(|e| e.to_string())?;
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    found.sort();
    is("files", &found.join(" "), &FILES.map(|f| f.0).join(" "))
}

fn modes() -> Outcome {
    for (name, ..) in FILES {
        let meta = fs::metadata(path(name)).map_err(|e| e.to_string())?;
        let seen = format!("{:o} {} {}", meta.mode() & 0o7777, meta.uid(), meta.gid());
        is(name, &seen, "644 0 0")?;
    }
    let (text, end) = child::run(5000 * st::guest::slow(), |out| {
        // SAFETY: No pointers.
        unsafe {
            libc::setgid(65_534);
            libc::setuid(65_534);
        }
        let seen = format!("{:?} {:?}", get("strict"), put("strict", "1"));
        let _ = out.write_all(seen.as_bytes());
    });
    is("as nobody", &text, "Ok(\"0\") Err(EACCES)")?;
    match end {
        End::Exit(0) => Ok(()),
        end => Err(format!("{end:?}")),
    }
}

/// In a namespace of its own.
fn fresh(f: impl FnOnce() -> Outcome) -> Outcome {
    let (text, end) = child::run(10_000 * st::guest::slow(), |out| {
        net::private().expect("private namespace (root needed)");
        if let Err(why) = f() {
            let _ = out.write_all(why.as_bytes());
        }
    });
    match end {
        End::Exit(0) if text.is_empty() => Ok(()),
        end => Err(format!("{text} {end:?}")),
    }
}

/// The default; both ends of the range; what lies beyond, and what is no number, changes nothing.
fn limits((name, default, min, max): (&str, i64, i64, i64)) -> Outcome {
    is("default", &get(name)?, &default.to_string())?;
    if name == "tcp2smc" && !redirects() {
        let refused = format!("{:?} {:?}", put(name, "1"), put(name, "0"));
        is("where it cannot be", &refused, "Err(EOPNOTSUPP) Ok(())")?;
        return is("read back", &get(name)?, "0");
    }
    for value in [min, max, default] {
        put(name, &value.to_string()).map_err(|e| format!("{value}: {e}"))?;
        is("read back", &get(name)?, &value.to_string())?;
    }
    let beyond = [min - 1, max + 1, i64::from(i32::MIN) - 1, 1 << 33].map(|n| n.to_string());
    let garbage = ["x", "0x", "1x", "-", "1.5", "18446744073709551617"].map(str::to_owned);
    for value in beyond.into_iter().chain(garbage) {
        match put(name, &value) {
            Err(Errno(libc::EINVAL)) => {}
            other => return Err(format!("writing {value}: {other:?}")),
        }
        is("afterwards", &get(name)?, &default.to_string())?;
    }
    Ok(())
}

/// Checks that a value written here is not seen elsewhere, neither in an old namespace nor in a new one.
fn independent() -> Outcome {
    let other = |(name, _, min, max): (&str, i64, i64, i64)| {
        let default = get(name)?;
        let value = if default == max.to_string() { min } else { max };
        if name == "tcp2smc" && !redirects() {
            return Ok(());
        }
        put(name, &value.to_string()).map_err(|e| format!("{name}: {e}"))?;
        is(name, &get(name)?, &value.to_string())
    };
    let defaults = || {
        FILES
            .iter()
            .try_for_each(|f| is(f.0, &get(f.0)?, &f.1.to_string()))
    };
    fresh(|| {
        FILES.into_iter().try_for_each(other)?;
        fresh(defaults)
    })?;
    defaults()
}

/// A file that is open while its namespace ends.
fn namespace_ends() -> Outcome {
    let home = File::open("/proc/thread-self/ns/net").map_err(|e| e.to_string())?;
    net::private().map_err(|e| e.to_string())?;
    let opened = File::options().read(true).write(true).open(path("strict"));
    // SAFETY: No pointers.
    let back = unsafe { libc::setns(home.as_raw_fd(), libc::CLONE_NEWNET) };
    st::errno::cvt(back.into()).map_err(|e| e.to_string())?;
    let mut file = opened.map_err(|e| e.to_string())?;
    // Nothing holds the namespace any more: it may have gone already.
    let written = file.write_all(b"1\n");
    is("of the initial namespace", &get("strict")?, "0")?;
    match written {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| format!("write: {e}"))?,
    }
    let mut last = String::new();
    for _ in 0..500 * st::guest::slow() {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        match read {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => last = format!("{other:?} {text}"),
        }
        sys::sleep_ms(20);
    }
    Err(format!("still there: {last}"))
}

fn unloads() -> Outcome {
    let module = std::env::var("RSMC_KO").map_err(|_| "RSMC_KO is not set".to_owned())?;
    put("strict", "1").map_err(|e| e.to_string())?;
    let mut file = File::open(path("strict")).map_err(|e| e.to_string())?;
    net::sh("rmmod rsmc")?;
    let left = fs::exists(DIR).map_err(|e| e.to_string());
    let read = file.read_to_string(&mut String::new());
    net::sh(&format!("insmod {module}"))?;
    is("directory", &format!("{left:?}"), "Ok(false)")?;
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        other => return Err(format!("file that was open: {other:?}")),
    }
    is("loaded again", &get("strict")?, "0")
}

fn main() {
    // What a namespace begins with is to be seen.
    net::default_path();
    let mut k = Ktap::plan(FILES.len() + 5);
    k.outcome("names", names());
    k.outcome("modes", modes());
    for file in FILES {
        k.outcome(&format!("limits.{}", file.0), fresh(|| limits(file)));
    }
    k.outcome("independent", independent());
    k.outcome("namespace_ends", namespace_ends());
    k.outcome("unloads", unloads());
    std::process::exit(k.finish());
}
