// SPDX-License-Identifier: GPL-2.0

//! The side connection after the handshake: both ends keep it until they know of each other where the stream leaves TCP,
//! and say it there where the link is lost before that.

use super::{Machine, Remote};
use crate::{host::clock::now, smcr::SmcConn};
use kernel::sync::Arc;
use smc_proto::{
    promotion::{Side, Stage, Step},
    time::Span,
    wire::promotion::Mark, //
};

/// Longest wait for the peer's word over the side connection, whose TCP may have to repeat it.
const ASK_PATIENCE: Span = Span::from_secs(30);
/// Milliseconds between looks for its end.
const ASK_LOOK: u32 = 1000;
/// Words of the peer there that say nothing new; a correct one has one.
const MOST_WORDS: u8 = 4;

/// The side connection of an attempt, after the handshake.
pub(crate) trait SideConnection: Send + Sync {
    /// Closes it. Sleeps, but not for the peer.
    fn end(&self);

    /// Says something to the peer's kernel.
    fn tell(&self, mark: Mark);

    /// Returns what that has said.
    fn hear(&self) -> Heard;
}

/// What is heard of the peer over a side connection.
pub(crate) enum Heard {
    /// Nothing, yet.
    Nothing,
    /// This.
    Said(Mark),
    /// Nothing, and nothing will be.
    Over,
}

impl Remote {
    /// Ends the side connection when nothing more is to be said there: the server's when it knows where the client's bytes
    /// are, or is back on TCP, and the client's then.
    pub(crate) fn look_at_side(&self) {
        let Some(side) = self.side_connection() else {
            // It has ended long ago, most often.
            return;
        };
        let done = match self.stage() {
            Stage::Offered | Stage::Bound | Stage::Due => false,
            Stage::Tcp => true,
            Stage::Turned | Stage::Returning => match self.side {
                Side::Server => !self.machine.lock().promotion.awaits_mark(),
                // What it has said is known by now.
                Side::Client => !(0..MOST_WORDS).any(|_| matches!(side.hear(), Heard::Nothing)),
            },
        };
        if done {
            self.end_side();
        }
    }

    fn side_connection(&self) -> Option<Arc<dyn SideConnection>> {
        self.side_connection.lock().clone()
    }

    /// Closes the side connection.
    pub(crate) fn end_side(&self) {
        let side = self.side_connection.lock().take();
        if let Some(side) = side {
            side.end();
        }
    }

    /// Says over the side connection what the peer may not have heard otherwise, once.
    pub(super) fn says_word(&self, machine: &mut Machine) {
        let word = machine.promotion.word();
        if let (Some(mark), true) = (word, word != machine.told) {
            machine.told = word;
            if let Some(side) = self.side_connection() {
                side.tell(mark);
            }
        }
    }

    /// The link works, as far as this end knows. A peer that says something over the side connection has lost it.
    pub(super) fn hears_of_loss(&self, machine: &mut Machine, conn: &Arc<SmcConn>) -> Option<Step> {
        let mark = match self.side_connection()?.hear() {
            Heard::Said(mark) => mark,
            Heard::Nothing | Heard::Over => return None,
        };
        if self.side == Side::Server && machine.promotion.stage().is_apart() {
            return (machine.words < MOST_WORDS).then(|| {
                machine.words += 1;
                machine.promotion.told(mark)
            });
        }
        // Nothing more comes by the ring; what has come is heard first.
        machine.heard = Some(mark);
        conn.suspend().then_some(Step::Wait)
    }

    /// The link is lost, and the peer has to say where the stream goes on.
    pub(super) fn asks(&self, machine: &mut Machine, conn: &Arc<SmcConn>) -> Option<Step> {
        self.says_word(machine);
        while machine.words < MOST_WORDS {
            let heard = match machine.heard.take() {
                Some(mark) => Heard::Said(mark),
                None => self
                    .side_connection()
                    .map_or(Heard::Over, |side| side.hear()),
            };
            let mark = match heard {
                Heard::Said(mark) => mark,
                Heard::Over => return Some(Step::Reset),
                Heard::Nothing => {
                    let since = *machine.asked_since.get_or_insert_with(now);
                    conn.look_again(ASK_LOOK);
                    let late = now().since(since) >= ASK_PATIENCE;
                    return late.then_some(Step::Reset);
                }
            };
            if !self.may_be_said(mark) {
                return Some(self.breach(conn));
            }
            match machine.promotion.told(mark) {
                Step::Wait if machine.promotion.awaits_mark() => (),
                step => return Some(step),
            }
            machine.words += 1;
        }
        Some(self.breach(conn))
    }
}
