// SPDX-License-Identifier: GPL-2.0
//! Bytes that go by TCP behind a cut, past the module (`intrude`): the connection is reset by who sees them
//! first, with a line in the kernel log, a count and a reason; nobody takes them for the stream's.

use st::errno::Errno;
use st::fd::Fd;
use st::intrude::{self, lines};
use st::{net, path, smcinfo, sys};

/// `PATHBREACH`.
const REASON: u32 = 0x0306_0104;

/// Who looks.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// The writer, when it turns back to TCP.
    Writer,
    /// The reader at the other end.
    Reader,
    /// The writer's end, when it is closed.
    Close,
}

fn count() -> u64 {
    let all = smcinfo::counters().unwrap_or_default();
    let ours = |name: &String| name.starts_with("reason") && name.contains("0x03060104");
    all.iter().filter(|x| ours(x.0)).map(|x| x.1).sum()
}

fn is(what: &str, got: &st::errno::R<i64>, errno: i32) -> Result<(), String> {
    match got {
        Err(Errno(e)) if *e == errno => Ok(()),
        other => Err(format!("{what}: {other:?}, wanted {}", Errno(errno))),
    }
}

/// A connection that has moved, and is spoilt.
pub fn run(who: Who, client: Fd, server: Fd) -> Result<(), String> {
    let e = |what: &'static str| move |e: Errno| format!("{what}: {e}");
    // The second time the client's direction has left TCP, too.
    path::prove_local(&client, &server)?;
    path::prove_local(&client, &server)?;
    let (counted, told) = (count(), lines());
    intrude::write(&client)?;
    let mut b = [0; 16];
    match who {
        Who::Writer => {
            net::sysctl("net.smc.path_local", "0")?;
            let sent = sys::send(client.raw(), b"back to TCP", libc::MSG_NOSIGNAL);
            net::sysctl("net.smc.path_local", "1")?;
            is("send", &sent, libc::ECONNABORTED)?;
            let got = sys::recv(server.raw(), &mut b, 0);
            // Or it has seen them itself.
            let aborted = is("recv at the other end", &got, libc::ECONNABORTED);
            aborted.or(is("recv at the other end", &got, libc::ECONNRESET))?;
        }
        Who::Reader => {
            // What is in the ring is read first.
            sys::send(client.raw(), b"ring", 0).map_err(e("send"))?;
            let got = sys::recv_vec(server.raw(), 16, 0).map_err(e("recv"))?;
            if got != b"ring" {
                return Err(format!("recv: {got:?}"));
            }
            let got = sys::recv(server.raw(), &mut b, 0);
            is("recv", &got, libc::ECONNABORTED)?;
            let sent = sys::send(client.raw(), b"x", libc::MSG_NOSIGNAL);
            is("send at the other end", &sent, libc::ECONNRESET)?;
        }
        Who::Close => {
            client.close().map_err(e("close"))?;
            let got = sys::recv(server.raw(), &mut b, 0);
            let aborted = is("recv at the other end", &got, libc::ECONNABORTED);
            aborted.or(is("recv at the other end", &got, libc::ECONNRESET))?;
        }
    }
    let info = smcinfo::info(server.raw()).map_err(e("RSMC_INFO"))?;
    if info.reason != REASON {
        return Err(format!(
            "reason {:#010x}, wanted {REASON:#010x}",
            info.reason
        ));
    }
    if count() != counted + 1 {
        return Err(format!("{} counted, wanted {}", count(), counted + 1));
    }
    // At most one line a second.
    match lines() > told || matches!(who, Who::Reader | Who::Close) {
        true => Ok(()),
        false => Err("the kernel log has no line".into()),
    }
}
