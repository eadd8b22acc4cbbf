// SPDX-License-Identifier: GPL-2.0
/* RDMA, and the memory that it moves. */

/* rdma/ib_verbs.h: posting */

int rsmc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			     const struct ib_send_wr **bad)
{
	return ib_post_send(qp, wr, bad);
}

int rsmc_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad)
{
	return ib_post_recv(qp, wr, bad);
}

/* rdma/ib_verbs.h: completion queues */

int rsmc_helper_ib_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs)
{
	return ib_poll_cq(cq, count, wcs);
}

int rsmc_helper_ib_arm_cq(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);
}

/* linux/netdevice.h: NAPI */

void rsmc_helper_netif_napi_add(struct net_device *dev, struct napi_struct *napi,
				int (*poll)(struct napi_struct *napi, int budget))
{
	netif_napi_add(dev, napi, poll);
}

void rsmc_helper_netif_napi_del(struct napi_struct *napi)
{
	netif_napi_del(napi);
}

bool rsmc_helper_timer_is_pending(const struct timer_list *timer)
{
	return timer_pending(timer);
}

/* rdma/ib_verbs.h: mapping */

bool rsmc_helper_ib_uses_virt_dma(struct ib_device *dev)
{
	return ib_uses_virt_dma(dev);
}

/* The largest piece of memory that can be mapped at once. */
size_t rsmc_helper_ib_dma_max_piece(struct ib_device *dev)
{
	if (ib_uses_virt_dma(dev))
		return SIZE_MAX;
	return min_t(size_t, dma_get_max_seg_size(dev->dma_device),
		     dma_max_mapping_size(dev->dma_device));
}

int rsmc_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int count, int dir,
			      bool silent)
{
	return ib_dma_map_sg_attrs(dev, sg, count, dir, silent ? DMA_ATTR_NO_WARN : 0);
}

void rsmc_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int count, int dir)
{
	ib_dma_unmap_sg(dev, sg, count, dir);
}

void rsmc_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size,
				     int dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void rsmc_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t size,
					int dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

bool rsmc_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

int rsmc_helper_ibdev_to_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}

/* rdma/ib_verbs.h, rdma/ib_addr.h: ports */

enum rdma_ah_attr_type rsmc_helper_rdma_ah_find_type(struct ib_device *dev, u32 port)
{
	return rdma_ah_find_type(dev, port);
}

bool rsmc_helper_rdma_is_port_valid(const struct ib_device *dev, unsigned int port)
{
	return rdma_is_port_valid(dev, port);
}

bool rsmc_helper_rdma_protocol_roce_eth_encap(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce_eth_encap(dev, port);
}

bool rsmc_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

u8 rsmc_helper_netdev_ib_mtu(const struct net_device *dev)
{
	return iboe_get_mtu(READ_ONCE(dev->mtu));
}

/*
 * The service level of packets of this priority: in which class the device
 * queues them, or the priority in the tag of the first VLAN on the way down,
 * as the kernel's connection manager for RDMA has it. In an RCU section.
 */
u8 rsmc_helper_netdev_service_level(const struct net_device *netdev, u32 priority)
{
	struct net_device *dev = (struct net_device *)netdev, *real;
	struct list_head *next = &dev->adj_list.lower;

	if (!is_vlan_dev(dev))
		dev = netdev_next_lower_dev_rcu(dev, &next) ?: dev;
	if (is_vlan_dev(dev)) {
		real = vlan_dev_real_dev(dev);
		if (!real->num_tc)
			return (vlan_dev_get_egress_qos_mask(dev, priority) & VLAN_PRIO_MASK) >> VLAN_PRIO_SHIFT;
		dev = real;
	}
	return dev->num_tc ? netdev_get_prio_tc_map(dev, priority) & 7 : 0;
}

u8 rsmc_helper_dst_ib_mtu(const struct dst_entry *dst)
{
	return iboe_get_mtu(min_t(u32, dst_mtu(dst), INT_MAX));
}

/* linux/pci.h */

const struct pci_dev *rsmc_helper_ib_pci_dev(const struct ib_device *dev)
{
	return dev->dev.parent && dev_is_pci(dev->dev.parent) ? to_pci_dev(dev->dev.parent) : NULL;
}

const char *rsmc_helper_pci_name_of(const struct pci_dev *pdev)
{
	return pci_name(pdev);
}

/* linux/mm.h */

/* Single pages are waited for, larger blocks are taken where they are there. */
struct page *rsmc_helper_alloc_zeroed_pages(int node, unsigned int order)
{
	gfp_t gfp = GFP_KERNEL | __GFP_ZERO;

	if (order)
		gfp |= __GFP_COMP | __GFP_NOWARN | __GFP_NORETRY;
	if (order > PAGE_ALLOC_COSTLY_ORDER)
		gfp &= ~__GFP_DIRECT_RECLAIM;
	return alloc_pages_node(node, gfp, order);
}

void *rsmc_helper_page_address(const struct page *page)
{
	return page_address(page);
}

/* linux/scatterlist.h */

void rsmc_helper_sg_set_page(struct scatterlist *sg, struct page *page, unsigned int len)
{
	sg_set_page(sg, page, len, 0);
}
