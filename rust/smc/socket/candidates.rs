// SPDX-License-Identifier: GPL-2.0

//! Server's connections that are worth promoting, and wait for the client's side connection.

use crate::smcr::{LocalPort, SmcConn};
use kapi::{
    net::{sock::Sock, socket::OwnedBsdSocket},
    sys::global::Global, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{aref::ARef, Arc, Mutex}, //
};
use smc_proto::{reason::Reason, wire::promotion::Join};

/// A connection that may be promoted.
pub(crate) trait Candidate: Send + Sync {
    /// Returns its sock.
    fn sock(&self) -> &ARef<Sock>;

    /// Tells whether its program has neither closed nor dissolved it.
    fn is_open(&self) -> bool;

    /// Finds the port over which it may be promoted.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    fn port(&self) -> Result<LocalPort, Reason>;

    /// Takes note that the client's side connection has come for it. Returns a number of this attempt.
    fn begins(&self) -> u64;

    /// Takes note that nothing has come of this attempt. Another one may have begun since.
    fn failed(&self, attempt: u64, reason: Reason);

    /// Takes over the SMC-R connection that a handshake has made for it, and the side connection.
    fn offer(self: Arc<Self>, conn: Arc<SmcConn>, side: OwnedBsdSocket);
}

/// All of them, by their initial sequence numbers.
#[pin_data]
pub(crate) struct Candidates {
    #[pin]
    waiting: Mutex<RBTree<u64, Arc<dyn Candidate>>>,
}

/// The one [`Candidates`], while the module is loaded.
pub(crate) static CANDIDATES: Global<Candidates> = Global::new();

impl Candidates {
    /// Creates the list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                waiting <- new_mutex!(RBTree::new(), "rsmc::Candidates::waiting"),
            }),
            GFP_KERNEL,
        )
    }
}

fn key(numbers: Join) -> u64 {
    u64::from(numbers.client) << 32 | u64::from(numbers.server)
}

/// A connection that a side connection has named. It waits again if that comes to nothing.
pub(super) struct Named {
    numbers: Join,
    candidate: Option<Arc<dyn Candidate>>,
    /// Number of the attempt, once it has begun.
    attempt: Option<u64>,
}

impl Named {
    /// Tells the connection that the attempt begins.
    pub(super) fn begins(&mut self) {
        self.attempt = self.candidate.as_ref().map(|candidate| candidate.begins());
    }

    /// Returns the connection.
    pub(super) fn candidate(&self) -> Option<&Arc<dyn Candidate>> {
        self.candidate.as_ref()
    }

    /// Tells it that the handshake has come to nothing.
    pub(super) fn failed(self, reason: Reason) {
        if let (Some(candidate), Some(attempt)) = (&self.candidate, self.attempt) {
            candidate.failed(attempt, reason);
        }
    }

    /// Gives it the SMC-R connection that the handshake has made, and the side connection.
    pub(super) fn offer(mut self, conn: Arc<SmcConn>, side: OwnedBsdSocket) {
        match self.candidate.take() {
            Some(candidate) => candidate.offer(conn, side),
            None => conn.dissolve(),
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            // Without memory it is tried again later, as any.
            let _ = enter(candidate, self.numbers);
        }
    }
}

/// Has a connection wait, unless its program has closed it.
///
/// # Errors
///
/// The reason why it cannot.
pub(super) fn enter(this: Arc<dyn Candidate>, numbers: Join) -> Result<(), Reason> {
    let all = CANDIDATES.get().ok_or(Reason::PathOff)?;
    let node = RBTreeNode::new(key(numbers), this.clone(), GFP_KERNEL);
    let node = node.map_err(|_| Reason::NoMemory)?;
    let mut waiting = all.waiting.lock();
    // One that is there stays: nobody takes another's place by having the same numbers. Who closes says so before it
    // looks here for the last time ([`leave`]).
    if this.is_open() && waiting.get(&key(numbers)).is_none() {
        waiting.insert(node);
        return Ok(());
    }
    drop(waiting);
    Ok(())
}

/// Has a connection wait no more.
pub(super) fn leave(sock: &Sock, numbers: Join) {
    let Some(all) = CANDIDATES.get() else {
        return;
    };
    let node = {
        let mut waiting = all.waiting.lock();
        let own = waiting
            .get(&key(numbers))
            .is_some_and(|there| core::ptr::eq(there.sock().as_ptr(), sock.as_ptr()));
        match own {
            true => waiting.remove_node(&key(numbers)),
            false => None,
        }
    };
    drop(node);
}

/// Takes the connection that the side connection `side` may join: with these numbers, in its namespace, and with the
/// same host at the other end, as far as this one sees.
pub(super) fn take(numbers: Join, side: &Sock) -> Option<Named> {
    let all = CANDIDATES.get()?;
    let mut waiting = all.waiting.lock();
    let there = waiting.get(&key(numbers))?;
    let sock = there.sock();
    if sock.net_cookie() != side.net_cookie()
        || sock.peer_addr().mapped() != side.peer_addr().mapped()
    {
        return None;
    }
    let node = waiting.remove_node(&key(numbers));
    drop(waiting);
    let candidate = node.map(|node| node.to_key_value().1);
    candidate.is_some().then_some(Named {
        numbers,
        candidate,
        attempt: None,
    })
}
