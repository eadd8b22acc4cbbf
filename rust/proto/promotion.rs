// SPDX-License-Identifier: GPL-2.0

//! How the two ends of a connection that began as TCP agree to go on by SMC-R.
//!
//! The connection over which the CLC messages went is another one, so both ends have an SMC-R connection that nothing
//! has been said over yet, while the program's bytes go by TCP. Then, by [`Mark`]s at the beginning of the two rings:
//!
//! 1. The server says `Ready` if it may be promoted, which it may take back.
//! 2. The client says `Go` if it may be promoted. It stays on TCP, but has to turn now if the server does.
//! 3. The server turns: from a position on its bytes go by the ring. `Cut` says which.
//! 4. So does the client when it has heard that.
//!
//! No end turns before the other one has agreed, and marks come in the order of the ring, so what an end is told last
//! is always enough to know what became of it: an end that leaves before it has turned, which the peer hears as an abort
//! of the SMC-R connection, has taken nothing with it.
//!
//! If the link is lost before both know that of each other, they say it over the side connection, by which the SMC-R
//! connection was made and which is kept so long ([`Promotion::word`], [`Promotion::told`]). Only if that is lost as well
//! is the connection lost, too.
//!
//! Nothing here waits or copies.

use crate::wire::promotion::Mark;

/// The end that called connect(), or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It called connect(), and begins promotions.
    Client,
    /// It called accept().
    Server,
}

/// How far an end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// All bytes go by TCP, and there is no SMC-R connection.
    #[default]
    Tcp,
    /// There is one. This end has agreed to nothing, or may take it back.
    Offered,
    /// The client has agreed, and does not know whether the server has turned.
    Bound,
    /// Both have agreed, and this end is to turn.
    Due,
    /// It has turned.
    Turned,
    /// The rings are left, and the stream is on its way back to TCP.
    Returning,
}

impl Stage {
    const ALL: [Self; 6] = [
        Self::Tcp,
        Self::Offered,
        Self::Bound,
        Self::Due,
        Self::Turned,
        Self::Returning,
    ];

    /// Returns the stage with this number, [`Stage::Tcp`] for none.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let stage = usize::try_from(number)
            .ok()
            .and_then(|at| Self::ALL.get(at));
        stage.copied().unwrap_or(Self::Tcp)
    }

    /// Tells whether the peer may have turned, so that the end of its bytes in TCP's stream is not the end of all.
    #[must_use]
    pub const fn may_be_followed(self) -> bool {
        matches!(self, Self::Bound | Self::Due | Self::Turned)
    }

    /// Tells whether the SMC-R connection is there and not the socket's stream: its end is not the program's business.
    #[must_use]
    pub const fn is_apart(self) -> bool {
        matches!(self, Self::Offered | Self::Bound | Self::Due)
    }
}

/// What an end has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// See whether it may be promoted, and say so by [`Promotion::agree`] or [`Promotion::refuse`].
    Decide,
    /// Say this.
    Say(Mark),
    /// Turn, as soon as no writer is inside, and say [`Promotion::turned`].
    Turn,
    /// Leave the SMC-R connection, and go on by TCP.
    Leave,
    /// Wait for what the peer says over the side connection ([`Promotion::told`]); without one, reset.
    Ask,
    /// Reset the connection: the peer may have bytes on a way that is gone.
    Reset,
}

/// The peer has said what no correct peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach;

/// Most bytes of TCP that may be missing before a cut. No sender holds more, nor does a receiver, so that the position is
/// ahead of the reader's, too.
const MOST_AHEAD: i32 = 1 << 30;

/// Tells whether the peer can have turned at the position `cut` of TCP's stream, of which all before `arrived` has come,
/// and its end behind that if `ended`. Nothing but the end follows a cut.
#[must_use]
pub const fn may_cut(cut: u32, arrived: u32, ended: bool) -> bool {
    match cut.wrapping_sub(arrived) as i32 {
        0 => true,
        1..=MOST_AHEAD => !ended,
        _ => false,
    }
}

/// One end of a connection that may be promoted.
#[derive(Clone, Copy, Debug)]
pub struct Promotion {
    side: Side,
    stage: Stage,
    /// A server has said that it may be promoted.
    ready: bool,
    /// Positions at which this end and the peer have turned.
    own_cut: Option<u32>,
    peer_cut: Option<u32>,
}

impl Promotion {
    /// Begins on TCP.
    #[must_use]
    pub const fn new(side: Side) -> Self {
        Self {
            side,
            stage: Stage::Tcp,
            ready: false,
            own_cut: None,
            peer_cut: None,
        }
    }

    /// Returns how far this end has come.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the position at which the peer has turned, if it has.
    #[must_use]
    pub const fn peer_cut(&self) -> Option<u32> {
        self.peer_cut
    }

    /// Tells whether the peer may say a mark.
    #[must_use]
    pub const fn awaits_mark(&self) -> bool {
        !matches!(self.stage, Stage::Tcp | Stage::Returning) && self.peer_cut.is_none()
    }

    /// The CLC handshake has brought an SMC-R connection. A server decides at once whether it may be promoted.
    pub fn offered(&mut self) -> Step {
        if self.stage != Stage::Tcp {
            return Step::Leave;
        }
        self.stage = Stage::Offered;
        self.ready = false;
        match self.side {
            Side::Client => Step::Wait,
            Side::Server => Step::Decide,
        }
    }

    /// Has decided to be promoted, after [`Step::Decide`].
    pub fn agree(&mut self) -> Step {
        match (self.side, self.stage) {
            (Side::Server, Stage::Offered) => {
                self.ready = true;
                Step::Say(Mark::Ready)
            }
            (Side::Client, Stage::Offered) => {
                self.stage = Stage::Bound;
                Step::Say(Mark::Go)
            }
            _ => Step::Wait,
        }
    }

    /// Has decided not to be, or closes before it has agreed for good.
    pub fn refuse(&mut self) -> Step {
        match self.stage {
            Stage::Offered => {
                self.stage = Stage::Tcp;
                Step::Leave
            }
            _ => Step::Wait,
        }
    }

    /// The peer has said this.
    ///
    /// # Errors
    ///
    /// [`Breach`].
    pub fn heard(&mut self, mark: Mark) -> Result<Step, Breach> {
        match (self.side, self.stage, mark) {
            (Side::Client, Stage::Offered, Mark::Ready) => Ok(Step::Decide),
            (Side::Server, Stage::Offered, Mark::Go) if self.ready => {
                self.stage = Stage::Due;
                Ok(Step::Turn)
            }
            (Side::Client, Stage::Bound, Mark::Cut(position)) => {
                self.peer_cut = Some(position);
                self.stage = Stage::Due;
                Ok(Step::Turn)
            }
            // A client that closes turns without having heard that the server has.
            (Side::Server, Stage::Due | Stage::Turned, Mark::Cut(position))
            | (Side::Client, Stage::Turned, Mark::Cut(position))
                if self.peer_cut.is_none() =>
            {
                self.peer_cut = Some(position);
                Ok(Step::Wait)
            }
            _ => Err(Breach),
        }
    }

    /// This end has turned, as [`Step::Turn`] said, or since it closes; its bytes from this position of TCP's stream on go
    /// by the ring.
    pub fn turned(&mut self, position: u32) {
        if matches!(self.stage, Stage::Bound | Stage::Due) {
            self.stage = Stage::Turned;
            self.own_cut = Some(position);
        }
    }

    /// Returns what this end says over the side connection when the link is lost, if it is to say something.
    #[must_use]
    pub fn word(&self) -> Option<Mark> {
        match (self.side, self.stage, self.own_cut) {
            // Whatever has become of that in the ring: the server answers.
            (Side::Client, Stage::Bound, _) => Some(Mark::Go),
            (_, Stage::Turned | Stage::Returning, Some(position)) => Some(Mark::Cut(position)),
            (Side::Server, Stage::Tcp, _) => Some(Mark::Stays),
            _ => None,
        }
    }

    /// The peer has said this over the side connection, so the link is lost, and all marks that had come by the ring were
    /// heard.
    pub fn told(&mut self, mark: Mark) -> Step {
        match (self.side, self.stage, mark) {
            (Side::Client, Stage::Bound, Mark::Stays)
            | (Side::Server, Stage::Offered | Stage::Due, Mark::Go) => {
                self.stage = Stage::Tcp;
                Step::Leave
            }
            (Side::Client, Stage::Bound, Mark::Cut(_))
            | (Side::Server, Stage::Turned, Mark::Cut(_)) => self.heard(mark).unwrap_or(Step::Wait),
            // It is known already.
            _ => Step::Wait,
        }
    }

    /// Tells whether what the peer may say over the side connection is news.
    #[must_use]
    pub const fn may_be_told(&self) -> bool {
        match self.side {
            Side::Client => matches!(self.stage, Stage::Bound),
            Side::Server => self.awaits_mark(),
        }
    }

    /// The rings are left: [`Record`](crate::wire::promotion::Record)s on TCP say what of them the two ends have. Returns
    /// false if the peer has not turned, so that it would not understand one.
    pub fn returns(&mut self) -> bool {
        let both = self.stage == Stage::Turned && self.peer_cut.is_some();
        if both {
            self.stage = Stage::Returning;
        }
        both
    }

    /// TCP has all that the peer had not got by the rings.
    pub fn returned(&mut self) {
        if self.stage == Stage::Returning {
            *self = Self::new(self.side);
        }
    }

    /// The SMC-R connection has ended before it became the socket's stream; `by_peer` says that the peer has ended it,
    /// otherwise its link was lost. All marks that had come were heard.
    pub fn ended(&mut self, by_peer: bool) -> Step {
        match (self.side, self.stage) {
            (_, Stage::Tcp | Stage::Returning) => Step::Wait,
            // Nobody can say any more where the peer's bytes are: a correct one says its cut before it ends.
            (_, Stage::Turned) if self.peer_cut.is_none() && by_peer => Step::Reset,
            (_, Stage::Turned) if self.peer_cut.is_none() => Step::Ask,
            (_, Stage::Turned) => Step::Wait,
            // The rest of the peer's bytes, and its end, are in the ring.
            _ if self.peer_cut.is_some() => Step::Turn,
            // A server that has turned does not end without having said so before.
            (Side::Client, Stage::Bound) if !by_peer => Step::Ask,
            // The peer has not turned, and will not: a client waits for the server to do so first.
            _ => {
                self.stage = Stage::Tcp;
                Step::Leave
            }
        }
    }
}
