// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of this host.

use crate::host::read_mostly::ReadMostly;
use kapi::rdma::device::Device;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    }, //
};

/// RDMA devices, in the order of their registration.
#[pin_data]
pub(crate) struct Devices {
    #[pin]
    list: ReadMostly<Arc<Device>>,
    /// Numbers of cards and of others on the list.
    numbers: [Atomic<i32>; 2],
    /// Of these, those that can carry connections.
    fit: [Atomic<i32>; 2],
}

impl Devices {
    /// Creates an empty list.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- ReadMostly::new(),
            numbers: [const { Atomic::new(0) }; 2],
            fit: [const { Atomic::new(0) }; 2],
        })
    }

    /// Adds a device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, device: &Arc<Device>) -> Result {
        self.list.add(device.clone(), |_| Ok(()))?;
        self.count(device, 1);
        Ok(())
    }

    fn count(&self, device: &Device, by: i32) {
        let of_its_kind = |[cards, others]: &[Atomic<i32>; 2]| {
            let number = if device.is_software() { others } else { cards };
            number.add(by, Relaxed);
        };
        of_its_kind(&self.numbers);
        if device.unfit().is_none() {
            of_its_kind(&self.fit);
        }
    }

    /// Removes a device.
    pub(super) fn remove(&self, device: &Arc<Device>) {
        if self.list.retain(|other| !Arc::ptr_eq(other, device)) {
            self.count(device, -1);
        }
    }

    /// Tells whether there are cards, and others, whether they can carry connections or not. Any context.
    pub(crate) fn kinds(&self) -> (bool, bool) {
        let [cards, others] = &self.numbers;
        (cards.load(Relaxed) != 0, others.load(Relaxed) != 0)
    }

    /// Calls `f` for each device that can carry connections until it returns something, which is returned:
    /// first for cards, then for those that move data by CPU, each in the order of registration.
    pub(crate) fn find<R>(&self, mut f: impl FnMut(&Arc<Device>) -> Option<R>) -> Option<R> {
        let mut among = |software| {
            let mut last = None;
            loop {
                // Others may go meanwhile, so a position in the list would not do.
                let device = self
                    .list
                    .read()
                    .iter()
                    .filter(|device| device.is_software() == software && device.unfit().is_none())
                    .find(|device| last.is_none_or(|last| device.serial() > last))
                    .cloned()?;
                if let Some(found) = f(&device) {
                    return Some(found);
                }
                last = Some(device.serial());
            }
        };
        among(false).or_else(|| among(true))
    }

    /// Returns whether those that can carry connections are all software; `None` if there are none. Any context.
    pub(crate) fn only_software(&self) -> Option<bool> {
        let [cards, others] = &self.fit;
        match (cards.load(Relaxed) != 0, others.load(Relaxed) != 0) {
            (false, false) => None,
            (cards, _) => Some(!cards),
        }
    }

    /// Returns the device with the lowest number from `from` on.
    pub(crate) fn after(&self, from: u64) -> Option<Arc<Device>> {
        let devices = self.list.read();
        let later = devices
            .iter()
            .filter(|device| u64::from(device.serial()) >= from);
        later.min_by_key(|device| device.serial()).cloned()
    }
}
