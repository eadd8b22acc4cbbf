// SPDX-License-Identifier: GPL-2.0

//! One connection whose peer is the test.

#![allow(dead_code, unused_imports)] // each test file uses a part of it
#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

pub use smc_proto::conn::*;
pub use smc_proto::cursor::{Cursor, RingSize};
pub use smc_proto::time::{Instant, Span};
pub use smc_proto::wire::cdc::{Cdc, ProdFlags, StateFlags};
pub use smc_proto::wire::ids::AlertToken;

pub const T0: Instant = Instant(1_000_000_000);
pub const RING: u32 = 16384;
pub const D: StateFlags = StateFlags::DONE_WRITING;
pub const C: StateFlags = StateFlags::CLOSED;
pub const A: StateFlags = StateFlags::ABORT;

/// A connection and what its peer has said so far.
pub struct Rig {
    pub conn: Conn,
    pub said: Cdc,
    pub freed: u32,
}

impl Rig {
    pub fn init() -> Rig {
        let ring = RingSize::new(RING).unwrap();
        let conn = Conn::new(Params {
            token: AlertToken(7),
            recv: ring,
            send: ring,
            recv_most: ring,
            send_most: ring,
            autocork: 65536,
            drain_idle: DRAIN_IDLE,
        });
        Rig {
            conn,
            said: Cdc {
                token: AlertToken(7),
                ..Cdc::default()
            },
            freed: 0,
        }
    }

    pub fn active() -> Rig {
        let mut r = Rig::init();
        r.establish();
        assert_eq!(r.conn.state(), ConnState::Active);
        r
    }

    pub fn establish(&mut self) {
        self.conn.set_peer(Peer {
            token: AlertToken(9),
            ring: RingSize::new(RING).unwrap(),
            place: Place::default(),
            immediate: false,
            moves: false,
        });
        self.conn.expose();
        let _ = self.conn.establish(T0).unwrap();
    }

    /// Counts FREE and checks what must always hold.
    pub fn note(&mut self, a: Actions) -> Actions {
        assert!(self.conn.is_consistent());
        self.freed += u32::from(a.has(Actions::FREE));
        assert_eq!(self.conn.is_finished(), self.freed == 1);
        assert!(self.freed <= 1);
        assert_eq!(
            a.has(Actions::TX_DUE),
            a.has(Actions::TX_DUE) && self.conn.wants_tx()
        );
        a
    }

    pub fn peer(&mut self, flags: StateFlags) -> Actions {
        self.said.seq = self.said.seq.wrapping_add(1);
        self.said.state_flags = self.said.state_flags.with(flags);
        let a = self.conn.on_cdc(&self.said.clone(), T0).unwrap();
        self.note(a)
    }

    pub fn peer_writes(&mut self, n: u32) -> Actions {
        self.said.seq = self.said.seq.wrapping_add(1);
        let pos = self.conn.positions().received + u64::from(n);
        self.said.prod = Cursor::at(pos, RingSize::new(RING).unwrap());
        let a = self.conn.on_cdc(&self.said.clone(), T0).unwrap();
        self.note(a)
    }

    pub fn peer_reads_all(&mut self) -> Actions {
        self.said.seq = self.said.seq.wrapping_add(1);
        let pos = self.conn.positions().sent;
        self.said.cons = Cursor::at(pos, RingSize::new(RING).unwrap());
        let a = self.conn.on_cdc(&self.said.clone(), T0).unwrap();
        self.note(a)
    }

    /// The peer says, at `now`, that it has read `n` bytes more, or all that there are.
    pub fn peer_reads(&mut self, n: u64, now: Instant) -> Actions {
        self.said.seq = self.said.seq.wrapping_add(1);
        let at = self.conn.positions();
        let pos = (at.peer_consumed + n).min(at.sent);
        self.said.cons = Cursor::at(pos, RingSize::new(RING).unwrap());
        let a = self.conn.on_cdc(&self.said.clone(), now).unwrap();
        self.note(a)
    }

    pub fn write(&mut self, n: u32) -> Actions {
        let a = self.conn.written(n, SendHint::default(), T0).unwrap();
        self.note(a)
    }

    /// Sends what is due and completes it; the last message.
    pub fn flush(&mut self) -> Option<Cdc> {
        self.flush_at(T0)
    }

    /// The same at `now`.
    pub fn flush_at(&mut self, now: Instant) -> Option<Cdc> {
        let mut last = None;
        while let Some(tx) = self.conn.take_tx(now) {
            self.note(tx.actions);
            last = tx.notice.cdc().copied();
            let a = self.conn.on_tx_done(tx.ticket, now);
            self.note(a);
        }
        last
    }

    pub fn flushed_flags(&mut self) -> StateFlags {
        self.flush().map_or(StateFlags::NONE, |c| c.state_flags)
    }

    pub fn shut_wr(&mut self) -> Actions {
        let a = self.conn.shutdown_write(T0);
        self.note(a)
    }

    pub fn shut_both(&mut self) -> Actions {
        let a = self.conn.shutdown_both(T0);
        self.note(a)
    }

    pub fn close(&mut self) -> Actions {
        let a = self.conn.close(CloseMode::Graceful, T0);
        self.note(a)
    }

    pub fn kill(&mut self) -> Actions {
        let a = self.conn.kill();
        self.note(a)
    }

    pub fn state(&self) -> ConnState {
        self.conn.state()
    }

    /// A connection in `state`, reached by the shortest real path.
    pub fn in_state(state: ConnState) -> Rig {
        let mut r = match state {
            ConnState::Init => return Rig::init(),
            ConnState::Closed => {
                let mut r = Rig::init();
                r.shut_both();
                assert_eq!(r.state(), ConnState::Closed);
                return r;
            }
            _ => Rig::active(),
        };
        match state {
            ConnState::Active | ConnState::Init | ConnState::Closed => {}
            ConnState::PeerCloseWait1 => {
                r.shut_wr();
            }
            ConnState::PeerCloseWait2 => {
                r.shut_wr();
                r.peer(D);
            }
            ConnState::AppCloseWait1 => {
                r.peer(D);
            }
            ConnState::AppCloseWait2 => {
                r.peer(D);
                r.shut_wr();
            }
            ConnState::AppFinCloseWait => {
                r.shut_wr();
                r.peer(C);
            }
            ConnState::PeerFinCloseWait => {
                r.peer(D);
                r.shut_both();
            }
            ConnState::PeerAbortWait => {
                r.write(1);
                r.conn.take_tx(T0).unwrap();
                r.kill();
            }
            ConnState::ProcessAbort => {
                r.peer(A);
            }
        }
        assert_eq!(r.state(), state);
        if state != ConnState::PeerAbortWait {
            r.flush();
        }
        assert_eq!(r.freed, 0);
        r
    }
}
