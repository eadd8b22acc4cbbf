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
/* Forgets one that goes. Nobody looks at it on return. */
void forget_held_cq(struct ib_cq *cq);
