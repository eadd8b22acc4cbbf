// SPDX-License-Identifier: GPL-2.0
//! Connections between the namespaces `a` and `b`, each with a model card (`kmod/card`), and what can be wrong with
//! these.

use crate::errno::{Errno, R};
use crate::fd::Fd;
use crate::guest::{run, within};
use crate::netlink::{attribute, attributes, Netlink};
use crate::smcinfo::{self, Info};
use crate::{family, guest, sys};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;

/// What a point has to say.
pub type Outcome = Result<(), String>;

/// Has a card, `card_a`, or one of its ports, `card_a/2`, be in trouble.
pub fn trouble(card: &str, word: &str, number: u32) {
    let order = format!("{card} {word} {number}");
    std::fs::write("/sys/module/card/parameters/trouble", order).expect("trouble");
}

/// What a card has counted.
pub fn counted(card: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string("/sys/module/card/parameters/stats").expect("stats");
    let line = text.lines().find(|line| line.starts_with(card));
    let words: Vec<_> = line.map_or(vec![], |line| line.split(' ').collect());
    let at = words.iter().position(|word| *word == name).expect(name);
    words[at + 1].parse().expect("a number")
}

/// What `rsmc` says in a namespace.
pub fn rsmc(ns: &'static str, words: &'static str) -> String {
    within(ns, move || {
        let done = Command::new("rsmc").args(words.split(' ')).output();
        let done = done.expect("rsmc");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    })
}

/// Has both ends begin without a link group: the cards go and come back.
pub fn begin_anew() {
    for (ns, words) in [
        ("a", "link delete card_a"),
        ("b", "link delete card_b"),
        ("a", "link add card_a type card netdev va"),
        ("b", "link add card_b type card netdev vb"),
    ] {
        run(ns, "rdma", words);
    }
}

/// Adds and deletes the RDMA devices of a namespace, as `rdma link` does, which takes a process each time.
pub struct Devices(Netlink);

impl Devices {
    const GET: u16 = (5 << 10) | 1;
    const SET: u16 = (5 << 10) | 2;
    const NEW: u16 = (5 << 10) | 3;
    const DELETE: u16 = (5 << 10) | 4;
    const INDEX: u16 = 1;
    const NAME: u16 = 2;
    const NETDEV: u16 = 51;
    const KIND: u16 = 65;
    const NAMESPACE: u16 = 68;

    /// Of the named namespace.
    #[must_use]
    pub fn of(ns: &'static str) -> Self {
        within(ns, Self::here)
    }

    /// Of the calling thread's namespace.
    #[must_use]
    pub fn here() -> Self {
        Self(Netlink::open(libc::NETLINK_RDMA).expect("NETLINK_RDMA"))
    }

    /// Adds a model card for a network device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, name: &str, netdev: &str) -> R<()> {
        let words = [
            (Self::NAME, name),
            (Self::KIND, "card"),
            (Self::NETDEV, netdev),
        ];
        let all = words.map(|(kind, word)| attribute(kind, format!("{word}\0").as_bytes()));
        self.0.ask(Self::NEW, false, &all.concat()).map(drop)
    }

    fn index(&self, name: &str) -> R<Option<Vec<u8>>> {
        let name = format!("{name}\0");
        for one in self.0.ask(Self::GET, true, &[])? {
            let all = attributes(&one)?;
            let of = |kind| all.iter().find(|a| a.0 == kind).map(|a| &a.1[..]);
            if of(Self::NAME) == Some(name.as_bytes()) {
                return Ok(of(Self::INDEX).map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    }

    /// Deletes a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&self, name: &str) -> R<()> {
        let index = self.find(name)?;
        self.0.ask(Self::DELETE, false, &index).map(drop)
    }

    /// Moves a device to the named namespace, where each device belongs to one. The device's namespace has to be the
    /// calling thread's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give(&self, name: &str, ns: &str) -> R<()> {
        let index = self.find(name)?;
        let file = std::fs::File::open(format!("/run/netns/{ns}"));
        let file = file.map_err(|_| Errno(libc::ENOENT))?;
        let to = attribute(Self::NAMESPACE, &file.as_raw_fd().to_ne_bytes());
        let words = [index, to].concat();
        self.0.ask(Self::SET, false, &words).map(drop)
    }

    /// The attribute that names a device in requests.
    fn find(&self, name: &str) -> R<Vec<u8>> {
        // A list may lack one while others come and go.
        for _ in 0..20 {
            if let Some(index) = self.index(name)? {
                return Ok(attribute(Self::INDEX, &index));
            }
        }
        Err(Errno(libc::ENODEV))
    }
}

/// An error where something is not as it should be.
///
/// # Errors
/// What was seen.
pub fn wanted(what: &str, good: bool, seen: impl std::fmt::Debug) -> Outcome {
    match good {
        true => Ok(()),
        false => Err(format!("{what}: {seen:x?}")),
    }
}

/// A socket whose calls end some time.
pub fn socket() -> Fd {
    let (domain, protocol) = family::Family::Inet.triple(family::Ip::V4);
    let fd = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let _ = sys::set_timeo(fd.raw(), name, 60_000 * guest::slow() as i64);
    }
    fd
}

/// A connection from `a` to `b`: its ends.
pub struct Pair {
    /// In `a`.
    pub client: Fd,
    /// In `b`.
    pub server: Fd,
}

impl Pair {
    /// Connects to an address of `b`, after `prepare` was done with the client's and the server's socket.
    ///
    /// # Errors
    /// Why it could not.
    pub fn connect(
        to: SocketAddr,
        prepare: impl Fn(&Fd, bool) + Copy + Send + 'static,
    ) -> Result<Pair, String> {
        let listener = within("b", move || {
            let fd = socket();
            prepare(&fd, true);
            sys::bind(fd.raw(), &to).expect("bind");
            sys::listen(fd.raw(), 8).expect("listen");
            fd
        });
        let to: SocketAddr = sys::sockname(listener.raw()).expect("name");
        let client = within("a", move || {
            let fd = socket();
            prepare(&fd, false);
            sys::connect(fd.raw(), &to)
                .map(|_| fd)
                .map_err(|e| format!("connect: {e}"))
        })?;
        let server = sys::accept(listener.raw()).map_err(|e| format!("accept: {e}"))?;
        Ok(Pair { client, server })
    }

    /// Connects by the usual addresses.
    ///
    /// # Errors
    /// Why it could not.
    pub fn new() -> Result<Pair, String> {
        Self::connect(guest::sockaddr(true, family::Ip::V4, 0), |_, _| ())
    }

    /// What carries both ends.
    pub fn info(&self) -> (Info, Info) {
        let of = |fd: &Fd| smcinfo::info(fd.raw()).expect("info");
        (of(&self.client), of(&self.server))
    }

    /// Checks that SMC-R carries both ends.
    ///
    /// # Errors
    /// What does.
    pub fn is_smc(&self) -> Outcome {
        let (client, server) = self.info();
        let good = (client.mode, server.mode) == (0, 0);
        wanted("SMC", good, (client, server))
    }

    /// Moves bytes from `a` to `b`.
    ///
    /// # Errors
    /// What went wrong.
    pub fn transfer(&self, count: usize) -> Outcome {
        let bytes: Vec<u8> = (0..count).map(|at| (at % 251) as u8).collect();
        let got = std::thread::scope(|threads| {
            let sender = threads.spawn(|| sys::send_all(self.client.raw(), &bytes));
            let got = sys::recv_all(self.server.raw(), count);
            let sent = sender.join().expect("the sender");
            sent.and(got)
        });
        match got {
            Ok(got) if got == bytes => Ok(()),
            Ok(_) => Err("other bytes".into()),
            Err(error) => Err(format!("transfer: {error}")),
        }
    }
}

/// Checks that a call has failed because its connection is lost.
///
/// # Errors
/// What it said.
pub fn lost<T: std::fmt::Debug>(what: &str, end: Result<T, Errno>) -> Outcome {
    let lost = [libc::ECONNABORTED, libc::ECONNRESET, libc::EPIPE];
    let good = matches!(&end, Err(Errno(error)) if lost.contains(error));
    wanted(what, good, end)
}
