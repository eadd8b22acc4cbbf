// SPDX-License-Identifier: GPL-2.0

//! The SMC-R connections over which a stream goes and has gone, and what they have carried.

use super::Remote;
use crate::smcr::SmcConn;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        SetOnce, //
    }, //
};
use smc_proto::wire::promotion::RECORD_LEN;

/// Places at hand, and those that follow at a time.
const FIRST: usize = 4;
const MORE: usize = 31;

/// The connections, which stay until the socket is closed, as calls may be inside.
pub(super) struct Carriers {
    first: [SetOnce<Arc<SmcConn>>; FIRST],
    more: SetOnce<KBox<More>>,
    /// Place of the present one, or of the next.
    at: Atomic<u32>,
    /// Bytes of those before: gone, of these known to have arrived, and come.
    carried: [Atomic<u64>; 3],
}

/// Further places.
struct More {
    all: [SetOnce<Arc<SmcConn>>; MORE],
    more: SetOnce<KBox<More>>,
}

impl Carriers {
    pub(super) const fn new() -> Self {
        Self {
            first: [const { SetOnce::new() }; FIRST],
            more: SetOnce::new(),
            at: Atomic::new(0),
            carried: [const { Atomic::new(0) }; 3],
        }
    }

    #[inline]
    fn place(&self, at: usize) -> Option<&SetOnce<Arc<SmcConn>>> {
        match self.first.get(at) {
            Some(place) => Some(place),
            None => self.later(at),
        }
    }

    #[cold]
    fn later(&self, at: usize) -> Option<&SetOnce<Arc<SmcConn>>> {
        let mut at = at.checked_sub(FIRST)?;
        let mut more = self.more.as_ref()?;
        while at >= MORE {
            more = more.more.as_ref()?;
            at = at.checked_sub(MORE)?;
        }
        more.all.get(at)
    }

    /// Returns the present one.
    #[inline]
    pub(super) fn current(&self) -> Option<&Arc<SmcConn>> {
        self.place(self.at.load(Relaxed) as usize)?.as_ref()
    }

    /// Sees to a place for the next one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve(&self) -> Result {
        let at = self.at.load(Relaxed) as usize;
        if self.place(at).is_some() {
            return Ok(());
        }
        let mut last = &self.more;
        while let Some(more) = last.as_ref() {
            last = &more.more;
        }
        last.populate(KBox::new(
            More {
                all: [const { SetOnce::new() }; MORE],
                more: SetOnce::new(),
            },
            GFP_KERNEL,
        )?);
        Ok(())
    }

    /// Makes `conn` the present one, if there is none.
    pub(super) fn populate(&self, conn: Arc<SmcConn>) {
        if let Some(place) = self.place(self.at.load(Relaxed) as usize) {
            place.populate(conn);
        }
    }

    /// There is none, after `conn`. Returns false if another call has found that.
    pub(super) fn leave(&self, conn: &Arc<SmcConn>) -> bool {
        let at = self.at.load(Relaxed);
        let is = |own: &Arc<SmcConn>| Arc::ptr_eq(own, conn);
        self.current().is_some_and(is) && self.at.cmpxchg(at, at.wrapping_add(1), Full).is_ok()
    }
}

impl Remote {
    /// Takes note of what `conn` has carried, which is not the present one any more.
    pub(super) fn has_carried(&self, conn: &SmcConn) {
        for (sum, bytes) in self.carriers.carried.iter().zip(conn.carried()) {
            sum.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns the numbers of the program's bytes that have gone, of these of how many it is known that they have arrived,
    /// and that have come, by rings.
    pub(crate) fn carried(&self) -> [u64; 3] {
        let mut all = match self.carriers.current() {
            Some(conn) => conn.carried(),
            None => [0; 3],
        };
        for (sum, before) in all.iter_mut().zip(&self.carriers.carried) {
            *sum = sum.saturating_add(before.load(Relaxed));
        }
        all
    }

    /// Returns the number of bytes that have gone, and have come, by TCP and are not the program's.
    pub(crate) fn overhead(&self) -> u64 {
        u64::from(self.returns()).saturating_mul(RECORD_LEN as u64)
    }
}
