// SPDX-License-Identifier: GPL-2.0
//! RDMA devices by RDMA netlink (`<rdma/rdma_netlink.h>`), which any user may ask.

use crate::error::Result;
use crate::netlink::socket::Netlink;
use crate::netlink::wire::{self, Request, NLM_F_DUMP};
use rustix::net::netlink;

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)`.
const GET: u16 = (5 << 10) | 1;
const DEV_NAME: u16 = 2;
const CAP_FLAGS: u16 = 4;
const DEV_PROTOCOL: u16 = 67;
/// `IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS`: memory is registered by work requests.
const FAST_REGISTRATION: u64 = 1 << 21;

/// A device as RDMA netlink shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// `roce`, `iw`, `ib` or another; of its first port.
    pub protocol: Option<String>,
    /// Memory can be registered by work requests.
    pub fast_registration: Option<bool>,
}

/// All devices of this namespace.
///
/// # Errors
/// The kernel's; where it has no RDMA there is no such protocol.
pub fn devices() -> Result<Vec<Device>> {
    let mut socket = Netlink::open(netlink::RDMA)?;
    let replies = socket.ask("listing RDMA devices", &Request::new(GET, NLM_F_DUMP, &[]))?;
    let ours = replies.iter().filter(|reply| reply.kind == GET);
    Ok(ours.map(|reply| read(&reply.payload)).collect())
}

fn read(payload: &[u8]) -> Device {
    let mut device = Device::default();
    for attribute in wire::attributes(payload).flatten() {
        match attribute.kind {
            DEV_NAME => device.name = attribute.text(),
            DEV_PROTOCOL => device.protocol = Some(attribute.text()),
            CAP_FLAGS => {
                let flags = attribute.number();
                device.fast_registration = flags.map(|flags| flags & FAST_REGISTRATION != 0);
            }
            _ => {}
        }
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device() {
        let bytes = [
            wire::attribute(1, &7u32.to_ne_bytes()),
            wire::attribute(DEV_NAME, b"rxe0\0"),
            wire::attribute(CAP_FLAGS, &(FAST_REGISTRATION | 1).to_ne_bytes()),
            wire::attribute(DEV_PROTOCOL, b"roce\0"),
        ];
        let device = read(&bytes.concat());
        assert_eq!(device.name, "rxe0");
        assert_eq!(device.protocol.as_deref(), Some("roce"));
        assert_eq!(device.fast_registration, Some(true));
        let none = wire::attribute(CAP_FLAGS, &1u64.to_ne_bytes());
        assert_eq!(read(&none).fast_registration, Some(false));
        assert_eq!(read(&[1, 2, 3]), Device::default());
    }
}
