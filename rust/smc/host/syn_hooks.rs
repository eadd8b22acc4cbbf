// SPDX-License-Identifier: GPL-2.0

//! Lifetime of a namespace's SYN hooks: from its first socket that connects or listens, until a
//! while after the last.
//!
//! A socket needs the hooks while its SYN or its SYN-ACKs may be sent (again), so it counts from
//! before its first connect() or listen() until its file is closed: later segments get no option in
//! any case. Registering hooks patches the kernel's code and waits for all CPUs, which is too dear
//! for each of many short connections. So the end of the last socket only starts a timer, which is
//! started anew on its expiry if there was another socket meanwhile.
//!
//! A socket waits for the worker only where the hooks are missing. That is safe because each side
//! announces itself before it looks at the other: a socket counts itself and then reads `ready`;
//! the worker clears `ready` and then reads the count. So either the socket finds that it has to
//! register the hooks, or the worker finds the socket and leaves them. The same holds for the last
//! socket (which takes itself off the count and then reads `armed`) and the worker (which clears
//! that and then reads the count).

use crate::host::syn_option::Announce;
use kapi::{
    net::{sock::Sock, stock::syn::Hooks},
    sys::{
        hook::{Notify, TimerHook},
        queue,
        word::{full_barrier, Word}, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};

/// Registered hooks, and the timer that ends them.
struct Installed {
    /// Dropped first, so that it does not fire in vain.
    timer: Pin<KBox<TimerHook<SynHooks>>>,
    _hooks: Hooks,
}

/// The SYN hooks of a namespace.
#[pin_data]
pub(crate) struct SynHooks {
    /// Idle time after which the hooks go, in milliseconds, as it was when a socket ended last.
    idle: Word,
    #[pin]
    work: Work<SynHooks>,
    /// Held while hooks are registered or unregistered, too: the namespace's end waits for that.
    #[pin]
    installed: Mutex<Option<Installed>>,
    /// 1 while `installed` is filled.
    ready: Word,
    /// Number of sockets that need the hooks.
    users: Atomic<i32>,
    /// 1 when a socket has begun to need them since the timer was started.
    used: Word,
    /// 1 while the timer runs, or the work that it has queued.
    armed: Word,
}

impl_has_work! {
    impl HasWork<Self> for SynHooks { self.work }
}

impl SynHooks {
    /// Creates the state without hooks.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let hooks = pin_init!(Self {
            idle: Word::new(0),
            work <- new_work!("rsmc::SynHooks::work"),
            installed <- new_mutex!(None, "rsmc::SynHooks::installed"),
            ready: Word::new(0),
            users: Atomic::new(0),
            used: Word::new(0),
            armed: Word::new(0),
        });
        Arc::pin_init(hooks, GFP_KERNEL)
    }

    /// Removes the hooks for good: the namespace ends, and has no sockets any more.
    pub(crate) fn end(&self) {
        let installed = self.installed.lock().take();
        drop(installed);
    }

    /// Makes sure that the hooks are registered, for `sock`. `first` says that this socket was not
    /// counted as their user yet; it is from now on, whatever the result, until
    /// [`SynHooks::unhook`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(self: &Arc<Self>, sock: &Sock, first: bool) -> Result {
        if first {
            self.users.fetch_add(1, Full);
            self.used.set(1);
        }
        if self.ready.get() != 0 {
            return Ok(());
        }
        let mut installed = self.installed.lock();
        if installed.is_none() {
            *installed = Some(Installed {
                timer: TimerHook::new(self.clone())?,
                _hooks: Hooks::new::<Announce>(sock)?,
            });
            self.ready.set(1);
        }
        Ok(())
    }

    /// Takes back the count of [`SynHooks::hook`], at the end of a socket. With the last one the
    /// hooks go after `idle` milliseconds.
    pub(crate) fn unhook(&self, idle: u32) {
        self.idle.set(idle);
        if self.users.fetch_sub(1, Full) == 1 && self.armed.get() == 0 {
            let installed = self.installed.lock();
            if let Some(installed) = &*installed {
                self.wait_idle(installed);
            }
        }
    }

    /// Starts the timer after which the hooks go. Called with `installed` locked.
    fn wait_idle(&self, installed: &Installed) {
        self.used.set(0);
        self.armed.set(1);
        installed.timer.arm(self.idle.get());
    }
}

impl Notify for SynHooks {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for SynHooks {
    type Pointer = Arc<Self>;

    /// Unregisters the hooks after the idle time, unless a socket needs them again.
    fn run(this: Arc<Self>) {
        let mut installed = this.installed.lock();
        this.armed.set(0);
        full_barrier();
        let Some(here) = &*installed else {
            return;
        };
        if this.users.load(Relaxed) != 0 {
            // The last of them starts the time anew.
            return;
        }
        if this.used.get() != 0 {
            this.wait_idle(here);
            return;
        }
        this.ready.set(0);
        full_barrier();
        if this.users.load(Relaxed) != 0 {
            this.ready.set(1);
            return;
        }
        // Under the lock: a socket that needs them again, and the namespace's end, wait for this.
        *installed = None;
    }
}
