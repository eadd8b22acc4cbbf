// SPDX-License-Identifier: GPL-2.0
/*
 * What a driver does for queue pairs and completion queues: requests are
 * copied into a ring and a doorbell is rung; completions are copied out of a
 * ring. A place in a send queue is free again when a completion of its request,
 * or of a later one, was polled.
 */
#include <linux/slab.h>
#include "card.h"

int card_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct card_device *device = to_device(ib->device);
	const struct card_profile *profile = &device->profile;
	struct card_qp *qp = to_qp(ib);
	u32 sends = attr->cap.max_send_wr, receives = attr->cap.max_recv_wr;
	int error;

	if (attr->qp_type != IB_QPT_RC || attr->srq || udata)
		return -EOPNOTSUPP;
	if (sends > profile->queue_wrs || receives > profile->queue_wrs ||
	    attr->cap.max_send_sge > profile->send_sge || attr->cap.max_recv_sge > profile->recv_sge ||
	    attr->cap.max_inline_data > profile->inline_bytes)
		return -EINVAL;
	/* A request takes 64 bytes and 16 for each element, in steps of 64, as those of mlx5 do. */
	if (profile->queue_bytes &&
	    (u64)sends * ALIGN(64 + 16 * attr->cap.max_send_sge, 64) > profile->queue_bytes)
		return -ENOMEM;

	qp->device = device;
	qp->sign_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	spin_lock_init(&qp->send_lock);
	spin_lock_init(&qp->receive_lock);
	INIT_LIST_HEAD(&qp->rung);
	INIT_LIST_HEAD(&qp->late);
	hw_timer_setup(qp);
	/* Powers of two, so that places go on where the counters wrap. */
	qp->send_size = roundup_pow_of_two(max(sends, 1U));
	qp->receive_size = roundup_pow_of_two(max(receives, 1U));
	qp->send = kvcalloc(qp->send_size, sizeof(*qp->send), GFP_KERNEL);
	qp->receive = kvcalloc(qp->receive_size, sizeof(*qp->receive), GFP_KERNEL);
	error = -ENOMEM;
	if (!qp->send || !qp->receive)
		goto free;
	qp->state = IB_QPS_RESET;
	qp->attr.qp_state = IB_QPS_RESET;
	qp->attr.cap = attr->cap;
	error = hw_qp_add(qp);
	if (error)
		goto free;
	return 0;
free:
	kvfree(qp->send);
	kvfree(qp->receive);
	return error;
}

/* Takes over what the mask names. */
static void card_take_attributes(struct card_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	struct ib_qp_attr *own = &qp->attr;

#define take(flag, field) do { if (mask & (flag)) own->field = attr->field; } while (0)
	take(IB_QP_ACCESS_FLAGS, qp_access_flags);
	take(IB_QP_PORT, port_num);
	take(IB_QP_PKEY_INDEX, pkey_index);
	take(IB_QP_PATH_MTU, path_mtu);
	take(IB_QP_DEST_QPN, dest_qp_num);
	take(IB_QP_RQ_PSN, rq_psn);
	take(IB_QP_SQ_PSN, sq_psn);
	take(IB_QP_TIMEOUT, timeout);
	take(IB_QP_RETRY_CNT, retry_cnt);
	take(IB_QP_RNR_RETRY, rnr_retry);
	take(IB_QP_MIN_RNR_TIMER, min_rnr_timer);
	take(IB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	take(IB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef take
	if (mask & IB_QP_AV) {
		const struct ib_global_route *route = rdma_ah_read_grh(&attr->ah_attr);

		qp->peer_gid = route->dgid;
		qp->traffic_class = route->traffic_class;
		qp->service_level = rdma_ah_get_sl(&attr->ah_attr);
		if (route->sgid_attr)
			qp->own_gid = route->sgid_attr->gid;
	}
}

int card_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct card_qp *qp = to_qp(ib);
	struct card_device *device = qp->device;
	enum ib_qp_state from, to;
	unsigned long flags;
	int error = 0;

	if (device->resetting && device->profile.reset_fails_modify)
		return -ETIMEDOUT;
	raw_spin_lock_irqsave(&hw_wire, flags);
	from = qp->state;
	to = mask & IB_QP_STATE ? attr->qp_state : from;
	if (!ib_modify_qp_is_ok(from, to, ib->qp_type, mask)) {
		error = -EINVAL;
		goto unlock;
	}
	card_take_attributes(qp, attr, mask);
	qp->state = to;
	if (to == IB_QPS_RESET) {
		qp->send_head = qp->send_tail = qp->send_next = 0;
		qp->receive_head = qp->receive_tail = qp->receive_next = 0;
		qp->in_sequence = false;
		qp->has_forgotten = false;
		qp->repeats = qp->not_ready = 0;
	} else if (to == IB_QPS_ERR) {
		hw_flush(qp);
	}
unlock:
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return error;
}

int card_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct card_qp *qp = to_qp(ib);
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	init->cap = attr->cap;
	init->send_cq = ib->send_cq;
	init->recv_cq = ib->recv_cq;
	init->qp_type = ib->qp_type;
	init->event_handler = ib->event_handler;
	init->qp_context = ib->qp_context;
	return 0;
}

int card_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct card_qp *qp = to_qp(ib);

	hw_qp_remove(qp);
	hw_forget(to_cq(ib->send_cq), qp);
	hw_forget(to_cq(ib->recv_cq), qp);
	kvfree(qp->send);
	kvfree(qp->receive);
	return 0;
}

/* Whether the hardware of this kind of card takes the request. */
static int card_check_send(const struct card_qp *qp, const struct ib_send_wr *wr, u32 *length)
{
	const struct card_profile *profile = &qp->device->profile;
	bool tells = wr->opcode == IB_WR_SEND || wr->opcode == IB_WR_SEND_WITH_IMM ||
		     wr->opcode == IB_WR_SEND_WITH_INV || wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	int i;

	if (profile->strict_flags && (wr->send_flags & IB_SEND_SOLICITED) && !tells)
		return -EINVAL;
	if (wr->num_sge > profile->send_sge)
		return -EINVAL;
	*length = 0;
	for (i = 0; i < wr->num_sge; i++)
		*length += wr->sg_list[i].length;
	if ((wr->send_flags & IB_SEND_INLINE) && *length > profile->inline_bytes)
		return -EINVAL;
	return 0;
}

static int card_build_send(struct card_qp *qp, struct card_send *to, const struct ib_send_wr *wr)
{
	int i, error = card_check_send(qp, wr, &to->length);
	u8 *bytes = to->bytes;

	if (error)
		return error;
	to->wr_id = wr->wr_id;
	to->opcode = wr->opcode;
	to->flags = wr->send_flags;
	to->signalled = qp->sign_all || (wr->send_flags & IB_SEND_SIGNALED);
	to->sges = wr->num_sge;
	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_READ:
		to->remote = rdma_wr(wr)->remote_addr;
		to->rkey = rdma_wr(wr)->rkey;
		fallthrough;
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND:
		to->ex = (__force u32)wr->ex.imm_data;
		break;
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		to->ex = wr->ex.invalidate_rkey;
		break;
	case IB_WR_REG_MR:
		if (qp->device->profile.no_registration)
			return -EOPNOTSUPP;
		to->region = to_region(reg_wr(wr)->mr);
		to->key = reg_wr(wr)->key;
		to->access = reg_wr(wr)->access;
		to->iova = reg_wr(wr)->mr->iova;
		to->sges = 0;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
	if (!(wr->send_flags & IB_SEND_INLINE)) {
		for (i = 0; i < wr->num_sge; i++)
			to->sge[i] = wr->sg_list[i];
		return 0;
	}
	/* Addresses of inline data are the kernel's own. */
	for (i = 0; i < wr->num_sge; i++) {
		memcpy(bytes, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		bytes += wr->sg_list[i].length;
	}
	return 0;
}

int card_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct card_qp *qp = to_qp(ib);
	unsigned long flags;
	int error = 0;
	u32 head;

	if (qp->device->resetting && qp->device->profile.reset_fails_post) {
		*bad = wr;
		return -EIO;
	}
	spin_lock_irqsave(&qp->send_lock, flags);
	head = qp->send_head;
	for (; wr; wr = wr->next) {
		if (READ_ONCE(qp->state) < IB_QPS_RTS || READ_ONCE(qp->state) == IB_QPS_SQE)
			error = -EINVAL;
		else if (head - READ_ONCE(qp->send_tail) >= qp->send_size)
			error = -ENOMEM;
		else
			error = card_build_send(qp, &qp->send[head & (qp->send_size - 1)], wr);
		if (error) {
			*bad = wr;
			break;
		}
		head++;
	}
	if (head != qp->send_head) {
		/* The requests are written before the hardware may read them. */
		smp_store_release(&qp->send_head, head);
		hw_ring(qp);
	}
	spin_unlock_irqrestore(&qp->send_lock, flags);
	return error;
}

int card_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct card_qp *qp = to_qp(ib);
	struct card_receive *to;
	unsigned long flags;
	int error = 0, i;
	u32 head;

	if (qp->device->resetting && qp->device->profile.reset_fails_post) {
		*bad = wr;
		return -EIO;
	}
	spin_lock_irqsave(&qp->receive_lock, flags);
	head = qp->receive_head;
	for (; wr; wr = wr->next) {
		if (READ_ONCE(qp->state) == IB_QPS_RESET || wr->num_sge > qp->device->profile.recv_sge)
			error = -EINVAL;
		else if (head - READ_ONCE(qp->receive_tail) >= qp->receive_size)
			error = -ENOMEM;
		if (error) {
			*bad = wr;
			break;
		}
		to = &qp->receive[head & (qp->receive_size - 1)];
		to->wr_id = wr->wr_id;
		to->sges = wr->num_sge;
		for (i = 0; i < wr->num_sge; i++)
			to->sge[i] = wr->sg_list[i];
		head++;
	}
	/* The engine reads the requests after the head that says that they are there. */
	smp_store_release(&qp->receive_head, head);
	hw_count(qp->device, RECEIVE_DOORBELLS);
	spin_unlock_irqrestore(&qp->receive_lock, flags);
	/* What is posted to a queue pair in error is flushed at once. */
	if (READ_ONCE(qp->state) == IB_QPS_ERR) {
		raw_spin_lock_irqsave(&hw_wire, flags);
		hw_flush(qp);
		raw_spin_unlock_irqrestore(&hw_wire, flags);
	}
	return error;
}

int card_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct card_device *device = to_device(ib->device);
	struct card_cq *cq = to_cq(ib);

	if (!attr->cqe || attr->cqe > device->ib.attrs.max_cqe || attr->comp_vector >= device->ib.num_comp_vectors)
		return -EINVAL;
	cq->size = roundup_pow_of_two(attr->cqe + 1);
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;
	spin_lock_init(&cq->lock);
	hw_cq_setup(cq, &device->end.vectors[attr->comp_vector]);
	ib->cqe = attr->cqe;
	return 0;
}

int card_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	struct card_cq *cq = to_cq(ib);

	hw_source_remove(&cq->source);
	kvfree(cq->ring);
	return 0;
}

int card_modify_cq(struct ib_cq *ib, u16 count, u16 period)
{
	hw_source_moderate(&to_cq(ib)->source, count, period);
	return 0;
}

static void card_free_places(const struct hw_completion *from)
{
	if (from->of_send)
		WRITE_ONCE(from->qp->send_tail, from->next);
	else
		WRITE_ONCE(from->qp->receive_tail, from->next);
}

int card_poll_cq(struct ib_cq *ib, int entries, struct ib_wc *wc)
{
	struct card_cq *cq = to_cq(ib);
	const struct hw_completion *from;
	unsigned long flags;
	u32 tail, head;
	int n = 0;

	hw_catch_up();
	spin_lock_irqsave(&cq->lock, flags);
	tail = cq->tail;
	/* What the hardware wrote before it moved the head. */
	head = smp_load_acquire(&cq->head);
	while (n < entries && tail != head) {
		from = &cq->ring[tail++ & (cq->size - 1)];
		if (!from->qp)
			continue;
		card_free_places(from);
		memset(wc, 0, sizeof(*wc));
		wc->wr_id = from->wr_id;
		wc->status = from->status;
		wc->opcode = from->opcode;
		wc->byte_len = from->byte_len;
		wc->qp = &from->qp->ib;
		wc->ex.invalidate_rkey = from->ex;
		wc->src_qp = from->qp->attr.dest_qp_num;
		wc->wc_flags = from->flags;
		wc->port_num = from->qp->attr.port_num;
		wc++;
		n++;
	}
	/* The places may be written again once they were read. */
	smp_store_release(&cq->tail, tail);
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int card_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct card_cq *cq = to_cq(ib);

	hw_arm(cq, (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED);
	if (!(flags & IB_CQ_REPORT_MISSED_EVENTS))
		return 0;
	/* After the arming above: a completion that comes now raises an interrupt, or is seen here. */
	return smp_load_acquire(&cq->head) != READ_ONCE(cq->tail);
}
