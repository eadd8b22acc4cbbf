// SPDX-License-Identifier: GPL-2.0
/*
 * In C, because every IPv6 packet of a namespace with the SYN hook passes here: one call from Rust instead of
 * four (two offsets, the header, the walk over the extension headers).
 */

bool rsmc_helper_skb_carries_tcp6(const struct sk_buff *skb)
{
	int start = skb_network_offset(skb) + sizeof(struct ipv6hdr);
	u8 next = ipv6_hdr(skb)->nexthdr;
	__be16 fragment;

	start = ipv6_skip_exthdr(skb, start, &next, &fragment);
	return next == IPPROTO_TCP && start == skb_transport_offset(skb);
}
