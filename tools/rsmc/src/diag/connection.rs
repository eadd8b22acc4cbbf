// SPDX-License-Identifier: GPL-2.0
//! Attributes that sock_diag has of SMC connections beyond the fixed part: `struct smc_diag_conninfo`,
//! `struct smc_diag_lgrinfo`, `struct smcd_diag_dmbinfo` (`<linux/smc_diag.h>`).

use crate::netlink::wire::{u16_at, u32_at, u64_at};

/// Attribute `SMC_DIAG_CONNINFO`.
pub const SMC_DIAG_CONNINFO: u16 = 1;
/// Attribute `SMC_DIAG_LGRINFO`.
pub const SMC_DIAG_LGRINFO: u16 = 2;
/// Attribute `SMC_DIAG_DMBINFO`.
pub const SMC_DIAG_DMBINFO: u16 = 4;

/// A place in a ring buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of times that the ring's end was passed, modulo 65536.
    pub wrap: u16,
    /// Bytes from the ring's start.
    pub count: u32,
}

impl Cursor {
    fn at(bytes: &[u8], offset: usize) -> Option<Self> {
        Some(Self {
            wrap: u16_at(bytes, offset.checked_add(2)?)?,
            count: u32_at(bytes, offset.checked_add(4)?)?,
        })
    }

    /// Bytes that passed so far in a ring of `size` bytes, modulo [`modulus`].
    pub fn position(self, size: u32) -> u64 {
        u64::from(self.wrap) * u64::from(size) + u64::from(self.count)
    }

    /// Bytes from `other` to here in a ring of `size` bytes; never more than fit.
    pub fn since(self, other: Cursor, size: u32) -> u64 {
        let modulus = modulus(size);
        if modulus == 0 {
            return 0;
        }
        let ahead = self.position(size) % modulus + modulus - other.position(size) % modulus;
        // More than the ring holds: the cursors were not read at the same moment.
        Some(ahead % modulus)
            .filter(|ahead| *ahead <= u64::from(size))
            .unwrap_or(0)
    }
}

/// Where positions in a ring of `size` bytes start again from 0.
pub fn modulus(size: u32) -> u64 {
    u64::from(size) << 16
}

/// Buffers and cursors of a connection. `rx` is what the peer said last, `tx` what we did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Our number of the connection.
    pub token: u32,
    /// Send buffer in bytes.
    pub send_buffer: u32,
    /// Receive buffer in bytes.
    pub receive_buffer: u32,
    /// The peer's receive buffer in bytes.
    pub peer_buffer: u32,
    /// Position up to which the peer has written into our receive buffer.
    pub rx_produced: Cursor,
    /// Position up to which the peer has read its receive buffer.
    pub rx_consumed: Cursor,
    /// Position up to which we have written into the peer's receive buffer.
    pub tx_produced: Cursor,
    /// Position up to which we have read, as the peer knows.
    pub tx_consumed: Cursor,
    /// Producer flags and connection state flags of the peer, then ours.
    pub flags: [u8; 4],
    /// Position up to which the program has filled the send buffer.
    pub prepared: Cursor,
    /// Position up to which the send buffer was sent.
    pub sent: Cursor,
    /// Position up to which the bytes sent have arrived.
    pub finished: Cursor,
}

impl Connection {
    /// Reads the attribute; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            token: u32_at(bytes, 0)?,
            send_buffer: u32_at(bytes, 4)?,
            receive_buffer: u32_at(bytes, 8)?,
            peer_buffer: u32_at(bytes, 12)?,
            rx_produced: Cursor::at(bytes, 16)?,
            rx_consumed: Cursor::at(bytes, 24)?,
            tx_produced: Cursor::at(bytes, 32)?,
            tx_consumed: Cursor::at(bytes, 40)?,
            flags: bytes.get(48..52)?.try_into().ok()?,
            prepared: Cursor::at(bytes, 52)?,
            sent: Cursor::at(bytes, 60)?,
            finished: Cursor::at(bytes, 68)?,
        })
    }

    /// Bytes received, modulo 65536 times the receive buffer.
    pub fn received_bytes(&self) -> u64 {
        self.rx_produced.position(self.receive_buffer)
    }

    /// Bytes sent, modulo 65536 times the peer's buffer.
    pub fn sent_bytes(&self) -> u64 {
        self.tx_produced.position(self.peer_buffer)
    }

    /// Bytes that were received and not read yet.
    pub fn receive_queue(&self) -> u64 {
        self.rx_produced
            .since(self.tx_consumed, self.receive_buffer)
    }

    /// Bytes the program has written and the peer does not have yet.
    pub fn send_queue(&self) -> u64 {
        self.prepared.since(self.finished, self.send_buffer)
    }
}

/// The RDMA link of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Number in its group.
    pub id: u8,
    /// RDMA device.
    pub device: String,
    /// Port of the device.
    pub port: u8,
    /// Our GID.
    pub gid: String,
    /// The peer's GID.
    pub peer_gid: String,
    /// This host is the group's server.
    pub is_server: bool,
}

impl LinkInfo {
    /// Reads the attribute; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: *bytes.first()?,
            device: text(bytes.get(1..65)?),
            port: *bytes.get(65)?,
            gid: text(bytes.get(66..106)?),
            peer_gid: text(bytes.get(106..146)?),
            is_server: *bytes.get(146)? != 0,
        })
    }
}

/// The shared memory of an SMC-D connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmbInfo {
    /// Number of the link group.
    pub link_id: u32,
    /// GIDs and tokens: the peer's GID, ours, our token, the peer's.
    pub numbers: [u64; 4],
}

impl DmbInfo {
    /// Reads the attribute; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |index: usize| u64_at(bytes, 8 + 8 * index);
        Some(Self {
            link_id: u32_at(bytes, 0)?,
            numbers: [number(0)?, number(1)?, number(2)?, number(3)?],
        })
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The attribute's bytes: token, three sizes, and the seven cursors (wrap, count).
    pub(crate) fn bytes(sizes: [u32; 3], cursors: [(u16, u32); 7]) -> Vec<u8> {
        let mut out = 0x1234u32.to_ne_bytes().to_vec();
        sizes
            .iter()
            .for_each(|size| out.extend_from_slice(&size.to_ne_bytes()));
        for (index, (wrap, count)) in cursors.into_iter().enumerate() {
            if index == 4 {
                out.extend_from_slice(&[1, 2, 3, 4]);
            }
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&wrap.to_ne_bytes());
            out.extend_from_slice(&count.to_ne_bytes());
        }
        out
    }

    #[test]
    fn a_connection() {
        let cursors = [
            (2, 100),
            (0, 5),
            (1, 7),
            (1, 900),
            (1, 10),
            (0, 900),
            (0, 800),
        ];
        let whole = bytes([1000, 1024, 4096], cursors);
        assert_eq!(whole.len(), 76);
        let connection = Connection::parse(&whole).unwrap();
        assert_eq!((connection.token, connection.flags), (0x1234, [1, 2, 3, 4]));
        assert_eq!(connection.received_bytes(), 2 * 1024 + 100);
        assert_eq!(connection.sent_bytes(), 4096 + 7);
        assert_eq!(connection.receive_queue(), 224);
        assert_eq!(connection.send_queue(), 210);
        for length in 0..76 {
            assert!(Connection::parse(&whole[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn distances() {
        let at = |wrap, count| Cursor { wrap, count };
        assert_eq!(at(0, 3).since(at(u16::MAX, 95), 100), 8);
        assert_eq!(at(5, 0).since(at(4, 0), 100), 100);
        assert_eq!(at(4, 0).since(at(5, 0), 100), 0);
        assert_eq!(at(4, 0).since(at(5, 0), 0), 0);
        assert_eq!(at(9, u32::MAX).since(at(0, u32::MAX), u32::MAX), 0);
    }

    #[test]
    fn links() {
        let mut bytes = vec![0u8; 147];
        bytes[0] = 7;
        bytes[1..5].copy_from_slice(b"rxe0");
        bytes[65] = 1;
        bytes[66..69].copy_from_slice(b"::1");
        bytes[146] = 1;
        let link = LinkInfo::parse(&bytes).unwrap();
        assert_eq!((link.id, link.device.as_str(), link.port), (7, "rxe0", 1));
        assert_eq!(
            (link.gid.as_str(), link.peer_gid.as_str(), link.is_server),
            ("::1", "", true)
        );
        assert!(LinkInfo::parse(&bytes[..146]).is_none());
        assert!(DmbInfo::parse(&[0; 56]).is_some());
        assert!(DmbInfo::parse(&[0; 39]).is_none());
    }
}
