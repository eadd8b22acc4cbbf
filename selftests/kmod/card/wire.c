// SPDX-License-Identifier: GPL-2.0
/* What can be wrong with the wire and with a device, and what devices count; module parameters of both. */
#include <linux/moduleparam.h>
#include <linux/string.h>
#include "card.h"

/* Whether a packet gets through between two ports. Under hw_wire. */
bool hw_passes(const struct hw_trouble *from, const struct hw_trouble *to, u32 packet, bool rdma)
{
	u64 now = 0;

	if (from->down_until || to->down_until)
		now = ktime_get_ns();
	if (now < from->down_until || now < to->down_until)
		return false;
	if (from->dead || to->dead || (rdma && (from->black_hole || to->black_hole)))
		return false;
	if (from->sent_mtu && packet > from->sent_mtu)
		return false;
	return (!from->mtu || packet <= from->mtu) && (!to->mtu || packet <= to->mtu);
}

enum card_trouble { DOWN, BLACK_HOLE, MTU, SENT_MTU, LATENCY, POLLED, DEAD, FORGETS, PORT_ERROR, PORT_ACTIVE, RESET, FATAL };

static const char *const troubles[] = {
	[DOWN] = "down",
	[BLACK_HOLE] = "black_hole",
	[MTU] = "mtu",
	[SENT_MTU] = "sent_mtu",
	[LATENCY] = "latency",
	[POLLED] = "polled",
	[DEAD] = "dead",
	[FORGETS] = "forgets",
	[PORT_ERROR] = "port_error",
	[PORT_ACTIVE] = "port_active",
	[RESET] = "reset",
	[FATAL] = "fatal",
};

struct card_order {
	enum card_trouble what;
	u32 value;
};

static void card_order_port(struct hw_trouble *trouble, void *context)
{
	const struct card_order *order = context;
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	switch (order->what) {
	case DOWN:
		trouble->down_until = ktime_get_ns() + (u64)order->value * NSEC_PER_MSEC;
		break;
	case BLACK_HOLE:
		trouble->black_hole = order->value;
		break;
	case MTU:
		trouble->mtu = order->value;
		break;
	case SENT_MTU:
		trouble->sent_mtu = order->value;
		break;
	case LATENCY:
		trouble->latency = order->value;
		break;
	case POLLED:
		trouble->polled = order->value;
		break;
	case DEAD:
		trouble->dead = order->value;
		break;
	case FORGETS:
		trouble->forgets = order->value;
		if (!order->value)
			hw_recovered(trouble);
		break;
	default:
		break;
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

/* What a driver of RDMA does or says. */
static int card_order_device(const char *name, u32 port, const struct card_order *order)
{
	struct card_device *device = card_find(name);

	if (!device)
		return -ENODEV;
	if (!rdma_is_port_valid(&device->ib, port)) {
		ib_device_put(&device->ib);
		return -ENODEV;
	}
	switch (order->what) {
	case RESET:
		device->resetting = order->value;
		break;
	case PORT_ERROR:
		card_event(device, IB_EVENT_PORT_ERR, port);
		break;
	case PORT_ACTIVE:
		card_event(device, IB_EVENT_PORT_ACTIVE, port);
		break;
	case FATAL:
		card_event(device, IB_EVENT_DEVICE_FATAL, port);
		/* Who has ordered that can rely on everybody having heard of it. */
		flush_workqueue(ib_wq);
		break;
	default:
		break;
	}
	ib_device_put(&device->ib);
	return 0;
}

/* "DEVICE[/PORT] TROUBLE VALUE"; see README.md. */
static int card_trouble_set(const char *text, const struct kernel_param *param)
{
	char name[IB_DEVICE_NAME_MAX], word[16], *slash;
	struct card_order order;
	u32 port = 0;
	int what;

	if (sscanf(text, "%63s %15s %u", name, word, &order.value) != 3)
		return -EINVAL;
	slash = strchr(name, '/');
	if (slash) {
		*slash = 0;
		if (kstrtou32(slash + 1, 10, &port) || !port)
			return -EINVAL;
	}
	what = match_string(troubles, ARRAY_SIZE(troubles), word);
	if (what < 0)
		return -EINVAL;
	order.what = what;
	if (what > FORGETS)
		return card_order_device(name, max(port, 1U), &order);
	return card_for_named(name, port, card_order_port, &order) ? 0 : -ENODEV;
}

const struct kernel_param_ops card_trouble_ops = { .set = card_trouble_set };

static const char *const counted[CARD_COUNTS] = {
	[DOORBELLS] = "doorbells",
	[RECEIVE_DOORBELLS] = "receive_doorbells",
	[ARMS] = "arms",
	[INTERRUPTS] = "interrupts",
	[EVENTS] = "events",
	[DELAYED] = "delayed",
	[COMPLETIONS] = "completions",
	[UNSIGNALLED] = "unsignalled",
	[SENDS] = "sends",
	[WRITES] = "writes",
	[ELEMENTS] = "elements",
	[IMMEDIATES] = "immediates",
	[NOT_READY] = "not_ready",
	[REPEATS] = "repeats",
	[DOORBELL_AT] = "doorbell_at",
	[LOST] = "lost",
	[FORGOTTEN] = "forgotten",
	[OUTSIDE] = "outside",
	[BYTES] = "bytes",
	[REGIONS] = "regions",
	[REGION_BYTES] = "region_bytes",
	[REGION_PAGES] = "region_pages",
	[FRAMES] = "frames",
	[PACKETS] = "packets",
	[ARRIVED] = "arrived",
	[NO_BUFFER] = "no_buffer",
	[REFUSED] = "refused",
	[LATE] = "late",
};

struct card_text {
	char *buffer;
	int length;
};

static void card_stats_line(const char *name, struct hw_end *end, void *context)
{
	struct card_text *text = context;
	int i;

#define add(...) (text->length += scnprintf(text->buffer + text->length, PAGE_SIZE - text->length, __VA_ARGS__))
	add("%s", name);
	for (i = 0; i < CARD_COUNTS; i++)
		add(" %s %lu", counted[i], READ_ONCE(end->counts[i]));
	add("\n");
#undef add
}

/* One line for each device and port: its name, then names and values. */
static int card_stats_get(char *buffer, const struct kernel_param *param)
{
	struct card_text text = { .buffer = buffer };

	card_for_each(card_stats_line, &text);
	return text.length;
}

const struct kernel_param_ops card_stats_ops = { .get = card_stats_get };

static int card_links_get(char *buffer, const struct kernel_param *param)
{
	return hw_show_links(buffer, PAGE_SIZE);
}

const struct kernel_param_ops card_links_ops = { .get = card_links_get };
