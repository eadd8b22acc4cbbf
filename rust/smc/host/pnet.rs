// SPDX-License-Identifier: GPL-2.0

//! The PNET table: the physical networks of network interfaces and RDMA ports, as the user has
//! configured them.
//!
//! Interfaces are entered in the namespace they are in. RDMA ports are the machine's, so they are
//! entered in the initial namespace, as in C.

use crate::host::read_mostly::ReadMostly;
use kernel::prelude::*;

/// Longest id, in bytes.
pub(crate) const ID: usize = 16;
/// Longest name of an interface, in bytes.
pub(crate) const INTERFACE: usize = 15;
/// Longest name of an RDMA device, in bytes.
pub(crate) const DEVICE: usize = 63;
/// Ports of an RDMA device; C's `SMC_MAX_PORTS`.
pub(crate) const PORTS: u8 = 2;

/// Id of a physical network: upper-case letters and digits, padded with zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PnetId([u8; ID]);

impl PnetId {
    /// Parses an id; ignores surrounding blanks and turns letters into upper case.
    pub(crate) fn from_text(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let mut id = [0; ID];
        for (to, from) in id.get_mut(..text.len())?.iter_mut().zip(text) {
            *to = from.to_ascii_uppercase();
        }
        (!text.is_empty() && text.iter().all(u8::is_ascii_alphanumeric)).then_some(Self(id))
    }

    /// Returns the id without its padding.
    pub(crate) fn text(&self) -> &[u8] {
        text(&self.0)
    }
}

/// Member of a physical network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Member {
    /// A network interface, by its name.
    Interface([u8; INTERFACE]),
    /// A port, from 1, of the RDMA device of this name.
    Port([u8; DEVICE], u8),
}

impl Member {
    /// Returns the member for an interface.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the name is empty, or too long.
    pub(crate) fn interface(name: &[u8]) -> Result<Self> {
        Ok(Self::Interface(padded(name)?))
    }

    /// Returns the member for a port of an RDMA device; ignores blanks around its name.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the name is empty, or too long, or there can be no such port.
    pub(crate) fn port(name: &[u8], port: u8) -> Result<Self> {
        if !(1..=PORTS).contains(&port) {
            return Err(EINVAL);
        }
        Ok(Self::Port(padded(name.trim_ascii())?, port))
    }

    /// Returns the name of the interface or the device.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Interface(name) => text(name),
            Self::Port(name, _) => text(name),
        }
    }
}

fn padded<const N: usize>(name: &[u8]) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let to = bytes.get_mut(..name.len()).ok_or(EINVAL)?;
    if name.is_empty() {
        return Err(EINVAL);
    }
    to.copy_from_slice(name);
    Ok(bytes)
}

fn text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or(bytes)
}

/// A line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// The physical network.
    pub(crate) id: PnetId,
    /// The interface or port.
    pub(crate) member: Member,
}

/// A namespace's table.
#[pin_data]
pub(crate) struct Pnets {
    #[pin]
    table: ReadMostly<Entry>,
}

impl Pnets {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- ReadMostly::new(),
        })
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// `EEXIST` when the member is on a physical network already, `ENOMEM`.
    pub(crate) fn add(&self, id: PnetId, member: Member) -> Result {
        self.table.add(Entry { id, member }, |table| {
            match table.iter().any(|entry| entry.member == member) {
                true => Err(EEXIST),
                false => Ok(()),
            }
        })
    }

    /// Removes all lines of an id.
    ///
    /// # Errors
    ///
    /// `ENOENT` when there is none.
    pub(crate) fn remove(&self, id: &PnetId) -> Result {
        match self.table.retain(|entry| entry.id != *id) {
            true => Ok(()),
            false => Err(ENOENT),
        }
    }

    /// Removes all lines.
    pub(crate) fn flush(&self) {
        self.table.retain(|_| false);
    }

    /// Tells whether the table is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }

    /// Returns line number `at`.
    pub(crate) fn at(&self, at: usize) -> Option<Entry> {
        self.table.read().get(at).copied()
    }

    /// Returns the physical network of `member`, if the table has it.
    pub(crate) fn of(&self, member: &Member) -> Option<PnetId> {
        let table = self.table.read();
        let entry = table.iter().find(|entry| entry.member == *member)?;
        Some(entry.id)
    }
}
