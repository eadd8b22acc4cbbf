// SPDX-License-Identifier: GPL-2.0
//! The netlink format (`<linux/netlink.h>`): messages and attributes, with every length checked.
//!
//! Headers, lengths and padding are `netlink-packet-core`'s; here are the walk over a datagram,
//! and values as these programs want them. Integers are in host byte order.

use netlink_packet_core::{DefaultNla, Emitable, NetlinkBuffer, NlasIterator};
use netlink_packet_core::{NLA_HEADER_SIZE, NLM_F_REQUEST};
pub use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR};

/// Length of `struct nlmsghdr` in bytes.
const HEADER: usize = 16;

/// A length that leads outside of what was received, or below its own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// `NLM_F_…`.
    pub flags: u16,
    /// Sequence number of the request it answers.
    pub sequence: u32,
    /// Bytes after the header.
    pub payload: &'a [u8],
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Attribute type without its flag bits.
    pub kind: u16,
    /// Its value.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The value as an unsigned integer of 1, 2, 4 or 8 bytes; `None` for another length.
    pub fn number(&self) -> Option<u64> {
        match *self.payload {
            [a] => Some(u64::from(a)),
            [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
            [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        }
    }

    /// The value as text up to its first NUL; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        let end = self.payload.iter().position(|byte| *byte == 0);
        let text = self.payload.get(..end.unwrap_or(self.payload.len()));
        String::from_utf8_lossy(text.unwrap_or(&[])).into_owned()
    }

    /// The attributes inside this one.
    pub fn nested(&self) -> impl Iterator<Item = Result<Attribute<'a>, BadLength>> {
        attributes(self.payload)
    }
}

/// `u16` at `offset`, host order.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

/// `u32` at `offset`, host order.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

/// `u64` at `offset`, host order.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

/// The messages in one received datagram. After a bad length there is nothing more.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, BadLength>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(Err(BadLength));
        };
        let length = message.length() as usize;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            payload: message.payload(),
        }))
    })
}

/// The attributes in `bytes`. After a bad length there is nothing more.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, BadLength>> {
    NlasIterator::new(bytes).map(|attribute| {
        let attribute = attribute.map_err(|_| BadLength)?;
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        let payload = attribute.into_inner().get(NLA_HEADER_SIZE..length);
        let payload = payload.ok_or(BadLength)?;
        Ok(Attribute { kind, payload })
    })
}

/// A request being put together.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A request of a message type with `NLM_F_…` flags (`NLM_F_REQUEST` is added), followed by
    /// the family's own header.
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        let mut header = NetlinkBuffer::new(&mut bytes);
        header.set_message_type(kind);
        header.set_flags(flags | NLM_F_REQUEST);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self { bytes }
    }

    /// Adds an attribute. Values are short here; one of 64 KiB would be cut.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        emit(&mut self.bytes, kind, value);
        self
    }

    /// Adds a text attribute with its NUL.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that holds others.
    #[must_use]
    pub fn nest(self, kind: u16, inner: &Attributes) -> Self {
        self.attribute(kind, &inner.0)
    }

    /// The bytes to send, under this sequence number.
    pub fn finish(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let length = bytes.len() as u32;
        let mut header = NetlinkBuffer::new(&mut bytes);
        header.set_length(length);
        header.set_sequence_number(sequence);
        bytes
    }
}

/// Attributes to be put into another one.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        emit(&mut self.0, kind, value);
        self
    }

    /// Adds a text attribute with its NUL.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that holds others.
    #[must_use]
    pub fn nest(self, kind: u16, inner: &Self) -> Self {
        self.attribute(kind, &inner.0)
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends an attribute with its padding.
fn emit(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let most = usize::from(u16::MAX) - NLA_HEADER_SIZE;
    let attribute = DefaultNla::new(kind, value[..value.len().min(most)].to_vec());
    let start = bytes.len();
    bytes.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut bytes[start..]);
}

/// An attribute's bytes with its padding, for tests.
#[cfg(test)]
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    Request::new(0, 0, &[]).attribute(kind, value).bytes[HEADER..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back() {
        let request = Request::new(20, NLM_F_DUMP, &[7, 0, 0, 0, 9])
            .attribute(1, &[1, 2, 3])
            .text(0x8002, "abcd");
        let bytes = request.finish(77);
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<_> = messages(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].kind, all[0].flags, all[0].sequence),
            (20, 0x301, 77)
        );
        let inner: Vec<_> = attributes(&all[0].payload[8..])
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(inner.len(), 2);
        assert_eq!((inner[0].kind, inner[0].payload), (1, &[1u8, 2, 3][..]));
        assert_eq!((inner[1].kind, inner[1].text().as_str()), (2, "abcd"));
    }

    #[test]
    fn lengths_that_lie_end_the_walk() {
        let good = Request::new(20, 0, &[1, 2, 3, 4]).finish(1);
        for lie in [0u32, 1, 15, 21, 24, 0x7fff_ffff, u32::MAX] {
            let mut bytes = good.clone();
            bytes[0..4].copy_from_slice(&lie.to_ne_bytes());
            let all: Vec<_> = messages(&bytes).collect();
            assert_eq!(all, [Err(BadLength)], "{lie}");
        }
        for cut in 1..good.len() {
            assert!(
                messages(&good[..cut]).any(|message| message.is_err()),
                "{cut}"
            );
        }
        for lie in [0u16, 3, 9, 0xffff] {
            let mut bytes = vec![8, 0, 1, 0, 5, 5, 5, 5];
            bytes[0..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(
                attributes(&bytes).collect::<Vec<_>>(),
                [Err(BadLength)],
                "{lie}"
            );
        }
        assert_eq!(attributes(&[4, 0]).collect::<Vec<_>>(), [Err(BadLength)]);
    }

    #[test]
    fn a_missing_pad_at_the_end_is_no_error() {
        let attribute = [5u8, 0, 3, 0, 42];
        let all: Vec<_> = attributes(&attribute).collect::<Result<_, _>>().unwrap();
        assert_eq!(all[0].number(), Some(42));
    }

    #[test]
    fn numbers_by_length() {
        let number = |payload: &[u8]| Attribute { kind: 0, payload }.number();
        assert_eq!(number(&[1]), Some(1));
        assert_eq!(number(&0x1234u16.to_ne_bytes()), Some(0x1234));
        assert_eq!(number(&u64::MAX.to_ne_bytes()), Some(u64::MAX));
        assert_eq!(number(&[1, 2, 3]), None);
        assert_eq!(number(&[]), None);
    }
}
