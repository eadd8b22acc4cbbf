// SPDX-License-Identifier: GPL-2.0
/*
 * Gives soft-RoCE GIDs of RoCE v1 beside those of v2.
 *
 * SMC-R version 1 needs them, and soft-RoCE has none. So its port is said to
 * know RoCE v1, and the RDMA core then keeps GIDs of both kinds. A queue pair
 * with one of v1 is connected with that of v2 of the same address: its packets
 * are those of RoCE v2, of which neither of its users, nor the messages between
 * them, know.
 *
 * To be loaded before the devices come. The RDMA core keeps their GIDs of v1
 * until they go.
 */
#include <linux/module.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

/* The driver's own, the same for all its devices. */
static int (*driver_modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			       struct ib_udata *udata);

static int modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct ib_global_route *grh = &attr->ah_attr.grh;
	const struct ib_gid_attr *told, *used;
	u8 index;
	int result;

	if (!(mask & IB_QP_AV) || grh->sgid_attr->gid_type != IB_GID_TYPE_ROCE)
		return driver_modify_qp(qp, attr, mask, udata);
	told = grh->sgid_attr;
	index = grh->sgid_index;
	used = rdma_find_gid_by_port(qp->device, &told->gid, IB_GID_TYPE_ROCE_UDP_ENCAP,
				     told->port_num, NULL);
	if (IS_ERR(used))
		return PTR_ERR(used);
	grh->sgid_attr = used;
	grh->sgid_index = used->index;
	result = driver_modify_qp(qp, attr, mask, udata);
	grh->sgid_attr = told;
	grh->sgid_index = index;
	rdma_put_gid_attr(used);
	return result;
}

static int add(struct ib_device *dev)
{
	if (dev->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	driver_modify_qp = dev->ops.modify_qp;
	WRITE_ONCE(dev->ops.modify_qp, modify_qp);
	dev->port_data[1].immutable.core_cap_flags |= RDMA_CORE_CAP_PROT_ROCE;
	rdma_roce_rescan_device(dev);
	return 0;
}

static void remove(struct ib_device *dev, void *data)
{
	dev->port_data[1].immutable.core_cap_flags &= ~RDMA_CORE_CAP_PROT_ROCE;
	WRITE_ONCE(dev->ops.modify_qp, driver_modify_qp);
}

static struct ib_client client = {
	.name = "roce_v1",
	.add = add,
	.remove = remove,
};

static int __init roce_v1_init(void)
{
	return ib_register_client(&client);
}
module_init(roce_v1_init);

static void __exit roce_v1_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(roce_v1_exit);

MODULE_DESCRIPTION("GIDs of RoCE v1 for soft-RoCE");
MODULE_LICENSE("GPL");
