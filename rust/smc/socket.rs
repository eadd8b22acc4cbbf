// SPDX-License-Identifier: GPL-2.0

//! What the family keeps beside each TCP socket.
//!
//! A socket begins as [`Phase::Init`], which a connect() or listen() ends. [`Phase`] is the one
//! place that says what a socket is; it is read and changed under [`Socket::phase`], a mutex that
//! is taken before the socket lock and never while it is held.

use crate::{
    connect,
    fallback::Fallback,
    listen::Listener,
    namespace::Namespace,
    sysctl::Sysctl, //
};
use kapi::{
    net::{
        sock::Sock,
        socket as file, //
    },
    sys::{
        hook::{Notify, WaitHook},
        queue,
        roster::Link, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};

/// What a socket is.
pub(crate) enum Phase {
    /// Neither connecting nor listening; SMC is still possible.
    Init,
    /// connect() was called, and it is not decided yet between SMC and TCP.
    Connecting,
    /// A listening socket.
    Listening(Arc<Listener>),
    /// A TCP connection for good, or a socket that will be one.
    Fallback(Fallback),
    /// close() was called.
    Closed,
}

/// The family's part of a socket.
#[pin_data]
pub(crate) struct Socket {
    /// The TCP connection; kept until the file is closed.
    pub(crate) sock: ARef<Sock>,
    /// The namespace's counters and hooks; `None` only while the module is being unloaded.
    pub(crate) namespace: Option<Arc<Namespace>>,
    #[pin]
    pub(crate) phase: Mutex<Phase>,
    /// Tells [`Socket`] of wake-ups while a connect() goes on in the background, and a listener of
    /// new connections.
    #[pin]
    pub(crate) watch: Mutex<Option<Pin<KBox<WaitHook<Socket>>>>>,
    /// What the user set as `TCP_SAVE_SYN`; the family needs it on for itself.
    pub(crate) user_save_syn: Atomic<i32>,
    /// 1 while connect() is undecided, 2 on a listener, to be read without the lock.
    pub(crate) hint: Atomic<u32>,
    /// Whether the socket is of `AF_SMC`; see `registry`.
    pub(crate) own_family: Atomic<u32>,
    /// `RSMC_STRICT`.
    pub(crate) strict: Atomic<i32>,
    /// The code of the reason for which strict mode has ended the last connect(); 0 if it has not.
    pub(crate) refusal: Atomic<u32>,
    /// `SMC_LIMIT_HS`.
    pub(crate) limit_hs: Atomic<i32>,
    /// For the list of all sockets; see `registry`.
    pub(crate) link: Link<Socket>,
    #[pin]
    work: Work<Socket>,
}

/// Values of [`Socket::hint`].
pub(crate) mod hint {
    /// Nothing special.
    pub(crate) const NONE: u32 = 0;
    /// connect() is undecided.
    pub(crate) const CONNECTING: u32 = 1;
    /// A listener.
    pub(crate) const LISTENING: u32 = 2;
}

impl_has_work! {
    impl HasWork<Self> for Socket { self.work }
}

impl Socket {
    /// The family's part of a socket that runs over `sock`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(sock: ARef<Sock>, phase: Phase) -> Result<Arc<Self>> {
        let namespace = Namespace::of(&sock);
        if let (Phase::Fallback(fallback), Some(namespace)) = (&phase, &namespace) {
            namespace.counters.fell_back(fallback, &sock.peer_addr());
        }
        let setting = |which| namespace.as_ref().map_or(0, |n| n.sysctls.get(which));
        let strict = setting(Sysctl::Strict);
        let limit_hs = setting(Sysctl::LimitHs);
        Arc::pin_init(
            pin_init!(Self {
                sock,
                namespace,
                phase <- new_mutex!(phase, "rsmc::Socket::phase"),
                watch <- new_mutex!(None, "rsmc::Socket::watch"),
                user_save_syn: Atomic::new(0),
                hint: Atomic::new(hint::NONE),
                own_family: Atomic::new(0),
                strict: Atomic::new(strict),
                refusal: Atomic::new(0),
                limit_hs: Atomic::new(limit_hs),
                link: Link::new(),
                work <- new_work!("rsmc::Socket::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes `phase` a fallback. The caller holds the lock, and switches the operations table.
    pub(crate) fn set_fallback(&self, phase: &mut Phase, fallback: Fallback) {
        if let Some(namespace) = &self.namespace {
            namespace
                .counters
                .fell_back(&fallback, &self.sock.peer_addr());
        }
        *phase = Phase::Fallback(fallback);
        self.hint.store(hint::NONE, Relaxed);
    }

    /// Puts the SYN hooks in place for this socket's namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(&self) -> Result {
        match &self.namespace {
            Some(namespace) => namespace.hook(&self.sock),
            None => Err(EINVAL),
        }
    }

    /// Has [`Socket::run`] called in a while whenever the socket wakes its waiters.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn start_watching(self: &Arc<Self>, socket: &file::Socket) -> Result {
        let mut watch = self.watch.lock();
        if watch.is_none() {
            *watch = Some(WaitHook::new(socket, self.clone())?);
        }
        Ok(())
    }

    /// Ends what [`Socket::start_watching`] began.
    pub(crate) fn stop_watching(&self) {
        let watch = self.watch.lock().take();
        drop(watch);
    }

    /// Queues [`Socket::run`].
    pub(crate) fn kick(this: &Arc<Self>) {
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// The end of the file.
    pub(crate) fn close(&self) {
        self.detached();
        let old = {
            let mut phase = self.phase.lock();
            core::mem::replace(&mut *phase, Phase::Closed)
        };
        self.stop_watching();
        if let Phase::Listening(listener) = old {
            listener.close();
        }
    }
}

impl Notify for Socket {
    fn notify(this: ArcBorrow<'_, Self>) {
        let wanted = match this.hint.load(Relaxed) {
            hint::CONNECTING => true,
            hint::LISTENING => crate::option::offers_outstanding(),
            _ => false,
        };
        if wanted {
            let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
        }
    }
}

impl WorkItem for Socket {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let listener = match &*this.phase.lock() {
            Phase::Listening(listener) => Some(listener.clone()),
            _ => None,
        };
        match listener {
            Some(listener) => listener.pump(),
            None => connect::proceed(&this),
        }
    }
}
