// SPDX-License-Identifier: GPL-2.0

//! Functions that change the owner of instructions: the socket, or the wire. What such a
//! function calls has its owner, too, until it returns or calls one that changes the owner again.

/// Modules of the wire, and of sockets.
const WIRE_MODULES: [&str; 4] = ["[rdma_rxe]", "[veth]", "[udp_tunnel]", "[ip6_udp_tunnel]"];
const OWN_MODULES: [&str; 2] = ["[rsmc]", "[smc]"];

/// Beginnings of names, without underscores in front: IP, UDP, veth and what carries packets
/// between them.
const WIRE: [&str; 25] = [
    "ip_",
    "ip6_",
    "udp_",
    "udp4_",
    "udp6_",
    "udpv6_",
    "icmp_",
    "arp_",
    "neigh_",
    "fib_",
    "iptunnel_",
    "veth_",
    "eth_",
    "sch_",
    "qdisc_",
    "skb_udp_",
    "dev_queue_xmit",
    "dev_hard_start_xmit",
    "validate_xmit_",
    "netif_rx",
    "netif_receive_skb",
    "enqueue_to_backlog",
    "process_backlog",
    "net_rx_action",
    "net_tx_action",
];

/// Functions by which the wire hands over to others: TCP, hooks, completions, tasklets.
const OWN: [&str; 6] = [
    "tcp_",
    "inet_csk_",
    "nf_hook_slow",
    "tasklet_action",
    "workqueue_softirq_action",
    "ib_cq_completion_",
];

/// The letter by which the plugin knows what a function, `NAME [MODULE]`, does; none for most.
pub fn role(symbol: &str) -> Option<char> {
    let (name, module) = symbol.rsplit_once(' ').unwrap_or((symbol, ""));
    match name {
        "__switch_to" => return Some('s'),
        "ret_from_fork" => return Some('f'),
        "process_one_work" => return Some('k'),
        _ => (),
    }
    if OWN_MODULES.contains(&module) {
        return Some('o');
    }
    if WIRE_MODULES.contains(&module) {
        return Some('w');
    }
    let name = name.trim_start_matches('_');
    let begins = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
    if begins(&OWN) {
        return Some('o');
    }
    begins(&WIRE).then_some('w')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        assert_eq!(role("rxe_post_send [rdma_rxe]"), Some('w'));
        assert_eq!(role("smc_sendmsg [smc]"), Some('o'));
        assert_eq!(role("<smc::conn::SmcConn>::send [rsmc]"), Some('o'));
        assert_eq!(role("__ip_queue_xmit "), Some('w'));
        assert_eq!(role("__local_bh_enable_ip "), None);
        assert_eq!(role("tcp_v4_rcv "), Some('o'));
        assert_eq!(role("memcpy "), None);
        assert_eq!(role("__switch_to "), Some('s'));
    }
}
