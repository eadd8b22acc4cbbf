// SPDX-License-Identifier: GPL-2.0
//! The netlink format (`<linux/netlink.h>`): messages and attributes, with every length checked.
//!
//! Integers are in host byte order, messages and attributes start at multiples of four bytes.

/// Length of `struct nlmsghdr` in bytes.
pub const HEADER: usize = 16;
/// Length of `struct nlattr` in bytes.
pub const ATTRIBUTE_HEADER: usize = 4;

/// `NLMSG_ERROR`: an errno, or an acknowledgement if it is 0.
pub const NLMSG_ERROR: u16 = 2;
/// `NLMSG_DONE`: end of a dump.
pub const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST`.
pub const NLM_F_REQUEST: u16 = 1;
/// `NLM_F_MULTI`: more messages follow, up to `NLMSG_DONE`.
pub const NLM_F_MULTI: u16 = 2;
/// `NLM_F_ACK`.
pub const NLM_F_ACK: u16 = 4;
/// `NLM_F_DUMP_INTR`: the list changed while it was dumped.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_DUMP`.
pub const NLM_F_DUMP: u16 = 0x300;
/// Attribute types: the bits that are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const NLA_FLAGS: u16 = 0xc000;

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
    /// What follows the header.
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
    pub fn nested(&self) -> Attributes<'a> {
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
pub fn messages(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

/// Iterator of [`messages`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, BadLength>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest;
        let length = u32_at(bytes, 0).and_then(|length| usize::try_from(length).ok());
        let Some(payload) = length.and_then(|length| bytes.get(HEADER..length)) else {
            self.rest = &[];
            return Some(Err(BadLength));
        };
        self.rest = after(bytes, length.unwrap_or(0));
        // The header is inside, because `HEADER..length` was.
        Some(Ok(Message {
            kind: u16_at(bytes, 4).unwrap_or(0),
            flags: u16_at(bytes, 6).unwrap_or(0),
            sequence: u32_at(bytes, 8).unwrap_or(0),
            payload,
        }))
    }
}

/// The attributes in `bytes`. After a bad length there is nothing more.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// Iterator of [`attributes`].
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, BadLength>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest;
        let length = u16_at(bytes, 0).map(usize::from);
        let Some(payload) = length.and_then(|length| bytes.get(ATTRIBUTE_HEADER..length)) else {
            self.rest = &[];
            return Some(Err(BadLength));
        };
        self.rest = after(bytes, length.unwrap_or(0));
        Some(Ok(Attribute {
            kind: u16_at(bytes, 2).unwrap_or(0) & !NLA_FLAGS,
            payload,
        }))
    }
}

/// What follows an item of `length` bytes and its padding.
fn after(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(4)..).unwrap_or(&[])
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
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self { bytes }
    }

    /// Adds an attribute. Values are short here; one of 64 KiB would be cut.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let value = &value[..value.len().min(usize::from(u16::MAX) - ATTRIBUTE_HEADER)];
        let length = (value.len() + ATTRIBUTE_HEADER) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a text attribute with its NUL.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// The bytes to send, under this sequence number.
    pub fn finish(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[0..4].copy_from_slice(&(self.bytes.len() as u32).to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }

    /// True if this asks for a dump.
    pub fn is_dump(&self) -> bool {
        u16_at(&self.bytes, 6).is_some_and(|flags| flags & NLM_F_DUMP == NLM_F_DUMP)
    }
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
        assert!(request.is_dump());
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
