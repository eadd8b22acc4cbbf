// SPDX-License-Identifier: GPL-2.0
//! Ways to ask that are not those of the rest: a dump that is wanted with one of its two flags, as
//! `smcss` does, one entry of the table of PNET IDs, as `smc_pnet -s NAME` does, and `sock_diag`
//! for somebody without privileges.

use crate::sockets::{self, Socket};
use crate::Held;
use st::errno::Errno;
use st::family::AF_SMC;
use st::fd::Fd;
use st::netlink::{attribute, attributes, Attribute, Generic};
use st::sys;

/// `SMC_PNETID_GET` and the others.
const GET: u8 = 1;
const ADD: u8 = 2;
const FLUSH: u8 = 4;
const NOBODY: u32 = 65534;
/// Attributes of connections and their links.
const EXTENSIONS: u8 = 0x1f;

fn text(kind: u16, text: &str) -> Attribute {
    (kind, format!("{text}\0").into_bytes())
}

/// The held sockets of a dump, as bytes that do not change while nobody uses them.
fn held_of(all: Vec<(u64, Socket)>, held: &Held) -> Result<Vec<Vec<u8>>, String> {
    let mut wanted = vec![&held.smc, &held.tcp];
    wanted.extend(&held.listener);
    let find = |fd: &Fd| {
        let inode = sockets::inode(fd);
        let (_, socket) = all.iter().find(|s| s.0 == inode).ok_or("not listed")?;
        let mut bytes = socket.fixed.clone();
        for (kind, value) in &socket.attributes {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
        }
        Ok(bytes)
    };
    wanted.into_iter().map(find).collect()
}

/// `NLM_F_DUMP` is two bits, and each of them alone is a wish for all sockets.
pub fn one_flag(held: &Held) -> Result<(), String> {
    let ask = |flags| {
        let all = st::diag::all(EXTENSIONS, flags).map_err(|e| format!("{flags:#x}: {e}"))?;
        held_of(all, held).map_err(|e| format!("{flags:#x}: {e}"))
    };
    let both = ask(libc::NLM_F_DUMP)?;
    for flag in [libc::NLM_F_ROOT, libc::NLM_F_MATCH] {
        if ask(flag)? != both {
            return Err(format!("{flag:#x} tells other things"));
        }
    }
    Ok(())
}

/// Everybody sees of every socket what its owner and the administrator see.
pub fn unprivileged(held: &Held) -> Result<(), String> {
    let ask = || {
        let all = sockets::all(EXTENSIONS).map_err(|e| e.to_string())?;
        held_of(all, held)
    };
    let before = ask()?;
    // SAFETY: no pointers.
    unsafe { libc::seteuid(NOBODY) };
    let seen = ask();
    let own = sys::socket(AF_SMC, libc::SOCK_STREAM, 0).and_then(|own| {
        sys::listen(own.raw(), 1)?;
        sockets::all(0).map(|all| (sockets::inode(&own), all))
    });
    // SAFETY: no pointers.
    unsafe { libc::seteuid(0) };
    if seen? != before {
        return Err("sees other things".into());
    }
    let (inode, all) = own.map_err(|e| e.to_string())?;
    let uid = |s: &Socket| u32::from_ne_bytes([52, 53, 54, 55].map(|at| s.fixed[at]));
    let own = all.iter().find(|s| s.0 == inode).ok_or("own: not listed")?;
    let foreign = sockets::inode(&held.smc);
    let foreign = all.iter().find(|s| s.0 == foreign).ok_or("not listed")?;
    match (uid(&own.1), uid(&foreign.1)) {
        (NOBODY, 0) => Ok(()),
        other => Err(format!("owners {other:?}")),
    }
}

/// The entries that a `do` of `SMC_PNETID_GET` is answered with.
fn get(flags: i32, request: &[u8]) -> Result<Vec<Vec<Attribute>>, Errno> {
    let netlink = Generic::open("SMC_PNETID")?;
    let answers = netlink.ask_so(GET, flags, 1 << 16, request)?;
    let mut entries = vec![];
    for answer in answers {
        let mut entry = attributes(&answer)?;
        entry.sort();
        entries.push(entry);
    }
    Ok(entries)
}

/// A name chooses its own entries among others; with an acknowledgment, as libnl asks by itself, and
/// without.
pub fn one_pnet() -> Result<(), String> {
    let failed = |e: Errno| e.to_string();
    let netlink = Generic::open("SMC_PNETID").map_err(failed)?;
    let device = std::env::var("RSMC_DEV").unwrap_or_default();
    let rdma = std::fs::read_dir("/sys/class/infiniband").map_err(|e| e.to_string())?;
    let rdma = rdma.flatten().next().ok_or("no RDMA device")?.file_name();
    let rdma = rdma.to_string_lossy().into_owned();
    let bytes =
        |all: &[Attribute]| -> Vec<u8> { all.iter().flat_map(|a| attribute(a.0, &a.1)).collect() };
    let add = |all: &[Attribute]| netlink.act(ADD, &bytes(all)).map_err(failed);
    netlink.act(FLUSH, &[]).map_err(failed)?;
    add(&[text(1, "ONE"), text(2, &device)])?;
    add(&[text(1, "TWO"), text(3, &rdma), (4, vec![1])])?;
    let one = vec![
        text(1, "ONE"),
        text(2, &device),
        text(3, "n/a"),
        (4, vec![255]),
    ];
    let two = vec![text(1, "TWO"), text(2, "n/a"), text(3, &rdma), (4, vec![1])];
    let is = |name: &str, wanted: &[Vec<Attribute>]| {
        for flags in [0, libc::NLM_F_ACK] {
            let found = get(flags, &bytes(&[text(1, name)]));
            if found.as_deref() != Ok(wanted) {
                return Err(format!("{name}: {found:02x?}, not {wanted:02x?}"));
            }
        }
        Ok(())
    };
    let asked = is("ONE", &[one])
        .and_then(|()| is("TWO", &[two]))
        .and_then(|()| is("NONE", &[]));
    let nameless = get(libc::NLM_F_ACK, &[]);
    netlink.act(FLUSH, &[]).map_err(failed)?;
    asked?;
    match nameless {
        Err(Errno(libc::EINVAL)) => Ok(()),
        other => Err(format!("without a name: {other:02x?}")),
    }
}
