// SPDX-License-Identifier: GPL-2.0
//! The commands of generic netlink, while an SMC-R connection is up.

use crate::shape::{self, fits, Field};
use st::errno::{Errno, R};
use st::netlink::{attribute, attributes, word, Generic};

/// Numbers of `SMC_NETLINK_…` and `SMC_PNETID_…`.
const ADD_UEID: u8 = 10;
const REMOVE_UEID: u8 = 11;
const FLUSH_UEID: u8 = 12;
const DUMP_UEID: u8 = 9;
const PNET_GET: u8 = 1;
const PNET_ADD: u8 = 2;
const PNET_DEL: u8 = 3;
const PNET_FLUSH: u8 = 4;

/// A point and its name.
type Point = (&'static str, fn() -> Result<(), String>);

/// All points.
pub const LIST: &[Point] = &[
    ("get_sys_info", || each(1, shape::SYSTEM, 1..=1)),
    ("get_lgr_smcr", || each(2, shape::GROUP, 1..=9)),
    ("get_link_smcr", links),
    ("get_lgr_smcd", || each(4, &[], 0..=0)),
    ("get_dev_smcd", || each(5, &[], 0..=0)),
    ("get_dev_smcr", || each(6, shape::DEVICE, 1..=9)),
    ("get_stats", || each(7, shape::STATS, 1..=1)),
    ("get_fback_stats", fallbacks),
    ("ueid", eids),
    ("dump_seid", || each(13, shape::SEID, 1..=1)),
    ("seid_is_of_smcd", seid),
    ("hs_limitation", limitation),
    ("pnetid", pnets),
    ("unprivileged", unprivileged),
    ("unknown_command", || {
        refused(general()?.act(19, &[]), libc::EOPNOTSUPP)
    }),
];

fn general() -> Result<Generic, String> {
    Generic::open("SMC_GEN_NETLINK").map_err(|e| format!("SMC_GEN_NETLINK: {e}"))
}

fn dump(command: u8) -> Result<Vec<Vec<u8>>, String> {
    general()?
        .dump(command)
        .map_err(|e| format!("dump {command}: {e}"))
}

fn refused(result: R<()>, errno: i32) -> Result<(), String> {
    match result {
        Err(Errno(e)) if e == errno => Ok(()),
        other => Err(format!("{other:?}, not {}", Errno(errno))),
    }
}

fn each(
    command: u8,
    fields: &[Field],
    count: std::ops::RangeInclusive<usize>,
) -> Result<(), String> {
    let messages = dump(command)?;
    if !count.contains(&messages.len()) {
        return Err(format!("{} messages", messages.len()));
    }
    messages.iter().try_for_each(|m| fits(fields, m))
}

/// A message for the group, then one for each link.
fn links() -> Result<(), String> {
    let messages = dump(3)?;
    let is_group = |m: &Vec<u8>| fits(shape::GROUP, m).is_ok();
    let mut groups = 0;
    for m in &messages {
        if is_group(m) {
            groups += 1;
        } else {
            fits(shape::LINK, m)?;
        }
    }
    match messages.first().is_some_and(is_group) && messages.len() > groups {
        true => Ok(()),
        false => Err(format!("{groups} of {} are groups", messages.len())),
    }
}

/// The first message has the totals of both roles.
fn fallbacks() -> Result<(), String> {
    each(8, shape::FALLBACK, 1..=99)?;
    let first = &dump(8)?[0];
    let inner = attributes(first).and_then(|a| attributes(&a[0].1));
    let inner = inner.map_err(|e| e.to_string())?;
    match [2, 3].iter().all(|n| inner.iter().any(|a| a.0 == *n)) {
        true => Ok(()),
        false => Err(format!("no totals in {inner:02x?}")),
    }
}

fn entry(eid: &str) -> Vec<u8> {
    attribute(1, format!("{eid:<32}\0").as_bytes())
}

/// Adds an EID.
///
/// # Errors
///
/// The kernel's.
pub fn add_eid(eid: &str) -> R<()> {
    Generic::open("SMC_GEN_NETLINK")?.act(ADD_UEID, &entry(eid))
}

fn eids() -> Result<(), String> {
    let netlink = general()?;
    let has = |eid: &str| -> Result<bool, String> {
        let wanted = format!("{eid:<32}\0");
        let found = dump(DUMP_UEID)?;
        Ok(found.iter().any(|m| {
            m.ends_with(&entry(eid)[..4 + wanted.len()])
                || m.windows(wanted.len()).any(|w| w == wanted.as_bytes())
        }))
    };
    let done = |r: R<()>| r.map_err(|e| e.to_string());
    done(netlink.act(ADD_UEID, &entry("NETLINK-TEST")))?;
    each(DUMP_UEID, shape::EID, 1..=9)?;
    if !has("NETLINK-TEST")? {
        return Err("not listed".into());
    }
    refused(netlink.act(ADD_UEID, &[]), libc::EINVAL)?;
    refused(netlink.act(ADD_UEID, &entry("lower case")), libc::EINVAL)?;
    done(netlink.act(REMOVE_UEID, &entry("NETLINK-TEST")))?;
    refused(
        netlink.act(REMOVE_UEID, &entry("NETLINK-TEST")),
        libc::ENOENT,
    )?;
    done(netlink.act(ADD_UEID, &entry("NETLINK-TEST")))?;
    done(netlink.act(FLUSH_UEID, &[]))?;
    match has("NETLINK-TEST")? {
        true => Err("still there after the flush".into()),
        false => Ok(()),
    }
}

/// Where there is no SMC-D hardware of the kind, it cannot be switched.
fn seid() -> Result<(), String> {
    refused(general()?.act(14, &[]), libc::EOPNOTSUPP)?;
    refused(general()?.act(15, &[]), libc::EOPNOTSUPP)
}

fn limitation() -> Result<(), String> {
    let is = |on: u8| -> Result<(), String> {
        each(16, shape::LIMITATION, 1..=1)?;
        let shown = attributes(&dump(16)?[0]).map_err(|e| e.to_string())?;
        match shown[0].1 == [on] {
            true => Ok(()),
            false => Err(format!("{shown:?}, not {on}")),
        }
    };
    let act = |command| general()?.act(command, &[]).map_err(|e| e.to_string());
    is(0)?;
    act(17)?;
    is(1)?;
    act(18)?;
    is(0)
}

fn pnets() -> Result<(), String> {
    let netlink = Generic::open("SMC_PNETID").map_err(|e| e.to_string())?;
    let text = |kind, text: &str| attribute(kind, format!("{text}\0").as_bytes());
    let done = |what: &str, r: R<()>| r.map_err(|e| format!("{what}: {e}"));
    let device = std::env::var("RSMC_DEV").unwrap_or_default();
    let rdma = std::fs::read_dir("/sys/class/infiniband").map_err(|e| e.to_string())?;
    let rdma = rdma.flatten().next().ok_or("no RDMA device")?;
    let rdma = rdma.file_name().to_string_lossy().into_owned();
    let interface = [text(1, "NET1"), text(2, &device)].concat();
    let port = [text(1, "NET1"), text(3, &rdma), attribute(4, &[1])].concat();
    done("add an interface", netlink.act(PNET_ADD, &interface))?;
    done("add a port", netlink.act(PNET_ADD, &port))?;
    let twice = [text(1, "NET2"), text(2, &device)].concat();
    refused(netlink.act(PNET_ADD, &twice), libc::EEXIST)?;
    refused(netlink.act(PNET_ADD, &text(1, "NET1")), libc::EEXIST)?;
    let listed = || netlink.dump(PNET_GET).map_err(|e| e.to_string());
    let both = listed()?;
    both.iter().try_for_each(|m| fits(shape::PNET, m))?;
    if both.len() != 2 {
        return Err(format!("{} entries", both.len()));
    }
    done("delete", netlink.act(PNET_DEL, &text(1, "NET1")))?;
    refused(netlink.act(PNET_DEL, &text(1, "NET1")), libc::ENOENT)?;
    done("add again", netlink.act(PNET_ADD, &port))?;
    done("flush", netlink.act(PNET_FLUSH, &[]))?;
    match listed()?.len() {
        0 => Ok(()),
        n => Err(format!("{n} entries after the flush")),
    }
}

/// Everybody may ask, and nobody but the administrator may change something.
fn unprivileged() -> Result<(), String> {
    const NOBODY: u32 = 65534;
    // SAFETY: no pointers.
    unsafe { libc::seteuid(NOBODY) };
    let asked = (1..=9).chain([13, 16]).try_for_each(|n| dump(n).map(drop));
    let changes = [
        (ADD_UEID, entry("NOBODY")),
        (REMOVE_UEID, entry("NOBODY")),
        (FLUSH_UEID, vec![]),
        (14, vec![]),
        (15, vec![]),
        (17, vec![]),
        (18, vec![]),
    ];
    let changed = changes.iter().try_for_each(|(command, body)| {
        refused(general()?.act(*command, body), libc::EPERM)
            .map_err(|e| format!("command {command}: {e}"))
    });
    let pnet = || -> Result<(), String> {
        let netlink = Generic::open("SMC_PNETID").map_err(|e| e.to_string())?;
        netlink.dump(PNET_GET).map_err(|e| e.to_string())?;
        for command in [PNET_ADD, PNET_DEL, PNET_FLUSH] {
            refused(netlink.act(command, &attribute(1, b"NET1\0")), libc::EPERM)?;
        }
        Ok(())
    };
    let pnet = pnet();
    // SAFETY: no pointers.
    unsafe { libc::seteuid(0) };
    asked.and(changed).and(pnet)
}

/// A number of an attribute, for messages of `sock_diag`.
pub fn number(value: &[u8]) -> u32 {
    word(value, 0).unwrap_or(0)
}
