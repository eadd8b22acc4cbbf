// SPDX-License-Identifier: GPL-2.0

//! The end of a connection whose program has closed it while its stream went by SMC-R.
//!
//! TCP's connection is closed when the peer has been told everything over SMC-R: should the link be lost before, the rest
//! goes by TCP, as it does for a program that has not closed. Meanwhile a socket without a file has it.

use super::orphans::{Orphan, Orphans};
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
    conn::Farewell,
    time::{Instant, Span}, //
};

/// Longest time that TCP is kept. A peer that has not read as much by then gets the rest over SMC-R alone.
const PATIENCE: Span = Span::from_secs(5);

/// How long TCP is kept after everything has been said and arrived: a peer that had left its ring before says so by TCP.
const GRACE: Span = Span::from_millis(200);

/// The connections that are kept.
pub(crate) static CLOSINGS: Global<Orphans<Closing>> = Global::new();

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
        let farewell = self.remote.farewell();
        let mut slot = self.kept.lock();
        let kept: &mut Option<Kept> = &mut slot;
        let Some(kept) = kept else {
            return false;
        };
        let said = farewell == Farewell::Said;
        if said != kept.said {
            // Once the rings are left everything is to be said anew.
            kept.until = now().after(if said { GRACE } else { PATIENCE });
            arm(&kept.timer, kept.until);
            kept.said = said;
        }
        farewell == Farewell::Over || now().reached(kept.until)
    }
}

impl Orphan for Closing {
    const MOST: usize = 1024;

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
