// SPDX-License-Identifier: GPL-2.0

//! The end of a connection whose program has closed it while its stream went by SMC-R.
//!
//! TCP's connection is closed when the peer has been told everything over SMC-R: should the link be lost before, the rest
//! goes by TCP, as it does for a program that has not closed. Meanwhile a socket without a file has it.

use crate::{
    host::clock::{arm, now},
    stream::remote::Remote,
};
use kapi::{
    net::{socket::OwnedBsdSocket, wait_hook::WaitHook},
    sys::{
        global::Global,
        hook::{Notify, TimerHook},
        queue, //
    },
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex},
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    conn,
    time::{Instant, Span}, //
};

/// Longest time that TCP is kept. A peer that has not read as much by then gets the rest over SMC-R alone.
const PATIENCE: Span = Span::from_secs(5);

/// How long TCP is kept after everything has been said and arrived: a peer that had left its ring before says so by TCP.
const GRACE: Span = Span::from_millis(200);

/// Most connections that are kept at a time.
const MOST: usize = 1024;

/// The connections that are kept.
#[pin_data]
pub(crate) struct Closings {
    /// At most [`MOST`], for which there is room.
    #[pin]
    all: Mutex<KVec<Arc<Closing>>>,
}

/// The one [`Closings`], while the module is loaded.
pub(crate) static CLOSINGS: Global<Closings> = Global::new();

impl Closings {
    /// Creates the list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let all = KVec::with_capacity(MOST, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                all <- new_mutex!(all, "rsmc::Closings::all"),
            }),
            GFP_KERNEL,
        )
    }

    fn take(&self, closing: &Arc<Closing>) -> bool {
        let mut all = self.all.lock();
        all.len() < MOST && all.push_within_capacity(closing.clone()).is_ok()
    }

    fn forget(&self, closing: &Arc<Closing>) {
        let mut all = self.all.lock();
        let at = all.iter().position(|there| Arc::ptr_eq(there, closing));
        let gone = at.and_then(|at| all.remove(at).ok());
        drop(all);
        drop(gone);
    }

    /// Closes all at once: the module is being unloaded, and there are no sockets any more.
    pub(crate) fn end(&self) {
        loop {
            let last = self.all.lock().pop();
            match last {
                Some(closing) => closing.end(),
                None => return,
            }
        }
    }
}

/// What a connection has until TCP is closed.
struct Kept {
    // Dropped in this order: nothing kicks the connection any more when its socket goes.
    timer: Pin<KBox<TimerHook<Closing>>>,
    watch: Pin<KBox<WaitHook<Closing>>>,
    socket: OwnedBsdSocket,
    until: Instant,
    /// Everything has been said, and `until` is the end of the grace.
    said: bool,
}

/// A connection that its program has closed.
#[pin_data]
pub(crate) struct Closing {
    remote: Arc<Remote>,
    #[pin]
    kept: Mutex<Option<Kept>>,
    #[pin]
    work: Work<Closing>,
}

impl_has_work! {
    impl HasWork<Self> for Closing { self.work }
}

/// Goes on with a connection whose file has been closed, in `socket`. Without one, or without memory, it ends at once.
pub(crate) fn goes_on(remote: Arc<Remote>, socket: Option<OwnedBsdSocket>) {
    let Some(socket) = socket else {
        remote.end_closing();
        return;
    };
    if let Err(socket) = Closing::begin(&remote, socket) {
        remote.end_closing();
        socket.close();
    }
}

impl Closing {
    /// Keeps the connection until all has been said. Returns the socket where that cannot be.
    fn begin(remote: &Arc<Remote>, socket: OwnedBsdSocket) -> Result<(), OwnedBsdSocket> {
        let until = now().after(PATIENCE);
        let made = Arc::pin_init(
            pin_init!(Self {
                remote: remote.clone(),
                kept <- new_mutex!(None, "rsmc::Closing::kept"),
                work <- new_work!("rsmc::Closing::work"),
            }),
            GFP_KERNEL,
        );
        let Ok(this) = made else {
            return Err(socket);
        };
        let hooks = (
            TimerHook::new(this.clone()),
            WaitHook::new(&socket, this.clone()),
        );
        let (Ok(timer), Ok(watch)) = hooks else {
            return Err(socket);
        };
        if !CLOSINGS.get().is_some_and(|all| all.take(&this)) {
            return Err(socket);
        }
        arm(&timer, until);
        *this.kept.lock() = Some(Kept {
            timer,
            watch,
            socket,
            until,
            said: false,
        });
        // What has come before the watch began.
        Self::kick(&this);
        Ok(())
    }

    fn kick(this: &Arc<Self>) {
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// Tells whether TCP may be closed.
    fn is_over(&self) -> bool {
        let closing = self.remote.closing();
        let mut slot = self.kept.lock();
        let kept: &mut Option<Kept> = &mut slot;
        let Some(kept) = kept else {
            return false;
        };
        let said = closing == conn::Closing::Said;
        if said != kept.said {
            // Once the rings are left everything is to be said anew.
            kept.until = now().after(if said { GRACE } else { PATIENCE });
            arm(&kept.timer, kept.until);
            kept.said = said;
        }
        closing == conn::Closing::Over || now().reached(kept.until)
    }

    /// Closes TCP.
    fn end(&self) {
        let kept = self.kept.lock().take();
        if let Some(Kept {
            timer,
            watch,
            socket,
            ..
        }) = kept
        {
            drop(timer);
            drop(watch);
            self.remote.end_closing();
            socket.close();
        }
    }
}

impl Notify for Closing {
    fn notify(this: ArcBorrow<'_, Self>) {
        Self::kick(&Arc::from(this));
    }
}

impl WorkItem for Closing {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.kept.lock().is_none() {
            return;
        }
        if this.is_over() {
            this.end();
            if let Some(all) = CLOSINGS.get() {
                all.forget(&this);
            }
        }
    }
}
