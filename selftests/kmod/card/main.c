// SPDX-License-Identifier: GPL-2.0
/*
 * The module: `rdma link add NAME type card netdev X` makes a device, and
 * `ip link add NAME type card` an Ethernet port, which X may be.
 *
 * Parameters, which hold for devices that are made afterwards: `profile`,
 * `ports`, `dma` (addresses are those of the DMA API rather than the kernel's), `granule`, and
 * `engine` (for all). `trouble`, `stats` and `links` are in wire.c.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/sizes.h>
#include <rdma/rdma_netlink.h>
#include <net/rtnetlink.h>
#include "port.h"

bool real_dma = !IS_ENABLED(CONFIG_UML);
module_param_named(dma, real_dma, bool, 0644);

uint granule;

static int card_granule_set(const char *text, const struct kernel_param *param)
{
	uint value;

	if (kstrtouint(text, 0, &value) || (value && (value < SZ_4K || value > SZ_1G || !is_power_of_2(value))))
		return -EINVAL;
	granule = value;
	return 0;
}

static const struct kernel_param_ops card_granule_ops = { .set = card_granule_set, .get = param_get_uint };
module_param_cb(granule, &card_granule_ops, &granule, 0644);

static uint ports_of_device = 1;
module_param_named(ports, ports_of_device, uint, 0644);

bool in_interrupt_engine;

static const char *const engines[] = { "ring", "interrupt" };

static int card_engine_set(const char *text, const struct kernel_param *param)
{
	int which = sysfs_match_string(engines, text);

	if (which < 0)
		return which;
	in_interrupt_engine = which;
	return 0;
}

static int card_engine_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", engines[in_interrupt_engine]);
}

static const struct kernel_param_ops card_engine_ops = { .set = card_engine_set, .get = card_engine_get };
module_param_cb(engine, &card_engine_ops, NULL, 0644);
module_param_cb(trouble, &card_trouble_ops, NULL, 0200);
module_param_cb(stats, &card_stats_ops, NULL, 0444);
module_param_cb(links, &card_links_ops, NULL, 0444);

/*
 * What drivers of Linux 7.2 say of their devices and refuse, as far as a
 * kernel user of reliable connections meets it. README.md has the sources.
 */
static const struct card_profile profiles[] = {
	{ .name = "ideal", .send_sge = 30, .recv_sge = 30, .queue_wrs = 16384, .inline_bytes = 220,
	  .region_pages = 65536, .page_sizes = ~(u64)(SZ_4K - 1) },
	{ .name = "mlx5", .send_sge = 30, .recv_sge = 30, .queue_wrs = 32768, .queue_bytes = SZ_2M,
	  .inline_bytes = 220, .region_pages = 65536, .page_sizes = ~(u64)(SZ_4K - 1),
	  .driver = RDMA_DRIVER_MLX5 },
	{ .name = "bnxt_re", .send_sge = 6, .recv_sge = 6, .queue_wrs = 65535, .inline_bytes = 96,
	  .region_pages = 512, .page_sizes = SZ_4K | SZ_8K | SZ_64K | SZ_2M | SZ_1G, .reset_fails_modify = true,
	  .driver = RDMA_DRIVER_BNXT_RE },
	{ .name = "irdma", .send_sge = 13, .recv_sge = 13, .queue_wrs = 4096, .inline_bytes = 101,
	  .region_pages = 262144, .page_sizes = SZ_4K | SZ_2M | SZ_1G, .reset_fails_modify = true,
	  .driver = RDMA_DRIVER_IRDMA },
	{ .name = "erdma", .send_sge = 6, .recv_sge = 1, .queue_wrs = 8192, .inline_bytes = 96,
	  .region_pages = 512, .page_sizes = ~(u64)(SZ_4K - 1) & (SZ_2G - 1),
	  .driver = RDMA_DRIVER_ERDMA, .no_page_size = true },
	{ .name = "ionic", .send_sge = 8, .recv_sge = 8, .queue_wrs = 65535, .inline_bytes = 128,
	  .region_pages = 65536, .page_sizes = ~(u64)(SZ_4K - 1), .strict_flags = true,
	  .driver = RDMA_DRIVER_IONIC },
	{ .name = "hns", .send_sge = 8, .recv_sge = 8, .queue_wrs = 32768, .inline_bytes = 32,
	  .region_pages = 512, .page_sizes = ~(u64)(SZ_4K - 1), .reset_fails_post = true,
	  .driver = RDMA_DRIVER_HNS },
	{ .name = "mana", .send_sge = 30, .recv_sge = 15, .queue_wrs = 16384, .inline_bytes = 0,
	  .region_pages = 0, .page_sizes = SZ_4K, .no_registration = true,
	  .driver = RDMA_DRIVER_MANA },
	{ .name = "no_local_key", .send_sge = 30, .recv_sge = 30, .queue_wrs = 16384, .inline_bytes = 220,
	  .region_pages = 512, .page_sizes = ~(u64)(SZ_4K - 1), .no_local_key = true },
};

static int profile;

static int card_profile_set(const char *text, const struct kernel_param *param)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(profiles); i++)
		if (sysfs_streq(text, profiles[i].name)) {
			profile = i;
			return 0;
		}
	return -EINVAL;
}

static int card_profile_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", profiles[profile].name);
}

static const struct kernel_param_ops card_profile_ops = { .set = card_profile_set, .get = card_profile_get };
module_param_cb(profile, &card_profile_ops, NULL, 0644);

/* All devices and ports. */
static DEFINE_MUTEX(devices_lock);
static LIST_HEAD(devices);
static LIST_HEAD(ports);

void card_remember(struct card_device *device)
{
	mutex_lock(&devices_lock);
	list_add_tail(&device->all, &devices);
	mutex_unlock(&devices_lock);
}

void card_forget(struct card_device *device)
{
	mutex_lock(&devices_lock);
	list_del_init(&device->all);
	mutex_unlock(&devices_lock);
}

/* A device that is being registered has no name yet. */
static bool card_is_named(struct card_device *device, const char *name)
{
	const char *own = dev_name(&device->ib.dev);

	return own && !strcmp(own, name);
}

struct card_device *card_find(const char *name)
{
	struct card_device *device;

	mutex_lock(&devices_lock);
	list_for_each_entry(device, &devices, all)
		if (card_is_named(device, name) && ib_device_try_get(&device->ib))
			goto unlock;
	device = NULL;
unlock:
	mutex_unlock(&devices_lock);
	return device;
}

void card_port_remember(struct card_port *port)
{
	mutex_lock(&devices_lock);
	list_add_tail(&port->all, &ports);
	mutex_unlock(&devices_lock);
}

void card_port_forget(struct card_port *port)
{
	mutex_lock(&devices_lock);
	list_del_init(&port->all);
	mutex_unlock(&devices_lock);
}

void card_for_each(void (*call)(const char *name, struct hw_end *end, void *context), void *context)
{
	struct card_device *device;
	struct card_port *port;

	mutex_lock(&devices_lock);
	list_for_each_entry(device, &devices, all)
		call(dev_name(&device->ib.dev), &device->end, context);
	list_for_each_entry(port, &ports, all)
		call(port->netdev->name, &port->end, context);
	mutex_unlock(&devices_lock);
}

/* The Ethernet port that a device's port is on, if it is one of ours. It stays while devices_lock is held. */
static struct card_port *card_port_below(struct card_device *device, u32 number)
{
	struct net_device *netdev = NULL;
	struct card_port *port;

	if (ib_device_try_get(&device->ib)) {
		netdev = ib_device_get_netdev(&device->ib, number);
		ib_device_put(&device->ib);
	}
	port = card_port_of(netdev);
	dev_put(netdev);
	return port;
}

static void card_for_port(struct card_port *port, void (*call)(struct hw_trouble *trouble, void *context),
			  void *context)
{
	struct card_device *device;
	u32 number;

	call(port->end.trouble, context);
	list_for_each_entry(device, &devices, all)
		rdma_for_each_port(&device->ib, number)
			if (card_port_below(device, number) == port)
				call(&device->end.trouble[number - 1], context);
}

bool card_for_named(const char *name, u32 number, void (*call)(struct hw_trouble *trouble, void *context),
		    void *context)
{
	struct card_device *device;
	struct card_port *port;
	bool found = false;
	u32 each;

	mutex_lock(&devices_lock);
	list_for_each_entry(port, &ports, all) {
		if (number || strcmp(port->netdev->name, name))
			continue;
		card_for_port(port, call, context);
		found = true;
	}
	list_for_each_entry(device, &devices, all) {
		if (!card_is_named(device, name))
			continue;
		rdma_for_each_port(&device->ib, each) {
			if (number && each != number)
				continue;
			/* The port and all that is on it are one card. */
			port = card_port_below(device, each);
			if (port)
				card_for_port(port, call, context);
			else
				call(&device->end.trouble[each - 1], context);
			found = true;
		}
	}
	mutex_unlock(&devices_lock);
	return found;
}

static int card_newlink(const char *name, struct net_device *netdev)
{
	struct card_device *device = card_find(name);
	int error;

	if (!device)
		return card_device_add(name, netdev, clamp(ports_of_device, 1, CARD_PORTS), &profiles[profile]);
	error = card_device_join(device, netdev);
	ib_device_put(&device->ib);
	return error;
}

static struct rdma_link_ops card_link_ops = { .type = "card", .newlink = card_newlink };
MODULE_ALIAS_RDMA_LINK("card");

/* The network device of the first port goes, and so does ours; without the one of another port that one is down. */
static void card_without(struct card_device *device, struct net_device *netdev)
{
	struct net_device *own;
	u32 port;

	rdma_for_each_port(&device->ib, port) {
		own = ib_device_get_netdev(&device->ib, port);
		dev_put(own);
		if (own != netdev)
			continue;
		if (port == 1) {
			ib_unregister_device_queued(&device->ib);
			return;
		}
		ib_dispatch_port_state_event(&device->ib, netdev);
		ib_device_set_netdev(&device->ib, NULL, port);
	}
}

static int card_netdev_event(struct notifier_block *block, unsigned long event, void *info)
{
	struct net_device *netdev = netdev_notifier_info_to_dev(info);
	struct card_device *device;

	if (event != NETDEV_UNREGISTER)
		return NOTIFY_OK;
	mutex_lock(&devices_lock);
	list_for_each_entry(device, &devices, all) {
		if (!ib_device_try_get(&device->ib))
			continue;
		card_without(device, netdev);
		ib_device_put(&device->ib);
	}
	mutex_unlock(&devices_lock);
	return NOTIFY_OK;
}

static struct notifier_block card_netdev_block = { .notifier_call = card_netdev_event };

static int __init card_init(void)
{
	int error = register_netdevice_notifier(&card_netdev_block);

	if (error)
		return error;
	error = rtnl_link_register(&card_port_link_ops);
	if (error) {
		unregister_netdevice_notifier(&card_netdev_block);
		return error;
	}
	rdma_link_register(&card_link_ops);
	return 0;
}

static void card_unregister_one(void)
{
	struct card_device *device;

	mutex_lock(&devices_lock);
	list_for_each_entry(device, &devices, all)
		if (ib_device_try_get(&device->ib))
			goto found;
	device = NULL;
found:
	mutex_unlock(&devices_lock);
	if (device)
		ib_unregister_device_and_put(&device->ib);
}

static void __exit card_exit(void)
{
	rdma_link_unregister(&card_link_ops);
	unregister_netdevice_notifier(&card_netdev_block);
	/* Those that are being unregistered already leave the list by themselves. */
	while (!list_empty(&devices)) {
		card_unregister_one();
		cond_resched();
	}
	/* With all ports. */
	rtnl_link_unregister(&card_port_link_ops);
}

module_init(card_init);
module_exit(card_exit);
MODULE_DESCRIPTION("An ideal RDMA card within one kernel, for tests");
MODULE_LICENSE("GPL");
