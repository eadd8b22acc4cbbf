// SPDX-License-Identifier: GPL-2.0
/* Packets. */

/* linux/skbuff.h, linux/ip.h */

void *rsmc_helper_skb_transport_header(const struct sk_buff *skb)
{
	return skb_transport_header(skb);
}

void *rsmc_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

int rsmc_helper_skb_transport_offset(const struct sk_buff *skb)
{
	return skb_transport_offset(skb);
}

int rsmc_helper_skb_network_offset(const struct sk_buff *skb)
{
	return skb_network_offset(skb);
}

bool rsmc_helper_skb_carries_tcp4(const struct sk_buff *skb)
{
	return ip_hdr(skb)->protocol == IPPROTO_TCP;
}

int rsmc_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

u32 rsmc_helper_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

bool rsmc_helper_skb_checksum_partial(const struct sk_buff *skb)
{
	return skb->ip_summed == CHECKSUM_PARTIAL;
}

/* net/checksum.h, net/ip.h */

void rsmc_helper_csum_replace2_pseudo(__sum16 *sum, struct sk_buff *skb, __be16 from, __be16 to)
{
	inet_proto_csum_replace2(sum, skb, from, to, true);
}

void rsmc_helper_ip_send_check(struct iphdr *iph)
{
	ip_send_check(iph);
}
