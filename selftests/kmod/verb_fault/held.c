// SPDX-License-Identifier: GPL-2.0
/* Completion queues that a device does not let anybody see for a while. */
#include <linux/atomic.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include "held.h"

/* Each until its owner, or its device, takes it away. */
static struct ib_cq *held[16];
/* Against a queue that goes while its owner has a look. */
static DEFINE_SPINLOCK(looks);

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

	for (i = 0; i < ARRAY_SIZE(held); i++) {
		spin_lock_bh(&looks);
		cq = xchg(&held[i], NULL);
		if (cq && cq->comp_handler)
			cq->comp_handler(cq, cq->cq_context);
		spin_unlock_bh(&looks);
	}
}

void forget_held(const struct ib_device *dev)
{
	struct ib_cq *cq;
	int i;

	spin_lock_bh(&looks);
	for (i = 0; i < ARRAY_SIZE(held); i++) {
		cq = held[i];
		if (cq && cq->device == dev)
			cmpxchg(&held[i], cq, NULL);
	}
	spin_unlock_bh(&looks);
}

void forget_held_cq(struct ib_cq *cq)
{
	int i;

	spin_lock_bh(&looks);
	for (i = 0; i < ARRAY_SIZE(held); i++)
		cmpxchg(&held[i], cq, NULL);
	spin_unlock_bh(&looks);
}
