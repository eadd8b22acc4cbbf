// SPDX-License-Identifier: GPL-2.0
//! Sockets shared and handed on: fork, SCM_RIGHTS, dup, exec, threads, pidfd_getfd.

use crate::ctx::{pattern, T};
use st::child;
use st::fd::Fd;
use st::sys;

crate::scenarios!(
    share_fork,
    share_fork_listener,
    share_fork_close_order,
    share_scm_rights,
    share_scm_listener,
    share_scm_in_flight,
    share_dup,
    share_exec,
    share_threads,
    share_pidfd_getfd,
    share_other_netns,
);

fn share_fork(t: &mut T) {
    let (c, s) = t.pair();
    let pid = child::spawn(|| {
        let b = sys::recv_vec(s.raw(), 16, 0).unwrap_or_default();
        i32::from(b != b"for the child" || sys::send(s.raw(), b"from the child", 0) != Ok(14))
    });
    sys::send(c.raw(), b"for the child", 0).unwrap();
    t.bytes("recv", &sys::recv_vec(c.raw(), 32, 0));
    t.rec("child", format!("{:?}", child::reap(pid, 0)));
    sys::send(c.raw(), b"for the parent", 0).unwrap();
    t.bytes("parent's copy", &sys::recv_vec(s.raw(), 32, 0));
}

fn share_fork_listener(t: &mut T) {
    // Pre-forking server: whichever child is free accepts.
    let (l, a) = t.listener();
    let pids: Vec<i32> = (0..3)
        .map(|_| {
            child::spawn(|| {
                for _ in 0..4 {
                    let Ok(k) = sys::accept(l.raw()) else {
                        return 1;
                    };
                    let b = sys::recv_vec(k.raw(), 16, 0).unwrap_or_default();
                    if sys::send(k.raw(), &b, 0).is_err() {
                        return 2;
                    }
                }
                0
            })
        })
        .collect();
    let mut good = 0;
    for i in 0..12u8 {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        t.prove("client", &c);
        sys::send(c.raw(), &[i], 0).unwrap();
        good += i32::from(sys::recv_vec(c.raw(), 4, 0) == Ok(vec![i]));
    }
    t.rec("answered", good);
    for p in pids {
        t.rec("child", format!("{:?}", child::reap(p, 0)));
    }
}

fn share_fork_close_order(t: &mut T) {
    let (c, s) = t.pair();
    let (here, there) = unix_pair();
    let pid = child::spawn(|| {
        let _ = sys::recv_vec(there.raw(), 1, 0);
        0
    });
    // The child's copy keeps the connection open.
    drop(s);
    sys::sleep_ms(30);
    t.polled("still open", c.raw());
    let _ = sys::send(here.raw(), b"x", 0);
    t.rec("child", format!("{:?}", child::reap(pid, 0)));
    t.poll_for("closed", c.raw(), libc::POLLRDHUP);
}

fn unix_pair() -> (Fd, Fd) {
    let mut p = [0i32; 2];
    // SAFETY: array of two.
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, p.as_mut_ptr()) };
    (Fd::new(p[0]), Fd::new(p[1]))
}

/// Sends (`Some`) or receives (`None`) a descriptor.
fn pass(via: i32, fd: Option<i32>) -> Option<Fd> {
    let mut b = [0u8; 1];
    let mut ctl = [0u64; 8];
    let mut v = libc::iovec {
        iov_base: b.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: header, piece and control buffer are alive; the control buffer is aligned and
    // large enough for one descriptor.
    unsafe {
        let mut m: libc::msghdr = std::mem::zeroed();
        m.msg_iov = &mut v;
        m.msg_iovlen = 1;
        m.msg_control = ctl.as_mut_ptr().cast();
        match fd {
            Some(fd) => {
                m.msg_controllen = libc::CMSG_SPACE(4) as usize;
                let h = libc::CMSG_FIRSTHDR(&m);
                (*h).cmsg_level = libc::SOL_SOCKET;
                (*h).cmsg_type = libc::SCM_RIGHTS;
                (*h).cmsg_len = libc::CMSG_LEN(4) as usize;
                *(libc::CMSG_DATA(h) as *mut i32) = fd;
                libc::sendmsg(via, &m, 0);
                None
            }
            None => {
                m.msg_controllen = 64;
                if libc::recvmsg(via, &mut m, 0) <= 0 {
                    return None;
                }
                let h = libc::CMSG_FIRSTHDR(&m);
                (!h.is_null()).then(|| Fd::new(*(libc::CMSG_DATA(h) as *const i32)))
            }
        }
    }
}

fn share_scm_rights(t: &mut T) {
    let (c, s) = t.pair();
    let (u, v) = unix_pair();
    let pid = child::spawn(|| {
        let Some(f) = pass(v.raw(), None) else {
            return 1;
        };
        i32::from(sys::send(f.raw(), b"from afar", 0) != Ok(9))
    });
    pass(u.raw(), Some(s.raw()));
    drop(s);
    t.bytes("recv", &sys::recv_vec(c.raw(), 32, 0));
    t.rec("child", format!("{:?}", child::reap(pid, 0)));
    t.bytes("EOF when it ends", &sys::recv_vec(c.raw(), 32, 0));
}

fn share_scm_listener(t: &mut T) {
    let (l, a) = t.listener();
    let (u, v) = unix_pair();
    pass(u.raw(), Some(l.raw()));
    drop(l);
    let l = pass(v.raw(), None).expect("descriptor");
    let (c, s) = t.pair_on(&l, &a);
    sys::send(c.raw(), b"x", 0).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}

fn share_scm_in_flight(t: &mut T) {
    // A descriptor that is only in flight when both ends of its carrier go.
    let (c, s) = t.pair();
    let (u, v) = unix_pair();
    pass(u.raw(), Some(s.raw()));
    pass(v.raw(), Some(u.raw()));
    drop((s, u, v));
    t.poll_for("peer sees the end", c.raw(), libc::POLLRDHUP);
}

fn share_dup(t: &mut T) {
    let (c, s) = t.pair();
    // SAFETY: no pointers.
    let d = Fd::new(unsafe { libc::dup(s.raw()) });
    drop(s);
    sys::send(c.raw(), b"dup", 0).unwrap();
    t.bytes("recv", &sys::recv_vec(d.raw(), 8, 0));
    t.prove("dup", &d);
    // SAFETY: no pointers.
    let p = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    // dup2 over a socket closes it.
    // SAFETY: no pointers.
    unsafe { libc::dup2(p, d.raw()) };
    t.poll_for("closed by dup2", c.raw(), libc::POLLRDHUP);
}

fn share_exec(t: &mut T) {
    use std::os::fd::FromRawFd;
    use std::process::{Command, Stdio};
    let (c, s) = t.pair();
    // SAFETY: a duplicate owned by the child's standard output.
    let out = unsafe { Stdio::from_raw_fd(libc::dup(s.raw())) };
    let st = Command::new("/bin/echo")
        .arg("from echo")
        .stdout(out)
        .status();
    t.rec("status", st.is_ok_and(|s| s.success()));
    t.bytes("recv", &sys::recv_vec(c.raw(), 32, 0));
    // SAFETY: a duplicate owned by the child's standard input.
    let inp = unsafe { Stdio::from_raw_fd(libc::dup(s.raw())) };
    sys::send(c.raw(), b"three\nlines\nhere\n", 0).unwrap();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    let o = Command::new("/usr/bin/wc")
        .arg("-l")
        .stdin(inp)
        .output()
        .unwrap();
    t.rec("wc", String::from_utf8_lossy(&o.stdout).trim());
}

fn share_threads(t: &mut T) {
    // Two writers and two readers on one socket: nothing is lost or doubled.
    let (c, s) = t.pair();
    let (cr, sr) = (c.raw(), s.raw());
    let w: Vec<_> = (0..2u8)
        .map(|i| {
            std::thread::spawn(move || {
                for _ in 0..400 {
                    sys::send_all(cr, &[i + 1; 1000]).unwrap();
                }
            })
        })
        .collect();
    let r: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut n = [0usize; 3];
                while let Ok(b) = sys::recv_vec(sr, 3000, 0) {
                    if b.is_empty() {
                        break;
                    }
                    b.iter().for_each(|x| n[usize::from(*x).min(2)] += 1);
                }
                n
            })
        })
        .collect();
    w.into_iter().for_each(|h| h.join().unwrap());
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    let n: Vec<[usize; 3]> = r.into_iter().map(|h| h.join().unwrap()).collect();
    t.rec("ones", n[0][1] + n[1][1]);
    t.rec("twos", n[0][2] + n[1][2]);
}

fn share_pidfd_getfd(t: &mut T) {
    let (c, s) = t.pair();
    // SAFETY: no pointers.
    unsafe {
        let p = Fd::new(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32);
        let f = Fd::new(libc::syscall(libc::SYS_pidfd_getfd, p.raw(), s.raw(), 0) as i32);
        t.rec("got one", f.raw() >= 0);
        drop(s);
        sys::send(c.raw(), &pattern(32, 1), 0).unwrap();
        t.bytes(
            "recv",
            &sys::recv_vec(f.raw(), 64, 0).map(|v| v[..4].to_vec()),
        );
    }
}

fn share_other_netns(t: &mut T) {
    // The socket stays in its namespace when the thread leaves.
    let (l, a) = t.listener();
    let c = t.socket();
    st::net::private().unwrap();
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &s);
    sys::send(c.raw(), b"x", 0).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    let d = t.socket();
    t.res("from here", &sys::connect(d.raw(), &a));
}
