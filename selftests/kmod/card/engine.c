// SPDX-License-Identifier: GPL-2.0
/*
 * The hardware: executes requests, moves bytes between the memory of two ends
 * and writes completions.
 *
 * There are two engines. "ring" executes a request within its doorbell, as an
 * infinitely fast card would; only completions cause interrupts. It is what
 * figures are taken with. "interrupt" executes in a hard interrupt that the
 * doorbell raises; it finds faults of order and of context.
 */
#include <linux/dma-direct.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include "card.h"

DEFINE_RAW_SPINLOCK(hw_wire);

/* All queue pairs by number, of all devices; changed under hw_wire. */
static struct card_qp *hw_qps[1 << 12];
static u32 hw_last_qp = 1;

/* Queue pairs that wait for somebody to poll; under hw_wire. */
static LIST_HEAD(hw_late);

/* --- completions ---------------------------------------------------------- */

/* The interrupt's word to a completion queue. */
static void hw_tell_cq(struct hw_source *source)
{
	struct card_cq *cq = container_of(source, struct card_cq, source);

	cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

void hw_cq_setup(struct card_cq *cq, struct card_vector *vector)
{
	hw_source_setup(&cq->source, vector, hw_tell_cq);
}

void hw_arm(struct card_cq *cq, bool solicited_only)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	/* Asking for more is not taken back by asking for less. */
	cq->solicited_only = solicited_only && (!cq->source.armed || cq->solicited_only);
	hw_source_arm(&cq->source);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* Writes a completion. Under hw_wire. */
static void hw_complete(struct card_cq *cq, const struct hw_completion *completion, bool solicited)
{
	u32 head = cq->head;

	if (cq->source.dead)
		return;
	/* What was read is free. */
	if (head - smp_load_acquire(&cq->tail) >= cq->size) {
		if (!cq->overrun)
			pr_err("card: completion queue overrun\n");
		cq->overrun = true;
		return;
	}
	cq->ring[head & (cq->size - 1)] = *completion;
	/* The driver reads the completion after the head. */
	smp_store_release(&cq->head, head + 1);
	hw_count(to_device(cq->ib.device), COMPLETIONS);
	hw_source_happened(&cq->source, !cq->solicited_only || solicited || completion->status != IB_WC_SUCCESS);
}

/* Completions of a queue pair that goes are nobody's. */
void hw_forget(struct card_cq *cq, struct card_qp *qp)
{
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&cq->lock, flags);
	raw_spin_lock(&hw_wire);
	for (i = cq->tail; i != cq->head; i++)
		if (cq->ring[i & (cq->size - 1)].qp == qp)
			cq->ring[i & (cq->size - 1)].qp = NULL;
	raw_spin_unlock(&hw_wire);
	spin_unlock_irqrestore(&cq->lock, flags);
}

static enum ib_wc_opcode hw_opcode(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case IB_WR_REG_MR:
		return IB_WC_REG_MR;
	default:
		return IB_WC_SEND;
	}
}

/* The request at `send_next` has ended. Under hw_wire. */
static void hw_sent(struct card_qp *qp, enum ib_wc_status status)
{
	const struct card_send *request = &qp->send[qp->send_next & (qp->send_size - 1)];
	struct hw_completion completion = {
		.wr_id = request->wr_id,
		.qp = qp,
		.status = status,
		.opcode = hw_opcode(request->opcode),
		.byte_len = request->length,
		.next = ++qp->send_next,
		.of_send = true,
	};

	if (request->signalled || status != IB_WC_SUCCESS)
		hw_complete(to_cq(qp->ib.send_cq), &completion, false);
	else
		hw_count(qp->device, UNSIGNALLED);
}

/* The receive at `receive_next` has ended. Under hw_wire. */
static void hw_received(struct card_qp *qp, enum ib_wc_status status, const struct card_send *request)
{
	const struct card_receive *receive = &qp->receive[qp->receive_next & (qp->receive_size - 1)];
	struct hw_completion completion = {
		.wr_id = receive->wr_id,
		.qp = qp,
		.status = status,
		.opcode = IB_WC_RECV,
		.next = ++qp->receive_next,
	};
	bool solicited = false;

	if (request) {
		completion.byte_len = request->length;
		solicited = request->flags & IB_SEND_SOLICITED;
		switch (request->opcode) {
		case IB_WR_RDMA_WRITE_WITH_IMM:
			completion.opcode = IB_WC_RECV_RDMA_WITH_IMM;
			fallthrough;
		case IB_WR_SEND_WITH_IMM:
			completion.flags = IB_WC_WITH_IMM;
			completion.ex = request->ex;
			break;
		case IB_WR_SEND_WITH_INV:
			completion.flags = IB_WC_WITH_INVALIDATE;
			completion.ex = request->ex;
			break;
		default:
			break;
		}
	}
	hw_complete(to_cq(qp->ib.recv_cq), &completion, solicited);
}

/* Ends all requests of a queue pair in error. Under hw_wire. */
void hw_flush(struct card_qp *qp)
{
	/* With the store in card_post_send(): the requests before the head are written. */
	while (qp->send_next != smp_load_acquire(&qp->send_head))
		hw_sent(qp, IB_WC_WR_FLUSH_ERR);
	/* With the store in card_post_recv(). */
	while (qp->receive_next != smp_load_acquire(&qp->receive_head))
		hw_received(qp, IB_WC_WR_FLUSH_ERR, NULL);
}

static void hw_break(struct card_qp *qp)
{
	qp->state = IB_QPS_ERR;
	hw_flush(qp);
}

void hw_recovered(const struct hw_trouble *trouble)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hw_qps); i++)
		if (hw_qps[i] && hw_qps[i]->has_forgotten && hw_qp_trouble(hw_qps[i]) == trouble)
			hw_break(hw_qps[i]);
}

/* --- memory --------------------------------------------------------------- */

void *hw_memory(const struct hw_end *end, u64 address, u32 *length)
{
	u64 size, piece, within;

	if (!end->platform)
		return (void *)(uintptr_t)address;
	if (!end->granule_shift)
		return phys_to_virt(dma_to_phys(&end->platform->dev, address));
	size = 1ULL << end->granule_shift;
	piece = (address - HW_SCATTERED) >> (end->granule_shift + 1);
	within = address & (2 * size - 1);
	if (address < HW_SCATTERED || within >= size)
		return NULL;
	*length = min_t(u64, *length, size - within);
	return phys_to_virt((piece << end->granule_shift) + within);
}

/* The same for a request of the device: an address that is none ends it. */
static u32 hw_bytes(struct card_device *device, u64 address, u32 length, void **at)
{
	*at = hw_memory(&device->end, address, &length);
	if (*at)
		return length;
	hw_count(device, OUTSIDE);
	return 0;
}

static struct card_region *hw_region(struct card_device *device, u32 key)
{
	struct card_region *region = xa_load(&device->regions, key >> 8);

	return region && region->valid && region->key == key ? region : NULL;
}

/* Where bytes are read or written: elements, a part of a region, or bytes of the request. */
struct hw_cursor {
	struct card_device *device;
	struct ib_pd *pd;
	const struct ib_sge *sge;
	int sges;
	u32 offset;
	struct card_region *region;
	u64 address;
	u8 *bytes;
};

/* How many bytes from `address` on are one piece in memory, and where; 0 if they are not the region's. */
static u32 hw_piece(struct card_device *device, const struct card_region *region, u64 address, u32 length, void **at)
{
	u64 from, page;
	u32 within;

	if (region->everything)
		return hw_bytes(device, address, length, at);
	if (address < region->iova || address - region->iova > region->length ||
	    region->length - (address - region->iova) < length)
		return 0;
	/* As cards do: the address within the first page is that of the region's start. */
	from = address - round_down(region->iova, region->page_size);
	page = from / region->page_size;
	within = from % region->page_size;
	if (page >= region->pages)
		return 0;
	return hw_bytes(device, region->page[page] + within, min(length, region->page_size - within), at);
}

/* The next piece of at most `length` bytes; 0 if there is none or it may not be used. */
static u32 hw_next(struct hw_cursor *cursor, u32 length, int access, void **at)
{
	const struct ib_sge *sge;
	struct card_region *region;
	u32 piece;

	if (cursor->bytes) {
		*at = cursor->bytes;
		cursor->bytes += length;
		return length;
	}
	if (cursor->region) {
		piece = hw_piece(cursor->device, cursor->region, cursor->address, length, at);
		cursor->address += piece;
		return piece;
	}
	while (cursor->sges && cursor->offset == cursor->sge->length) {
		cursor->sge++;
		cursor->sges--;
		cursor->offset = 0;
	}
	if (!cursor->sges)
		return 0;
	sge = cursor->sge;
	length = min(length, sge->length - cursor->offset);
	if (sge->lkey == CARD_LOCAL_KEY && !cursor->device->profile.no_local_key) {
		piece = hw_bytes(cursor->device, sge->addr + cursor->offset, length, at);
	} else {
		region = hw_region(cursor->device, sge->lkey);
		if (!region || region->ib.pd != cursor->pd || (access & ~region->access))
			return 0;
		piece = hw_piece(cursor->device, region, sge->addr + cursor->offset, length, at);
	}
	cursor->offset += piece;
	return piece;
}

enum hw_side { HW_GOOD, HW_BAD_SOURCE, HW_BAD_TARGET };

static enum hw_side hw_move(struct hw_cursor *to, struct hw_cursor *from, u32 length)
{
	void *source = NULL, *target = NULL;
	u32 have = 0, room = 0, n;

	while (length) {
		if (!have) {
			have = hw_next(from, length, 0, &source);
			if (!have)
				return HW_BAD_SOURCE;
		}
		if (!room) {
			room = hw_next(to, length, IB_ACCESS_LOCAL_WRITE, &target);
			if (!room)
				return HW_BAD_TARGET;
		}
		n = min(have, room);
		memcpy(target, source, n);
		source += n;
		target += n;
		have -= n;
		room -= n;
		length -= n;
	}
	return HW_GOOD;
}

/* --- requests ------------------------------------------------------------- */

/* The peer, if packets of this queue pair reach it and it takes them. */
static struct card_qp *hw_peer(struct card_qp *qp, u32 length)
{
	u32 number = qp->attr.dest_qp_num;
	/* Ethernet, IP, UDP, transport headers and checksums of the largest packet of the request. */
	u32 packet = min_t(u32, length, ib_mtu_enum_to_int(qp->attr.path_mtu)) + 58;
	struct card_qp *peer = number < ARRAY_SIZE(hw_qps) ? hw_qps[number] : NULL;

	if (!peer || peer->state < IB_QPS_RTR || peer->state == IB_QPS_ERR)
		return NULL;
	if (!hw_passes(hw_qp_trouble(qp), hw_qp_trouble(peer), packet, true))
		return NULL;
	if (peer->attr.dest_qp_num != qp->ib.qp_num || memcmp(&peer->own_gid, &qp->peer_gid, sizeof(qp->peer_gid)) ||
	    memcmp(&peer->peer_gid, &qp->own_gid, sizeof(qp->own_gid)))
		return NULL;
	if (!qp->in_sequence && qp->attr.sq_psn != peer->attr.rq_psn)
		return NULL;
	qp->in_sequence = true;
	return peer;
}

/* Goes on with the queue after a while. */
static void hw_wait(struct card_qp *qp, u64 nanoseconds)
{
	qp->waiting = true;
	hrtimer_start(&qp->timer, ns_to_ktime(nanoseconds), HRTIMER_MODE_REL_HARD);
}

/* The time of receiver-not-ready, in units of 10 us (InfiniBand, table of RNR NAK timers). */
static u32 hw_not_ready_time(u8 code)
{
	static const u16 times[32] = {
		0xffff, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
		16384, 24576, 32768, 49152,
	};

	return times[code & 31];
}

/* No answer came; false if the queue pair has given up. */
static bool hw_unanswered(struct card_qp *qp)
{
	hw_count(qp->device, LOST);
	if (qp->repeats++ < qp->attr.retry_cnt) {
		hw_count(qp->device, REPEATS);
		hw_wait(qp, 4096ULL << min_t(u8, qp->attr.timeout, 31));
		return true;
	}
	return false;
}

enum hw_outcome { HW_DONE, HW_WAITS, HW_BROKEN };

static enum hw_outcome hw_fail(struct card_qp *qp, enum ib_wc_status status)
{
	hw_sent(qp, status);
	hw_break(qp);
	return HW_BROKEN;
}

/* A request without a peer: registration and invalidation. */
static enum hw_outcome hw_local(struct card_qp *qp, const struct card_send *request)
{
	struct card_region *region;

	if (request->opcode == IB_WR_REG_MR) {
		region = request->region;
		if (region->ib.pd != qp->ib.pd || request->key >> 8 != region->index)
			return hw_fail(qp, IB_WC_MW_BIND_ERR);
		region->key = request->key;
		region->access = request->access;
		region->iova = request->iova;
		region->length = region->ib.length;
		region->page_size = qp->device->profile.no_page_size ? SZ_4K : region->ib.page_size;
		region->valid = true;
		hw_count(qp->device, REGIONS);
		qp->device->end.counts[REGION_BYTES] += region->length;
		qp->device->end.counts[REGION_PAGES] += region->pages;
	} else {
		region = hw_region(qp->device, request->ex);
		if (!region || region->ib.pd != qp->ib.pd)
			return hw_fail(qp, IB_WC_MW_BIND_ERR);
		region->valid = false;
	}
	hw_sent(qp, IB_WC_SUCCESS);
	return HW_DONE;
}

static enum hw_outcome hw_not_ready(struct card_qp *qp, const struct card_qp *peer)
{
	hw_count(qp->device, NOT_READY);
	if (qp->attr.rnr_retry != 7 && qp->not_ready++ >= qp->attr.rnr_retry)
		return hw_fail(qp, IB_WC_RNR_RETRY_EXC_ERR);
	hw_wait(qp, 10000ULL * hw_not_ready_time(peer->attr.min_rnr_timer));
	return HW_WAITS;
}

/* The peer refuses: both ends are broken, as both are told. */
static enum hw_outcome hw_refused(struct card_qp *qp, struct card_qp *peer, enum ib_wc_status status)
{
	hw_break(peer);
	return hw_fail(qp, status);
}

/* Executes the request at `send_next`. Under hw_wire. */
static enum hw_outcome hw_execute(struct card_qp *qp)
{
	struct card_send *request = &qp->send[qp->send_next & (qp->send_size - 1)];
	struct hw_cursor own = { .device = qp->device, .pd = qp->ib.pd, .sge = request->sge, .sges = request->sges };
	struct hw_cursor other = {};
	struct card_qp *peer;
	enum hw_side bad = HW_GOOD;
	bool writes = request->opcode == IB_WR_RDMA_WRITE || request->opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	bool reads = request->opcode == IB_WR_RDMA_READ;
	bool takes_receive = !reads && request->opcode != IB_WR_RDMA_WRITE;
	const struct card_receive *receive = NULL;

	if (request->opcode == IB_WR_REG_MR || request->opcode == IB_WR_LOCAL_INV)
		return hw_local(qp, request);
	if (request->flags & IB_SEND_INLINE)
		own.bytes = request->bytes;

	peer = hw_peer(qp, request->length);
	if (!peer) {
		if (hw_unanswered(qp))
			return HW_WAITS;
		return hw_fail(qp, IB_WC_RETRY_EXC_ERR);
	}
	qp->repeats = 0;
	if (takes_receive) {
		/* With the store in card_post_recv(). */
		if (peer->receive_next == smp_load_acquire(&peer->receive_head))
			return hw_not_ready(qp, peer);
		receive = &peer->receive[peer->receive_next & (peer->receive_size - 1)];
	}
	qp->not_ready = 0;

	other.device = peer->device;
	other.pd = peer->ib.pd;
	if ((writes || reads) && request->length) {
		int access = writes ? IB_ACCESS_REMOTE_WRITE : IB_ACCESS_REMOTE_READ;

		other.region = hw_region(peer->device, request->rkey);
		other.address = request->remote;
		if (!other.region || other.region->ib.pd != peer->ib.pd || !(other.region->access & access) ||
		    !(peer->attr.qp_access_flags & access))
			return hw_refused(qp, peer, IB_WC_REM_ACCESS_ERR);
	} else if (!writes && !reads) {
		other.sge = receive->sge;
		other.sges = receive->sges;
	}
	if (hw_qp_trouble(peer)->forgets) {
		/* What is read has to be told. */
		if (reads)
			return hw_unanswered(qp) ? HW_WAITS : hw_fail(qp, IB_WC_RETRY_EXC_ERR);
		peer->has_forgotten = true;
		hw_count(peer->device, FORGOTTEN);
		hw_sent(qp, IB_WC_SUCCESS);
		return HW_DONE;
	}
	if (reads) {
		bad = hw_move(&own, &other, request->length);
		if (bad)
			return bad == HW_BAD_TARGET ? hw_fail(qp, IB_WC_LOC_PROT_ERR) :
						      hw_refused(qp, peer, IB_WC_REM_ACCESS_ERR);
	} else {
		bad = hw_move(&other, &own, request->length);
		if (bad == HW_BAD_SOURCE)
			return hw_fail(qp, IB_WC_LOC_PROT_ERR);
		if (bad == HW_BAD_TARGET && writes)
			return hw_refused(qp, peer, IB_WC_REM_ACCESS_ERR);
		if (bad == HW_BAD_TARGET) {
			hw_received(peer, IB_WC_LOC_LEN_ERR, NULL);
			return hw_refused(qp, peer, IB_WC_REM_INV_REQ_ERR);
		}
	}
	if (request->opcode == IB_WR_SEND_WITH_INV) {
		struct card_region *region = hw_region(peer->device, request->ex);

		if (!region || region->ib.pd != peer->ib.pd)
			return hw_refused(qp, peer, IB_WC_REM_ACCESS_ERR);
		region->valid = false;
	}
	hw_count(qp->device, writes ? WRITES : SENDS);
	if (writes)
		qp->device->end.counts[ELEMENTS] += request->sges;
	if (request->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		hw_count(qp->device, IMMEDIATES);
	qp->device->end.counts[BYTES] += request->length;
	if (takes_receive)
		hw_received(peer, IB_WC_SUCCESS, request);
	hw_sent(qp, IB_WC_SUCCESS);
	return HW_DONE;
}

/* Executes what is there until something has to be waited for. Under hw_wire. */
static void hw_run(struct card_qp *qp)
{
	if (hw_qp_trouble(qp)->dead || hw_qp_trouble(qp)->forgets)
		return;
	if (qp->state == IB_QPS_ERR) {
		hw_flush(qp);
		return;
	}
	/* With the store in card_post_send(). */
	while (!qp->waiting && qp->state == IB_QPS_RTS && qp->send_next != smp_load_acquire(&qp->send_head))
		if (hw_execute(qp) != HW_DONE)
			return;
}

static enum hrtimer_restart hw_timer(struct hrtimer *timer)
{
	struct card_qp *qp = container_of(timer, struct card_qp, timer);
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	list_del_init(&qp->late);
	qp->waiting = false;
	hw_run(qp);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return HRTIMER_NORESTART;
}

/* The request is on its way. Under hw_wire. */
static void hw_delay(struct card_qp *qp, const struct hw_trouble *trouble)
{
	u64 now;

	if (qp->waiting)
		return;
	if (!trouble->polled) {
		hw_wait(qp, trouble->latency);
		return;
	}
	now = ktime_get_ns();
	qp->device->end.counts[DOORBELL_AT] = now;
	qp->late_until = now + trouble->latency;
	list_add_tail(&qp->late, &hw_late);
	/* Nobody may poll. */
	hw_wait(qp, trouble->latency + NSEC_PER_MSEC);
}

void hw_catch_up(void)
{
	struct card_qp *qp, *next;
	unsigned long flags;
	u64 now;

	if (list_empty(&hw_late))
		return;
	raw_spin_lock_irqsave(&hw_wire, flags);
	now = ktime_get_ns();
	list_for_each_entry_safe(qp, next, &hw_late, late) {
		/* The timer may be running, and wait for the lock. */
		if (now < qp->late_until || hrtimer_try_to_cancel(&qp->timer) < 0)
			continue;
		list_del_init(&qp->late);
		qp->waiting = false;
		hw_run(qp);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* A doorbell of a send queue. */
void hw_ring(struct card_qp *qp)
{
	struct card_device *device = qp->device;
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	hw_count(device, DOORBELLS);
	if (hw_qp_trouble(qp)->latency && qp->state == IB_QPS_RTS) {
		hw_delay(qp, hw_qp_trouble(qp));
	} else if (in_interrupt_engine) {
		if (list_empty(&qp->rung))
			list_add_tail(&qp->rung, &device->rung);
		hw_interrupt_raise(&device->doorbell);
	} else {
		hw_run(qp);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* The interrupt of the second engine: executes what doorbells were rung for. */
static void hw_doorbell(struct hw_interrupt *interrupt)
{
	struct card_device *device = container_of(interrupt, struct card_device, doorbell);
	struct card_qp *qp;
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	while ((qp = list_first_entry_or_null(&device->rung, struct card_qp, rung))) {
		list_del_init(&qp->rung);
		hw_run(qp);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* --- objects -------------------------------------------------------------- */

void hw_timer_setup(struct card_qp *qp)
{
	hrtimer_setup(&qp->timer, hw_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
}

/* Gives a queue pair its number. -ENOMEM if there are too many. */
int hw_qp_add(struct card_qp *qp)
{
	unsigned long flags;
	int error = -ENOMEM;
	u32 i;

	raw_spin_lock_irqsave(&hw_wire, flags);
	for (i = 0; i < ARRAY_SIZE(hw_qps); i++) {
		u32 number = (hw_last_qp + i) % ARRAY_SIZE(hw_qps);

		/* 0 and 1 are for management. */
		if (number < 2 || hw_qps[number])
			continue;
		hw_qps[number] = qp;
		qp->ib.qp_num = number;
		hw_last_qp = number + 1;
		error = 0;
		break;
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return error;
}

/* Ends a queue pair: nothing of the hardware touches it after that. */
void hw_qp_remove(struct card_qp *qp)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	qp->state = IB_QPS_RESET;
	list_del_init(&qp->rung);
	list_del_init(&qp->late);
	hw_qps[qp->ib.qp_num] = NULL;
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	hrtimer_cancel(&qp->timer);
}

int hw_show_links(char *buffer, int size)
{
	unsigned long flags;
	int i, length = 0;

	raw_spin_lock_irqsave(&hw_wire, flags);
	for (i = 0; i < ARRAY_SIZE(hw_qps); i++) {
		const struct card_qp *qp = hw_qps[i];
		const struct card_vector *vector;

		if (!qp || (qp->state != IB_QPS_RTR && qp->state != IB_QPS_RTS))
			continue;
		vector = to_cq(qp->ib.recv_cq)->source.vector;
		length += scnprintf(buffer + length, size - length,
				    "%s qp %d peer %u class %u level %u vector %d cpu %d interrupts %lu elsewhere %lu\n",
				    dev_name(&qp->device->ib.dev), i, qp->attr.dest_qp_num, qp->traffic_class,
				    qp->service_level, (int)(vector - qp->device->end.vectors), vector->interrupt.cpu,
				    vector->interrupts, vector->elsewhere);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return length;
}

void hw_device_setup(struct card_device *device)
{
	INIT_LIST_HEAD(&device->rung);
	hw_interrupt_setup(&device->doorbell, 0, hw_doorbell);
	hw_end_setup(&device->end);
}

/* Waits for interrupts that were raised. */
void hw_device_stop(struct card_device *device)
{
	hw_interrupt_stop(&device->doorbell);
	hw_end_stop(&device->end);
}
