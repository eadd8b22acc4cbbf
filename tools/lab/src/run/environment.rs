// SPDX-License-Identifier: GPL-2.0

//! Environment of programs in guests (see selftests/README.md).

use crate::guest::cluster::{kernel_slowness, slowness, Topology};
use crate::kernel::Kernel;

/// The environment of a program in guest `index`.
pub fn of(
    kind: &str,
    kernel: &Kernel,
    topology: Topology,
    index: usize,
    link: &str,
) -> Vec<String> {
    let pair = topology == Topology::Pair;
    let (own, peer) = if index == 0 { (1, 2) } else { (2, 1) };
    let role = match (pair, index) {
        (false, _) => "single",
        (true, 0) => "client",
        (true, _) => "server",
    };
    let (device, peer_device) = if pair { (link, link) } else { ("va", "vb") };
    vec![
        "RSMC_KO=/rsmc/rsmc.ko".into(),
        "RSMC_BIN=/rsmc/bin".into(),
        "RSMC_SELFTESTS=/rsmc/selftests".into(),
        format!("RSMC_TOPO={topology}"),
        format!("RSMC_ROLE={role}"),
        format!("RSMC_ADDR=10.77.0.{own}"),
        format!("RSMC_ADDR6=fd77::{own}"),
        format!("RSMC_PEER_ADDR=10.77.0.{peer}"),
        format!("RSMC_PEER_ADDR6=fd77::{peer}"),
        format!("RSMC_DEV={device}"),
        format!("RSMC_PEER_DEV={peer_device}"),
        format!("RSMC_KERNEL={kind}"),
        format!("RSMC_SLOW={}", slowness(kernel)),
        format!("RSMC_LESS={}", kernel_slowness(kernel)),
    ]
}
