// SPDX-License-Identifier: GPL-2.0
/* A device as the RDMA core sees it: its port, its limits, its life. */
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <net/addrconf.h>
#include <rdma/ib_addr.h>
#include "card.h"

static int card_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	const struct card_profile *profile = &to_device(ib)->profile;

	memset(attr, 0, sizeof(*attr));
	attr->sys_image_guid = ib->node_guid;
	attr->max_mr_size = ~0ULL;
	attr->page_size_cap = profile->page_sizes;
	attr->max_qp = 4000;
	attr->max_qp_wr = profile->queue_wrs;
	attr->device_cap_flags = profile->no_registration ? 0 : IB_DEVICE_MEM_MGT_EXTENSIONS;
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG | (profile->no_local_key ? 0 : IBK_LOCAL_DMA_LKEY);
	attr->max_send_sge = profile->send_sge;
	attr->max_recv_sge = profile->recv_sge;
	attr->max_sge_rd = 1;
	attr->max_cq = 1 << 16;
	attr->max_cqe = 1 << 16;
	attr->max_mr = 1 << 20;
	attr->max_pd = 1 << 16;
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 16;
	attr->max_fast_reg_page_list_len = profile->no_registration ? 0 : profile->region_pages;
	attr->max_pkeys = 1;
	attr->local_ca_ack_delay = 15;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;
	return 0;
}

static int card_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	struct net_device *netdev = ib_device_get_netdev(ib, port);

	attr->gid_tbl_len = 32;
	attr->max_msg_sz = 1U << 31;
	attr->pkey_tbl_len = 1;
	attr->ip_gids = true;
	/* Without a network device there is no cable. */
	attr->state = netdev ? ib_get_curr_port_state(netdev) : IB_PORT_DOWN;
	attr->phys_state = attr->state == IB_PORT_ACTIVE ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = netdev ? iboe_get_mtu(netdev->mtu) : IB_MTU_1024;
	attr->active_speed = IB_SPEED_EDR;
	attr->active_width = IB_WIDTH_4X;
	dev_put(netdev);
	return 0;
}

/* No management datagrams and no connection manager: SMC needs neither. */
static int card_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | RDMA_CORE_CAP_PROT_ROCE |
				    RDMA_CORE_CAP_ETH_AH | RDMA_CORE_CAP_AF_IB;
	immutable->gid_tbl_len = 32;
	immutable->pkey_tbl_len = 1;
	return 0;
}

static enum rdma_link_layer card_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int card_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return index ? -EINVAL : 0;
}

/* The hardware has the same table as the core; it looks GIDs up in queue pairs only. */
static int card_add_gid(const struct ib_gid_attr *attr, void **context)
{
	return 0;
}

static int card_del_gid(const struct ib_gid_attr *attr, void **context)
{
	return 0;
}

static int card_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int card_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

/* No program has it open, so there is none to take it from: so the core may move it to another network namespace. */
static void card_disassociate_ucontext(struct ib_ucontext *context)
{
}

void card_event(struct card_device *device, enum ib_event_type type, u32 port)
{
	struct ib_event event = { .device = &device->ib, .event = type, .element.port_num = port };

	ib_dispatch_event(&event);
}

/* The core calls it when the last user has gone; it frees the device itself afterwards. */
static void card_dealloc(struct ib_device *ib)
{
	struct card_device *device = to_device(ib);

	card_forget(device);
	hw_device_stop(device);
	xa_destroy(&device->regions);
	card_end_parent(&device->end);
}

static const struct ib_device_ops card_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,

	.add_gid = card_add_gid,
	.alloc_mr = card_alloc_mr,
	.alloc_pd = card_alloc_pd,
	.create_cq = card_create_cq,
	.create_qp = card_create_qp,
	.dealloc_driver = card_dealloc,
	.dealloc_pd = card_dealloc_pd,
	.del_gid = card_del_gid,
	.dereg_mr = card_dereg_mr,
	.destroy_cq = card_destroy_cq,
	.destroy_qp = card_destroy_qp,
	.disassociate_ucontext = card_disassociate_ucontext,
	.get_dma_mr = card_get_dma_mr,
	.get_link_layer = card_link_layer,
	.get_port_immutable = card_port_immutable,
	.map_mr_sg = card_map_mr_sg,
	.modify_cq = card_modify_cq,
	.modify_qp = card_modify_qp,
	.poll_cq = card_poll_cq,
	.post_recv = card_post_recv,
	.post_send = card_post_send,
	.query_device = card_query_device,
	.query_pkey = card_query_pkey,
	.query_port = card_query_port,
	.query_qp = card_query_qp,
	.reg_user_mr = card_reg_user_mr,
	.req_notify_cq = card_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, card_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, card_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, card_qp, ib),
};

/*
 * Gives each piece of memory of `granule` bytes addresses that follow upon those of no other, as an IOMMU may. Mappings
 * that are longer would leave their piece, so the consumer is told of none that is.
 */
static int card_scatter(struct hw_end *end)
{
	struct device *dev = &end->platform->dev;
	u64 pieces = DIV_ROUND_UP_ULL(virt_to_phys(high_memory - 1) + 1, granule), i;
	struct bus_dma_region *map = kvcalloc(pieces + 1, sizeof(*map), GFP_KERNEL);

	if (!map)
		return -ENOMEM;
	end->granule_shift = ilog2(granule);
	for (i = 0; i < pieces; i++) {
		map[i].cpu_start = i * granule;
		map[i].dma_start = HW_SCATTERED + 2 * i * granule;
		map[i].size = granule;
	}
	dev->dma_range_map = map;
	dma_set_max_seg_size(dev, granule);
	return 0;
}

void card_end_parent(struct hw_end *end)
{
	const struct bus_dma_region *map;

	if (!end->platform)
		return;
	/* It may be too large for the core to free it. */
	map = end->platform->dev.dma_range_map;
	end->platform->dev.dma_range_map = NULL;
	platform_device_unregister(end->platform);
	kvfree(map);
}

/* The parent by which the DMA API maps memory for the device, as a PCI function is for a real one. */
int card_make_parent(struct hw_end *end)
{
	struct platform_device *platform;
	int error;

	platform = platform_device_register_simple("rdma_card", PLATFORM_DEVID_AUTO, NULL, 0);
	if (IS_ERR(platform))
		return PTR_ERR(platform);
	error = dma_coerce_mask_and_coherent(&platform->dev, DMA_BIT_MASK(64));
	if (error) {
		platform_device_unregister(platform);
		return error;
	}
	dma_set_max_seg_size(&platform->dev, UINT_MAX);
	end->platform = platform;
	return 0;
}

int card_device_add(const char *name, struct net_device *netdev, u32 ports, const struct card_profile *profile)
{
	struct card_device *device = ib_alloc_device(card_device, ib);
	struct ib_device *ib;
	int error;

	if (!device)
		return -ENOMEM;
	ib = &device->ib;
	device->profile = *profile;
	INIT_LIST_HEAD(&device->all);
	xa_init_flags(&device->regions, XA_FLAGS_ALLOC);
	hw_device_setup(device);
	strscpy(ib->node_desc, profile->name, sizeof(ib->node_desc));
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = ports;
	ib->num_comp_vectors = min_t(int, CARD_VECTORS, num_possible_cpus());
	ib->local_dma_lkey = CARD_LOCAL_KEY;
	addrconf_addr_eui48((u8 *)&ib->node_guid, netdev->dev_addr);
	ib_mark_name_assigned_by_user(ib);
	ib_set_device_ops(ib, &card_ops);
	ib->ops.driver_id = profile->driver;
	error = ib_device_set_netdev(ib, netdev, 1);
	if (error)
		goto free;
	if (real_dma) {
		error = card_make_parent(&device->end);
		if (!error && granule)
			error = card_scatter(&device->end);
		if (error)
			goto free;
	}
	card_remember(device);
	/* Events of addresses come from here on. */
	error = ib_register_device(ib, name, device->end.platform ? &device->end.platform->dev : NULL);
	if (error)
		goto free;
	return 0;
free:
	/* It calls card_dealloc(). */
	ib_dealloc_device(ib);
	return error;
}

int card_device_join(struct card_device *device, struct net_device *netdev)
{
	struct ib_device *ib = &device->ib;
	struct net_device *own;
	int error;
	u32 port;

	rdma_for_each_port(ib, port) {
		own = ib_device_get_netdev(ib, port);
		dev_put(own);
		if (own)
			continue;
		error = ib_device_set_netdev(ib, netdev, port);
		if (error)
			return error;
		/* Its addresses have come before; then its state is asked for again. */
		rdma_roce_rescan_port(ib, port);
		ib_dispatch_port_state_event(ib, netdev);
		return 0;
	}
	return -EEXIST;
}
