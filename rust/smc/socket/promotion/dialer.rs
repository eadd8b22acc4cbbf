// SPDX-License-Identifier: GPL-2.0

//! The client's side connection.

use super::{
    super::smc_sock::SmcSock,
    orphans::{Orphan, Orphans}, //
};
use crate::{
    handshake::{gates::GATES, Conclusion, Negotiation, Progress, SleepRule},
    host::{
        clock::{arm, now},
        fallback::Role,
        syn_option::Answer,
        waiter::Waiter, //
    },
    smcr::SmcConn,
    stream::remote::Dial,
};
use kapi::{
    net::{
        side,
        sock::{tcp_state, Sock},
        socket::OwnedBsdSocket,
        stock::syn,
        wait_hook::WaitHook, //
    },
    sys::{
        global::Global,
        hook::{Notify, TimerHook},
        host,
        queue, //
    },
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    reason::Reason,
    time::{Instant, Span}, //
};

/// Longest wait for the server's SYN-ACK.
const PATIENCE: Span = Span::from_secs(5);

/// Attempts whose programs have closed before the handshake has ended, and that go on to its end: otherwise short
/// connections would never bring up the link that the next ones use.
pub(crate) static DIALERS: Global<Orphans<Dialer>> = Global::new();

/// What an attempt has, until it is over.
struct Call {
    // Dropped in this order: nothing kicks the dialer any more when its socket goes.
    negotiation: Option<Negotiation<Dialer>>,
    timer: Pin<KBox<TimerHook<Dialer>>>,
    watch: Pin<KBox<WaitHook<Dialer>>>,
    side: OwnedBsdSocket,
    /// End of the wait for the SYN-ACK.
    until: Instant,
}

/// An attempt of a client to promote its connection.
#[pin_data]
pub(crate) struct Dialer {
    target: Arc<SmcSock>,
    sleep_rule: SleepRule,
    #[pin]
    dial: Mutex<Option<Call>>,
    #[pin]
    work: Work<Dialer>,
}

impl_has_work! {
    impl HasWork<Self> for Dialer { self.work }
}

/// Begins an attempt for `target`, which has none.
///
/// # Errors
///
/// The reason why it has failed.
pub(super) fn dial(target: &Arc<SmcSock>) -> Result<(), Reason> {
    let dialer = Arc::pin_init(
        pin_init!(Dialer {
            target: target.clone(),
            sleep_rule: SleepRule::new(),
            dial <- new_mutex!(None, "rsmc::Dialer::dial"),
            work <- new_work!("rsmc::Dialer::work"),
        }),
        GFP_KERNEL,
    )
    .map_err(|_| Reason::NoMemory)?;
    let remote = target.remote().ok_or(Reason::Internal)?;
    if let Some(before) = remote.replace_dialer(dialer.clone()) {
        before.end();
    }
    // The SYN goes out in the work: the program does not wait for it.
    Dialer::kick(&dialer);
    Ok(())
}

impl Dialer {
    fn kick(this: &Arc<Self>) {
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// Tells whether this is the target's attempt still.
    fn is_current(&self) -> bool {
        let remote = self.target.remote();
        remote.is_some_and(|remote| remote.has_dialer(self, false))
    }

    fn over(&self, reason: Reason) {
        let remote = self.target.remote();
        let own = remote.filter(|remote| remote.has_dialer(self, true));
        Dial::end(self);
        if let Some(remote) = own {
            remote.failed(reason);
        }
    }

    fn begin(this: &Arc<Self>) -> Result<Call> {
        let side = side::begin(&this.target.sock)?;
        let watch = WaitHook::new(&side, this.clone())?;
        Ok(Call {
            negotiation: None,
            timer: TimerHook::new(this.clone())?,
            watch,
            side,
            until: now().after(PATIENCE),
        })
    }

    /// Goes on as far as possible; returns how the attempt has failed, if it has.
    fn step(this: &Arc<Self>) -> Result<(), Reason> {
        let Some(conn) = Self::try_step(this)? else {
            return Ok(());
        };
        let remote = this.target.remote();
        let own = remote.is_some_and(|remote| remote.has_dialer(&**this, true));
        let dial = this.dial.lock().take();
        match (own, dial) {
            (true, Some(Call { watch, side, .. })) => {
                drop(watch);
                super::offer(&this.target, conn, side);
                Ok(())
            }
            (_, dial) => {
                // The program has closed: it was for the link.
                conn.dissolve();
                drop(dial);
                Err(Reason::PathEnds)
            }
        }
    }

    /// Returns the SMC-R connection when there is one.
    fn try_step(this: &Arc<Self>) -> Result<Option<Arc<SmcConn>>, Reason> {
        let mut slot = this.dial.lock();
        let place: &mut Option<Call> = &mut slot;
        if place.is_none() {
            if !this.is_current() {
                return Ok(None);
            }
            *place = Some(Self::begin(this).map_err(|_| Reason::PathUnreached)?);
        }
        let Some(dial) = place else {
            return Ok(None);
        };
        let late = now().reached(dial.until);
        if dial.negotiation.is_none() {
            match dial.side.sock().state() {
                tcp_state::SYN_SENT | tcp_state::SYN_RECV if !late => {
                    arm(&dial.timer, dial.until);
                    return Ok(None);
                }
                tcp_state::ESTABLISHED | tcp_state::CLOSE_WAIT => Self::answered(this, dial)?,
                _ => return Err(Reason::PathUnreached),
            }
        }
        Self::negotiate(this, dial)
    }

    /// Looks at the SYN-ACK, says which connection it is about, and begins the handshake.
    fn answered(this: &Arc<Self>, dial: &mut Call) -> Result<(), Reason> {
        let sock = dial.side.sock();
        let answer = {
            let guard = sock.lock();
            Answer::from_number(syn::answered(&guard))
        };
        let remote = this.target.remote().ok_or(Reason::Internal)?;
        if answer != Answer::Join {
            return Err(Reason::PathUnreached);
        }
        let join = remote.numbers().ok_or(Reason::Internal)?.bytes();
        if sock.send(&join) != Ok(join.len()) {
            return Err(Reason::PathUnreached);
        }
        let gates = GATES.get().ok_or(Reason::NoDevice)?;
        let port = super::port(&this.target)?;
        let cpu = host::current_cpu();
        let negotiation = Negotiation::client(this, &gates, &this.target.sock, port, None, cpu);
        dial.negotiation = Some(negotiation.map_err(|_| Reason::NoMemory)?.apart());
        Ok(())
    }

    fn negotiate(this: &Arc<Self>, dial: &mut Call) -> Result<Option<Arc<SmcConn>>, Reason> {
        let Some(mut negotiation) = dial.negotiation.take() else {
            return Ok(None);
        };
        let target: &ARef<Sock> = this.target.sock.sock();
        let may_block = true;
        let progress =
            negotiation.advance_for(this, &this.sleep_rule, dial.side.sock(), target, may_block);
        let outcome = match progress {
            Progress::Pending(until) => {
                negotiation.wait_until(until);
                dial.negotiation = Some(negotiation);
                return Ok(None);
            }
            Progress::Heavy => {
                dial.negotiation = Some(negotiation);
                return Ok(None);
            }
            Progress::Done(outcome) => outcome,
        };
        let (conclusion, link) = negotiation.conclude(Role::Client, dial.side.sock(), outcome);
        // Where the program has closed meanwhile, what has become of it says nothing of links.
        if let Some(event) = link.filter(|_| this.is_current()) {
            this.target.heard(event);
        }
        match conclusion {
            Conclusion::Smc(conn) => Ok(Some(conn)),
            Conclusion::Tcp { fallback, declined } => {
                Err(declined.map_or(fallback.reason, |_| Reason::PathRefused))
            }
            Conclusion::Lost => Err(Reason::NoActiveLink),
            Conclusion::Failed { .. } => Err(Reason::PathRefused),
        }
    }
}

impl Dial for Dialer {
    fn end(&self) {
        let dial = self.dial.lock().take();
        if let Some(dial) = &dial {
            // Before a link goes that is being made: the server is to see that it is not RDMA that fails.
            dial.side.sock().abort();
        }
        drop(dial);
    }

    fn orphan(self: Arc<Self>) {
        let negotiates = |dial: &Option<Call>| {
            let begun = dial.as_ref().and_then(|dial| dial.negotiation.as_ref());
            begun.is_some()
        };
        let adopted = negotiates(&self.dial.lock())
            && DIALERS.get().is_some_and(|orphans| orphans.take(&self));
        match adopted {
            // It may have ended meanwhile.
            true => Self::kick(&self),
            false => Dial::end(&*self),
        }
    }
}

impl Orphan for Dialer {
    const MOST: usize = 32;

    fn end(&self) {
        Dial::end(self);
    }
}

impl Waiter for Dialer {
    fn kick(self: Arc<Self>) {
        Dialer::kick(&self);
    }
}

impl Notify for Dialer {
    fn notify(this: ArcBorrow<'_, Self>) {
        Self::kick(&Arc::from(this));
    }
}

impl WorkItem for Dialer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(reason) = Self::step(&this) {
            this.over(reason);
        }
        if !this.is_current() && this.dial.lock().is_none() {
            if let Some(orphans) = DIALERS.get() {
                orphans.forget(&this);
            }
        }
    }
}
