// SPDX-License-Identifier: GPL-2.0

//! CDC messages: the 44 bytes that carry a connection's cursors and flags.
//!
//! A CDC message is an RDMA SEND on the link's queue pair; it is the same in SMC-R version 1 and
//! 2 (RFC 7609 section A.4). Each one states the sender's whole view, so a
//! later one supersedes all earlier ones. What the values mean is `conn`'s business.

use super::bufsize::BufSize;
use super::bytes::Reader;
use super::ids::{
    AlertToken,
    Rkey, //
};
use crate::cursor::Cursor;
use crate::error::ParseError;

/// First byte of a CDC message.
pub const TYPE: u8 = 0xfe;
/// Length of a CDC message in bytes.
pub const LEN: usize = 44;
/// The greatest number that [`Cdc::unread`] can be: it has three bytes.
pub const MOST_UNREAD: u32 = 0x00ff_ffff;
/// Bytes that carry content; C accepts messages that end after them.
pub const CONTENT_LEN: usize = 26;

/// Producer flags (byte 24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ProdFlags(u8);

/// Connection state flags (byte 25).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct StateFlags(u8);

/// Set operations on a byte of flags.
macro_rules! flag_set {
    ($name:ident) => {
        impl $name {
            /// No flag.
            pub const NONE: $name = $name(0);

            /// The flags of a received byte; bits that mean nothing here are dropped.
            #[inline]
            #[must_use]
            pub const fn from_wire(byte: u8) -> $name {
                $name(byte & Self::KNOWN)
            }

            /// The byte to send.
            #[inline]
            #[must_use]
            pub const fn to_wire(self) -> u8 {
                self.0
            }

            /// Reports whether all flags of `other` are set.
            #[inline]
            #[must_use]
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Reports whether any flag of `other` is set.
            #[inline]
            #[must_use]
            pub const fn any(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// Both sets together.
            #[inline]
            #[must_use]
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// This set with the flags of `other` added if `on`.
            #[inline]
            #[must_use]
            pub const fn with_if(self, other: $name, on: bool) -> $name {
                if on {
                    self.with(other)
                } else {
                    self
                }
            }

            /// This set without the flags of `other`.
            #[inline]
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }
    };
}

flag_set!(ProdFlags);
flag_set!(StateFlags);

impl ProdFlags {
    /// The producer has more data than the ring has room for.
    pub const WRITE_BLOCKED: ProdFlags = ProdFlags(0x80);
    /// Urgent data is on its way.
    pub const URGENT_PENDING: ProdFlags = ProdFlags(0x40);
    /// The byte before the producer cursor is the urgent byte.
    pub const URGENT_PRESENT: ProdFlags = ProdFlags(0x20);
    /// The producer asks for a consumer cursor at once.
    pub const UPDATE_REQUESTED: ProdFlags = ProdFlags(0x10);
    /// The message only validates a failover to another link.
    pub const FAILOVER: ProdFlags = ProdFlags(0x08);
    /// The producer would leave the rings and go on by TCP; the peer does so at once, or says [`ProdFlags::STAYS`]. This
    /// and that one mean something only where both ends know them
    /// ([`Extensions::LEAVES`](super::clc::Extensions::LEAVES)).
    pub const LEAVE: ProdFlags = ProdFlags(0x04);
    /// The producer was asked to leave the rings and stays.
    pub const STAYS: ProdFlags = ProdFlags(0x02);
    /// Any that asks for a message at once, or is about leaving the rings.
    pub const ASKS: ProdFlags = ProdFlags(0x16);

    const KNOWN: u8 = 0xfe;
}

impl StateFlags {
    /// The sender will write no more (half close).
    pub const DONE_WRITING: StateFlags = StateFlags(0x80);
    /// The sender has closed the connection.
    pub const CLOSED: StateFlags = StateFlags(0x40);
    /// The sender has aborted the connection.
    pub const ABORT: StateFlags = StateFlags(0x20);
    /// Closed in either way.
    pub const ANY_CLOSE: StateFlags = StateFlags(0x60);
    /// Any statement that no more data will come.
    pub const ANY_END: StateFlags = StateFlags(0xe0);

    const KNOWN: u8 = 0xe0;
}

/// A receive ring that the sender of a message offers in place of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Its number, not 0: one more than that of the ring which it is to replace.
    pub number: u8,
    /// Its size.
    pub size: BufSize,
    /// Address of its first byte.
    pub addr: u64,
    /// Its memory key.
    pub rkey: Rkey,
}

/// What a message says of rings that move ([`Extensions::MOVES`](super::clc::Extensions::MOVES)), in bytes that the
/// protocol reserves. Without that extension it means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingNews {
    /// Number of the receiver's ring into which the sender writes what follows; the first is 0.
    pub into: u8,
    /// A ring of the sender's.
    pub offer: Option<Offer>,
}

/// A CDC message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cdc {
    /// Sequence number within the connection; the first is 1.
    pub seq: u16,
    /// Alert token of the *receiver's* RMBE.
    pub token: AlertToken,
    /// Position at which the sender will write next, in the receiver's RMBE.
    pub prod: Cursor,
    /// Position up to which the sender has consumed its own RMBE.
    pub cons: Cursor,
    /// Producer flags.
    pub prod_flags: ProdFlags,
    /// Connection state flags.
    pub state_flags: StateFlags,
    /// Rings that move.
    pub rings: RingNews,
    /// Bytes after [`Self::cons`] that have come and that the sender's program has not read, and one more if the end of the
    /// stream has come; at most [`MOST_UNREAD`]. Means something only where both ends keep TCP
    /// ([`Conn::keep_tcp`](crate::conn::Conn::keep_tcp)).
    pub unread: u32,
}

impl Cdc {
    /// Takes a received message apart. Trailing bytes are ignored, unknown flags dropped; the
    /// cursors are not judged, because only the connection knows its ring sizes.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] below [`CONTENT_LEN`] bytes, [`ParseError::Type`] if it is no CDC
    /// message, [`ParseError::Length`] if its length byte is not 44.
    pub fn parse(bytes: &[u8]) -> Result<Cdc, ParseError> {
        let mut r = Reader::new(bytes);
        let kind = r.u8()?;
        if kind != TYPE {
            return Err(ParseError::Type(kind));
        }
        let len = r.u8()?;
        if usize::from(len) != LEN {
            return Err(ParseError::Length(u16::from(len)));
        }
        Ok(Cdc {
            seq: r.be16()?,
            token: AlertToken(r.be32()?),
            prod: parse_cursor(&mut r)?,
            cons: parse_cursor(&mut r)?,
            prod_flags: ProdFlags::from_wire(r.u8()?),
            state_flags: StateFlags::from_wire(r.u8()?),
            unread: parse_unread(r),
            rings: parse_rings(r),
        })
    }

    /// The message as it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let [s0, s1] = self.seq.to_be_bytes();
        let [t0, t1, t2, t3] = self.token.0.to_be_bytes();
        let [pw0, pw1] = self.prod.wrap.to_be_bytes();
        let [p0, p1, p2, p3] = self.prod.count.to_be_bytes();
        let [cw0, cw1] = self.cons.wrap.to_be_bytes();
        let [c0, c1, c2, c3] = self.cons.count.to_be_bytes();
        let (pf, sf) = (self.prod_flags.to_wire(), self.state_flags.to_wire());
        let [_, u0, u1, u2] = self.unread.to_be_bytes();
        #[rustfmt::skip]
        let bytes = [
            TYPE, LEN as u8, s0, s1,
            t0, t1, t2, t3,
            0, 0, pw0, pw1, p0, p1, p2, p3,
            0, 0, cw0, cw1, c0, c1, c2, c3,
            pf, sf, self.rings.into, 0,
            0, u0, u1, u2,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        match &self.rings.offer {
            // Nearly always.
            None => bytes,
            Some(offer) => with_offer(bytes, offer),
        }
    }
}

/// Writes what is said of a ring that is offered.
#[cold]
fn with_offer(mut bytes: [u8; LEN], offer: &Offer) -> [u8; LEN] {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = offer.addr.to_be_bytes();
    let [k0, k1, k2, k3] = offer.rkey.0.to_be_bytes();
    let said = [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3];
    for (to, from) in bytes.iter_mut().skip(32).zip(said) {
        *to = from;
    }
    for (to, from) in bytes
        .iter_mut()
        .skip(27)
        .zip([offer.number, offer.size.code()])
    {
        *to = from;
    }
    bytes
}

/// Reads what follows the content; none of it is there in a message that ends before.
#[inline]
fn parse_rings(mut r: Reader<'_>) -> RingNews {
    match r.array() {
        // Nearly always.
        Ok([into, 0]) => RingNews { into, offer: None },
        Ok([into, number]) => RingNews {
            into,
            offer: parse_offer(number, r).ok(),
        },
        Err(_) => RingNews::default(),
    }
}

/// Reads how many bytes wait for the program.
#[inline]
fn parse_unread(mut r: Reader<'_>) -> u32 {
    match r.array() {
        Ok([_into, _number, _size, u0, u1, u2]) => u32::from_be_bytes([0, u0, u1, u2]),
        Err(_) => 0,
    }
}

#[cold]
fn parse_offer(number: u8, mut r: Reader<'_>) -> Result<Offer, ParseError> {
    let size = BufSize::from_code(r.u8()?);
    r.skip(3)?;
    Ok(Offer {
        number,
        size,
        addr: r.be64()?,
        rkey: Rkey(r.be32()?),
    })
}

/// Reads the 8 bytes of a cursor; the first two are reserved.
fn parse_cursor(r: &mut Reader<'_>) -> Result<Cursor, ParseError> {
    r.skip(2)?;
    Ok(Cursor {
        wrap: r.be16()?,
        count: r.be32()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Cdc {
        Cdc {
            seq: 0x0102,
            token: AlertToken(0x0304_0506),
            prod: Cursor {
                wrap: 0x0708,
                count: 0x090a_0b0c,
            },
            cons: Cursor {
                wrap: 0x0d0e,
                count: 0x0f10_1112,
            },
            prod_flags: ProdFlags::WRITE_BLOCKED.with(ProdFlags::URGENT_PRESENT),
            state_flags: StateFlags::CLOSED,
            rings: RingNews::default(),
            unread: 0,
        }
    }

    #[test]
    fn layout_is_that_of_the_wire() {
        let mut want = [0u8; 44];
        want[..26].copy_from_slice(&[
            0xfe, 44, 1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0, 13, 14, 15, 16, 17, 18,
            0xa0, 0x40,
        ]);
        assert_eq!(sample().encode(), want);
        assert_eq!(Cdc::parse(&want), Ok(sample()));
        assert_eq!(Cdc::parse(&want[..26]), Ok(sample()));
    }

    #[test]
    fn rings_are_in_reserved_bytes() {
        let mut cdc = sample();
        cdc.rings = RingNews {
            into: 0x21,
            offer: Some(Offer {
                number: 0x22,
                size: BufSize::from_code(4),
                addr: 0x3132_3334_3536_3738,
                rkey: Rkey(0x4142_4344),
            }),
        };
        let wire = cdc.encode();
        let want = [
            0x21, 0x22, 4, 0, 0, 0, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42,
            0x43, 0x44,
        ];
        assert_eq!(wire[26..], want);
        assert_eq!(Cdc::parse(&wire), Ok(cdc));
        // Number 0 is that of the first ring, which is never offered.
        cdc.rings.offer = None;
        assert_eq!(cdc.encode()[27..], [0; 17]);
        assert_eq!(Cdc::parse(&cdc.encode()), Ok(cdc));
    }

    #[test]
    fn unread_bytes_are_in_reserved_bytes() {
        let mut cdc = sample();
        cdc.unread = 0x0012_3456;
        assert_eq!(cdc.encode()[29..32], [0x12, 0x34, 0x56]);
        assert_eq!(Cdc::parse(&cdc.encode()), Ok(cdc));
        cdc.rings.offer = Some(Offer {
            number: 1,
            size: BufSize::from_code(4),
            addr: u64::MAX,
            rkey: Rkey(u32::MAX),
        });
        assert_eq!(Cdc::parse(&cdc.encode()), Ok(cdc));
    }

    #[test]
    fn malformed_is_refused() {
        let good = sample().encode();
        for n in 0..CONTENT_LEN {
            assert_eq!(Cdc::parse(&good[..n]), Err(ParseError::Truncated));
        }
        let mut bad = good;
        bad[0] = 0x21;
        assert_eq!(Cdc::parse(&bad), Err(ParseError::Type(0x21)));
        bad = good;
        bad[1] = 43;
        assert_eq!(Cdc::parse(&bad), Err(ParseError::Length(43)));
    }

    #[test]
    fn unknown_bits_and_reserved_bytes_are_ignored() {
        let mut m = sample().encode();
        m[24] |= 0x01;
        m[25] |= 0x1f;
        m[8] = 0xff;
        m[17] = 0xff;
        m[43] = 0xff;
        assert_eq!(Cdc::parse(&m), Ok(sample()));
    }
}
