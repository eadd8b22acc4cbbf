// SPDX-License-Identifier: GPL-2.0

//! What the two kernels say over a side connection after the handshake: [`Mark`]s, where the link is lost while the
//! program's connection turns.

use super::super::smc_sock::SmcSock;
use crate::stream::remote::{Heard, SideConnection};
use kapi::net::{sock::Sock, socket::OwnedBsdSocket, wait_hook::WaitHook};
use kapi::sys::hook::Notify;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex}, //
};
use smc_proto::wire::promotion::{Mark, MARK_LEN};

/// What has come of the peer's next word.
struct Next {
    bytes: [u8; MARK_LEN],
    have: usize,
}

impl Next {
    const fn new() -> Self {
        Self {
            bytes: [0; MARK_LEN],
            have: 0,
        }
    }

    /// Returns the next word, if all of it has come.
    fn hear(&mut self, side: &Sock) -> Heard {
        while self.have < MARK_LEN {
            let Some(rest) = self.bytes.get_mut(self.have..) else {
                return Heard::Over;
            };
            match side.receive(rest) {
                Ok(bytes @ 1..) => self.have = self.have.saturating_add(bytes),
                Err(err) if err == EAGAIN => return Heard::Nothing,
                Ok(0) | Err(_) => return Heard::Over,
            }
        }
        self.have = 0;
        match Mark::parse(self.bytes) {
            Some(mark) => Heard::Said(mark),
            None => Heard::Over,
        }
    }
}

/// What a side connection has until it is closed.
struct Open {
    // Dropped in this order.
    watch: Pin<KBox<WaitHook<Words>>>,
    side: OwnedBsdSocket,
    next: Next,
}

/// A side connection after the handshake.
#[pin_data]
pub(super) struct Words {
    target: Arc<SmcSock>,
    #[pin]
    open: Mutex<Option<Open>>,
}

impl Words {
    /// Keeps a side connection for `target`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; it is reset then.
    pub(super) fn keep(target: &Arc<SmcSock>, side: OwnedBsdSocket) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                target: target.clone(),
                open <- new_mutex!(None, "rsmc::Words::open"),
            }),
            GFP_KERNEL,
        )?;
        let open = Open {
            watch: WaitHook::new(&side, this.clone())?,
            side,
            next: Next::new(),
        };
        *this.open.lock() = Some(open);
        Ok(this)
    }
}

impl SideConnection for Words {
    fn end(&self) {
        let open = self.open.lock().take();
        if let Some(Open { watch, side, .. }) = open {
            drop(watch);
            // In good order: what was said last is to arrive.
            side.close();
        }
    }

    fn tell(&self, mark: Mark) {
        if let Some(Open { side, .. }) = &*self.open.lock() {
            // Nothing else is under way there, so TCP has room for it, or is over.
            if side.sock().send(&mark.bytes()).is_ok() {
                side.sock().push_stream();
            }
        }
    }

    fn hear(&self) -> Heard {
        match &mut *self.open.lock() {
            Some(open) => open.next.hear(open.side.sock()),
            None => Heard::Over,
        }
    }
}

impl Notify for Words {
    fn notify(this: ArcBorrow<'_, Self>) {
        SmcSock::kick(&this.target);
    }
}
