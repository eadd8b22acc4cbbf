// SPDX-License-Identifier: GPL-2.0

//! `net.smc.tcp2smc`: TCP sockets of programs that become sockets of the family.
//!
//! Sockets are converted at their creation, by a redirection of the kernel's own hook for that, which is
//! there only while a namespace wants it.

use super::last_word::LastWord;
use kapi::{
    errno,
    net::{
        convert::{Asked, Conversion, Convert},
        netns::Net, //
    },
    sys::{global::Global, queue}, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};

/// The conversion, while the module is loaded.
pub(crate) static CONVERTER: Global<Converter> = Global::new();

/// Decides whether the socket that the current task makes is converted.
pub(crate) type Decide = fn(&Net, Asked) -> bool;

/// Converts sockets while there are namespaces that want it.
#[pin_data]
pub(crate) struct Converter {
    decide: Decide,
    /// When the kernel log had a line about a failure: administrators of any namespace can have one.
    last_word: LastWord,
    #[pin]
    state: Mutex<State>,
    /// Number of namespaces that have ended while they wanted it, and were not yet subtracted.
    ended: Atomic<u32>,
    #[pin]
    work: Work<Converter>,
}

impl_has_work! {
    impl HasWork<Self> for Converter { self.work }
}

impl WorkItem for Converter {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.end(this.ended.xchg(0, Full) as usize);
    }
}

struct State {
    /// Number of namespaces whose `tcp2smc` is not 0.
    users: usize,
    conversion: Option<Conversion<Decided>>,
}

impl Converter {
    /// Creates it, without any users.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(decide: Decide) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                decide,
                last_word: LastWord::new(),
                state <- new_mutex!(
                    State { users: 0, conversion: None },
                    "rsmc::Converter::state"
                ),
                ended: Atomic::new(0),
                work <- new_work!("rsmc::Converter::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn begin(&self) -> Result {
        let mut state = self.state.lock();
        if state.conversion.is_none() {
            state.conversion = Some(Conversion::new().inspect_err(|err| self.explain(*err))?);
        }
        state.users = state.users.saturating_add(1);
        Ok(())
    }

    /// Takes note that so many namespaces do not want it any more.
    fn end(&self, namespaces: usize) {
        let mut state = self.state.lock();
        state.users = state.users.saturating_sub(namespaces);
        if state.users == 0 {
            state.conversion = None;
        }
    }

    /// Says in the kernel's log why sockets cannot be converted, unless it has just done so.
    fn explain(&self, err: Error) {
        if self.last_word.may_speak().is_none() {
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

/// Notes that `tcp2smc` of a namespace changes.
///
/// # Errors
///
/// `EOPNOTSUPP`, `EINVAL`, `EBUSY`: sockets cannot be converted on this kernel, as its log says; `ENOMEM`;
/// `ENODEV` while the module is being unloaded.
pub(crate) fn change(old: i32, new: i32) -> Result {
    let converter = CONVERTER.get().ok_or(ENODEV)?;
    match (old, new) {
        (0, 1..) => converter.begin(),
        (1.., 0) => {
            converter.end(1);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Notes that a namespace ends whose `tcp2smc` has this value.
///
/// The last one is not made to wait for the end of the redirection, which takes grace periods: namespaces end
/// one after the other, those of others, too.
pub(crate) fn leave(value: i32) {
    if let (1.., Some(converter)) = (value, CONVERTER.get()) {
        converter.ended.fetch_add(1, Relaxed);
        let _ = queue::enqueue::<_, 0>(converter);
    }
}

/// Asks the module's decision.
struct Decided;

impl Convert for Decided {
    fn converts(net: &Net, asked: Asked) -> bool {
        CONVERTER
            .get()
            .is_some_and(|converter| (converter.decide)(net, asked))
    }
}
