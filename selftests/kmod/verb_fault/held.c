// SPDX-License-Identifier: GPL-2.0
/* Completion queues that a device does not let anybody see for a while. */
#include <linux/atomic.h>
#include <linux/bottom_half.h>
#include <linux/kallsyms.h>
#include <linux/sprintf.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>
#include "held.h"

/* They stay as long as their devices. */
static struct ib_cq *held[16];
/* Completions to look at: those that come after they were kept back. */
static atomic_t late;

void note_held(struct ib_cq *cq)
{
	struct ib_cq *old;
	int i;

	for (i = 0; i < ARRAY_SIZE(held); i++) {
		old = cmpxchg(&held[i], NULL, cq);
		if (!old || old == cq)
			break;
	}
}

void release_held(void)
{
	struct ib_cq *cq;
	int i;

	atomic_set(&late, 64);
	for (i = 0; i < ARRAY_SIZE(held); i++) {
		cq = xchg(&held[i], NULL);
		if (cq && cq->comp_handler) {
			local_bh_disable();
			cq->comp_handler(cq, cq->cq_context);
			local_bh_enable();
		}
	}
}

void forget_held(const struct ib_device *dev)
{
	struct ib_cq *cq;
	int i;

	for (i = 0; i < ARRAY_SIZE(held); i++) {
		cq = READ_ONCE(held[i]);
		if (cq && cq->device == dev)
			cmpxchg(&held[i], cq, NULL);
	}
}

bool is_orphan(const struct ib_cq *cq, const struct ib_wc *wc)
{
	char name[KSYM_SYMBOL_LEN];

	if (cq->poll_ctx == IB_POLL_DIRECT || atomic_dec_if_positive(&late) < 0)
		return false;
	snprintf(name, sizeof(name), "%ps", wc->wr_cqe->done);
	return !strncmp(name, "0x", 2);
}
