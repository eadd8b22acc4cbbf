// SPDX-License-Identifier: GPL-2.0
/*
 * Lets calls of RDMA drivers fail, one at a time.
 *
 * Stands between the RDMA core and every device of one driver by replacing
 * entries of the device's operations. What the parameter "arm" was last told,
 * "VERB DEVICE NTH [TIMES]", decides: of the calls of VERB for DEVICE since
 * then the NTH fails, and TIMES - 1 after it; they do not reach the driver.
 * "off" disarms. Reading "arm" gives "CALLS HITS" since it was armed.
 * "port_error DEVICE" says, once, that port 1 has become unusable, which is not
 * true: so the event comes that is only told when the port is back. "device_fatal
 * DEVICE" says that the device has failed, which ends what runs on it.
 * "stuck DEVICE 1 TIMES" is a device whose firmware stands still until "off".
 * With patient=1 queue pairs never repeat a request by themselves. What is written
 * to "driver" is the driver's number that devices tell, 0 for their own: clients may
 * look at it when they are told of a device, but the driver itself does not work with another.
 *
 * The parameters send_sges, queue_wrs and mr_pages make devices smaller than
 * they are: that is what they say of themselves, and what would take more than
 * they have fails. With no_frmr=1 devices say that they have no fast registration, with
 * page_sizes that their memory regions have pages of these sizes, and with no_rc=1 they refuse
 * reliable connected queue pairs to the kernel. As with ionic, no request may be solicited that
 * takes no receive. Reading qps gives the queue pairs made since then, send_wr
 * and recv_wr the lengths that were asked for the last one's queues.
 *
 * With pci=1 devices are children of a PCI device, as those of real cards are.
 *
 * Verbs that destroy never fail, nor do the requests that drain a queue before
 * that: their callers may rely on them. Nor does req_notify_cq, at whose errors the RDMA core does not look.
 * Only where "post_flush" is armed do requests to send queues fail that have no memory, and no others: for
 * clients that post them to learn of the end of those before, and bear it.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>
#include "devices.h"
#include "held.h"

enum verb {
	OFF,
	ALLOC_PD,
	CREATE_CQ,
	ALLOC_MR,
	MAP_MR_SG,
	CREATE_QP,
	MODIFY_QP,
	QUERY_PORT,
	POST_RECV,
	POST_SEND,
	/* Of a chain all but the last request are posted. */
	POST_SEND_TAIL,
	/* Requests to a send queue without memory. */
	POST_FLUSH,
	/* No call fails, but a request that has ended is said to have failed. */
	COMPLETION,
	/* Nobody hears of requests that have ended before "off". */
	HOLD,
	/* The same, and no queue pair can be flushed. */
	STUCK,
};

static const char *const names[] = {
	[OFF] = "off",
	[ALLOC_PD] = "alloc_pd",
	[CREATE_CQ] = "create_cq",
	[ALLOC_MR] = "alloc_mr",
	[MAP_MR_SG] = "map_mr_sg",
	[CREATE_QP] = "create_qp",
	[MODIFY_QP] = "modify_qp",
	[QUERY_PORT] = "query_port",
	[POST_RECV] = "post_recv",
	[POST_SEND] = "post_send",
	[POST_SEND_TAIL] = "post_send_tail",
	[POST_FLUSH] = "post_flush",
	[COMPLETION] = "completion",
	[HOLD] = "hold",
	[STUCK] = "stuck",
};

/* The driver's own operations; set by the first device. */
struct ib_device_ops driver;

/* What they have at most, unless 0. */
int send_sges, queue_wrs, mr_pages;
static int sq_wrs;
module_param(send_sges, int, 0400);
module_param(queue_wrs, int, 0400);
module_param(mr_pages, int, 0400);
module_param(sq_wrs, int, 0400);
MODULE_PARM_DESC(send_sges, "Pieces of memory of one send request, at most");
MODULE_PARM_DESC(queue_wrs, "Requests of a queue, at most");
MODULE_PARM_DESC(mr_pages, "Pages of a memory region, at most");
MODULE_PARM_DESC(sq_wrs, "Requests of a send queue, at most; nobody is told, as with mlx5");

bool no_frmr;
ulong page_sizes;
module_param(no_frmr, bool, 0400);
module_param(page_sizes, ulong, 0400);
MODULE_PARM_DESC(no_frmr, "Whether devices say that they have no fast registration");
MODULE_PARM_DESC(page_sizes, "Sizes of pages of memory regions, as a mask");

static bool no_rc;
module_param(no_rc, bool, 0400);
MODULE_PARM_DESC(no_rc, "Whether devices refuse reliable connected queue pairs");

static bool pci;
module_param(pci, bool, 0400);
MODULE_PARM_DESC(pci, "Whether devices are children of a PCI device");
struct pci_dev *card;

static bool patient;
module_param(patient, bool, 0400);
MODULE_PARM_DESC(patient, "Whether queue pairs wait for ever for an acknowledgement");

static int qps, send_wr, recv_wr, regs, refused;
module_param(refused, int, 0400);
MODULE_PARM_DESC(refused, "Queue pairs refused for no_rc");
module_param(regs, int, 0400);
MODULE_PARM_DESC(regs, "Registrations of memory posted");
module_param(qps, int, 0400);
module_param(send_wr, int, 0400);
module_param(recv_wr, int, 0400);
MODULE_PARM_DESC(qps, "Queue pairs made");
MODULE_PARM_DESC(send_wr, "Send requests that the last queue pair is for");
MODULE_PARM_DESC(recv_wr, "Receive requests that the last queue pair is for");

static enum verb armed;
static char device[IB_DEVICE_NAME_MAX];
static int nth, times;
static atomic_t calls, hits;
/* Calls that are in this module. */
static atomic_t inside;

/* Whether this call, which counts, is to fail. */
static bool fails(const struct ib_device *dev, enum verb verb)
{
	int call;

	/* With the store in arm(): the counts are those of this arming. */
	if (smp_load_acquire(&armed) != verb ||
	    strcmp(dev_name(&dev->dev), device))
		return false;
	call = atomic_inc_return(&calls);
	if (call < nth || call - nth >= times)
		return false;
	atomic_inc(&hits);
	return true;
}

/* An operation "name" with these parameters that fails with "error". */
#define WRAP(type, name, verb, dev, error, params, args)	\
static type fault_##name params					\
{								\
	type result;						\
								\
	atomic_inc(&inside);					\
	if (fails(dev, verb))					\
		result = error;					\
	else							\
		result = driver.name args;			\
	atomic_dec(&inside);					\
	return result;						\
}

WRAP(int, alloc_pd, ALLOC_PD, pd->device, -ENOMEM,
     (struct ib_pd *pd, struct ib_udata *udata), (pd, udata))
WRAP(int, create_cq, CREATE_CQ, cq->device, -ENOMEM,
     (struct ib_cq *cq, const struct ib_cq_init_attr *attr,
      struct uverbs_attr_bundle *attrs), (cq, attr, attrs))
WRAP(int, map_mr_sg, MAP_MR_SG, mr->device, -ENOMEM,
     (struct ib_mr *mr, struct scatterlist *sg, int count, unsigned int *offset),
     (mr, sg, count, offset))
WRAP(int, query_port, QUERY_PORT, dev, -EIO,
     (struct ib_device *dev, u32 port, struct ib_port_attr *attr),
     (dev, port, attr))

static int fault_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			   struct ib_udata *udata)
{
	bool flush = mask & IB_QP_STATE && attr->qp_state == IB_QPS_ERR;
	int result;

	atomic_inc(&inside);
	if (patient && mask & IB_QP_TIMEOUT)
		attr->timeout = 0;
	if (fails(qp->device, MODIFY_QP) || (flush && fails(qp->device, STUCK)))
		result = -EIO;
	else
		result = driver.modify_qp(qp, attr, mask, udata);
	atomic_dec(&inside);
	return result;
}

static struct ib_mr *fault_alloc_mr(struct ib_pd *pd, enum ib_mr_type type,
				    u32 most)
{
	struct ib_mr *result;

	atomic_inc(&inside);
	if (exceeds(most, mr_pages))
		result = ERR_PTR(-EINVAL);
	else if (fails(pd->device, ALLOC_MR))
		result = ERR_PTR(-ENOMEM);
	else
		result = driver.alloc_mr(pd, type, most);
	atomic_dec(&inside);
	return result;
}

static int fault_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			   struct ib_udata *udata)
{
	const struct ib_qp_cap *cap = &attr->cap;
	/* The driver writes what it gives in its place. */
	const struct ib_qp_cap asked = *cap;
	int result;

	atomic_inc(&inside);
	if (no_rc && attr->qp_type == IB_QPT_RC)
		WRITE_ONCE(refused, READ_ONCE(refused) + 1);
	if ((no_rc && attr->qp_type == IB_QPT_RC) ||
	    exceeds(cap->max_send_sge, send_sges) ||
	    exceeds(cap->max_send_wr, queue_wrs) ||
	    exceeds(cap->max_recv_wr, queue_wrs))
		result = -EINVAL;
	else if (exceeds(cap->max_send_wr, sq_wrs) ||
		 fails(qp->device, CREATE_QP))
		result = -ENOMEM;
	else
		result = driver.create_qp(qp, attr, udata);
	if (!result) {
		WRITE_ONCE(send_wr, (int)asked.max_send_wr);
		WRITE_ONCE(recv_wr, (int)asked.max_recv_wr);
		WRITE_ONCE(qps, READ_ONCE(qps) + 1);
	}
	atomic_dec(&inside);
	return result;
}

/* Draining a queue posts a request without memory; it may not fail, either. */
static bool is_recv_drain(const struct ib_recv_wr *wr)
{
	return !wr->num_sge;
}

static bool is_send_drain(const struct ib_send_wr *wr)
{
	return wr->opcode == IB_WR_RDMA_WRITE && !wr->num_sge;
}

static int fault_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			   const struct ib_recv_wr **bad)
{
	int result;

	atomic_inc(&inside);
	if (qp->qp_type == IB_QPT_RC && !is_recv_drain(wr) &&
	    fails(qp->device, POST_RECV)) {
		*bad = wr;
		result = -ENOMEM;
	} else {
		result = driver.post_recv(qp, wr, bad);
	}
	atomic_dec(&inside);
	return result;
}

/* Of a chain the first request that is solicited and takes no receive of the peer's. */
static const struct ib_send_wr *wrongly_solicited(const struct ib_send_wr *wr)
{
	for (; wr; wr = wr->next)
		if (wr->send_flags & IB_SEND_SOLICITED &&
		    wr->opcode != IB_WR_SEND &&
		    wr->opcode != IB_WR_SEND_WITH_IMM &&
		    wr->opcode != IB_WR_SEND_WITH_INV &&
		    wr->opcode != IB_WR_RDMA_WRITE_WITH_IMM)
			break;
	return wr;
}

static int fault_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			   const struct ib_send_wr **bad)
{
	/* The chain is its caller's own memory, and as it was afterwards. */
	struct ib_send_wr *before = (struct ib_send_wr *)wr;
	const struct ib_send_wr *last;
	int result;

	atomic_inc(&inside);
	if (wr->opcode == IB_WR_REG_MR)
		WRITE_ONCE(regs, READ_ONCE(regs) + 1);
	if (qp->qp_type != IB_QPT_RC) {
		result = driver.post_send(qp, wr, bad);
	} else if (is_send_drain(wr)) {
		if (fails(qp->device, POST_FLUSH)) {
			*bad = wr;
			result = -ENOMEM;
		} else {
			result = driver.post_send(qp, wr, bad);
		}
	} else if (wrongly_solicited(wr)) {
		/* What is before it would be posted. */
		*bad = wr;
		result = -EINVAL;
	} else if (fails(qp->device, POST_SEND)) {
		*bad = wr;
		result = -ENOMEM;
	} else if (wr->next && fails(qp->device, POST_SEND_TAIL)) {
		while (before->next->next)
			before = before->next;
		last = before->next;
		before->next = NULL;
		result = driver.post_send(qp, wr, bad);
		before->next = (struct ib_send_wr *)last;
		if (!result) {
			*bad = last;
			result = -ENOMEM;
		}
	} else {
		result = driver.post_send(qp, wr, bad);
	}
	atomic_dec(&inside);
	return result;
}

/* Whether the completions of this queue are kept back. */
static bool holds(struct ib_cq *cq)
{
	if (!fails(cq->device, HOLD) && !fails(cq->device, STUCK))
		return false;
	note_held(cq);
	return true;
}

/* Nobody is told that there are completions, either. */
static int fault_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	int result;

	atomic_inc(&inside);
	result = holds(cq) ? 0 : driver.req_notify_cq(cq, flags);
	atomic_dec(&inside);
	return result;
}

static int fault_poll_cq(struct ib_cq *cq, int most, struct ib_wc *wc)
{
	int result, i;

	atomic_inc(&inside);
	if (holds(cq))
		result = 0;
	else
		result = driver.poll_cq(cq, most, wc);
	for (i = 0; i < result; i++)
		if (wc[i].status == IB_WC_SUCCESS && wc[i].qp &&
		    wc[i].qp->qp_type == IB_QPT_RC &&
		    fails(cq->device, COMPLETION))
			wc[i].status = IB_WC_GENERAL_ERR;
	atomic_dec(&inside);
	return result;
}

/* What is left in a queue goes with it. */
static int fault_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	int result;

	atomic_inc(&inside);
	forget_held_cq(cq);
	result = driver.destroy_cq(cq, udata);
	atomic_dec(&inside);
	return result;
}

static const struct ib_device_ops faulty = {
	.alloc_pd = fault_alloc_pd,
	.create_cq = fault_create_cq,
	.destroy_cq = fault_destroy_cq,
	.alloc_mr = fault_alloc_mr,
	.map_mr_sg = fault_map_mr_sg,
	.create_qp = fault_create_qp,
	.modify_qp = fault_modify_qp,
	.query_port = fault_query_port,
	.post_recv = fault_post_recv,
	.post_send = fault_post_send,
	.poll_cq = fault_poll_cq,
	.req_notify_cq = fault_req_notify_cq,
};

/* Puts the replaced operations of "to" into a device. */
static void replace(struct ib_device *dev, const struct ib_device_ops *to)
{
	struct ib_device_ops *ops = &dev->ops;

	WRITE_ONCE(ops->alloc_pd, to->alloc_pd);
	WRITE_ONCE(ops->create_cq, to->create_cq);
	WRITE_ONCE(ops->destroy_cq, to->destroy_cq);
	WRITE_ONCE(ops->alloc_mr, to->alloc_mr);
	WRITE_ONCE(ops->map_mr_sg, to->map_mr_sg);
	WRITE_ONCE(ops->create_qp, to->create_qp);
	WRITE_ONCE(ops->modify_qp, to->modify_qp);
	WRITE_ONCE(ops->query_port, to->query_port);
	WRITE_ONCE(ops->post_recv, to->post_recv);
	WRITE_ONCE(ops->post_send, to->post_send);
	WRITE_ONCE(ops->poll_cq, to->poll_cq);
	WRITE_ONCE(ops->req_notify_cq, to->req_notify_cq);
}

static int add(struct ib_device *dev)
{
	static DEFINE_MUTEX(lock);
	int result;

	mutex_lock(&lock);
	if (!driver.post_send)
		driver = dev->ops;
	if (driver.post_send == dev->ops.post_send)
		result = adopt(dev);
	else
		result = -EOPNOTSUPP; /* another driver */
	mutex_unlock(&lock);
	if (!result)
		replace(dev, &faulty);
	return result;
}

static void remove(struct ib_device *dev, void *data)
{
	replace(dev, &driver);
	forget_held(dev);
	abandon(dev);
}

static struct ib_client client = {
	.name = "verb_fault",
	.add = add,
	.remove = remove,
};

/* Called with the lock that serialises writes of parameters. */
static int arm(const char *text, const struct kernel_param *param)
{
	char verb[16], dev[IB_DEVICE_NAME_MAX] = "";
	int which, n = 0, m = 1;

	BUILD_BUG_ON(IB_DEVICE_NAME_MAX != 64);
	if (sscanf(text, "%15s %63s %d %d", verb, dev, &n, &m) < 1)
		return -EINVAL;
	if (!strcmp(verb, "port_error"))
		return tell_event(dev, IB_EVENT_PORT_ERR);
	if (!strcmp(verb, "device_fatal"))
		return tell_event(dev, IB_EVENT_DEVICE_FATAL);
	which = match_string(names, ARRAY_SIZE(names), verb);
	if (which < 0)
		return which;
	if (which != OFF && (n < 1 || m < 1))
		return -EINVAL;
	WRITE_ONCE(armed, OFF);
	/* Nobody looks at what belongs to the last one any more. */
	while (atomic_read(&inside))
		usleep_range(50, 100);
	release_held();
	if (which == OFF)
		return 0;
	strscpy(device, dev, sizeof(device));
	nth = n;
	times = m;
	atomic_set(&calls, 0);
	atomic_set(&hits, 0);
	/* The counts first: whoever sees the verb counts with them. */
	smp_store_release(&armed, which);
	return 0;
}

static int show(char *out, const struct kernel_param *param)
{
	return sysfs_emit(out, "%d %d\n", atomic_read(&calls),
			  atomic_read(&hits));
}

static const struct kernel_param_ops arm_ops = { .set = arm, .get = show };
module_param_cb(arm, &arm_ops, NULL, 0600);
MODULE_PARM_DESC(arm, "VERB DEVICE NTH [TIMES], port_error or device_fatal DEVICE, or off; read: CALLS HITS");

static int __init verb_fault_init(void)
{
	int result;

	if (pci)
		card = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, NULL);
	result = ib_register_client(&client);
	if (result)
		pci_dev_put(card);
	return result;
}
module_init(verb_fault_init);

static void __exit verb_fault_exit(void)
{
	ib_unregister_client(&client);
	/* Whoever has fetched a pointer to us is in here soon, if at all. */
	synchronize_rcu();
	do {
		msleep(100);
	} while (atomic_read(&inside));
	pci_dev_put(card);
}
module_exit(verb_fault_exit);

MODULE_DESCRIPTION("Failures of RDMA verbs, one by one");
MODULE_LICENSE("GPL");
