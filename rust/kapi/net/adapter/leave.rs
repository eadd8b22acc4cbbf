// SPDX-License-Identifier: GPL-2.0

//! Giving an open socket back to TCP: it has TCP's own table from then on.
//!
//! Two of TCP's options replace a socket's table: `TCP_ULP` (kernel TLS) and `IPV6_ADDRFORM`. Kernel TLS makes its
//! tables, once for the whole system, as copies of what the first such socket has. So they are only set on
//! a socket that has TCP's. What the overlay has of it stays until its file is closed, for calls that were
//! under way, and the module with it. Of that end nobody tells, so a timer looks for it.

use super::Adapter;
use crate::{
    net::{family, overlay::Overlay, sock::Sock, socket::BsdSocket, syn, tables},
    sys::{
        hook::{Notify, TimerHook},
        module::Kept,
        queue, //
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
    types::ForeignOwnable,
    workqueue::{Work, WorkItem}, //
};
use smc_bindings as bindings;

/// Milliseconds to the first look whether the file is closed, and between two looks at most.
const LOOK: [u32; 2] = [250, 4000];

type Timer<D> = Pin<KBox<TimerHook<Rest<D>>>>;

/// What the overlay has of a socket that it has given back.
#[pin_data]
struct Rest<D: Send + Sync + 'static> {
    sock: ARef<Sock>,
    /// The data, whose count is that of the socket's private pointer, and the module.
    #[pin]
    kept: Mutex<Option<(Arc<D>, Kept)>>,
    #[pin]
    timer: Mutex<Option<Timer<D>>>,
    wait: Atomic<u32>,
    #[pin]
    work: Work<Rest<D>>,
}

impl_has_work! {
    impl{D: Send + Sync + 'static} HasWork<Rest<D>> for Rest<D> { self.work }
}

impl<D: Send + Sync + 'static> Notify for Rest<D> {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl<D: Send + Sync + 'static> WorkItem for Rest<D> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // No call has come by the overlay's table since it was given back, and one that was under way then
        // keeps the file open.
        if this.sock.has_file() {
            let wait = this.wait.load(Relaxed);
            this.wait
                .store(wait.saturating_mul(2).min(LOOK[1]), Relaxed);
            if let Some(timer) = &*this.timer.lock() {
                timer.arm(wait);
            }
            return;
        }
        let timer = this.timer.lock().take();
        drop(timer);
        let kept = this.kept.lock().take();
        // Unloading waits for this work.
        drop(kept);
    }
}

impl<T: Overlay> Adapter<T> {
    /// Gives the socket back to TCP for good.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `ENODEV` while the module is being unloaded: nothing has changed then.
    pub(super) fn give_back(socket: &BsdSocket) -> Result {
        let rest = Arc::pin_init(
            pin_init!(Rest {
                sock: socket.sock().into(),
                kept <- new_mutex!(None, "kapi::Rest::kept"),
                timer <- new_mutex!(None, "kapi::Rest::timer"),
                wait: Atomic::new(LOOK[0]),
                work <- new_work!("kapi::Rest::work"),
            }),
            GFP_KERNEL,
        )?;
        let timer = TimerHook::new(rest.clone())?;
        let module = Kept::take().ok_or(ENODEV)?;
        syn::forget(&socket.sock().lock());
        let Some((row, owner)) = tables::give_back(socket) else {
            // Another thread has.
            return Ok(());
        };
        family::count_in(socket, row, -1);
        socket.sock().release_stream();
        let raw = Self::raw(socket);
        // SAFETY: It is the data of this operation on the socket, so `attach` put it there, and the count stays
        // with the pointer until `release` takes it. That is not called any more: the table has TCP's, and only
        // one who replaces the overlay's table comes here.
        let data = unsafe { <Arc<T::Data> as ForeignOwnable>::from_foreign(raw) };
        T::left(&data);
        *rest.kept.lock() = Some((data, module));
        let mut slot = rest.timer.lock();
        slot.insert(timer).arm(LOOK[0]);
        drop(slot);
        // SAFETY: The count is what the socket had by the table that was replaced; the new one has no owner.
        unsafe { bindings::module_put(owner) };
        Ok(())
    }
}
