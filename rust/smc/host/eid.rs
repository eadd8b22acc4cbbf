// SPDX-License-Identifier: GPL-2.0

//! Enterprise ids of users (UEIDs): hosts that have one in common may speak SMC-R version 2.
//!
//! The table is one for the whole machine, as in C; it is part of the initial namespace's state.
//! One id is built in, so that two machines with this module need no configuration.

use crate::host::read_mostly::ReadMostly;
use core::ops::Deref;
use kernel::prelude::*;
use smc_proto::{handshake::policy::DEFAULT_UEID, wire::clc::Eid};

/// Most ids beside the built-in one; C's `SMC_MAX_UEID`.
const MAX: usize = 4;

/// The ids that the user has added.
#[pin_data]
pub(crate) struct Eids {
    #[pin]
    table: ReadMostly<Eid>,
}

impl Eids {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- ReadMostly::new(),
        })
    }

    /// Adds an id.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is none, `ERANGE` when the table is full, `EEXIST`, `ENOMEM`.
    pub(crate) fn add(&self, eid: Eid) -> Result {
        if !eid.is_valid_user() {
            return Err(EINVAL);
        }
        self.table.add(eid, |table| {
            if table.len() >= MAX {
                return Err(ERANGE);
            }
            if eid == DEFAULT_UEID || table.contains(&eid) {
                return Err(EEXIST);
            }
            Ok(())
        })
    }

    /// Removes an id.
    ///
    /// # Errors
    ///
    /// `ENOENT` when it is not there, or is the built-in one.
    pub(crate) fn remove(&self, eid: &Eid) -> Result {
        match self.table.retain(|entry| entry != eid) {
            true => Ok(()),
            false => Err(ENOENT),
        }
    }

    /// Removes all ids but the built-in one.
    pub(crate) fn flush(&self) {
        self.table.retain(|_| false);
    }

    /// Returns the ids that the user has added; the built-in one is offered after them.
    pub(crate) fn of_user(&self) -> impl Deref<Target = KVec<Eid>> + '_ {
        self.table.read()
    }

    /// Returns id number `at` of those that are offered: the user's, then the built-in one.
    pub(crate) fn at(&self, at: usize) -> Option<Eid> {
        let table = self.table.read();
        match table.get(at) {
            Some(eid) => Some(*eid),
            None => (at == table.len()).then_some(DEFAULT_UEID),
        }
    }
}
