// SPDX-License-Identifier: GPL-2.0

//! Takes exactly one CLC message from a byte stream.
//!
//! The stream goes on with the programs' own data, so not one byte too many may
//! be taken. The reader first wants the eight bytes of the header, then as many
//! as the header says, and never a byte more. What exceeds its buffer is taken
//! and thrown away. It yields one message and can be used for nothing else.
//!
//! ```
//! use smc_proto::wire::clc::{ClcReader, Message, MsgType};
//!
//! fn await_accept(mut recv: impl FnMut(&mut [u8]) -> usize) {
//!     let mut buf = [0; 160];
//!     let mut reader = ClcReader::new(&mut buf[..], MsgType::Accept);
//!     while !reader.is_complete() {
//!         let n = recv(reader.space()); // at most as many bytes as wanted
//!         if n == 0 {
//!             return eprintln!("{}", reader.end_of_stream());
//!         }
//!         if let Err(e) = reader.advance(n) {
//!             return eprintln!("{e}");
//!         }
//!     }
//!     match reader.message().map(Message::decode) {
//!         Some(Ok(Message::Accept(a))) => println!("accepted: {a:?}"),
//!         Some(Ok(Message::Decline(d))) => println!("declined: {}", d.reason),
//!         other => println!("{other:?}"),
//!     }
//! }
//! ```

use super::header::{
    Eyecatcher,
    Header,
    MsgType,
    HEADER_LEN, //
};
use crate::error::ReadError;

/// Size of the scratch space for bytes that are thrown away.
const SCRATCH: usize = 64;

/// A complete message, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct RawMessage<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> RawMessage<'a> {
    /// The decoded header.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The message from its first byte; shorter than the header says if it was
    /// longer than the reader's buffer.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reports whether nothing of the message was thrown away.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == usize::from(self.header.length)
    }
}

/// Progress of a reader through its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    /// Less than a header has arrived.
    Head,
    /// The header is known, bytes are missing.
    Body(Header),
    /// Everything has arrived.
    Complete(Header),
    /// It will never be a message.
    Failed(ReadError),
}

/// Reads one CLC message. `B` is the buffer, for instance `&mut [u8]` or
/// `[u8; 652]`; [`MAX_LEN`](super::MAX_LEN) bytes hold everything. With a
/// buffer shorter than a header nothing can be read ([`ReadError::Misuse`]).
#[derive(Debug)]
pub struct ClcReader<B> {
    buf: B,
    scratch: [u8; SCRATCH],
    expected: MsgType,
    state: ReaderState,
    /// Number of bytes taken from the stream.
    taken: usize,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> ClcReader<B> {
    /// Awaits a message of type `expected`, or a decline.
    pub fn new(buf: B, expected: MsgType) -> Self {
        let state = if buf.as_ref().len() < HEADER_LEN {
            ReaderState::Failed(ReadError::Misuse)
        } else {
            ReaderState::Head
        };
        ClcReader {
            buf,
            scratch: [0; SCRATCH],
            expected,
            state,
            taken: 0,
        }
    }

    /// Number of bytes the message still needs, as far as known: those missing
    /// from the header, then those missing from the message. Zero when it is
    /// complete or has failed. Never take more from the stream.
    pub fn wanted(&self) -> usize {
        let end = match self.state {
            ReaderState::Head => HEADER_LEN,
            ReaderState::Body(header) => usize::from(header.length),
            ReaderState::Complete(_) | ReaderState::Failed(_) => return 0,
        };
        end.saturating_sub(self.taken)
    }

    /// Returns the memory for the next bytes: not empty while some are wanted, and
    /// never longer than [`wanted`](Self::wanted). Report with
    /// [`advance`](Self::advance) how many were received.
    pub fn space(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        let keep = self.buf.as_mut().get_mut(self.taken..).unwrap_or(&mut []);
        let space = if keep.is_empty() {
            &mut self.scratch[..]
        } else {
            keep
        };
        let n = space.len().min(wanted);
        space.get_mut(..n).unwrap_or(&mut [])
    }

    /// `n` bytes were stored in [`space`](Self::space). `Ok(true)` means that the
    /// message is complete. After an error the reader is of no more use, except
    /// for [`taken`](Self::taken).
    pub fn advance(&mut self, n: usize) -> Result<bool, ReadError> {
        if let ReaderState::Failed(e) = self.state {
            return Err(e);
        }
        if n > self.space().len() {
            return Err(self.fail(ReadError::Misuse));
        }
        self.taken = self.taken.saturating_add(n);
        if self.state == ReaderState::Head {
            self.check_head()?;
        }
        if let ReaderState::Body(header) = self.state {
            if self.wanted() == 0 {
                self.state = ReaderState::Complete(header);
            }
        }
        Ok(self.is_complete())
    }

    /// Takes what it wants from `bytes` and says how many that were; the rest is
    /// not part of the message.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, ReadError> {
        let mut rest = bytes;
        loop {
            let space = self.space();
            let n = space.len().min(rest.len());
            let (Some(room), Some((head, tail))) = (space.get_mut(..n), rest.split_at_checked(n))
            else {
                return Err(self.fail(ReadError::Misuse));
            };
            room.copy_from_slice(head);
            rest = tail;
            self.advance(n)?;
            if n == 0 {
                return Ok(bytes.len().saturating_sub(rest.len()));
            }
        }
    }

    /// Returns the error for a stream that ends here.
    pub fn end_of_stream(&self) -> ReadError {
        match self.state {
            ReaderState::Failed(e) => e,
            _ if self.taken == 0 => ReadError::Closed,
            _ => ReadError::Cut,
        }
    }

    /// Reports whether the message is complete.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, ReaderState::Complete(_))
    }

    /// The header, once it is there.
    pub fn header(&self) -> Option<&Header> {
        match &self.state {
            ReaderState::Body(header) | ReaderState::Complete(header) => Some(header),
            ReaderState::Head | ReaderState::Failed(_) => None,
        }
    }

    /// The message, once it is there.
    pub fn message(&self) -> Option<RawMessage<'_>> {
        match self.state {
            ReaderState::Complete(header) => Some(RawMessage {
                header,
                bytes: self.taken(),
            }),
            _ => None,
        }
    }

    /// The bytes taken from the stream so far, as far as they fit in the buffer.
    /// After [`ReadError::NotClc`] these are (at most eight) bytes that belong to
    /// somebody else.
    pub fn taken(&self) -> &[u8] {
        let buf = self.buf.as_ref();
        buf.get(..self.taken).unwrap_or(buf)
    }

    /// Gives the buffer back.
    pub fn into_buffer(self) -> B {
        self.buf
    }

    /// Judges what has arrived of the header.
    fn check_head(&mut self) -> Result<(), ReadError> {
        if !Eyecatcher::may_start(self.taken()) {
            return Err(self.fail(ReadError::NotClc));
        }
        let Some(head) = self.taken().first_chunk::<HEADER_LEN>() else {
            return Ok(());
        };
        match Header::parse(head).and_then(|h| h.check_length().map(|()| h)) {
            Ok(h) if h.kind == self.expected || h.kind == MsgType::Decline => {
                self.state = ReaderState::Body(h);
                Ok(())
            }
            Ok(h) => Err(self.fail(ReadError::Unexpected(h.kind.code()))),
            Err(e) => Err(self.fail(ReadError::Malformed(e))),
        }
    }

    /// Ends in failure.
    fn fail(&mut self, e: ReadError) -> ReadError {
        self.state = ReaderState::Failed(e);
        e
    }
}
