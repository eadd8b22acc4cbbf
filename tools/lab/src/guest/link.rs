// SPDX-License-Identifier: GPL-2.0

//! The link between the guests of a pair.

use crate::kernel::{Arch, Kernel};
use anyhow::Result;
use rustix::net::{recv, sockopt, RecvFlags};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The two ends of a link between guests of a kind. UML exchanges packets over
/// datagrams (with room for bursts), QEMU over a stream with lengths.
pub fn make(kernel: &Kernel) -> Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{socketpair, sockopt, AddressFamily, SocketFlags, SocketType};
    if kernel.arch != Arch::Uml {
        return super::socket_pair();
    }
    let (a, b) = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for end in [&a, &b] {
        // As much as the host allows without privileges.
        for force in [true, false] {
            let size = 4 << 20;
            let done = if force {
                sockopt::set_socket_send_buffer_size_force(end, size)
                    .and_then(|()| sockopt::set_socket_recv_buffer_size_force(end, size))
            } else {
                sockopt::set_socket_send_buffer_size(end, size)
                    .and_then(|()| sockopt::set_socket_recv_buffer_size(end, size))
            };
            if done.is_ok() {
                break;
            }
        }
    }
    Ok((a, b))
}

/// Our own hold on both ends of a link.
///
/// When the other end is closed UML's network driver fails in a way that keeps its guest from doing anything
/// else, and QEMU's device keeps for ever what it was about to send, and with it what the guest waits for:
/// soft-RoCE's queue pairs. With these that does not happen when a guest ends; what is sent to it
/// vanishes as on a wire with nobody at its end.
pub struct Ends([Arc<OwnedFd>; 2]);

impl Ends {
    /// Keeps both ends, where that is of use.
    pub fn keep(a: &OwnedFd, b: &OwnedFd) -> Result<Ends> {
        Ok(Ends([Arc::new(a.try_clone()?), Arc::new(b.try_clone()?)]))
    }

    /// Guest `index` has ended: takes what comes for it from now on, as long as the other lives.
    pub fn drain(&self, index: usize) {
        let Some(end) = self.0.get(index).cloned() else {
            return;
        };
        let _ = sockopt::set_socket_timeout(
            &*end,
            sockopt::Timeout::Recv,
            Some(Duration::from_millis(100)),
        );
        std::thread::spawn(move || {
            // Packets of any length, or a piece of a stream.
            let mut bytes = vec![0; 1 << 16];
            // The other owner is the cluster.
            while Arc::strong_count(&end) > 1 {
                let _ = recv(&*end, &mut bytes[..], RecvFlags::empty());
            }
        });
    }
}
