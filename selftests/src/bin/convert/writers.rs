// SPDX-License-Identifier: GPL-2.0
//! Writers of `net.smc.tcp2smc` in a user namespace of their own, who want nothing but harm: sockets of another
//! namespace stay what it wants, nobody waits for them, and nothing is left when they have gone.

use super::{is_smc, plain, turn, TCP2SMC};
use st::netlink::Generic;
use st::point::T;
use st::{addr, child, guest, net, sys};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

st::points![
    writers_switch_nobody_off,
    writers_stop_nobody,
    writers_leave_nothing,
    writers_end
];

/// A module that nothing needs.
const MODULE: &str = "tcp_bbr";
/// When a writer's namespace ends that waits.
const LEAVES_MS: u64 = 300;
/// Times that somebody waits, and that the redirection is looked for.
const ROUNDS: usize = 4;
const SAMPLES: usize = 200;

/// The time that the redirection stays without users: what the initial namespace says. Set until it is dropped.
struct Stays;

impl Stays {
    /// For how long, in milliseconds.
    fn for_ms(ms: u64) -> Self {
        let here = std::fs::File::open("/proc/thread-self/ns/net").expect("namespace");
        let first = std::fs::File::open("/proc/1/ns/net").expect("the initial namespace");
        guest::enter_file(&first).expect("setns");
        let set = net::sysctl("net.smc.hook_idle_ms", &ms.to_string());
        guest::enter_file(&here).expect("setns");
        set.expect("hook_idle_ms");
        Self
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        std::mem::forget(Self::for_ms(30_000));
    }
}

/// A process that writes a sysctl of a namespace of its own without a pause, until it is dropped.
struct Writers(i32);

impl Writers {
    fn start(name: &str, threads: usize) -> Self {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Self(child::spawn(move || {
            let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET;
            // SAFETY: No pointers; this process has one thread.
            if unsafe { libc::unshare(flags) } != 0 {
                return 1;
            }
            std::thread::scope(|scope| {
                for number in 0..threads {
                    let path = &path;
                    scope.spawn(move || {
                        let file = std::fs::File::options().write(true).open(path);
                        let file = file.expect("sysctl");
                        for turn in number.. {
                            // Refused or not.
                            let _ = file.write_at(if turn % 2 == 0 { b"1" } else { b"0" }, 0);
                        }
                    });
                }
            });
            0
        }))
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        // SAFETY: Our own child.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        child::reap(self.0, 0);
    }
}

/// Whether nothing is redirected at this moment: only then ftrace may be turned off.
fn is_gone() -> bool {
    let ftrace = |value: &str| std::fs::write("/proc/sys/kernel/ftrace_enabled", value).is_ok();
    ftrace("0") && ftrace("1")
}

/// Whether nothing is redirected, soon after nobody wants it any more, in the current namespace either. It does not
/// stay for long from then on.
pub fn has_gone() -> bool {
    let _stays = Stays::for_ms(10);
    turn(1);
    turn(0);
    let limit = Instant::now() + Duration::from_millis(sys::patient(10_000));
    while Instant::now() < limit {
        if is_gone() {
            return true;
        }
        sys::sleep_ms(50);
    }
    false
}

/// Sockets of a namespace that wants them converted are, whatever another one does.
fn writers_switch_nobody_off(t: &mut T) {
    turn(1);
    let writers = Writers::start(TCP2SMC, 4);
    let limit = Instant::now() + Duration::from_secs(8);
    let (mut made, mut tcp) = (0u64, 0u64);
    while Instant::now() < limit && made < 100_000 {
        made += 1;
        tcp += u64::from(!is_smc(&plain(t.ip)));
    }
    drop(writers);
    t.say(&format!("{made} sockets, {tcp} of TCP"));
    t.check("all are SMC's", tcp == 0);
    t.check("the redirection goes", has_gone());
}

/// The longest of some waits, in milliseconds.
struct Longest(&'static str, u64);

impl Longest {
    fn of(&mut self, f: impl FnOnce()) {
        let start = Instant::now();
        f();
        self.1 = self.1.max(start.elapsed().as_millis() as u64);
    }
}

fn connection(listener: i32, at: &SocketAddr, protocol: i32, domain: i32) {
    let client = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    sys::connect(client.raw(), at).expect("connect");
    let server = sys::accept(listener).expect("accept");
    sys::send(client.raw(), b"x", 0).expect("send");
    sys::recv_all(server.raw(), 1).expect("recv");
}

/// What others do takes no longer than beside writers of a sysctl that concerns nobody.
fn waits(t: &T, name: &str) -> [Longest; 4] {
    let mut longest = ["module", "TCP client", "SMC client", "dump"].map(|what| Longest(what, 0));
    let domain = super::domain(t.ip);
    let listener = sys::socket(domain, libc::SOCK_STREAM, 256).expect("socket");
    sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(t.ip), 0)).expect("bind");
    sys::listen(listener.raw(), 8).expect("listen");
    let at = sys::sockname(listener.raw()).expect("name");
    let netlink = Generic::open("SMC_GEN_NETLINK").expect("netlink");
    let probe = |what: &[&str]| {
        let done = Command::new("modprobe").args(what).status();
        assert!(done.is_ok_and(|status| status.success()), "modprobe");
    };
    let writers = Writers::start(name, 2);
    sys::sleep_ms(200);
    for _ in 0..ROUNDS {
        let [module, tcp, smc, dump] = &mut longest;
        module.of(|| probe(&[MODULE]));
        module.of(|| probe(&["-r", MODULE]));
        for _ in 0..5 {
            tcp.of(|| connection(listener.raw(), &at, 0, domain));
            smc.of(|| connection(listener.raw(), &at, 256, domain));
            dump.of(|| drop(netlink.dump(2)));
        }
    }
    drop(writers);
    longest
}

/// Writers who want the redirection and do not, all the time, have it neither begin nor end: that is what others would
/// wait for.
fn writers_stop_nobody(t: &mut T) {
    let writers = Writers::start(TCP2SMC, 4);
    let limit = Instant::now() + Duration::from_millis(sys::patient(10_000));
    while is_gone() && Instant::now() < limit {
        sys::sleep_ms(10);
    }
    let ended = (0..SAMPLES).filter(|_| {
        sys::sleep_ms(5);
        is_gone()
    });
    t.is("times that it had ended", ended.count(), 0);
    drop(writers);
    let usual = waits(t, "net.smc.strict");
    let beside = waits(t, TCP2SMC);
    t.check("the redirection goes", has_gone());
    for (usual, beside) in usual.iter().zip(&beside) {
        t.say(&format!(
            "{}: {} ms, {} ms beside writers",
            usual.0, usual.1, beside.1
        ));
        t.check(
            &format!("{} waits for writers", usual.0),
            beside.1 <= usual.1 + guest::noticed(),
        );
    }
}

/// The end of a writer whose namespace ends with it.
fn writers_leave_nothing(t: &mut T) {
    for _ in 0..5 {
        let writers = Writers::start(TCP2SMC, 3);
        sys::sleep_ms(50);
        drop(writers);
    }
    t.check("the redirection goes", has_gone());
    turn(1);
    t.check("and comes", is_smc(&plain(t.ip)));
    t.check("and goes", has_gone());
}

/// A namespace ends at once although a writer that has left it waits: here for the next attempt, since the last one
/// has failed.
fn writers_end(t: &mut T) {
    let ftrace = |value: &str| std::fs::write("/proc/sys/kernel/ftrace_enabled", value);
    let off = super::sockets::redirects() && has_gone() && ftrace("0").is_ok();
    let here = std::fs::File::open("/proc/thread-self/ns/net").expect("namespace");
    net::private().expect("private namespace");
    let file = std::fs::File::options()
        .write(true)
        .open("/proc/sys/net/smc/tcp2smc")
        .expect("sysctl");
    let first = file.write_at(b"1", 0).expect_err("converts without ftrace");
    t.say(&format!("first: {first}"));
    let start = Instant::now();
    let (second, took) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            guest::enter_file(&here).expect("setns");
            let second = file.write_at(b"1", 0).expect_err("converts without ftrace");
            (second, start.elapsed())
        });
        sys::sleep_ms(LEAVES_MS);
        // The namespace has no task from here on.
        guest::enter_file(&here).expect("setns");
        writer.join().expect("writer")
    });
    if off {
        ftrace("1").expect("ftrace_enabled");
    }
    t.say(&format!("second: {second} after {took:?}"));
    t.check(
        "the writer hears of the end",
        matches!(second.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)),
    );
    // By itself it would have gone on a second after the first.
    let soon = Duration::from_millis(LEAVES_MS)..Duration::from_millis(900);
    t.check("then", soon.contains(&took));
}
