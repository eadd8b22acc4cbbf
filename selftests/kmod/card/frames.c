// SPDX-License-Identifier: GPL-2.0
/*
 * The hardware of Ethernet ports: takes frames out of rings, cuts them into
 * packets, fills checksums in and verifies them, puts bytes into the buffers
 * that the driver of the other end has posted, and says so by interrupts.
 *
 * A frame of several packets whose receiver merges packets crosses whole, as if
 * it had been cut and put together again.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip6_checksum.h>
#include "port.h"

/* Ports that are up, under hw_wire. */
static LIST_HEAD(hw_ports);

/* The longest headers that the hardware reads. */
#define HW_HEAD 256

/* Where the hardware reads a frame. */
struct hw_reader {
	const struct hw_end *end;
	const struct card_frame *frame;
	u32 piece, offset;
};

/* A frame on its way; its beginning was read. */
struct hw_frame {
	const struct card_frame *from;
	struct card_port *port;
	u32 length, headed;
	/* Where the headers begin; 0 if there are none of the kind. */
	u32 network, transport;
	bool v6, fragment;
	u8 protocol;
	u32 hash;
	u8 head[HW_HEAD] __aligned(8);
};

/* It is large, and only one is used at a time. Under hw_wire. */
static struct hw_frame hw_current;

/* --- reading -------------------------------------------------------------- */

/* The next piece of at most `length` bytes. */
static u32 hw_read_piece(struct hw_reader *reader, u32 length, const void **at)
{
	const struct card_piece *piece = &reader->frame->piece[reader->piece];

	while (reader->offset == piece->length) {
		reader->piece++;
		reader->offset = 0;
		piece++;
	}
	length = min(length, piece->length - reader->offset);
	*at = hw_port_memory(reader->end, piece->address) + reader->offset;
	reader->offset += length;
	return length;
}

/* Copies, or skips if there is nowhere to copy to. */
static void hw_read(struct hw_reader *reader, void *to, u32 length)
{
	const void *at;
	u32 n;

	for (; length; length -= n) {
		n = hw_read_piece(reader, length, &at);
		if (!to)
			continue;
		memcpy(to, at, n);
		to += n;
	}
}

/* The sum of `length` bytes, added to one of `before` bytes. Moves the reader. */
static __wsum hw_sum(struct hw_reader *reader, u32 length, __wsum sum, u32 before)
{
	const void *at;
	u32 n;

	for (; length; length -= n, before += n) {
		n = hw_read_piece(reader, length, &at);
		sum = csum_block_add(sum, csum_partial(at, n, 0), before);
	}
	return sum;
}

/* A reader at a place of a frame. */
static struct hw_reader hw_reader_at(const struct hw_frame *frame, u32 offset)
{
	struct hw_reader reader = { .end = &frame->port->end, .frame = frame->from };

	hw_read(&reader, NULL, offset);
	return reader;
}

static void hw_parse_v4(struct hw_frame *frame)
{
	const struct iphdr *ip = (void *)frame->head + frame->network;

	if (frame->network + sizeof(*ip) > frame->headed || ip->ihl < 5)
		return;
	frame->fragment = ip->frag_off & htons(IP_MF | IP_OFFSET);
	frame->protocol = ip->protocol;
	frame->transport = frame->network + ip->ihl * 4;
	frame->hash = jhash_2words((__force u32)ip->saddr, (__force u32)ip->daddr, 0);
}

static void hw_parse_v6(struct hw_frame *frame)
{
	const struct ipv6hdr *ip = (void *)frame->head + frame->network;

	if (frame->network + sizeof(*ip) > frame->headed)
		return;
	frame->protocol = ip->nexthdr;
	frame->transport = frame->network + sizeof(*ip);
	frame->hash = jhash2((const u32 *)&ip->saddr, 8, 0);
}

/* Reads the beginning of a frame. */
static void hw_parse(struct hw_frame *frame, struct card_port *port, const struct card_frame *from)
{
	struct hw_reader reader = { .end = &port->end, .frame = from };
	__be16 type;

	frame->from = from;
	frame->port = port;
	frame->length = from->length;
	frame->headed = min_t(u32, from->length, HW_HEAD);
	frame->network = ETH_HLEN;
	frame->transport = frame->hash = 0;
	frame->v6 = frame->fragment = false;
	frame->protocol = 0;
	hw_read(&reader, frame->head, frame->headed);
	type = ((struct ethhdr *)frame->head)->h_proto;
	if (type == htons(ETH_P_8021Q)) {
		type = ((struct vlan_ethhdr *)frame->head)->h_vlan_encapsulated_proto;
		frame->network = VLAN_ETH_HLEN;
	}
	if (type == htons(ETH_P_IP)) {
		hw_parse_v4(frame);
	} else if (type == htons(ETH_P_IPV6)) {
		frame->v6 = true;
		hw_parse_v6(frame);
	}
	if (frame->protocol != IPPROTO_TCP && frame->protocol != IPPROTO_UDP)
		return;
	if (!frame->fragment && frame->transport + 8 <= frame->headed)
		frame->hash = jhash_1word(*(u32 *)(frame->head + frame->transport), frame->hash);
}

/* --- checksums ------------------------------------------------------------ */

/* The sum of addresses, protocol and length that TCP and UDP have in theirs. */
static __wsum hw_pseudo(const struct hw_frame *frame, const u8 *head, u32 length)
{
	const struct ipv6hdr *ip6 = (void *)head + frame->network;
	const struct iphdr *ip = (void *)head + frame->network;

	if (frame->v6)
		return csum_unfold(~csum_ipv6_magic(&ip6->saddr, &ip6->daddr, length, frame->protocol, 0));
	return csum_tcpudp_nofold(ip->saddr, ip->daddr, length, frame->protocol, 0);
}

/* Fills the checksum in that the driver has left out. */
static void hw_fill_checksum(struct hw_frame *frame)
{
	const struct card_frame *from = frame->from;
	__sum16 *at = (void *)frame->head + from->csum_at;
	struct hw_reader reader = hw_reader_at(frame, from->csum_start);
	__sum16 sum = csum_fold(hw_sum(&reader, frame->length - from->csum_start, 0, 0));

	*at = sum ?: CSUM_MANGLED_0;
}

/* Whether the transport's checksum is right; one that cannot be told is not. */
static bool hw_is_checked(const struct hw_frame *frame)
{
	struct hw_reader reader;
	u32 length;

	if (!frame->transport || frame->fragment)
		return false;
	if (frame->v6)
		length = ntohs(((struct ipv6hdr *)(frame->head + frame->network))->payload_len);
	else
		length = ntohs(((struct iphdr *)(frame->head + frame->network))->tot_len) -
			 (frame->transport - frame->network);
	if (length < sizeof(struct udphdr) || frame->transport + length > frame->length)
		return false;
	switch (frame->protocol) {
	case IPPROTO_TCP:
		break;
	case IPPROTO_UDP:
		if (!((struct udphdr *)(frame->head + frame->transport))->check)
			return false;
		break;
	default:
		return false;
	}
	reader = hw_reader_at(frame, frame->transport);
	return !csum_fold(hw_sum(&reader, length, hw_pseudo(frame, frame->head, length), 0));
}

/* --- delivery ------------------------------------------------------------- */

/*
 * Puts a packet, or several of one frame, into the buffers of a port: headers
 * from `head`, the rest from the reader. `arrival` says what the driver hears.
 */
static void hw_deliver(struct card_port *to, const u8 *head, u32 headed, struct hw_reader *reader, u32 rest, u32 hash,
		       struct hw_arrival arrival)
{
	struct card_channel *channel = &to->channel[hash % to->channels];
	struct card_rx *rx = &channel->rx;
	u32 left = headed + rest, next = rx->next;
	u32 buffers = 1 + (left > CARD_FIRST ? DIV_ROUND_UP(left - CARD_FIRST, PAGE_SIZE) : 0);
	u32 room, offset, n;
	void *at;

	/* With the store in card_refill(). */
	if (smp_load_acquire(&rx->head) - next < buffers) {
		hw_count(to, NO_BUFFER);
		return;
	}
	hw_count(to, ARRIVED);
	if (to->setup.hashes)
		arrival.hash = hash;
	room = CARD_FIRST;
	offset = CARD_HEADROOM;
	for (; left; left -= arrival.length) {
		at = hw_port_memory(&to->end, rx->address[next & (CARD_RING - 1)]) + offset;
		arrival.length = min(left, room);
		arrival.last = left == arrival.length;
		n = min(headed, arrival.length);
		memcpy(at, head, n);
		head += n;
		headed -= n;
		hw_read(reader, at + n, arrival.length - n);
		rx->arrival[next++ & (CARD_RING - 1)] = arrival;
		room = PAGE_SIZE;
		offset = 0;
	}
	/* The driver reads what arrived after the number of it. */
	smp_store_release(&rx->next, next);
	hw_source_happened(&channel->arrived, true);
}

/* As it is. */
static void hw_deliver_whole(struct card_port *to, const struct hw_frame *frame, bool checked)
{
	const struct card_frame *from = frame->from;
	struct hw_reader reader = hw_reader_at(frame, frame->headed);
	struct hw_arrival arrival = { .checked = checked, .gso_segs = 1 };

	if (from->gso_size) {
		arrival.gso_size = from->gso_size;
		arrival.gso_segs = DIV_ROUND_UP(frame->length - from->headers, from->gso_size);
		arrival.csum_start = from->csum_start;
		arrival.csum_offset = from->csum_at - from->csum_start;
		arrival.v6 = frame->v6;
	}
	hw_deliver(to, frame->head, frame->headed, &reader, frame->length - frame->headed, frame->hash, arrival);
}

/* The headers of one of the packets that a frame is cut into. */
static void hw_cut_headers(const struct hw_frame *frame, u8 *head, u32 offset, u32 length)
{
	u32 headers = frame->from->headers;
	struct tcphdr *tcp = (void *)head + frame->transport;
	struct hw_reader reader;
	__wsum sum;

	memcpy(head, frame->head, headers);
	if (frame->v6) {
		((struct ipv6hdr *)(head + frame->network))->payload_len =
			htons(headers + length - frame->transport);
	} else {
		struct iphdr *ip = (void *)head + frame->network;

		ip->tot_len = htons(headers + length - frame->network);
		ip->id = htons(ntohs(ip->id) + offset / frame->from->gso_size);
		ip->check = 0;
		ip->check = ip_fast_csum(ip, ip->ihl);
	}
	tcp->seq = htonl(ntohl(tcp->seq) + offset);
	if (offset)
		tcp->cwr = 0;
	if (headers + offset + length < frame->length)
		tcp->fin = tcp->psh = 0;
	tcp->check = 0;
	sum = hw_pseudo(frame, head, headers + length - frame->transport);
	sum = csum_partial(tcp, headers - frame->transport, sum);
	reader = hw_reader_at(frame, headers + offset);
	tcp->check = csum_fold(hw_sum(&reader, length, sum, headers - frame->transport));
}

static void hw_deliver_cut(struct card_port *to, const struct hw_frame *frame)
{
	u32 headers = frame->from->headers, size = frame->from->gso_size, offset, length;
	struct hw_reader reader = hw_reader_at(frame, headers);
	struct hw_arrival arrival = { .checked = true, .gso_segs = 1 };
	u8 head[HW_HEAD] __aligned(8);

	for (offset = 0; headers + offset < frame->length; offset += size) {
		length = min(size, frame->length - headers - offset);
		hw_cut_headers(frame, head, offset, length);
		hw_deliver(to, head, headers, &reader, length, frame->hash, arrival);
	}
}

static bool hw_takes(const struct card_port *port, const u8 *mac)
{
	return port->setup.promiscuous || is_multicast_ether_addr(mac) || ether_addr_equal(port->setup.mac, mac);
}

/* Whether the driver has asked for something that the hardware does not do. */
static bool hw_is_odd(const struct hw_frame *frame)
{
	const struct card_frame *from = frame->from;

	if (from->length < ETH_HLEN || (from->csum_start && from->csum_at + sizeof(__sum16) > frame->headed))
		return true;
	return from->gso_size && (frame->protocol != IPPROTO_TCP || !frame->transport || frame->fragment ||
				  from->headers < frame->transport + sizeof(struct tcphdr) ||
				  from->headers > frame->headed || from->headers >= from->length || !from->csum_start);
}

/* Sends a frame. Under hw_wire. */
static void hw_send(struct card_port *port, const struct card_frame *from)
{
	struct hw_frame *frame = &hw_current;
	u32 packet = from->gso_size ? min(from->length, from->headers + from->gso_size) : from->length;
	struct card_port *to;
	bool checked = false;

	hw_parse(frame, port, from);
	if (packet > port->setup.mtu + VLAN_ETH_HLEN || hw_is_odd(frame)) {
		hw_count(port, REFUSED);
		return;
	}
	hw_count(port, FRAMES);
	port->end.counts[BYTES] += from->length;
	port->end.counts[PACKETS] += from->gso_size ? DIV_ROUND_UP(from->length - from->headers, from->gso_size) : 1;
	if (!from->gso_size) {
		if (from->csum_start)
			hw_fill_checksum(frame);
		checked = from->csum_start || hw_is_checked(frame);
	}
	list_for_each_entry(to, &hw_ports, on_wire) {
		if (to == port || !hw_takes(to, frame->head))
			continue;
		if (!hw_passes(port->end.trouble, to->end.trouble, packet, false))
			hw_count(port, LOST);
		else if (from->gso_size && !to->setup.merges)
			hw_deliver_cut(to, frame);
		else
			hw_deliver_whole(to, frame, checked);
	}
}

/* Sends what is there. Under hw_wire. */
static void hw_frames_run(struct card_channel *channel)
{
	struct card_port *port = channel->port;
	struct card_tx *tx = &channel->tx;

	/* With the store in card_start_xmit(). */
	while (!port->end.trouble->dead && tx->next != smp_load_acquire(&tx->head)) {
		hw_send(port, &tx->ring[tx->next & (CARD_RING - 1)]);
		/* What was sent may be freed. */
		smp_store_release(&tx->next, tx->next + 1);
		hw_count(port, COMPLETIONS);
		hw_source_happened(&channel->sent, true);
	}
}

/* --- doorbells ------------------------------------------------------------ */

/* A doorbell of a queue. */
void hw_frames_ring(struct card_channel *channel)
{
	struct card_port *port = channel->port;
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	hw_count(port, DOORBELLS);
	if (port->end.trouble->latency) {
		if (!channel->waiting)
			hrtimer_start(&channel->timer, ns_to_ktime(port->end.trouble->latency), HRTIMER_MODE_REL_HARD);
		channel->waiting = true;
	} else if (in_interrupt_engine) {
		hw_interrupt_raise(&channel->doorbell);
	} else {
		hw_frames_run(channel);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

static void hw_frames_doorbell(struct hw_interrupt *interrupt)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	hw_frames_run(container_of(interrupt, struct card_channel, doorbell));
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

static enum hrtimer_restart hw_frames_late(struct hrtimer *timer)
{
	struct card_channel *channel = container_of(timer, struct card_channel, timer);
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	channel->waiting = false;
	hw_count(channel->port, LATE);
	hw_frames_run(channel);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return HRTIMER_NORESTART;
}

/* --- objects -------------------------------------------------------------- */

void hw_channel_setup(struct card_channel *channel, void (*sent)(struct hw_source *),
		      void (*arrived)(struct hw_source *))
{
	struct card_vector *vector = &channel->port->end.vectors[channel->index];

	hw_source_setup(&channel->sent, vector, sent);
	hw_source_setup(&channel->arrived, vector, arrived);
	hw_interrupt_setup(&channel->doorbell, vector->interrupt.cpu, hw_frames_doorbell);
	hrtimer_setup(&channel->timer, hw_frames_late, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	channel->waiting = false;
	channel->tx.next = channel->rx.next = 0;
}

/* The driver has seen what was there and asks for interrupts of what follows. */
void hw_channel_arm(struct card_channel *channel)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	hw_source_arm(&channel->arrived);
	hw_source_arm(&channel->sent);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

void hw_port_set(struct card_port *port, const struct card_setup *setup)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	port->setup = *setup;
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

void hw_port_up(struct card_port *port)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	list_add_tail(&port->on_wire, &hw_ports);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* Nothing of the hardware touches the port's rings after that. */
void hw_port_down(struct card_port *port)
{
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&hw_wire, flags);
	list_del_init(&port->on_wire);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	for (i = 0; i < port->channels; i++) {
		struct card_channel *channel = &port->channel[i];

		hrtimer_cancel(&channel->timer);
		hw_interrupt_stop(&channel->doorbell);
		hw_source_remove(&channel->sent);
		hw_source_remove(&channel->arrived);
	}
}
