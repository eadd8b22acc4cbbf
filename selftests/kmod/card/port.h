/* SPDX-License-Identifier: GPL-2.0 */
/* An Ethernet port of the card: what its driver (ethernet.c) and its hardware (frames.c) share. */
#ifndef CARD_PORT_H
#define CARD_PORT_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include "card.h"

/* Places of each ring. */
#define CARD_RING 1024
#define CARD_PIECES (MAX_SKB_FRAGS + 1)
/* Where a frame begins in its first buffer, and how much of it fits in there; the others it fills. */
#define CARD_HEADROOM (NET_SKB_PAD + NET_IP_ALIGN)
#define CARD_FIRST (PAGE_SIZE - CARD_HEADROOM - SKB_DATA_ALIGN(sizeof(struct skb_shared_info)))

/* A frame to send, as the driver writes it into a ring. */
struct card_frame {
	u32 length;
	/* Where a checksum begins and where it is put; no start: it is there already. */
	u16 csum_start, csum_at;
	/* Payload of each packet that the hardware makes of it, and bytes of their headers; 0: it is a packet. */
	u16 gso_size, headers;
	u16 pieces;
	struct card_piece {
		u64 address;
		u32 length;
	} piece[CARD_PIECES];
};

/* What the hardware says of a buffer that it has filled. */
struct hw_arrival {
	u32 length;
	/* The frame ends here. */
	bool last;
	/* Of a frame's first buffer from here. The checksum is right. */
	bool checked;
	/* It is several packets of this payload, whose checksum is still to be filled in. */
	u16 gso_size, gso_segs, csum_start, csum_offset;
	bool v6;
	u32 hash;
};

struct card_tx {
	struct card_frame *ring;
	struct sk_buff **skb;
	/* Driver: written up to the head; what is before the tail was freed. */
	u32 head, tail;
	/* Under hw_wire: what is sent next. All before it is sent. */
	u32 next;
};

struct card_rx {
	struct page_pool *pool;
	struct page **page;
	/* Addresses of buffers for the hardware, and what it has put there. */
	u64 *address;
	struct hw_arrival *arrival;
	/* Driver: posted up to the head; what is before the tail was read. */
	u32 head, tail;
	/* Under hw_wire: the buffer that is filled next. */
	u32 next;
};

/* A queue each way with one interrupt, on a CPU of its own. */
struct card_channel {
	struct card_port *port;
	int index;
	struct napi_struct napi;
	struct card_tx tx;
	struct card_rx rx;
	struct hw_source sent, arrived;
	/* Hardware: for frames whose doorbell was rung, in interrupt context; those that are late. */
	struct hw_interrupt doorbell;
	struct hrtimer timer;
	bool waiting;
};

/* How the driver has set the hardware up. */
struct card_setup {
	u8 mac[ETH_ALEN];
	u32 mtu;
	/* Takes frames for others; leaves packets of one frame together; tells hashes. */
	bool promiscuous, merges, hashes;
};

struct card_port {
	struct hw_end end;
	struct net_device *netdev;
	struct list_head all;
	/* Under hw_wire. */
	struct list_head on_wire;
	struct card_setup setup;
	/* Moderation, each way: frames, microseconds. */
	u32 sent_frames, sent_usecs, arrived_frames, arrived_usecs;
	int channels;
	struct card_channel channel[CARD_VECTORS];
};

/* The driver maps what is longer than a piece of `granule` bytes: ports have neighbouring addresses. */
static inline void *hw_port_memory(const struct hw_end *end, u64 address)
{
	u32 length = 0;

	return hw_memory(end, address, &length);
}

/* main.c */
void card_port_remember(struct card_port *port);
void card_port_forget(struct card_port *port);

/* ethernet.c */
extern struct rtnl_link_ops card_port_link_ops;
/* The port that a network device is, or NULL. */
struct card_port *card_port_of(struct net_device *netdev);

/* frames.c: the hardware. */
void hw_frames_ring(struct card_channel *channel);
void hw_channel_setup(struct card_channel *channel, void (*sent)(struct hw_source *),
		      void (*arrived)(struct hw_source *));
void hw_channel_arm(struct card_channel *channel);
void hw_port_set(struct card_port *port, const struct card_setup *setup);
void hw_port_up(struct card_port *port);
void hw_port_down(struct card_port *port);

#endif
