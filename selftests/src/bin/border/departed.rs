// SPDX-License-Identifier: GPL-2.0
//! An end whose program is gone lives no longer than TCP's: the other one, which may be somebody else's and stay open,
//! keeps neither its network namespace nor the devices in it.

use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::{guest, net, path, sys};
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

/// The namespace of the server's end goes with that, while the client's end stays open.
pub fn run(plain: bool) -> Result<(), String> {
    let (c, s, there) = connection(plain)?;
    if !plain {
        path::prove_local(&c, &s)?;
        // Rings in both directions, one of which is not empty.
        sys::send_all(s.raw(), b"last").map_err(e("send"))?;
    }
    drop((s, there));
    let end = guest::until(10_000);
    while net::has("v0") && std::time::Instant::now() < end {
        sys::sleep_ms(10);
    }
    let kept = net::has("v0");
    let wanted: &[u8] = if plain { b"" } else { b"last" };
    let got = sys::recv_all(c.raw(), wanted.len()).map_err(e("recv"))?;
    let over = sys::recv_vec(c.raw(), 1, libc::MSG_DONTWAIT).map(|b| b.len());
    match (kept, over) {
        (true, _) => {
            Err("the namespace of a closed end is kept while the other one is open".into())
        }
        (false, Ok(0)) if got == wanted => Ok(()),
        (false, over) => Err(format!("received {got:?}, then {over:?}")),
    }
}
