// SPDX-License-Identifier: GPL-2.0
//! An end whose program is gone lives no longer than TCP's: the other one, which may be somebody else's and stay open,
//! keeps neither its network namespace nor the devices in it.

use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::{guest, net, path, smcinfo, sys};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

const HERE: &str = "10.91.0.1";
const THERE: &str = "10.91.0.2";

fn e(what: &'static str) -> impl Fn(Errno) -> String {
    move |e| format!("{what}: {e}")
}

fn current() -> Result<File, String> {
    File::open("/proc/thread-self/ns/net").map_err(|e| format!("ns/net: {e}"))
}

/// A connection from the current namespace to one made here, which only its server's end and the file keep, and `v0`,
/// the near end of the wire between the two.
fn connection(plain: bool) -> Result<(Fd, Fd, File), String> {
    let socket = || match plain {
        true => sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).map_err(e("socket")),
        false => crate::socket(Ip::V4),
    };
    let at = |ip: &str, port| Ok::<_, String>(SocketAddr::new(ip.parse().map_err(|_| "ip")?, port));
    let here = current()?;
    net::private().map_err(e("unshare"))?;
    let there = current()?;
    let made = (|| {
        path::local(2)?;
        let name = format!("/proc/{}/fd/{}", std::process::id(), here.as_raw_fd());
        net::ip(&format!(
            "link add v1 type veth peer name v0 netns {name}
             addr add {THERE}/24 dev v1
             link set v1 up
"
        ))?;
        let l = socket()?;
        sys::bind(l.raw(), &at(THERE, 0)?).map_err(e("bind"))?;
        sys::listen(l.raw(), 1).map_err(e("listen"))?;
        Ok::<_, String>(l)
    })();
    guest::enter_file(&here).map_err(e("setns"))?;
    let l = made?;
    path::local(2)?;
    net::ip(&format!("addr add {HERE}/24 dev v0\nlink set v0 up\n"))?;
    let c = socket()?;
    sys::connect(c.raw(), &sys::sockname(l.raw()).map_err(e("getsockname"))?)
        .map_err(e("connect"))?;
    let s = sys::accept(l.raw()).map_err(e("accept"))?;
    Ok((c, s, there))
}

/// A namespace says that its connections may leave TCP within it alone, and the other one more than that: between the two
/// they stay TCP's.
pub fn apart(narrow: bool) -> Result<(), String> {
    const PATHOFF: u32 = 0x0306_0100;
    let (c, s, there) = connection(false)?;
    let here = current()?;
    if narrow {
        path::local(1)?;
    } else {
        guest::enter_file(&there).map_err(e("setns"))?;
        let set = path::local(1);
        guest::enter_file(&here).map_err(e("setns"))?;
        set?;
    }
    let said = path::prove_local(&c, &s);
    let reasons = [&c, &s].map(|end| smcinfo::info(end.raw()).map(|seen| (seen.mode, seen.reason)));
    drop((s, there));
    soon_gone()?;
    match reasons {
        [Ok(c), Ok(s)]
            if [c, s].iter().all(|end| end.0 != path::MODE_LOCAL)
                && [c, s].iter().any(|end| end.1 == PATHOFF) =>
        {
            Ok(())
        }
        reasons => Err(format!("mode, reason {reasons:x?}; {said:?}")),
    }
}

/// Waits until the wire between the two is gone, with the namespace at its other end.
fn soon_gone() -> Result<(), String> {
    let end = guest::until(10_000);
    while net::has("v0") {
        if std::time::Instant::now() > end {
            return Err("the namespace of a closed end is kept while the other one is open".into());
        }
        sys::sleep_ms(10);
    }
    Ok(())
}

/// The namespace of the server's end goes with that, while the client's end stays open.
pub fn run(plain: bool) -> Result<(), String> {
    let (c, s, there) = connection(plain)?;
    if !plain {
        path::prove_local(&c, &s)?;
        // Rings in both directions, one of which is not empty.
        sys::send_all(s.raw(), b"last").map_err(e("send"))?;
    }
    drop((s, there));
    soon_gone()?;
    let wanted: &[u8] = if plain { b"" } else { b"last" };
    let got = sys::recv_all(c.raw(), wanted.len()).map_err(e("recv"))?;
    let over = sys::recv_vec(c.raw(), 1, libc::MSG_DONTWAIT).map(|b| b.len());
    match over {
        Ok(0) if got == wanted => Ok(()),
        over => Err(format!("received {got:?}, then {over:?}")),
    }
}
