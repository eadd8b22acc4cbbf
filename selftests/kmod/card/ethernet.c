// SPDX-License-Identifier: GPL-2.0
/*
 * The driver of an Ethernet port: what a driver of hardware does on the host's
 * processor. Packets are mapped and described in a ring, a doorbell is rung;
 * buffers are posted; interrupts schedule NAPI, which frees what was sent,
 * makes packets of what arrived and posts buffers again.
 *
 * `ip link add NAME type card` makes one. All ports are on one wire.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/tcp.h>
#include <net/netdev_queues.h>
#include <net/page_pool/helpers.h>
#include <net/rtnetlink.h>
#include "port.h"

/* What is not longer is copied, and its buffer posted again at once. */
#define CARD_COPY 256
/* Buffers are posted by that many. */
#define CARD_REFILL 16
/* Moderation of what was sent, see README.md: a wire without delay would raise an interrupt for each. */
#define CARD_SENT_FRAMES 32
#define CARD_SENT_USECS 256

#define CARD_FEATURES                                                                                        \
	(NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN | NETIF_F_RXCSUM |      \
	 NETIF_F_RXHASH | NETIF_F_GRO_HW | NETIF_F_HIGHDMA)

/* --- sending -------------------------------------------------------------- */

static bool card_map_piece(struct card_port *port, struct card_frame *frame, dma_addr_t address, u32 length)
{
	if (port->end.platform && dma_mapping_error(&port->end.platform->dev, address))
		return false;
	frame->piece[frame->pieces++] = (struct card_piece){ .address = address, .length = length };
	return true;
}

/* The first piece is the packet's head. */
static void card_unmap(struct card_port *port, const struct card_frame *frame)
{
	int i;

	if (!port->end.platform)
		return;
	dma_unmap_single(&port->end.platform->dev, frame->piece[0].address, frame->piece[0].length, DMA_TO_DEVICE);
	for (i = 1; i < frame->pieces; i++)
		dma_unmap_page(&port->end.platform->dev, frame->piece[i].address, frame->piece[i].length,
			       DMA_TO_DEVICE);
}

static bool card_map(struct card_port *port, struct card_frame *frame, struct sk_buff *skb)
{
	struct device *dev = port->end.platform ? &port->end.platform->dev : NULL;
	const skb_frag_t *frag;
	dma_addr_t address;
	int i;

	frame->pieces = 0;
	if (dev)
		address = dma_map_single(dev, skb->data, skb_headlen(skb), DMA_TO_DEVICE);
	else
		address = (uintptr_t)skb->data;
	if (!card_map_piece(port, frame, address, skb_headlen(skb)))
		return false;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		frag = &skb_shinfo(skb)->frags[i];
		if (dev)
			address = skb_frag_dma_map(dev, frag, 0, skb_frag_size(frag), DMA_TO_DEVICE);
		else
			address = (uintptr_t)skb_frag_address(frag);
		if (!card_map_piece(port, frame, address, skb_frag_size(frag))) {
			card_unmap(port, frame);
			return false;
		}
	}
	return true;
}

static u32 card_room(const struct card_tx *tx)
{
	return CARD_RING - (tx->head - READ_ONCE(tx->tail));
}

static netdev_tx_t card_start_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct card_port *port = netdev_priv(netdev);
	struct card_channel *channel = &port->channel[skb_get_queue_mapping(skb)];
	struct netdev_queue *queue = netdev_get_tx_queue(netdev, channel->index);
	struct card_tx *tx = &channel->tx;
	struct card_frame *frame = &tx->ring[tx->head & (CARD_RING - 1)];
	bool ring;

	if (!card_room(tx)) {
		netif_tx_stop_queue(queue);
		return NETDEV_TX_BUSY;
	}
	if (!card_map(port, frame, skb)) {
		dev_kfree_skb_any(skb);
		dev_core_stats_tx_dropped_inc(netdev);
		/* Those before it may wait for the doorbell. */
		hw_frames_ring(channel);
		return NETDEV_TX_OK;
	}
	frame->length = skb->len;
	frame->csum_start = 0;
	frame->gso_size = 0;
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		frame->csum_start = skb_checksum_start_offset(skb);
		frame->csum_at = frame->csum_start + skb->csum_offset;
	}
	if (skb_is_gso(skb)) {
		frame->gso_size = skb_shinfo(skb)->gso_size;
		frame->headers = skb_tcp_all_headers(skb);
	}
	tx->skb[tx->head & (CARD_RING - 1)] = skb;
	skb_tx_timestamp(skb);
	/* Before the hardware may send it, and NAPI say that it did. */
	ring = __netdev_tx_sent_queue(queue, skb->len, netdev_xmit_more());
	/* The frame is written before the hardware may read it. */
	smp_store_release(&tx->head, tx->head + 1);
	netif_txq_maybe_stop(queue, card_room(tx), 1, CARD_RING / 4);
	if (ring || netif_xmit_stopped(queue))
		hw_frames_ring(channel);
	return NETDEV_TX_OK;
}

/* Frees what was sent. */
static void card_clean(struct card_channel *channel, int budget)
{
	struct net_device *netdev = channel->port->netdev;
	struct netdev_queue *queue = netdev_get_tx_queue(netdev, channel->index);
	struct card_tx *tx = &channel->tx;
	/* What the hardware sent before it moved on. */
	u32 next = smp_load_acquire(&tx->next), tail = tx->tail;
	unsigned int packets = 0, bytes = 0;
	struct sk_buff *skb;

	if (tail == next)
		return;
	for (; tail != next; tail++) {
		skb = tx->skb[tail & (CARD_RING - 1)];
		packets++;
		bytes += skb->len;
		card_unmap(channel->port, &tx->ring[tail & (CARD_RING - 1)]);
		napi_consume_skb(skb, budget);
	}
	WRITE_ONCE(tx->tail, tail);
	dev_sw_netstats_tx_add(netdev, packets, bytes);
	__netif_txq_completed_wake(queue, packets, bytes, card_room(tx), CARD_RING / 4, false);
}

/* --- receiving ------------------------------------------------------------ */

/* Posts buffers: those whose bytes were copied again, and new ones. */
static void card_refill(struct card_channel *channel)
{
	struct card_rx *rx = &channel->rx;
	u32 head = rx->head;
	struct page *page;

	if (CARD_RING - (head - rx->tail) < CARD_REFILL)
		return;
	for (; head - rx->tail < CARD_RING; head++) {
		u32 at = head & (CARD_RING - 1);

		if (rx->page[at])
			continue;
		page = page_pool_dev_alloc_pages(rx->pool);
		if (!page)
			break;
		rx->page[at] = page;
		if (channel->port->end.platform)
			rx->address[at] = page_pool_get_dma_addr(page);
		else
			rx->address[at] = (uintptr_t)page_address(page);
	}
	/* The hardware reads addresses after the number of them. */
	smp_store_release(&rx->head, head);
	hw_count(channel->port, RECEIVE_DOORBELLS);
}

/* A packet that is copied; its buffer stays. */
static struct sk_buff *card_copy(struct card_channel *channel, struct page *page, u32 length)
{
	struct sk_buff *skb = napi_alloc_skb(&channel->napi, length);

	if (skb)
		skb_put_data(skb, page_address(page) + CARD_HEADROOM, length);
	return skb;
}

/* One around its first buffer, with the others as fragments. */
static struct sk_buff *card_build(struct card_rx *rx, u32 tail)
{
	const struct hw_arrival *arrival;
	struct sk_buff *skb;
	u32 at = tail & (CARD_RING - 1);

	skb = napi_build_skb(page_address(rx->page[at]), PAGE_SIZE);
	if (!skb)
		return NULL;
	skb_mark_for_recycle(skb);
	skb_reserve(skb, CARD_HEADROOM);
	skb_put(skb, rx->arrival[at].length);
	rx->page[at] = NULL;
	while (!rx->arrival[at].last) {
		at = ++tail & (CARD_RING - 1);
		arrival = &rx->arrival[at];
		page_pool_dma_sync_for_cpu(rx->pool, rx->page[at], 0, arrival->length);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, rx->page[at], 0, arrival->length, PAGE_SIZE);
		rx->page[at] = NULL;
	}
	return skb;
}

/* What the hardware has said of a packet, or of several. */
static bool card_describe(struct net_device *netdev, struct sk_buff *skb, const struct hw_arrival *arrival)
{
	struct skb_shared_info *info = skb_shinfo(skb);

	if (arrival->gso_size) {
		if (!skb_partial_csum_set(skb, arrival->csum_start, arrival->csum_offset))
			return false;
		info->gso_size = arrival->gso_size;
		info->gso_segs = arrival->gso_segs;
		info->gso_type = arrival->v6 ? SKB_GSO_TCPV6 : SKB_GSO_TCPV4;
	} else if (arrival->checked && (netdev->features & NETIF_F_RXCSUM)) {
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	}
	if (arrival->hash)
		skb_set_hash(skb, arrival->hash, PKT_HASH_TYPE_L4);
	return true;
}

static int card_receive(struct card_channel *channel, int budget)
{
	struct net_device *netdev = channel->port->netdev;
	struct card_rx *rx = &channel->rx;
	/* What the hardware wrote before it moved on. */
	u32 next = smp_load_acquire(&rx->next);
	int work = 0;

	while (work < budget && rx->tail != next) {
		u32 at = rx->tail & (CARD_RING - 1);
		const struct hw_arrival *arrival = &rx->arrival[at];
		struct sk_buff *skb;

		page_pool_dma_sync_for_cpu(rx->pool, rx->page[at], CARD_HEADROOM, arrival->length);
		if (arrival->last && arrival->length <= CARD_COPY)
			skb = card_copy(channel, rx->page[at], arrival->length);
		else
			skb = card_build(rx, rx->tail);
		while (!rx->arrival[rx->tail++ & (CARD_RING - 1)].last)
			;
		work++;
		if (!skb) {
			dev_core_stats_rx_dropped_inc(netdev);
			continue;
		}
		dev_sw_netstats_rx_add(netdev, skb->len);
		if (!card_describe(netdev, skb, arrival)) {
			dev_core_stats_rx_dropped_inc(netdev);
			kfree_skb(skb);
			continue;
		}
		skb_record_rx_queue(skb, channel->index);
		skb->protocol = eth_type_trans(skb, netdev);
		napi_gro_receive(&channel->napi, skb);
	}
	return work;
}

static int card_poll(struct napi_struct *napi, int budget)
{
	struct card_channel *channel = container_of(napi, struct card_channel, napi);
	int work;

	card_clean(channel, budget);
	work = card_receive(channel, budget);
	card_refill(channel);
	if (work == budget || !napi_complete_done(napi, work))
		return work;
	hw_channel_arm(channel);
	/* After the arming: what comes now raises an interrupt, or is seen here. */
	if (READ_ONCE(channel->rx.next) != channel->rx.tail || READ_ONCE(channel->tx.next) != channel->tx.tail)
		napi_schedule(napi);
	return work;
}

/* The handlers of interrupts. */
static void card_arrived(struct hw_source *source)
{
	napi_schedule_irqoff(&container_of(source, struct card_channel, arrived)->napi);
}

static void card_sent(struct hw_source *source)
{
	napi_schedule_irqoff(&container_of(source, struct card_channel, sent)->napi);
}

/* --- up and down ---------------------------------------------------------- */

static void card_channel_free(struct card_channel *channel)
{
	struct card_rx *rx = &channel->rx;
	struct card_tx *tx = &channel->tx;
	int i;

	for (; tx->tail != tx->head; tx->tail++) {
		card_unmap(channel->port, &tx->ring[tx->tail & (CARD_RING - 1)]);
		dev_kfree_skb_any(tx->skb[tx->tail & (CARD_RING - 1)]);
	}
	for (i = 0; rx->page && i < CARD_RING; i++)
		if (rx->page[i])
			page_pool_put_full_page(rx->pool, rx->page[i], false);
	page_pool_destroy(rx->pool);
	kvfree(rx->page);
	kvfree(rx->address);
	kvfree(rx->arrival);
	kvfree(tx->ring);
	kvfree(tx->skb);
	memset(rx, 0, sizeof(*rx));
	memset(tx, 0, sizeof(*tx));
}

static int card_channel_make(struct card_channel *channel)
{
	struct platform_device *platform = channel->port->end.platform;
	struct page_pool_params params = {
		.pool_size = CARD_RING,
		.nid = NUMA_NO_NODE,
		.napi = &channel->napi,
		.dev = platform ? &platform->dev : NULL,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = PAGE_SIZE,
		.flags = platform ? PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV : 0,
	};
	struct card_rx *rx = &channel->rx;
	struct card_tx *tx = &channel->tx;

	tx->ring = kvcalloc(CARD_RING, sizeof(*tx->ring), GFP_KERNEL);
	tx->skb = kvcalloc(CARD_RING, sizeof(*tx->skb), GFP_KERNEL);
	rx->page = kvcalloc(CARD_RING, sizeof(*rx->page), GFP_KERNEL);
	rx->address = kvcalloc(CARD_RING, sizeof(*rx->address), GFP_KERNEL);
	rx->arrival = kvcalloc(CARD_RING, sizeof(*rx->arrival), GFP_KERNEL);
	rx->pool = page_pool_create(&params);
	if (IS_ERR(rx->pool))
		rx->pool = NULL;
	if (!tx->ring || !tx->skb || !rx->page || !rx->address || !rx->arrival || !rx->pool) {
		card_channel_free(channel);
		return -ENOMEM;
	}
	hw_channel_setup(channel, card_sent, card_arrived);
	return 0;
}

static void card_moderate(struct card_port *port)
{
	int i;

	for (i = 0; i < port->channels; i++) {
		hw_source_moderate(&port->channel[i].sent, port->sent_frames, port->sent_usecs);
		hw_source_moderate(&port->channel[i].arrived, port->arrived_frames, port->arrived_usecs);
	}
}

static int card_open(struct net_device *netdev)
{
	struct card_port *port = netdev_priv(netdev);
	cpumask_var_t mask;
	int i, cpu, error;

	for (i = 0; i < port->channels; i++) {
		error = card_channel_make(&port->channel[i]);
		if (error)
			goto free;
	}
	if (zalloc_cpumask_var(&mask, GFP_KERNEL)) {
		for (i = 0; i < port->channels; i++) {
			cpumask_clear(mask);
			for_each_possible_cpu(cpu)
				if (cpu % port->channels == i)
					cpumask_set_cpu(cpu, mask);
			netif_set_xps_queue(netdev, mask, i);
		}
		free_cpumask_var(mask);
	}
	card_moderate(port);
	for (i = 0; i < port->channels; i++) {
		struct card_channel *channel = &port->channel[i];

		netif_napi_add(netdev, &channel->napi, card_poll);
		napi_enable(&channel->napi);
		local_bh_disable();
		card_refill(channel);
		local_bh_enable();
		netdev_tx_reset_queue(netdev_get_tx_queue(netdev, i));
	}
	hw_port_up(port);
	for (i = 0; i < port->channels; i++)
		hw_channel_arm(&port->channel[i]);
	netif_tx_start_all_queues(netdev);
	netif_carrier_on(netdev);
	return 0;
free:
	while (i--)
		card_channel_free(&port->channel[i]);
	return error;
}

static int card_stop(struct net_device *netdev)
{
	struct card_port *port = netdev_priv(netdev);
	int i;

	netif_carrier_off(netdev);
	netif_tx_disable(netdev);
	hw_port_down(port);
	for (i = 0; i < port->channels; i++) {
		napi_disable(&port->channel[i].napi);
		netif_napi_del(&port->channel[i].napi);
		card_channel_free(&port->channel[i]);
	}
	return 0;
}

/* Tells the hardware what it is to do. */
static void card_set_up(struct net_device *netdev, netdev_features_t features)
{
	struct card_setup setup = {
		.mtu = netdev->mtu,
		.promiscuous = netdev->flags & IFF_PROMISC,
		.merges = features & NETIF_F_GRO_HW,
		.hashes = features & NETIF_F_RXHASH,
	};

	ether_addr_copy(setup.mac, netdev->dev_addr);
	hw_port_set(netdev_priv(netdev), &setup);
}

static void card_set_rx_mode(struct net_device *netdev)
{
	card_set_up(netdev, netdev->features);
}

static int card_set_mac_address(struct net_device *netdev, void *address)
{
	int error = eth_mac_addr(netdev, address);

	if (!error)
		card_set_up(netdev, netdev->features);
	return error;
}

static int card_change_mtu(struct net_device *netdev, int mtu)
{
	WRITE_ONCE(netdev->mtu, mtu);
	card_set_up(netdev, netdev->features);
	return 0;
}

static int card_set_features(struct net_device *netdev, netdev_features_t features)
{
	card_set_up(netdev, features);
	return 0;
}

static int card_init_port(struct net_device *netdev)
{
	struct card_port *port = netdev_priv(netdev);
	int i, error;

	port->netdev = netdev;
	port->channels = netdev->num_tx_queues;
	port->sent_frames = CARD_SENT_FRAMES;
	port->sent_usecs = CARD_SENT_USECS;
	INIT_LIST_HEAD(&port->all);
	INIT_LIST_HEAD(&port->on_wire);
	hw_end_setup(&port->end);
	for (i = 0; i < port->channels; i++) {
		port->channel[i].port = port;
		port->channel[i].index = i;
	}
	if (real_dma) {
		error = card_make_parent(&port->end);
		if (error)
			return error;
	}
	card_set_up(netdev, netdev->features);
	card_port_remember(port);
	return 0;
}

static void card_uninit_port(struct net_device *netdev)
{
	struct card_port *port = netdev_priv(netdev);

	card_port_forget(port);
	hw_end_stop(&port->end);
	if (port->end.platform)
		platform_device_unregister(port->end.platform);
}

static const struct net_device_ops card_netdev_ops = {
	.ndo_init = card_init_port,
	.ndo_uninit = card_uninit_port,
	.ndo_open = card_open,
	.ndo_stop = card_stop,
	.ndo_start_xmit = card_start_xmit,
	.ndo_set_rx_mode = card_set_rx_mode,
	.ndo_set_mac_address = card_set_mac_address,
	.ndo_change_mtu = card_change_mtu,
	.ndo_set_features = card_set_features,
	.ndo_validate_addr = eth_validate_addr,
};

/* --- ethtool, rtnetlink --------------------------------------------------- */

static int card_get_coalesce(struct net_device *netdev, struct ethtool_coalesce *to,
			     struct kernel_ethtool_coalesce *more, struct netlink_ext_ack *extack)
{
	struct card_port *port = netdev_priv(netdev);

	to->tx_max_coalesced_frames = port->sent_frames;
	to->tx_coalesce_usecs = port->sent_usecs;
	to->rx_max_coalesced_frames = port->arrived_frames;
	to->rx_coalesce_usecs = port->arrived_usecs;
	return 0;
}

static int card_set_coalesce(struct net_device *netdev, struct ethtool_coalesce *from,
			     struct kernel_ethtool_coalesce *more, struct netlink_ext_ack *extack)
{
	struct card_port *port = netdev_priv(netdev);

	port->sent_frames = from->tx_max_coalesced_frames;
	port->sent_usecs = from->tx_coalesce_usecs;
	port->arrived_frames = from->rx_max_coalesced_frames;
	port->arrived_usecs = from->rx_coalesce_usecs;
	card_moderate(port);
	return 0;
}

static const struct ethtool_ops card_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_USECS | ETHTOOL_COALESCE_MAX_FRAMES,
	.get_coalesce = card_get_coalesce,
	.set_coalesce = card_set_coalesce,
	.get_link = ethtool_op_get_link,
	.get_ts_info = ethtool_op_get_ts_info,
};

static void card_setup_link(struct net_device *netdev)
{
	ether_setup(netdev);
	netdev->netdev_ops = &card_netdev_ops;
	netdev->ethtool_ops = &card_ethtool_ops;
	netdev->needs_free_netdev = true;
	netdev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	netdev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	netdev->hw_features = CARD_FEATURES & ~NETIF_F_HIGHDMA;
	netdev->features = CARD_FEATURES;
	netdev->vlan_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_ALL_TSO | NETIF_F_HIGHDMA;
	netdev->max_mtu = 9000;
}

static int card_new_link(struct net_device *netdev, struct rtnl_newlink_params *params, struct netlink_ext_ack *extack)
{
	if (!params->tb[IFLA_ADDRESS])
		eth_hw_addr_random(netdev);
	netif_carrier_off(netdev);
	return register_netdevice(netdev);
}

static unsigned int card_queues(void)
{
	return min_t(unsigned int, CARD_VECTORS, num_possible_cpus());
}

struct rtnl_link_ops card_port_link_ops = {
	.kind = "card",
	.priv_size = sizeof(struct card_port),
	.setup = card_setup_link,
	.newlink = card_new_link,
	.get_num_tx_queues = card_queues,
	.get_num_rx_queues = card_queues,
};
MODULE_ALIAS_RTNL_LINK("card");

struct card_port *card_port_of(struct net_device *netdev)
{
	return netdev && netdev->netdev_ops == &card_netdev_ops ? netdev_priv(netdev) : NULL;
}
