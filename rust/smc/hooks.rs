// SPDX-License-Identifier: GPL-2.0

//! When a namespace has the SYN hooks: from its first socket that connects or listens on, until
//! there has been none for a while.
//!
//! A socket needs the hooks while its SYN or its SYN-ACKs may be sent (again), so it counts from
//! before its first connect() or listen() until its file is closed: what is sent afterwards gets no
//! option in any case. Registering hooks patches the kernel's code and waits for all CPUs, which a
//! program that opens one short connection after the other must not pay for each. So the end of the
//! last socket only starts a timer, and whoever finds on its expiry that there was another one
//! meanwhile starts it anew.
//!
//! Users never wait for the worker but where the hooks are missing. That is safe because each side
//! announces itself before it looks at the other: a socket counts itself and then reads `ready`; the
//! worker clears `ready` and then reads the count. So either the socket finds that it has to put
//! the hooks in place, or the worker finds the socket and leaves them. The same holds for the last
//! socket (which takes itself off and then reads `armed`) and the worker (which clears that and then
//! reads the count).

use crate::{namespace::Namespace, option::Announce, sysctl::Sysctl};
use kapi::{
    net::{sock::Sock, syn::Hooks},
    sys::{
        hook::{Notify, TimerHook},
        queue, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::WorkItem, //
};

/// The hooks while they are registered, and what ends them.
struct Installed {
    /// Dropped first, so that it does not fire in vain.
    timer: Pin<KBox<TimerHook<Namespace>>>,
    _hooks: Hooks,
}

/// The SYN hooks of a namespace.
#[pin_data]
pub(crate) struct SynHooks {
    /// Held while hooks are registered or unregistered, too: the namespace's end waits for that.
    #[pin]
    installed: Mutex<Option<Installed>>,
    /// Whether `installed` is filled.
    ready: Atomic<u32>,
    /// How many sockets need the hooks.
    users: Atomic<i32>,
    /// Whether a socket has begun to need them since the timer was started.
    used: Atomic<u32>,
    /// Whether the timer runs, or what it has queued.
    armed: Atomic<u32>,
}

impl SynHooks {
    /// No hooks.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            installed <- new_mutex!(None, "rsmc::SynHooks::installed"),
            ready: Atomic::new(0),
            users: Atomic::new(0),
            used: Atomic::new(0),
            armed: Atomic::new(0),
        })
    }

    /// Removes the hooks for good: the namespace ends, and has no sockets any more.
    pub(crate) fn end(&self) {
        let installed = self.installed.lock().take();
        drop(installed);
    }
}

impl Namespace {
    /// Puts the hooks in place for `sock`. `first` says that this socket did not count yet; it does
    /// from now on, whatever the result, until [`Namespace::unhook`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(self: &Arc<Self>, sock: &Sock, first: bool) -> Result {
        let hooks = &self.hooks;
        if first {
            hooks.users.fetch_add(1, Full);
            hooks.used.store(1, Relaxed);
        }
        if hooks.ready.load(Relaxed) != 0 {
            return Ok(());
        }
        let mut installed = hooks.installed.lock();
        if installed.is_none() {
            *installed = Some(Installed {
                timer: TimerHook::new(self.clone())?,
                _hooks: Hooks::new::<Announce>(sock)?,
            });
            hooks.ready.store(1, Relaxed);
        }
        Ok(())
    }

    /// The end of a socket that [`Namespace::hook`] has counted.
    pub(crate) fn unhook(&self) {
        let hooks = &self.hooks;
        if hooks.users.fetch_sub(1, Full) == 1 && hooks.armed.load(Relaxed) == 0 {
            let installed = hooks.installed.lock();
            if let Some(installed) = &*installed {
                self.wait_idle(installed);
            }
        }
    }

    /// Starts the time after which the hooks go. Under the lock of `installed`.
    fn wait_idle(&self, installed: &Installed) {
        let idle = self.sysctls.get(Sysctl::HookIdle);
        self.hooks.used.store(0, Relaxed);
        self.hooks.armed.store(1, Relaxed);
        installed.timer.arm(u32::try_from(idle).unwrap_or(0));
    }
}

impl Notify for Namespace {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for Namespace {
    type Pointer = Arc<Self>;

    /// The time is over.
    fn run(this: Arc<Self>) {
        let hooks = &this.hooks;
        let mut installed = hooks.installed.lock();
        hooks.armed.xchg(0, Full);
        let Some(here) = &*installed else {
            return;
        };
        if hooks.users.load(Relaxed) != 0 {
            // The last of them starts the time anew.
            return;
        }
        if hooks.used.load(Relaxed) != 0 {
            this.wait_idle(here);
            return;
        }
        hooks.ready.xchg(0, Full);
        if hooks.users.load(Relaxed) != 0 {
            hooks.ready.store(1, Relaxed);
            return;
        }
        // Under the lock: who needs them again, and the namespace's end, wait for this.
        *installed = None;
    }
}
