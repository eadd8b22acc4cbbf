/* SPDX-License-Identifier: GPL-2.0 */
/* The devices that verb_fault stands before, and what they are made to say of themselves. */
#include <linux/types.h>
#include <rdma/ib_verbs.h>

struct ib_device;
struct ib_device_ops;
struct pci_dev;

/* The driver's own operations; set by the first device. */
extern struct ib_device_ops driver;
/* What devices have at most, unless 0. */
extern int send_sges, queue_wrs, mr_pages;
/* Whether they have no fast registration; sizes of their pages, unless 0. */
extern bool no_frmr;
extern ulong page_sizes;
/* The parent that they get, if any. */
extern struct pci_dev *card;

bool exceeds(u32 value, int most);
/* Takes note of a device, and makes it smaller. */
int adopt(struct ib_device *dev);
/* Gives it back what it was. */
void abandon(struct ib_device *dev);
/* Tells clients of an event of the device of this name, or of its port. */
int tell_event(const char *name, enum ib_event_type type);
