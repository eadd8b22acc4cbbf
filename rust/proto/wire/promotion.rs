// SPDX-License-Identifier: GPL-2.0

//! What two hosts with this module say to promote a connection that began as TCP to SMC-R.
//!
//! A [`Join`] opens a side connection, a TCP connection between the two kernels, and says for which connection the CLC
//! messages after it are. [`Mark`]s are the first bytes in the rings of the SMC-R connection that comes of it, before
//! any of the program's; they go over the side connection where the link is lost before both ends have turned.

/// Length of a [`Join`].
pub const JOIN_LEN: usize = 24;
/// Length of a [`Mark`].
pub const MARK_LEN: usize = 8;

/// Length of a [`Record`].
pub const RECORD_LEN: usize = 24;

const EYECATCHER: [u8; 8] = *b"RSMCJOIN";
const RECORD: [u8; 8] = *b"RSMCBACK";
const VERSION: u8 = 1;
const MARK: [u8; 3] = *b"RSP";

/// The connection that is to be promoted, by its initial sequence numbers: 64 bits that only its two ends know, and who is on
/// the way between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The client's.
    pub client: u32,
    /// The server's.
    pub server: u32,
}

impl Join {
    /// Returns the message: eyecatcher, version, three bytes of zero, both numbers, four bytes of zero.
    #[must_use]
    pub const fn bytes(&self) -> [u8; JOIN_LEN] {
        let [a, b, c, d, e, f, g, h] = EYECATCHER;
        let [i, j, k, l] = self.client.to_be_bytes();
        let [m, n, o, p] = self.server.to_be_bytes();
        [
            a, b, c, d, e, f, g, h, VERSION, 0, 0, 0, i, j, k, l, m, n, o, p, 0, 0, 0, 0,
        ]
    }

    /// Reads a message; `None` for anything else, or another version. What is zero now is for later versions of the
    /// same layout, and not looked at.
    #[must_use]
    pub fn parse(bytes: &[u8; JOIN_LEN]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, VERSION, _, _, _, i, j, k, l, m, n, o, p, ..] = *bytes else {
            return None;
        };
        ([a, b, c, d, e, f, g, h] == EYECATCHER).then_some(Self {
            client: u32::from_be_bytes([i, j, k, l]),
            server: u32::from_be_bytes([m, n, o, p]),
        })
    }
}

/// What an end says on TCP when the rings are left: the bytes that follow it there are those after what the peer has
/// received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of the peer's ring that this end has, marks included: it takes no more of them from there.
    pub received: u64,
    /// Bytes that this end has put into its own ring, marks included; in good order those that it has sent.
    pub written: u64,
    /// The end has left in good order, while its link works: all that it has sent has arrived, and nothing more will.
    pub orderly: bool,
}

/// What says so, in the number of bytes written.
const ORDERLY: u64 = 1 << 63;

impl Record {
    /// Returns the message: eyecatcher and both numbers.
    #[must_use]
    pub fn bytes(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let order = if self.orderly { ORDERLY } else { 0 };
        let written = self.written | order;
        let numbers = [self.received.to_be_bytes(), written.to_be_bytes()];
        let all = RECORD.iter().chain(numbers.as_flattened());
        for (to, from) in bytes.iter_mut().zip(all) {
            *to = *from;
        }
        bytes
    }

    /// Reads a message; `None` for anything else.
    #[must_use]
    pub fn parse(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let (eyecatcher, rest) = bytes.split_first_chunk()?;
        let (received, rest) = rest.split_first_chunk()?;
        let (written, _) = rest.split_first_chunk()?;
        let written = u64::from_be_bytes(*written);
        (*eyecatcher == RECORD).then_some(Self {
            received: u64::from_be_bytes(*received),
            written: written & !ORDERLY,
            orderly: written & ORDERLY != 0,
        })
    }

    /// Tells whether these may be the first bytes of one.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(&RECORD).all(|(is, wanted)| is == wanted)
    }
}

/// A word between the two ends of a connection that is promoted, at the beginning of a ring's stream or over the side
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The server would be promoted.
    Ready,
    /// The client would, too: from now on the server may turn.
    Go,
    /// This end has turned: its bytes from this position of TCP's stream on are in the ring, after this mark.
    Cut(u32),
    /// The link was lost, and the server stays on TCP. Over the side connection alone.
    Stays,
}

impl Mark {
    /// Returns the bytes: "RSP", the kind, and the position, or zero.
    #[must_use]
    pub const fn bytes(self) -> [u8; MARK_LEN] {
        let (kind, position) = match self {
            Self::Ready => (1, 0),
            Self::Go => (2, 0),
            Self::Cut(position) => (3, position),
            Self::Stays => (4, 0),
        };
        let [x, y, z] = MARK;
        let [a, b, c, d] = u32::to_be_bytes(position);
        [x, y, z, kind, a, b, c, d]
    }

    /// Reads a mark; `None` for anything else.
    #[must_use]
    pub fn parse(bytes: [u8; MARK_LEN]) -> Option<Self> {
        let [x, y, z, kind, a, b, c, d] = bytes;
        if [x, y, z] != MARK {
            return None;
        }
        match (kind, u32::from_be_bytes([a, b, c, d])) {
            (1, 0) => Some(Self::Ready),
            (2, 0) => Some(Self::Go),
            (3, position) => Some(Self::Cut(position)),
            (4, 0) => Some(Self::Stays),
            _ => None,
        }
    }
}
