// SPDX-License-Identifier: GPL-2.0

//! Checked access to byte buffers.
//!
//! [`Reader`] and [`Writer`] walk over a slice and answer an error instead of
//! running off its end. Multi-byte integers are big-endian (network order)
//! except where a name says `le`.

use crate::error::{
    EmitError,
    ParseError, //
};

/// Walks over received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Reads `bytes` from offset `at`.
    #[inline]
    pub fn at(bytes: &'a [u8], at: usize) -> Result<Self, ParseError> {
        match bytes.get(at..) {
            Some(rest) => Ok(Reader { rest }),
            None => Err(ParseError::Truncated),
        }
    }

    /// Number of bytes not read yet.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    #[inline]
    pub fn slice(&mut self, n: usize) -> Result<&'a [u8], ParseError> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(ParseError::Truncated),
        }
    }

    /// Steps over `n` bytes without looking at them.
    #[inline]
    pub fn skip(&mut self, n: usize) -> Result<(), ParseError> {
        self.slice(n).map(|_| ())
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(ParseError::Truncated),
        }
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        let [b] = self.array::<1>()?;
        Ok(b)
    }

    /// The next 16 bits.
    #[inline]
    pub fn be16(&mut self) -> Result<u16, ParseError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// The next 16 bits, little-endian (the length of LLC version 2, see there).
    #[inline]
    pub fn le16(&mut self) -> Result<u16, ParseError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next 24 bits.
    #[inline]
    pub fn be24(&mut self) -> Result<u32, ParseError> {
        let [a, b, c] = self.array::<3>()?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    /// The next 32 bits.
    #[inline]
    pub fn be32(&mut self) -> Result<u32, ParseError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// The next 64 bits.
    #[inline]
    pub fn be64(&mut self) -> Result<u64, ParseError> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

/// Fills a buffer from its start.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes to `buf` from its start.
    #[inline]
    pub fn new(buf: &'a mut [u8]) -> Self {
        Writer { buf, len: 0 }
    }

    /// Number of bytes written.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reserves the next `n` bytes for the caller to fill.
    #[inline]
    fn room(&mut self, n: usize) -> Result<&mut [u8], EmitError> {
        let end = self.len.checked_add(n).ok_or(EmitError::NoSpace)?;
        match self.buf.get_mut(self.len..end) {
            Some(room) => {
                self.len = end;
                Ok(room)
            }
            None => Err(EmitError::NoSpace),
        }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let room = self.room(bytes.len())?;
        room.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends `n` zero bytes.
    #[inline]
    pub fn zero(&mut self, n: usize) -> Result<(), EmitError> {
        self.room(n)?.fill(0);
        Ok(())
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, v: u8) -> Result<(), EmitError> {
        self.put(&[v])
    }

    /// Appends 16 bits.
    #[inline]
    pub fn be16(&mut self, v: u16) -> Result<(), EmitError> {
        self.put(&v.to_be_bytes())
    }

    /// Appends 16 bits, little-endian.
    #[inline]
    pub fn le16(&mut self, v: u16) -> Result<(), EmitError> {
        self.put(&v.to_le_bytes())
    }

    /// Appends the low 24 bits.
    #[inline]
    pub fn be24(&mut self, v: u32) -> Result<(), EmitError> {
        let [_, a, b, c] = v.to_be_bytes();
        self.put(&[a, b, c])
    }

    /// Appends 32 bits.
    #[inline]
    pub fn be32(&mut self, v: u32) -> Result<(), EmitError> {
        self.put(&v.to_be_bytes())
    }

    /// Appends 64 bits.
    #[inline]
    pub fn be64(&mut self, v: u64) -> Result<(), EmitError> {
        self.put(&v.to_be_bytes())
    }
}
