// SPDX-License-Identifier: GPL-2.0

//! The ports of a device: their state, limits and net devices.

use super::Device;
use crate::rdma::netns::{is_netdev, NetNs, NetRef};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Relaxed, Release},
        rcu, //
    },
    types::Opaque, //
};
use smc_bindings as bindings;

/// Ports whose state is remembered.
pub(super) const PORTS: usize = 2;

/// The state of a port (`enum ib_port_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// No carrier, or administratively down.
    Down,
    /// Coming up.
    Init,
    /// Almost usable.
    Armed,
    /// Usable.
    Active,
    /// A state this code does not know.
    Unknown(u32),
}

impl PortState {
    fn from_raw(state: bindings::ib_port_state) -> Self {
        match state {
            bindings::ib_port_state_IB_PORT_DOWN => PortState::Down,
            bindings::ib_port_state_IB_PORT_INIT => PortState::Init,
            bindings::ib_port_state_IB_PORT_ARMED => PortState::Armed,
            bindings::ib_port_state_IB_PORT_ACTIVE => PortState::Active,
            other => PortState::Unknown(other),
        }
    }
}

/// Report of [`Device::port`].
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// State, which tells if the port is usable.
    pub state: PortState,
    /// The active MTU as the code of `enum ib_mtu`: 1 is 256 bytes, 5 is 4096.
    pub active_mtu: u8,
    /// The largest MTU of the port, same code.
    pub max_mtu: u8,
    /// The number of entries of the GID table, used or not.
    pub gid_table_len: u16,
    /// So many of them, from the first on, held all GIDs at the time; it is what makes looking
    /// for one cheap.
    pub gids_used: u16,
    /// The longest message in bytes.
    pub max_message: u32,
}

/// Returns how many entries of a GID table are needed to have all that are in use.
///
/// # Safety
///
/// `raw` is a registered device.
unsafe fn gids_used(raw: *mut bindings::ib_device, port: u32, len: u16) -> u16 {
    let in_use = |index: &u16| {
        // SAFETY: By the function's contract; the port is checked there.
        let attr = unsafe { bindings::rdma_get_gid_attr(raw, port, i32::from(*index)) };
        match kernel::error::from_err_ptr(attr.cast_mut()) {
            Ok(attr) => {
                // SAFETY: The reference was given to us.
                unsafe { bindings::rdma_put_gid_attr(attr) };
                true
            }
            Err(_) => false,
        }
    };
    (0..len)
        .rev()
        .find(in_use)
        .map_or(0, |last| last.saturating_add(1))
}

impl Device {
    /// Returns state and MTU of `port`, as they were after the last event of the device. May sleep.
    ///
    /// Drivers take the lock of all network configuration for this; so they are not asked again and
    /// again, but for a port that is not active: the event that it has become so comes late, and is
    /// lost without memory. The MTU of the net device may have changed without an event.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port that does not exist, `ENODEV`, or the driver's error.
    pub fn port(&self, port: u32) -> Result<PortInfo> {
        let place = usize::try_from(port)?.checked_sub(1).ok_or(EINVAL)?;
        let before = self.events.load(Acquire);
        let known = self.ports.lock().get(place).copied().flatten();
        if let (Some(info), false) = (known, self.is_gone()) {
            return Ok(info);
        }
        let info = self.query_port(port)?;
        let mut ports = self.ports.lock();
        if let Some(place) = ports.get_mut(place) {
            if self.events.load(Relaxed) == before && info.state == PortState::Active {
                *place = Some(info);
            }
        }
        Ok(info)
    }

    /// Returns the state of `port` as the RDMA core has known it since the last event. Any context:
    /// unlike [`Device::port`] this does not ask the driver.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port that does not exist, `ENODEV`.
    pub fn known_state(&self, port: u32) -> Result<PortState> {
        self.with(|raw| {
            let mut state: bindings::ib_port_state = 0;
            // SAFETY: The device is registered, `state` is valid for writing; the call looks at the
            // number of the port.
            let result = unsafe { bindings::ib_get_cached_port_state(raw, port, &mut state) };
            kernel::error::to_result(result)?;
            Ok(PortState::from_raw(state))
        })
    }

    /// Something has happened to the device.
    pub(in crate::rdma) fn on_event(&self) {
        let mut ports = self.ports.lock();
        self.events.fetch_add(1, Release);
        *ports = [None; PORTS];
    }

    fn query_port(&self, port: u32) -> Result<PortInfo> {
        self.with(|raw| {
            let attr = Opaque::<bindings::ib_port_attr>::zeroed();
            // SAFETY: The device is registered, `attr` is valid for writing.
            kernel::error::to_result(unsafe { bindings::ib_query_port(raw, port, attr.get()) })?;
            // SAFETY: Zeroed before and filled in now: initialised either way.
            let attr = unsafe { &*attr.get() };
            let gid_table_len = u16::try_from(attr.gid_tbl_len).unwrap_or(0);
            Ok(PortInfo {
                state: PortState::from_raw(attr.state),
                active_mtu: u8::try_from(attr.active_mtu).unwrap_or(0),
                max_mtu: u8::try_from(attr.max_mtu).unwrap_or(0),
                gid_table_len,
                // SAFETY: The device is registered.
                gids_used: unsafe { gids_used(raw, port, gid_table_len) },
                max_message: attr.max_msg_sz,
            })
        })
    }

    /// Returns the number and the namespace of the net device of `port`.
    pub fn netdev(&self, port: u32) -> Option<(u32, NetRef)> {
        self.with_netdev(port, |ndev| {
            let _rcu = rcu::read_lock();
            // SAFETY: `ndev` is held by our caller; its namespace is protected by RCU.
            let (ifindex, net) = unsafe {
                let net = bindings::dev_net_rcu(ndev);
                ((*ndev).ifindex, NetRef::try_get(net)?)
            };
            Some((u32::try_from(ifindex).ok()?, net))
        })?
    }

    /// Runs `f` on the net device of `port`, which is held meanwhile.
    fn with_netdev<R>(
        &self,
        port: u32,
        f: impl FnOnce(*mut bindings::net_device) -> R,
    ) -> Option<R> {
        self.with(|raw| {
            // SAFETY: The device is registered. The result is null or a net device held for us.
            let ndev = unsafe { bindings::ib_device_get_netdev(raw, port) };
            if ndev.is_null() {
                return Err(ENODEV);
            }
            let result = f(ndev);
            // SAFETY: Gives back the reference taken above.
            unsafe { bindings::dev_put(ndev) };
            Ok(result)
        })
        .ok()
    }

    /// Returns whether the net device of `port` is number `ifindex` of namespace `net`.
    pub fn port_is_netdev(&self, port: u32, net: &impl NetNs, ifindex: u32) -> bool {
        // SAFETY: The device is held meanwhile.
        self.with_netdev(port, |ndev| unsafe { is_netdev(ndev, net, ifindex) })
            .unwrap_or(false)
    }
}
