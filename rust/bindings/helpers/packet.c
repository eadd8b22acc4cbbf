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

int rsmc_helper_skb_cow_head(struct sk_buff *skb, unsigned int room)
{
	return skb_cow_head(skb, room);
}

/* Moves the headers, of `len` bytes from `data` on, to make room behind them. */
void rsmc_helper_skb_lift_headers(struct sk_buff *skb, unsigned int len, unsigned int room)
{
	int transport = skb_transport_offset(skb);
	void *from = skb->data;

	memmove(skb_push(skb, room), from, len);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, transport);
	skb->csum_start -= room;
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
