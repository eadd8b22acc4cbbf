// SPDX-License-Identifier: GPL-2.0
//! What users find who have set nothing: connections of two such hosts begin as TCP and are promoted under load, and all
//! that is to have CLC messages before data has them. And hosts without a card, whose connections stay TCP.

use super::{begin, exchange, mode, set, until_moved, PATH};
use st::card::{rsmc, wanted, Outcome, Pair};
use st::fd::Fd;
use st::guest::{self, within};
use st::smcinfo::{self, SOL_SMC};
use st::{family, sys};
use std::collections::BTreeMap;

/// Each end alone.
const ENDS: [&[&str]; 2] = [&["a"], &["b"]];

const RSMC_STRICT: i32 = 101;
const RSMC_PATH: i32 = 102;

const NOSMCDEV: u32 = 0x0303_0000;
const PATHSOFTWARE: u32 = 0x0306_010e;

/// A setting of a namespace.
fn setting(ns: &'static str, name: &'static str) -> String {
    let read = move || std::fs::read_to_string(format!("/proc/sys/net/smc/{name}"));
    within(ns, read).expect("sysctl").trim().to_owned()
}

/// The settings are those that a new namespace has.
pub fn values() -> Outcome {
    for (name, due) in [
        ("path", "2"),
        ("path_promote", "32"),
        ("path_software", "0"),
    ] {
        for ns in ["a", "b"] {
            let seen = setting(ns, name);
            wanted(name, seen == due, (ns, seen))?;
        }
    }
    Ok(())
}

/// Two hosts, each with a card, and nothing else: TCP, and SMC-R under load.
pub fn promotes() -> Outcome {
    // There model cards have no DMA, and count as software.
    let no_dma = std::env::var("RSMC_KERNEL").is_ok_and(|kernel| kernel.starts_with("uml"));
    set(&["a", "b"], "path_software", u32::from(no_dma));
    let pair = begin()?;
    let mut at = 0;
    // Few messages are none that it pays for.
    for _ in 0..4 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    let modes = (mode(&pair.client), mode(&pair.server));
    wanted("still TCP", modes == (PATH, PATH), modes)?;
    until_moved(&pair, &mut at)?;
    for _ in 0..100 {
        exchange(&pair.client, &pair.server, &mut at, 5000)?;
        exchange(&pair.server, &pair.client, &mut at, 64)?;
    }
    Ok(())
}

/// Connects with sockets of these families, which `prepare` sets options of, and checks that both ends are SMC-R's
/// before a byte has been sent. (The server's answer has been SMC's option then, and CLC messages have followed.)
fn negotiates(
    what: &str,
    families: [family::Family; 2],
    prepare: impl Fn(&Fd, bool) + Copy + Send + 'static,
) -> Outcome {
    let to = guest::sockaddr(true, family::Ip::V4, 0);
    let of = |family: family::Family| {
        let (domain, protocol) = family.triple(family::Ip::V4);
        sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket")
    };
    let listener = within("b", move || {
        let fd = of(families[1]);
        prepare(&fd, true);
        sys::bind(fd.raw(), &to).expect("bind");
        sys::listen(fd.raw(), 8).expect("listen");
        fd
    });
    let to = sys::sockname(listener.raw()).expect("name");
    let client = within("a", move || {
        let fd = of(families[0]);
        prepare(&fd, false);
        sys::connect(fd.raw(), &to).map(|_| fd)
    })
    .map_err(|e| format!("{what}: connect: {e}"))?;
    let server = sys::accept(listener.raw()).map_err(|e| format!("{what}: accept: {e}"))?;
    let pair = Pair { client, server };
    pair.is_smc().map_err(|e| format!("{what}: {e}"))?;
    let mut at = 0;
    exchange(&pair.client, &pair.server, &mut at, 5000)?;
    exchange(&pair.server, &pair.client, &mut at, 5000)
}

/// The other host has CLC before data, by its own setting.
pub fn other_hosts() -> Outcome {
    let inet = [family::Family::Inet; 2];
    for path in [0, 1] {
        for ns in ENDS {
            set(ns, "path", path);
            let done = negotiates(&format!("path {path} in {ns:?}"), inet, |_, _| ());
            set(ns, "path", 2);
            done?;
        }
    }
    Ok(())
}

/// Programs that take no TCP, or ask for CLC before data, at either end.
pub fn programs() -> Outcome {
    let (inet, smc) = (family::Family::Inet, family::Family::Smc);
    let option = |name, value| {
        move |fd: &Fd| {
            sys::setopt(fd.raw(), SOL_SMC, name, value).expect("an option");
        }
    };
    let (strict, clc) = (option(RSMC_STRICT, 1), option(RSMC_PATH, 0));
    let local = option(RSMC_PATH, 1);
    negotiates("a strict client", [inet; 2], move |fd, server| {
        if !server {
            strict(fd);
        }
    })?;
    negotiates("a strict server", [inet; 2], move |fd, server| {
        if server {
            strict(fd);
        }
    })?;
    negotiates("RSMC_PATH 0 at the client", [inet; 2], move |fd, server| {
        if !server {
            clc(fd);
        }
    })?;
    negotiates("RSMC_PATH 1 at the server", [inet; 2], move |fd, server| {
        if server {
            local(fd);
        }
    })?;
    negotiates("AF_SMC at the client", [smc, inet], |_, _| ())?;
    negotiates("AF_SMC at the server", [inet, smc], |_, _| ())?;
    negotiates("AF_SMC at both", [smc, smc], |_, _| ())?;
    for ns in ENDS {
        set(ns, "strict", 1);
        let done = negotiates(&format!("strict in {ns:?}"), [inet; 2], |_, _| ());
        set(ns, "strict", 0);
        done?;
    }
    Ok(())
}

/// What a namespace has counted.
fn counted(ns: &'static str) -> BTreeMap<String, u64> {
    within(ns, || smcinfo::counters().expect("counters"))
}

/// A connection that stays TCP for this reason, from its first byte on, at both ends, and is counted for it.
fn stays(reason: u32, name: &str, text: &str) -> Outcome {
    let line = |role: &str| format!("promotion_reason {role} {reason:#010x}");
    let of = |ns, role| counted(ns).get(&line(role)).copied().unwrap_or(0);
    let before = (of("a", "client"), of("b", "server"));
    let pair = begin()?;
    let mut at = 0;
    for round in 0..100 {
        exchange(&pair.client, &pair.server, &mut at, 64)?;
        exchange(&pair.server, &pair.client, &mut at, 3000)?;
        let (client, server) = pair.info();
        let good = (client.mode, server.mode) == (PATH, PATH)
            && (client.reason, server.reason) == (reason, reason);
        wanted("TCP, and why", good, (round, client, server))?;
    }
    let after = (of("a", "client"), of("b", "server"));
    let once = (before.0 + 1, before.1 + 1);
    wanted("counted once at each end", after == once, (before, after))?;
    let said = rsmc("a", "ss");
    let shown = said.contains("TCP first") && said.contains(text);
    wanted("rsmc ss", shown, said)?;
    let said = rsmc("a", "why 10.77.0.2");
    wanted("rsmc why", said.contains(name), said)
}

/// Soft-RoCE alone: the connection is TCP, as that is the quicker one; and what one sets to have SMC-R all the same.
pub fn soft() -> Outcome {
    stays(PATHSOFTWARE, "PATHSOFTWARE", "The RDMA device is software")?;
    let said = rsmc("a", "why");
    let good = said.contains("path_software=1") && said.contains("stay TCP");
    wanted("rsmc why, of this host", good, said)?;
    set(&["a", "b"], "path_software", 1);
    let forced = begin().and_then(|pair| until_moved(&pair, &mut 0));
    set(&["a", "b"], "path_software", 0);
    forced?;
    set(&["a", "b"], "path", 1);
    let before = Pair::new().and_then(|pair| pair.is_smc());
    set(&["a", "b"], "path", 2);
    before
}

/// No RDMA device at all.
pub fn none() -> Outcome {
    guest::run("a", "rdma", "link delete rxe_a");
    guest::run("b", "rdma", "link delete rxe_b");
    let done = stays(NOSMCDEV, "NOSMCDEV", "No device for SMC");
    guest::run("a", "rdma", "link add rxe_a type rxe netdev va");
    guest::run("b", "rdma", "link add rxe_b type rxe netdev vb");
    done
}
