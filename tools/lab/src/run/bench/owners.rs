// SPDX-License-Identifier: GPL-2.0

//! Functions that change the owner of instructions: the socket, or the wire. What such a
//! function calls has its owner, too, until it returns or calls one that changes the owner again.
//! Over the model card (`selftests/kmod/card`) the card itself is the wire, and nothing else.

/// Modules of the wire, and of sockets.
const WIRE_MODULES: [&str; 4] = ["[rdma_rxe]", "[veth]", "[udp_tunnel]", "[ip6_udp_tunnel]"];
const OWN_MODULES: [&str; 2] = ["[rsmc]", "[smc]"];
const CARD: &str = "[card]";

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

/// Functions by which the host goes on where the card was: interrupts, which come when hardware
/// lets the processor go, and handlers of completions.
const HOST: [&str; 3] = ["sysvec_", "common_interrupt", "ib_cq_completion_"];

/// Returns whether a function, `NAME [MODULE]`, is what a card does by itself.
pub fn is_card(symbol: &str) -> bool {
    symbol.starts_with("hw_") && symbol.ends_with(CARD)
}

/// The letter for a symbol where a model card is the wire.
pub fn role_over_card(symbol: &str) -> Option<char> {
    let (name, module) = symbol.rsplit_once(' ').unwrap_or((symbol, ""));
    if is_card(symbol) {
        return Some('w');
    }
    // What a driver does on the host's processor stays the host's.
    if module == CARD || OWN_MODULES.contains(&module) {
        return Some('o');
    }
    let bare = name.trim_start_matches('_');
    if HOST.iter().any(|prefix| bare.starts_with(prefix)) {
        return Some('o');
    }
    stacks(name)
}

/// The letter of what changes the stack or begins there.
fn stacks(name: &str) -> Option<char> {
    Some(match name {
        "__switch_to" => 's',
        "ret_from_fork" => 'f',
        "process_one_work" => 'k',
        _ => return None,
    })
}

/// The letter by which the plugin knows what a function, `NAME [MODULE]`, does; none for most.
pub fn role(symbol: &str) -> Option<char> {
    let (name, module) = symbol.rsplit_once(' ').unwrap_or((symbol, ""));
    if let Some(letter) = stacks(name) {
        return Some(letter);
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

    #[test]
    fn roles_over_a_card() {
        assert_eq!(role_over_card("hw_execute.isra.0 [card]"), Some('w'));
        assert_eq!(role_over_card("hw_protection_reboot "), None);
        assert_eq!(role_over_card("card_post_send [card]"), Some('o'));
        assert_eq!(role_over_card("smc_sendmsg [smc]"), Some('o'));
        assert_eq!(role_over_card("sysvec_irq_work "), Some('o'));
        // Only the card has functions of hardware, and all entries of interrupts are the host's.
        assert_eq!(role_over_card("__sysvec_irq_work "), Some('o'));
        assert_eq!(role_over_card("hw_execute [other]"), None);
        assert_eq!(
            role_over_card("<smc::conn::SmcConn>::send [rsmc]"),
            Some('o')
        );
        assert_eq!(role_over_card("memcpy "), None);
        assert!(is_card("hw_execute.isra.0 [card]") && !is_card("card_poll_cq [card]"));
        assert_eq!(role_over_card("ip_queue_xmit "), None);
        assert_eq!(role_over_card("__switch_to "), Some('s'));
    }
}
