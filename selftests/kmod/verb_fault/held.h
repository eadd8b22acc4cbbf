/* SPDX-License-Identifier: GPL-2.0 */
/* Completion queues that a device does not let anybody see for a while. */
#include <linux/types.h>

struct ib_cq;
struct ib_device;
struct ib_wc;

/* Notes a queue to be looked at later. */
void note_held(struct ib_cq *cq);
/* Has the owners of the noted queues look. */
void release_held(void);
/* Forgets those of a device that goes. */
void forget_held(const struct ib_device *dev);
/* Whether whoever is to hear of a completion has gone: its code has no name any more. */
bool is_orphan(const struct ib_cq *cq, const struct ib_wc *wc);
