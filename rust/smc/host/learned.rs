// SPDX-License-Identifier: GPL-2.0

//! Lessons of a namespace's rules with `auto`: which services have connections that pay.
//!
//! [`smc_proto::learn`] says what pays, and what follows from it. A service is watched from the first decision about it
//! by such a rule.

use crate::host::{
    clock::now,
    lossy_map::LossyMap,
    sysctl::{Sysctl, Sysctls}, //
};
use kernel::prelude::*;
use smc_proto::{
    learn::{Ended, Learned as Table, Record, Service},
    time::Span, //
};

/// The services of a namespace.
#[pin_data]
pub(crate) struct Learned {
    #[pin]
    places: LossyMap<Service, Record>,
}

impl Learned {
    /// Knows nothing.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            places <- LossyMap::new(),
        })
    }

    /// Returns whether no service is watched.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns whether connections to a service are to be SMC's, which `auto` decides about. May sleep. Without
    /// memory they are.
    pub(crate) fn offers(&self, service: &Service) -> bool {
        self.places.prepare().is_err()
            || self.places.with(&[*service], |table| {
                Table::new(table).offers(service, now())
            })
    }

    /// Takes note of the end of an SMC connection, which was to one of these services.
    pub(crate) fn ended(&self, sysctls: &Sysctls, services: &[Service], ended: &Ended) {
        let seconds = u64::try_from(sysctls.get(Sysctl::AutoPause)).unwrap_or(0);
        let pause = Span::from_secs(seconds);
        for service in services {
            if self.places.may_have(service) {
                self.places.with(&[*service], |table| {
                    Table::new(table).ended(service, ended, now(), pause);
                });
            }
        }
    }

    /// Forgets all.
    pub(crate) fn forget(&self) {
        self.places.forget_all();
    }

    /// Returns what stands in place number `at`; the outer `None` is beyond the last.
    pub(crate) fn at(&self, at: usize) -> Option<Option<(Service, Record)>> {
        self.places.at(at)
    }
}
