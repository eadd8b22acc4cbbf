// SPDX-License-Identifier: GPL-2.0
//! What facts about host and ports mean for SMC-R.

use super::facts;
use super::limits::{Limits, NAMES};
use super::{Item, Port};
use crate::gid::Gid;
use crate::why::path;

/// Requests that a queue pair should have room for, so that nothing asked for by default is cut.
const REQUESTS: u64 = 512;
/// MTU of an interface that lets RDMA packets carry 4096 bytes, with room for the headers.
const LARGE_MTU: u32 = 4200;

/// Judges the host.
pub fn host(host: &facts::Host) -> Vec<Item> {
    let module = match &host.module {
        Some((name @ "rsmc", version)) => Item::ok("module", format!("{name}, {version}")),
        Some((name, version)) => Item::ok("module", format!("{name} (in-tree), {version}")),
        None => Item::attention("module", "no SMC module is loaded", "modprobe rsmc"),
    };
    let namespaces = match host.shared {
        Some(true) => Item::ok("namespaces", "share RDMA devices"),
        Some(false) => Item::ok("namespaces", "each RDMA device belongs to one namespace"),
        None => Item::attention(
            "namespaces",
            "the kernel has no RDMA, or its core is not loaded",
            "Load the driver of the card: `modprobe mlx5_ib`, `irdma`, `bnxt_re`, `erdma`, …",
        ),
    };
    vec![Item::ok("kernel", host.kernel.clone()), module, namespaces]
}

/// Judges a port.
pub fn port(facts: &facts::Port) -> Port {
    let mut items = vec![
        driver(facts),
        protocol(facts),
        registration(facts),
        state(facts),
        interface(facts),
        addresses(&facts.gids),
    ];
    // What these say decides; the rest makes it slow, or tells more.
    let usable = items
        .iter()
        .all(|item| item.verdict != super::Verdict::Attention);
    items.extend([mtu(facts), limits(facts)]);
    if facts.driver.is_some() {
        items.push(pfc(facts.pfc));
    }
    items.push(counters(&facts.counters));
    Port {
        device: facts.device.clone(),
        port: facts.port,
        usable,
        items,
    }
}

fn driver(facts: &facts::Port) -> Item {
    let Some(driver) = &facts.driver else {
        let found = "software, without a card beneath (rdma_rxe, siw)";
        return Item {
            advice: Some("For tries: the CPU does what a card would, and TCP is faster.".into()),
            ..Item::ok("driver", found)
        };
    };
    let mut found = match &facts.driver_version {
        Some(version) => format!("{driver} {version} (not the kernel's own)"),
        None => driver.clone(),
    };
    for (name, value) in [
        ("firmware", &facts.firmware),
        ("at", &facts.bus),
        ("id", &facts.ids),
    ] {
        if let Some(value) = value {
            found.push_str(&format!(", {name} {value}"));
        }
    }
    Item {
        advice: Some(
            "rsmc was never tried on a card: please send this list (Documentation/hardware.md)."
                .into(),
        ),
        ..Item::ok("driver", found)
    }
}

fn protocol(facts: &facts::Port) -> Item {
    let name = "protocol";
    let known = facts
        .nldev
        .as_ref()
        .and_then(|device| device.protocol.as_deref());
    match (known, facts.link_layer.as_deref()) {
        (Some("roce"), _) => Item::ok(name, "RoCE"),
        (Some("iw"), _) => Item::attention(
            name,
            "iWARP, over which there is no SMC-R",
            "Intel E8xx: `devlink dev param set pci/ADDRESS name enable_iwarp value false cmode runtime`, \
             then the same with enable_roce and true. Others: a device or instance with RoCE v2.",
        ),
        (Some("ib"), _) | (_, Some("InfiniBand")) => Item::attention(
            name,
            "InfiniBand, over which this SMC-R does not go",
            "Set the port's link type to Ethernet, if the card can.",
        ),
        (Some(other), _) => Item::attention(
            name,
            format!("{other}, not RoCE"),
            "SMC-R needs a port that speaks RoCE v2.",
        ),
        (None, _) => Item::unknown(name, "RDMA netlink does not tell", "`rdma dev show -d` may."),
    }
}

fn registration(facts: &facts::Port) -> Item {
    let name = "registration";
    match facts
        .nldev
        .as_ref()
        .and_then(|device| device.fast_registration)
    {
        Some(true) => Item::ok(name, "memory is registered by work requests"),
        Some(false) => Item::attention(
            name,
            "the device registers no memory by work requests",
            "Newer firmware, or another card: SMC-R needs it (IB_DEVICE_MEM_MGT_EXTENSIONS).",
        ),
        None => Item::unknown(
            name,
            "RDMA netlink does not tell",
            "`rdma dev show -d` lists it as MEM_MGT_EXTENSIONS.",
        ),
    }
}

fn state(facts: &facts::Port) -> Item {
    let name = "state";
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let rate = facts
        .rate
        .as_ref()
        .map_or(String::new(), |rate| format!(", {rate}"));
    let found = format!("{}, {}{rate}", word(&facts.state), word(&facts.physical));
    match facts.state.as_deref() {
        Some("ACTIVE") => Item::ok(name, found),
        None => Item::unknown(name, found, "`rdma link` shows it."),
        Some(_) => Item::attention(
            name,
            found,
            "Bring the network interface up (`ip link set DEV up`); look at cable and switch.",
        ),
    }
}

fn interface(facts: &facts::Port) -> Item {
    let name = "interface";
    let Some(interface) = &facts.interface else {
        return Item::attention(
            name,
            "no network interface of this namespace belongs to the port",
            "Move the interface here, or look from its namespace; a port in a bond may show none.",
        );
    };
    let operstate = facts.operstate.as_deref().unwrap_or("unknown");
    let found = format!("{interface}, {operstate}");
    match operstate {
        "up" | "unknown" => Item::ok(name, found),
        _ => Item::attention(name, found, format!("`ip link set {interface} up`")),
    }
}

fn addresses(gids: &[Gid]) -> Item {
    let name = "addresses";
    let older = gids.iter().filter(|gid| !gid.is_roce_v2()).count();
    let text: Vec<String> = gids
        .iter()
        .filter(|gid| gid.is_roce_v2())
        .map(|gid| gid.address.to_canonical().to_string())
        .collect();
    let found = match older {
        0 => format!("RoCE v2: {}", text.join(" ")),
        older => format!("RoCE v2: {}; {older} of another kind", text.join(" ")),
    };
    let routable = |gid: &&Gid| gid.is_roce_v2() && !gid.address.is_unicast_link_local();
    if text.is_empty() {
        let found = format!("none of RoCE v2, {older} of another kind");
        let advice = "Give the interface an address. If there are some of RoCE v1 only, the card or its mode has no v2.";
        return Item::attention(name, found, advice);
    }
    if !gids.iter().any(|gid| routable(&gid)) {
        let advice = "Give the interface an IPv4 or IPv6 address beside its link-local one.";
        return Item::attention(name, found, advice);
    }
    Item::ok(name, found)
}

fn mtu(facts: &facts::Port) -> Item {
    let name = "mtu";
    let Some(mtu) = facts.mtu else {
        return Item::unknown(name, "no interface to ask", "See the item interface.");
    };
    match path::rdma_mtu(mtu) {
        None => Item::attention(name, format!("{mtu}: no RDMA packet fits"), "Raise it."),
        Some(size) => {
            let hint = (facts.driver.is_some() && mtu < LARGE_MTU).then(|| {
                format!(
                    "{LARGE_MTU} or more, on both hosts and all switches, lets packets carry 4096."
                )
            });
            Item {
                advice: hint,
                ..Item::ok(name, format!("{mtu}: RDMA packets carry {size}"))
            }
        }
    }
}

fn limits(facts: &facts::Port) -> Item {
    let name = "limits";
    if facts.limits.is_empty() {
        return Item::unknown(
            name,
            facts.no_limits.clone().unwrap_or_default(),
            "Install ibv_devinfo (Debian: ibverbs-utils) and see that this user may open \
             /dev/infiniband/uverbs*; or add what `ibv_devinfo -v` prints.",
        );
    }
    let told: Vec<String> = NAMES
        .iter()
        .filter_map(|name| Some(format!("{name} {}", facts.limits.get(name)?)))
        .collect();
    let found = told.join(", ");
    if number(&facts.limits, "max_qp_wr").is_some_and(|most| most < REQUESTS) {
        let advice = "Queue pairs are small: fewer messages are under way than net.smc.smcr_max_send_wr asks for.";
        return Item::attention(name, found, advice);
    }
    if number(&facts.limits, "page_size_cap").is_some_and(|sizes| sizes & 4096 == 0) {
        let advice =
            "The device maps no pages of 4096 bytes, which buffers are made of: please report it.";
        return Item::attention(name, found, advice);
    }
    Item::ok(name, found)
}

fn number(limits: &Limits, name: &str) -> Option<u64> {
    let text = limits.get(name)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.split_whitespace().next()?.parse().ok(),
    }
}

fn pfc(priorities: Option<u8>) -> Item {
    let name = "pfc";
    match priorities {
        None => Item::unknown(
            name,
            "the driver does not tell by DCB netlink",
            "The vendor's tool does (mlnx_qos, lldptool, bnxtqos).",
        ),
        Some(0) => Item::attention(
            name,
            "off for all priorities",
            "Fine if the network drops nothing, or card and switches use ECN; else packets get lost under load. \
             `dcb pfc set dev DEV prio-pfc …`, and the same on the switch.",
        ),
        Some(bits) => {
            let on: Vec<String> = (0..8)
                .filter(|priority| bits & (1 << priority) != 0)
                .map(|priority: u8| priority.to_string())
                .collect();
            Item::ok(name, format!("on for priority {}", on.join(", ")))
        }
    }
}

fn counters(counters: &[(&'static str, u64)]) -> Item {
    let name = "losses";
    if counters.is_empty() {
        return Item::unknown(
            name,
            "the driver has no counters that are known here",
            "`rdma statistic show` and `ethtool -S DEV` have others.",
        );
    }
    let moved: Vec<String> = counters
        .iter()
        .filter(|(_, value)| *value != 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let congestion = |name: &str| name.contains("cnp") || name.contains("ecn");
    let lost = counters
        .iter()
        .any(|(name, value)| *value != 0 && !congestion(name));
    match (lost, moved.is_empty()) {
        (true, _) => Item::attention(
            name,
            moved.join(", "),
            "Since the device came up packets were lost or repeated. If the numbers grow under load, look at \
             PFC, ECN and MTU.",
        ),
        (false, true) => Item::ok(name, "none are counted"),
        (false, false) => Item::ok(name, format!("none; congestion control is at work: {}", moved.join(", "))),
    }
}

#[cfg(test)]
mod tests;
