// SPDX-License-Identifier: GPL-2.0

//! What goes on although the programs that it was for have closed: as long as it takes, or until the module is unloaded.

use kapi::sys::global::{Global, Guard};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// Something that goes on without its program.
pub(crate) trait Orphan: Send + Sync + 'static {
    /// Most of this kind at a time.
    const MOST: usize;

    /// Ends it at once.
    fn end(&self);
}

/// All orphans of a kind.
#[pin_data]
pub(crate) struct Orphans<T: Orphan> {
    /// At most [`Orphan::MOST`], for which there is room.
    #[pin]
    all: Mutex<KVec<Arc<T>>>,
}

impl<T: Orphan> Orphans<T> {
    /// Takes one over, if there is room.
    pub(super) fn take(&self, orphan: &Arc<T>) -> bool {
        let mut all = self.all.lock();
        all.len() < T::MOST && all.push_within_capacity(orphan.clone()).is_ok()
    }

    /// Has one that is over go.
    pub(super) fn forget(&self, orphan: &Arc<T>) {
        let mut all = self.all.lock();
        let at = all.iter().position(|there| Arc::ptr_eq(there, orphan));
        let gone = at.and_then(|at| all.remove(at).ok());
        drop(all);
        drop(gone);
    }

    fn end(&self) {
        loop {
            let last = self.all.lock().pop();
            match last {
                Some(orphan) => orphan.end(),
                None => return,
            }
        }
    }
}

/// The orphans of a kind while the module is loaded. Dropped when there are no sockets any more, it ends them all.
pub(crate) struct Orphanage<T: Orphan> {
    orphans: Arc<Orphans<T>>,
    _installed: Guard<Orphans<T>>,
}

impl<T: Orphan> Orphanage<T> {
    /// Opens `place` for them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if it is open.
    pub(crate) fn open(place: &'static Global<Orphans<T>>) -> Result<Self> {
        let all = KVec::with_capacity(T::MOST, GFP_KERNEL)?;
        let orphans = Arc::pin_init(
            pin_init!(Orphans {
                all <- new_mutex!(all, "rsmc::Orphans::all"),
            }),
            GFP_KERNEL,
        )?;
        let installed = place.install(orphans.clone())?;
        Ok(Self {
            orphans,
            _installed: installed,
        })
    }
}

impl<T: Orphan> Drop for Orphanage<T> {
    fn drop(&mut self) {
        self.orphans.end();
    }
}
