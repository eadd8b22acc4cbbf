// SPDX-License-Identifier: GPL-2.0

//! Gives the rings of silent directions back: they are empty, and TCP's until the next byte.
//!
//! Pairs that have had rings are on a list. A worker looks at it once a second as long as there are rings. A
//! direction in which nothing has moved for [`PATIENCE`] looks goes back to TCP, both of its locks held, so
//! that its rings can go at once; the next byte moves it again. The kernel's shrinker takes those that
//! are empty without waiting.

use super::{
    direction::LocalDirection, //
    leave::is_quiet,
    pair::{Local, Pair},
};
use kapi::{
    net::sock::Sock,
    sys::{
        global::{Global, Guard},
        hook::{Notify, TimerHook},
        queue,
        roster::{self, Roster},
        shrinker, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};

/// Time between two looks, in milliseconds.
const LOOK: u32 = 1000;
/// Looks in a row that find a direction silent and empty, the first of which only takes note.
const PATIENCE: u32 = 4;

kapi::member! {
    impl Member for Pair { self.link }
}

/// Pairs that have had rings.
#[pin_data]
pub(crate) struct Rings {
    list: Roster<Pair>,
    /// 1 while the timer runs.
    armed: Atomic<u32>,
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<Rings>>>>>,
    #[pin]
    work: Work<Rings>,
}

impl_has_work! {
    impl HasWork<Self> for Rings { self.work }
}

static RINGS: Global<Rings> = Global::new();

/// Keeps the list, its timer and the shrinker; there are no sockets any more when it is dropped.
pub(crate) struct Registration {
    _shrinker: shrinker::Registration<Rings>,
    rings: Arc<Rings>,
    _guard: Guard<Rings>,
}

impl Registration {
    /// Begins.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let rings = Arc::pin_init(
            try_pin_init!(Rings {
                list: Roster::new()?,
                armed: Atomic::new(0),
                timer <- new_mutex!(None, "rsmc::Rings::timer"),
                work <- new_work!("rsmc::Rings::work"),
            }? Error),
            GFP_KERNEL,
        )?;
        let guard = RINGS.install(rings.clone())?;
        let shrinker = shrinker::Registration::new(c"rsmc-local", rings.clone())?;
        *rings.timer.lock() = Some(TimerHook::new(rings.clone())?);
        Ok(Self {
            _shrinker: shrinker,
            rings,
            _guard: guard,
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let timer = self.rings.timer.lock().take();
        drop(timer);
    }
}

impl Rings {
    fn look_later(&self) {
        if self.armed.load(Relaxed) == 0 && self.armed.xchg(1, Full) == 0 {
            if let Some(timer) = &*self.timer.lock() {
                timer.arm(LOOK);
            }
        }
    }

    /// Calls `f` for every pair on the list, until it returns false.
    fn each(&self, mut f: impl FnMut(&Arc<Pair>) -> bool) {
        let mut position = roster::Position::default();
        let mut members: roster::Members<Pair> = [const { None }; roster::BATCH];
        while self.list.next(&mut position, &mut members) != 0 {
            for (_, pair) in members.iter_mut().map_while(Option::take) {
                if !f(&pair) {
                    return;
                }
            }
        }
    }
}

impl Notify for Rings {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for Rings {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.armed.xchg(0, Full);
        let mut left = false;
        this.each(|pair| {
            for active in [true, false] {
                if pair.end(active).out.is_silent(PATIENCE) {
                    give_back(pair, active);
                }
            }
            left |= pair.has_rings();
            true
        });
        if left {
            this.look_later();
        }
    }
}

/// Only tries locks: a thread that allocates memory may hold any of them.
impl shrinker::Spare for Rings {
    fn count(&self) -> usize {
        let mut pages = 0usize;
        self.each(|pair| {
            let directions = [&pair.client.out, &pair.server.out];
            let bytes = directions.map(LocalDirection::idle_bytes);
            pages = pages.saturating_add(bytes[0].saturating_add(bytes[1]) / PAGE_SIZE);
            true
        });
        pages
    }

    fn give_back(&self, wanted: usize) -> usize {
        let mut pages = 0usize;
        self.each(|pair| {
            for active in [true, false] {
                pages = pages.saturating_add(give_back(pair, active) / PAGE_SIZE);
            }
            pages < wanted
        });
        pages
    }
}

/// Gives the ring of a direction back, if it is empty and both locks are free. Returns its size.
fn give_back(pair: &Pair, active: bool) -> usize {
    if !pair.has_met() {
        return 0;
    }
    let (writer, reader) = (pair.end(active), pair.end(!active));
    let direction = &writer.out;
    // An end that has left holds neither lock any more, and what it said before that is seen with the lock.
    direction.give_back(
        // One that has left reads nothing: all before the cut is taken for read.
        || reader.sock.with(Sock::position).unwrap_or(direction.cut()),
        |cut| {
            let quiet = writer.sock.with(|writer| is_quiet(writer, cut));
            quiet.unwrap_or_else(|| writer.quiet.get() != 0)
        },
    )
}

impl Local {
    /// Takes note that a direction of the pair has a ring. The first time it comes on the list.
    pub(super) fn has_rings(&self) {
        let Some(rings) = RINGS.get() else {
            return;
        };
        rings.list.join(&self.pair);
        rings.look_later();
    }

    /// Takes the pair off the list: neither end makes a ring any more.
    pub(super) fn forget_rings(&self) {
        if let Some(rings) = RINGS.get() {
            rings.list.leave(&self.pair);
        }
    }
}
