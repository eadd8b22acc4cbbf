// SPDX-License-Identifier: GPL-2.0
/* The devices that verb_fault stands before, and what they are made to say of themselves. */
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>
#include "devices.h"

/* The devices there are, and what they can do. */
static struct {
	struct ib_device *dev;
	struct ib_device_attr attrs;
	struct device *parent;
} devices[8];
static DEFINE_MUTEX(lock);

bool exceeds(u32 value, int most)
{
	return most && value > most;
}

static void lower(int *value, int most)
{
	if (exceeds(*value, most))
		*value = most;
}

int adopt(struct ib_device *dev)
{
	struct ib_device_attr *attrs = &dev->attrs;
	int i, result = -ENOSPC;

	mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(devices) && result; i++) {
		if (devices[i].dev)
			continue;
		devices[i].dev = dev;
		devices[i].attrs = *attrs;
		devices[i].parent = dev->dev.parent;
		if (card)
			dev->dev.parent = &card->dev;
		lower(&attrs->max_send_sge, send_sges);
		lower(&attrs->max_qp_wr, queue_wrs);
		if (exceeds(attrs->max_fast_reg_page_list_len, mr_pages))
			attrs->max_fast_reg_page_list_len = mr_pages;
		if (no_frmr)
			attrs->device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
		if (page_sizes)
			attrs->page_size_cap = page_sizes;
		result = 0;
	}
	mutex_unlock(&lock);
	return result;
}

void abandon(struct ib_device *dev)
{
	int i;

	mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		if (devices[i].dev != dev)
			continue;
		dev->attrs = devices[i].attrs;
		dev->dev.parent = devices[i].parent;
		devices[i].dev = NULL;
	}
	mutex_unlock(&lock);
}

int tell_event(const char *name, enum ib_event_type type)
{
	struct ib_event event = {
		.event = type,
		.element.port_num = 1,
	};
	int result = -ENODEV;
	int i;

	mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		event.device = devices[i].dev;
		if (event.device && !strcmp(dev_name(&event.device->dev), name)) {
			ib_dispatch_event(&event);
			result = 0;
		}
	}
	mutex_unlock(&lock);
	return result;
}

static int set_driver(const char *text, const struct kernel_param *param)
{
	u32 id;
	int i, result = kstrtou32(text, 0, &id);

	if (result)
		return result;
	mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(devices); i++)
		if (devices[i].dev)
			devices[i].dev->ops.driver_id = id ?: driver.driver_id;
	mutex_unlock(&lock);
	return 0;
}

static const struct kernel_param_ops driver_ops = { .set = set_driver };
module_param_cb(driver, &driver_ops, NULL, 0200);
MODULE_PARM_DESC(driver, "The driver's number that devices tell, or 0 for their own");
