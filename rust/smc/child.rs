// SPDX-License-Identifier: GPL-2.0

//! A connection that has come in and talks CLC before accept() hands it out.
//!
//! No thread waits for the peer: each arrival of data, and the end of the patience, queue the same
//! piece of work, which goes on as far as it can.

use crate::{
    clc::{self, Opening, OpeningReader},
    fallback::{Fallback, Role},
    listen::{Listener, Ready}, //
};
use kapi::{
    net::{sock::OwnedSock, socket::OwnedSocket},
    sys::{
        clock,
        hook::{Notify, TimerHook, WaitHook},
        queue, //
    }, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex},
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    reason::Reason,
    wire::{clc::Decline, ids::PeerId}, //
};

/// How long a client may take for its first CLC message, in seconds; C's `CLC_WAIT_TIME`.
const PATIENCE: u32 = 6;

struct Talk {
    /// The connection; taken out when the handshake ends.
    socket: Option<OwnedSocket>,
    reader: OpeningReader,
    watch: Option<Pin<KBox<WaitHook<Child>>>>,
    timer: Option<Pin<KBox<TimerHook<Child>>>>,
}

/// A server's end of a handshake.
#[pin_data]
pub(crate) struct Child {
    listener: Arc<Listener>,
    id: u64,
    /// When the patience ends, in seconds since boot.
    deadline: u64,
    #[pin]
    talk: Mutex<Talk>,
    #[pin]
    work: Work<Child>,
}

impl_has_work! {
    impl HasWork<Self> for Child { self.work }
}

impl Child {
    /// Begins a handshake on `sock`, whose SYN had the SMC option.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENFILE`; the connection is then closed.
    pub(crate) fn new(listener: Arc<Listener>, id: u64, sock: OwnedSock) -> Result<Arc<Self>> {
        let socket = OwnedSocket::new(sock)?;
        let child = Arc::pin_init(
            pin_init!(Self {
                listener,
                id,
                deadline: clock::seconds().saturating_add(u64::from(PATIENCE)),
                talk <- new_mutex!(
                    Talk {
                        socket: None,
                        reader: OpeningReader::new(),
                        watch: None,
                        timer: None,
                    },
                    "rsmc::Child::talk"
                ),
                work <- new_work!("rsmc::Child::work"),
            }),
            GFP_KERNEL,
        )?;
        let timer = TimerHook::new(child.clone())?;
        let watch = WaitHook::new(&socket, child.clone())?;
        timer.arm((PATIENCE + 1) * 1000);
        {
            let mut talk = child.talk.lock();
            talk.socket = Some(socket);
            talk.watch = Some(watch);
            talk.timer = Some(timer);
        }
        Ok(child)
    }

    /// The number under which the listener knows this handshake.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Queues the work.
    pub(crate) fn kick(this: &Arc<Self>) {
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// Ends the handshake and closes the connection.
    pub(crate) fn abort(&self) {
        drop(self.end());
    }

    /// Takes the connection out of the handshake.
    fn end(&self) -> Option<OwnedSocket> {
        let (socket, watch, timer) = {
            let mut talk = self.talk.lock();
            (talk.socket.take(), talk.watch.take(), talk.timer.take())
        };
        // The hooks hold references to `self`; the caller has one, too.
        drop(watch);
        drop(timer);
        socket
    }

    /// Goes on with the handshake, and hands the connection over when it has ended.
    pub(crate) fn step(&self) {
        let Some(outcome) = self.advance() else {
            return;
        };
        let Some(socket) = self.end() else {
            return;
        };
        let ready = match outcome {
            Outcome::Fallback(fallback) => Some(Ready {
                sock: socket.into_sock(),
                fallback,
            }),
            Outcome::Broken => None,
        };
        self.listener.finish(self.id, ready);
    }

    /// Goes on with the handshake as far as possible; `None` means that the peer has to say more.
    fn advance(&self) -> Option<Outcome> {
        let mut talk = self.talk.lock();
        let Talk { socket, reader, .. } = &mut *talk;
        let sock = socket.as_ref()?.sock();
        let own = |reason| Outcome::Fallback(Fallback::own(Role::Server, reason));
        Some(match reader.advance(sock) {
            Opening::Incomplete => {
                if clock::seconds() < self.deadline {
                    return None;
                }
                // A middlebox may have kept our option from the client, who then waits for the
                // program to speak.
                own(Reason::PeerNotSmc)
            }
            Opening::Proposal(header) => {
                let reason = Reason::NoDevice;
                let decline = Decline::by_server(Some(&header), reason, PeerId::default());
                // If it cannot be sent the connection has ended, as its user will learn.
                let _ = clc::send(sock, &decline);
                own(reason)
            }
            Opening::Declined(diagnosis) => {
                Outcome::Fallback(Fallback::declined(Role::Server, diagnosis))
            }
            Opening::NotClc | Opening::Ended => own(Reason::PeerNotSmc),
            Opening::Broken => Outcome::Broken,
        })
    }
}

/// How a handshake ends.
enum Outcome {
    /// TCP goes on.
    Fallback(Fallback),
    /// The stream cannot be handed to a program any more.
    Broken,
}

impl Notify for Child {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for Child {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.step();
    }
}
