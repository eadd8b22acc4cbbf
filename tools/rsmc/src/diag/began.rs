// SPDX-License-Identifier: GPL-2.0
//! What sock_diag tells of a connection that began as TCP, with rsmc alone: how far it is on its way to another carrier.

use crate::netlink::wire::{u32_at, u64_at};

/// A step on the way from TCP to SMC-R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub u8);

const STEPS: [&str; 8] = [
    "tcp",
    "joining",
    "offered",
    "bound",
    "due",
    "turned",
    "smc",
    "returning",
];

impl Step {
    /// All bytes go by TCP, and no attempt to promote the connection is under way.
    pub const TCP: Step = Step(0);
    /// The two kernels make an SMC-R connection for it.
    pub const JOINING: Step = Step(1);
    /// It has left TCP.
    pub const SMC: Step = Step(6);

    /// The step in one word; `None` for one that this program does not know.
    pub fn name(self) -> Option<&'static str> {
        STEPS.get(usize::from(self.0)).copied()
    }

    /// True while an attempt is under way.
    pub fn is_between(self) -> bool {
        self != Self::TCP && self != Self::SMC
    }
}

/// A connection that began as TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// How far it has come; always [`Step::TCP`] within one kernel.
    pub step: Step,
    /// This host is the server.
    pub is_server: bool,
    /// The other end is on another host.
    pub is_remote: bool,
    /// Attempts to promote it to SMC-R.
    pub attempts: u32,
    /// Those that have failed.
    pub failures: u32,
    /// Code of the reason why it is, or was, TCP; 0 if there is none.
    pub reason: u32,
    /// Bytes sent by the ring of another carrier.
    pub ring_sent: u64,
    /// Bytes received by such a ring.
    pub ring_received: u64,
    /// Times that it has gone back to TCP.
    pub returns: u32,
}

impl Began {
    /// Reads the attribute; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            step: Step(*bytes.first()?),
            is_server: *bytes.get(1)? != 0,
            is_remote: *bytes.get(2)? != 0,
            attempts: u32_at(bytes, 4)?,
            failures: u32_at(bytes, 8)?,
            reason: u32_at(bytes, 12)?,
            ring_sent: u64_at(bytes, 16)?,
            ring_received: u64_at(bytes, 24)?,
            // The first versions have not counted.
            returns: u32_at(bytes, 32).unwrap_or(0),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The attribute of a client's connection with another host: step, three numbers, and the bytes by the ring.
    pub(crate) fn bytes(step: u8, numbers: [u32; 3], by_ring: [u64; 2]) -> Vec<u8> {
        let mut out = vec![step, 0, 1, 0];
        for number in numbers {
            out.extend_from_slice(&number.to_ne_bytes());
        }
        for number in by_ring {
            out.extend_from_slice(&number.to_ne_bytes());
        }
        out
    }

    #[test]
    fn members() {
        let began = Began::parse(&bytes(6, [4, 3, 2], [1 << 40, 9])).unwrap();
        assert_eq!((began.step, began.step.name()), (Step::SMC, Some("smc")));
        assert_eq!((began.attempts, began.failures, began.reason), (4, 3, 2));
        assert_eq!((began.ring_sent, began.ring_received), (1 << 40, 9));
        assert!(began.is_remote && !began.is_server);
        let between = |step| Step(step).is_between();
        assert!(between(1) && between(5) && !between(0) && !between(6));
        assert_eq!(Step(99).name(), None);
    }
}
