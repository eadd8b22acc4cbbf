// SPDX-License-Identifier: GPL-2.0

//! `net.smc.tcp2smc`: TCP sockets of programs that become sockets of the family.
//!
//! Sockets are converted at their creation, by a redirection of the kernel's own hook for that, which is
//! there only while a namespace wants it, and a while longer.
//!
//! Whoever turns the redirection on or off has the kernel's `ftrace_lock`, and off waits for all tasks with it, so that
//! loading of modules, tracing and BPF programs wait as long. Any user may write the sysctl in a namespace of
//! its own. So a worker alone turns it, off not before nobody has wanted it for `hook_idle_ms` of the initial
//! namespace, and on not sooner than a second after that has failed. A writer waits for the worker only if the
//! redirection is missing, under no lock, and until its namespace ends at most. The value of a namespace and the
//! number of those that want the redirection change together, under a lock under which nobody sleeps.

use super::{
    clock::{self, now},
    rate_limit::RateLimit, //
};
use kapi::{
    errno,
    net::{
        netns::Net,
        stock::convert::{Asked, Conversion, Convert},
        sysctl::Switch, //
    },
    sys::{
        global::{self, Global},
        hook::{Notify, TimerHook},
        queue, //
    }, //
};
use kernel::{
    impl_has_work,
    new_condvar,
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        CondVar,
        Mutex,
        SpinLock, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::time::{Instant, Span};

/// Time from an attempt to redirect that has failed to the next one.
const RETRY: Span = Span::from_secs(1);

/// The conversion, while the module is loaded.
pub(crate) static CONVERTER: Global<Converter> = Global::new();

/// What the conversion asks of the rest of the family.
pub(crate) struct Terms {
    /// Decides whether the socket that the current task makes is converted.
    pub(crate) decide: fn(&Net, Asked) -> bool,
    /// Returns the time that the redirection stays after its last user.
    pub(crate) idle: fn() -> Span,
}

/// Converts sockets while there are namespaces that want it.
#[pin_data]
pub(crate) struct Converter {
    terms: Terms,
    /// When the kernel log had a line about a failure: administrators of any namespace can have one.
    rate_limit: RateLimit,
    #[pin]
    state: SpinLock<State>,
    /// Woken when the redirection has been turned on, or could not be, and when writers are to give up.
    #[pin]
    turned: CondVar,
    /// Of the worker alone, and held while ftrace is waited for; made at the first use.
    #[pin]
    conversion: Mutex<Option<Conversion<Decided>>>,
    #[pin]
    work: Work<Converter>,
}

struct State {
    /// Number of namespaces whose `tcp2smc` is not 0, and of writers who are about to make it so.
    users: usize,
    /// True while the redirection is on.
    on: bool,
    /// Number of attempts that have failed.
    failures: u64,
    /// The error of the last one.
    error: Error,
    /// The redirection is not turned before.
    not_before: Instant,
    /// True once the module is being unloaded.
    ended: bool,
    /// Queues the work at `not_before`.
    timer: Option<Pin<KBox<TimerHook<Converter>>>>,
}

impl State {
    /// Has the redirection turned at `at` if that is right by then.
    fn turn_at(&mut self, at: Instant) {
        self.not_before = at;
        if let Some(timer) = &self.timer {
            clock::arm(timer, at);
        }
    }
}

impl_has_work! {
    impl HasWork<Self> for Converter { self.work }
}

/// What the worker is to do.
enum Turn {
    On,
    Off,
    Not,
}

impl WorkItem for Converter {
    type Pointer = Arc<Self>;

    /// Turns the redirection on or off, as the namespaces want it.
    fn run(this: Arc<Self>) {
        let mut conversion = this.conversion.lock();
        loop {
            match this.next_turn() {
                Turn::Not => return,
                Turn::Off => {
                    if let Some(conversion) = &mut *conversion {
                        conversion.off();
                    }
                }
                Turn::On => {
                    let result = turn_on(&mut conversion);
                    this.is_turned(result);
                }
            }
        }
    }
}

fn turn_on(conversion: &mut Option<Conversion<Decided>>) -> Result {
    let conversion = match conversion {
        Some(conversion) => conversion,
        None => conversion.insert(Conversion::new()?),
    };
    conversion.on()
}

impl Notify for Converter {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

/// Keeps the converter; dropping it ends the conversion.
pub(crate) struct Registration {
    converter: Arc<Converter>,
    guard: Option<global::Guard<Converter>>,
}

impl Registration {
    /// Makes the converter, which is not published yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(terms: Terms) -> Result<Self> {
        let this = Self {
            converter: Converter::new(terms)?,
            guard: None,
        };
        let timer = TimerHook::new(this.converter.clone())?;
        this.converter.state.lock().timer = Some(timer);
        Ok(this)
    }

    /// Lets writers of the sysctl find the converter.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one.
    pub(crate) fn install(&mut self) -> Result {
        self.guard = Some(CONVERTER.install(self.converter.clone())?);
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        drop(self.guard.take());
        let timer = {
            let mut state = self.converter.state.lock();
            state.ended = true;
            state.timer.take()
        };
        self.converter.turned.notify_all();
        drop(timer);
        // A worker that is at it finishes first; later ones find the end.
        let conversion = self.converter.conversion.lock().take();
        drop(conversion);
    }
}

impl Converter {
    fn new(terms: Terms) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                terms,
                rate_limit: RateLimit::new(),
                state <- new_spinlock!(
                    State {
                        users: 0,
                        on: false,
                        failures: 0,
                        error: ENODEV,
                        not_before: Instant::default(),
                        ended: false,
                        timer: None,
                    },
                    "rsmc::Converter::state"
                ),
                turned <- new_condvar!("rsmc::Converter::turned"),
                conversion <- new_mutex!(None, "rsmc::Converter::conversion"),
                work <- new_work!("rsmc::Converter::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns what is to be done now, and notes that the redirection goes before it does: a
    /// namespace that wants it meanwhile waits until it is back.
    fn next_turn(&self) -> Turn {
        let mut state = self.state.lock();
        let wanted = state.users != 0;
        if state.ended || wanted == state.on {
            return Turn::Not;
        }
        if !now().reached(state.not_before) {
            let at = state.not_before;
            state.turn_at(at);
            return Turn::Not;
        }
        if wanted {
            return Turn::On;
        }
        state.on = false;
        Turn::Off
    }

    /// Notes how an attempt to turn the redirection on has ended.
    fn is_turned(&self, result: Result) {
        if let Err(err) = result {
            self.explain(err);
        }
        let idle = (self.terms.idle)();
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.on = true;
                // The task that asked for it may have given up by now.
                state.not_before = now().after(idle);
            }
            Err(err) => {
                state.failures = state.failures.wrapping_add(1);
                state.error = err;
                state.turn_at(now().after(RETRY));
            }
        }
        drop(state);
        self.turned.notify_all();
    }

    /// Counts one more user of the redirection, and waits until it is on.
    fn take(self: &Arc<Self>, switch: &Switch<'_>) -> Result {
        let mut state = self.state.lock();
        state.users = state.users.saturating_add(1);
        let failures = state.failures;
        let mut queued = false;
        let result = loop {
            if state.ended || switch.is_closing() {
                break Err(ENODEV);
            }
            if state.on {
                return Ok(());
            }
            if state.failures != failures {
                break Err(state.error);
            }
            if !queued {
                let _ = queue::enqueue::<_, 0>(self.clone());
                queued = true;
            }
            if self.turned.wait_interruptible(&mut state) {
                break Err(EINTR);
            }
        };
        drop(state);
        self.give(1);
        result
    }

    /// Takes back that many counts of [`Converter::take`].
    fn give(&self, users: usize) {
        let idle = (self.terms.idle)();
        let mut state = self.state.lock();
        Self::give_locked(&mut state, users, idle);
    }

    fn give_locked(state: &mut State, users: usize, idle: Span) {
        state.users = state.users.saturating_sub(users);
        if state.users == 0 && state.on {
            state.turn_at(now().after(idle));
        }
    }

    /// Says in the kernel's log why sockets cannot be converted, unless it has just done so.
    fn explain(&self, err: Error) {
        if self.rate_limit.allow().is_none() {
            return;
        }
        if errno::EOPNOTSUPP.is(err) {
            pr_err!("tcp2smc needs a kernel with CONFIG_DYNAMIC_FTRACE_WITH_ARGS\n");
        } else if err == EBUSY {
            pr_err!(
                "tcp2smc: ftrace is off (sysctl kernel.ftrace_enabled), or a live patch or the like has \
                 redirected update_socket_protocol()\n"
            );
        } else {
            pr_err!(
                "tcp2smc: update_socket_protocol() cannot be redirected: error {}\n",
                err.to_errno()
            );
        }
    }
}

/// Changes `tcp2smc` of a namespace.
///
/// # Errors
///
/// `EOPNOTSUPP`, `EINVAL`, `EBUSY`: sockets cannot be converted on this kernel, as its log says; `ENOMEM`;
/// `ENODEV` while the module is being unloaded or the namespace ends; `EINTR` for a signal while ftrace is waited
/// for. The value is as before then.
pub(crate) fn change(switch: &Switch<'_>, new: i32) -> Result {
    let converter = CONVERTER.get().ok_or(ENODEV)?;
    if new != 0 {
        converter.take(switch)?;
    }
    let idle = (converter.terms.idle)();
    let mut state = converter.state.lock();
    if switch.get() != 0 {
        // That count is given back, or the second one.
        Converter::give_locked(&mut state, 1, idle);
    }
    switch.set(new);
    Ok(())
}

/// Has writers look whether their namespace ends ([`Switch::is_closing`]).
pub(crate) fn wake_writers() {
    if let Some(converter) = CONVERTER.get() {
        // A task that has checked already holds the lock until it sleeps.
        drop(converter.state.lock());
        converter.turned.notify_all();
    }
}

/// Notes that a namespace ends whose `tcp2smc` has this value.
pub(crate) fn leave(value: i32) {
    if let (1.., Some(converter)) = (value, CONVERTER.get()) {
        converter.give(1);
    }
}

/// Asks the module's decision.
struct Decided;

impl Convert for Decided {
    fn converts(net: &Net, asked: Asked) -> bool {
        CONVERTER
            .get()
            .is_some_and(|converter| (converter.terms.decide)(net, asked))
    }
}
