/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An ideal RDMA card, within one kernel. README.md says what it models.
 *
 * Functions and types whose names begin with card_ are what a driver of
 * hardware does on the host's processor. Those that begin with hw_ are what
 * the hardware does by itself; a profiler takes them off by that prefix.
 */
#ifndef CARD_H
#define CARD_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#define CARD_MAX_SGE 32
#define CARD_MAX_INLINE 256
#define CARD_VECTORS 8
#define CARD_PORTS 2
/* The key that stands for all memory of the host. */
#define CARD_LOCAL_KEY 0x100

/* What kind of card a device is: limits, and what its driver refuses. */
struct card_profile {
	const char *name;
	/* Elements of a request, work requests of a queue, bytes of a send queue (0: not limited). */
	u16 send_sge, recv_sge;
	u32 queue_wrs, queue_bytes;
	/* Bytes that a request may carry itself. */
	u16 inline_bytes;
	/* Pages of a memory region, and their sizes as a mask. */
	u32 region_pages;
	u64 page_sizes;
	/* The number that the driver has. */
	enum rdma_driver_id driver;
	/* Has no fast registration. */
	bool no_registration;
	/* A registration does not tell the size of pages: the device takes them for the smallest. */
	bool no_page_size;
	/* Refuses SOLICITED on requests that cause no event at the peer. */
	bool strict_flags;
	/* While the device is reset: modify_qp fails, posts fail. */
	bool reset_fails_modify, reset_fails_post;
	/* Has no key for all local memory, so each protection domain makes a region. */
	bool no_local_key;
};

/* An interrupt: bound to a CPU, its handler runs in hard interrupt context. */
struct hw_interrupt {
	struct irq_work work;
	call_single_data_t remote;
	struct hrtimer timer;
	int cpu;
	/* Under hw_wire: it was raised and its handler has not begun. */
	bool raised;
	void (*handler)(struct hw_interrupt *interrupt);
};

struct card_vector {
	struct hw_interrupt interrupt;
	/* How often it was handled, and how often of that on another CPU than its own. */
	unsigned long interrupts, elsewhere;
	/* Under hw_wire: sources that have an event to tell. */
	struct list_head events;
	/* Of the device or port. */
	unsigned long *counts;
};

/* What a driver hears of by interrupts: a completion queue, a queue of an Ethernet port. Under hw_wire. */
struct hw_source {
	struct list_head event;
	struct card_vector *vector;
	/* Runs in hard interrupt context. */
	void (*tell)(struct hw_source *source);
	/* Timed: the moderation's time runs. */
	bool armed, dead, timed;
	/* Moderation: an event waits for this number of happenings, or for this time in microseconds. */
	u32 count, period;
	u32 since;
	struct hrtimer moderation;
};

enum card_count {
	DOORBELLS,
	RECEIVE_DOORBELLS,
	ARMS,
	INTERRUPTS,
	EVENTS,
	DELAYED,
	COMPLETIONS,
	UNSIGNALLED,
	SENDS,
	WRITES,
	ELEMENTS,
	IMMEDIATES,
	NOT_READY,
	REPEATS,
	/* Nanoseconds of ktime_get() at the last doorbell, where `polled` is set. */
	DOORBELL_AT,
	LOST,
	FORGOTTEN,
	OUTSIDE,
	BYTES,
	REGIONS,
	REGION_BYTES,
	REGION_PAGES,
	/* Of Ethernet ports. */
	FRAMES,
	PACKETS,
	ARRIVED,
	NO_BUFFER,
	REFUSED,
	LATE,
	CARD_COUNTS
};

/* What is wrong with a port and its wire, under hw_wire. */
struct hw_trouble {
	/* Packets are lost until then, in nanoseconds of ktime_get(). */
	u64 down_until;
	/* RDMA alone is lost. */
	bool black_hole;
	/* Largest packet that gets through either way, and of those that it sends; 0: any. */
	u32 mtu, sent_mtu;
	/* How long a request is on its way, in nanoseconds. */
	u32 latency;
	/* A request whose time has come is executed when somebody polls a completion queue, and not by a timer. */
	bool polled;
	/* It has stopped: nothing is executed. */
	bool dead;
	/* It is dying: what arrives is acknowledged, and reaches no memory; nor does it execute anything. */
	bool forgets;
};

/* What a device or a port is for the wire and for its driver's counters. */
struct hw_end {
	/* By the number of the port less one; an Ethernet port has one. */
	struct hw_trouble trouble[CARD_PORTS];
	struct card_vector vectors[CARD_VECTORS];
	unsigned long counts[CARD_COUNTS];
	/* The parent for the DMA API, if addresses are its. */
	struct platform_device *platform;
	/* Each piece of memory of 2 to this power bytes has addresses of its own; 0: all is one. */
	u32 granule_shift;
};

struct card_device {
	struct ib_device ib;
	struct hw_end end;
	struct list_head all;
	struct card_profile profile;
	struct xarray regions;
	u32 next_region;
	/* Queue pairs whose doorbell was rung, for the engine in interrupt context; under hw_wire. */
	struct hw_interrupt doorbell;
	struct list_head rung;
	/* The driver is recovering the device. */
	bool resetting;
};

struct card_pd {
	struct ib_pd ib;
};

/* One completion as the hardware writes it. */
struct hw_completion {
	union {
		u64 wr_id;
		struct ib_cqe *wr_cqe;
	};
	/* NULL where the queue pair has gone since. */
	struct card_qp *qp;
	enum ib_wc_status status;
	enum ib_wc_opcode opcode;
	u32 byte_len;
	u32 ex;
	int flags;
	/* The place in the queue after this request, and whether that is the send queue. */
	u32 next;
	bool of_send;
};

struct card_cq {
	struct ib_cq ib;
	/* Driver: who polls. */
	spinlock_t lock;
	/* A ring: the hardware writes at `head` under hw_wire, the driver reads at `tail` under `lock`. */
	struct hw_completion *ring;
	u32 size, head, tail;
	/* Under hw_wire from here. */
	struct hw_source source;
	bool solicited_only, overrun;
};

/* A request as the driver writes it into a send queue. */
struct card_send {
	union {
		u64 wr_id;
		struct ib_cqe *wr_cqe;
	};
	enum ib_wr_opcode opcode;
	int flags;
	bool signalled;
	u16 sges;
	u32 length;
	u32 ex;
	u32 rkey;
	u64 remote;
	/* Registration. */
	struct card_region *region;
	u32 key;
	int access;
	u64 iova;
	union {
		struct ib_sge sge[CARD_MAX_SGE];
		u8 bytes[CARD_MAX_INLINE];
	};
};

struct card_receive {
	union {
		u64 wr_id;
		struct ib_cqe *wr_cqe;
	};
	u16 sges;
	struct ib_sge sge[CARD_MAX_SGE];
};

struct card_qp {
	struct ib_qp ib;
	struct card_device *device;
	bool sign_all;
	/* Driver: who posts. */
	spinlock_t send_lock, receive_lock;
	struct card_send *send;
	struct card_receive *receive;
	u32 send_size, receive_size;
	/* Places written by the driver; what is before was handed to the hardware. */
	u32 send_head, receive_head;
	/* Places up to which completions were polled: what is before may be written again. */
	u32 send_tail, receive_tail;
	/* Under hw_wire: what is executed next. */
	u32 send_next, receive_next;
	/* Under hw_wire. */
	enum ib_qp_state state;
	struct list_head rung;
	struct hrtimer timer;
	bool waiting;
	/* Where it waits to be polled, and since when it might go on, in nanoseconds of ktime_get(). */
	struct list_head late;
	u64 late_until;
	u8 repeats, not_ready;
	struct ib_qp_attr attr;
	union ib_gid own_gid, peer_gid;
	/* Of the packets that it sends. */
	u8 traffic_class, service_level;
	/* A packet for it was acknowledged, and forgotten. */
	bool has_forgotten;
	/* The peer has taken its first packet, so it expects our sequence number. */
	bool in_sequence;
};

struct card_region {
	struct ib_mr ib;
	u32 index;
	/* All memory of the host. */
	bool everything;
	u32 capacity, pages;
	u64 *page;
	/* Under hw_wire: set by a registration request. */
	bool valid;
	u32 key;
	int access;
	u64 iova, length;
	unsigned int page_size;
};

#define to_device(d) container_of(d, struct card_device, ib)
#define to_qp(q) container_of(q, struct card_qp, ib)
#define to_cq(c) container_of(c, struct card_cq, ib)
#define to_region(m) container_of(m, struct card_region, ib)

/* What is wrong with the port of a queue pair. It has one once it is initialised. */
static inline struct hw_trouble *hw_qp_trouble(struct card_qp *qp)
{
	return &qp->device->end.trouble[qp->attr.port_num ? qp->attr.port_num - 1 : 0];
}

/* One wire joins all devices. Interrupts are off while it is held; it is never held over a call to a consumer. */
extern raw_spinlock_t hw_wire;

/* main.c: how devices are made. */
extern bool in_interrupt_engine;
extern bool real_dma;
/* Bytes of memory that have neighbouring addresses, for devices made afterwards; 0: all have. */
extern uint granule;
void card_remember(struct card_device *device);
void card_forget(struct card_device *device);
/* With a reference to the device, which ib_device_put() gives back. */
struct card_device *card_find(const char *name);
void card_for_each(void (*call)(const char *name, struct hw_end *end, void *context), void *context);
/*
 * Calls for the ports of the device (all, or the one of that number), or for the Ethernet port of that name, and for
 * whatever is on the same Ethernet port. False if there is none.
 */
bool card_for_named(const char *name, u32 number, void (*call)(struct hw_trouble *trouble, void *context),
		    void *context);

/* device.c */
int card_make_parent(struct hw_end *end);
void card_end_parent(struct hw_end *end);
int card_device_add(const char *name, struct net_device *netdev, u32 ports, const struct card_profile *profile);
/* Gives the network device to the first port that has none. */
int card_device_join(struct card_device *device, struct net_device *netdev);
void card_event(struct card_device *device, enum ib_event_type type, u32 port);

/* queue.c */
int card_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int card_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int card_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init);
int card_destroy_qp(struct ib_qp *qp, struct ib_udata *udata);
int card_post_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int card_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
int card_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *attrs);
int card_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
int card_modify_cq(struct ib_cq *cq, u16 count, u16 period);
int card_poll_cq(struct ib_cq *cq, int entries, struct ib_wc *wc);
int card_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);

/* region.c */
struct ib_mr *card_get_dma_mr(struct ib_pd *pd, int access);
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 address, int access,
			       struct ib_dmah *dmah, struct ib_udata *udata);
struct ib_mr *card_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages);
int card_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int nents, unsigned int *offset);
int card_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);

/* engine.c: the hardware. */
void hw_ring(struct card_qp *qp);
/* Executes requests whose time has come, if nothing else does (`polled`). */
void hw_catch_up(void);
void hw_flush(struct card_qp *qp);
void hw_timer_setup(struct card_qp *qp);
int hw_qp_add(struct card_qp *qp);
void hw_qp_remove(struct card_qp *qp);
void hw_arm(struct card_cq *cq, bool solicited_only);
void hw_cq_setup(struct card_cq *cq, struct card_vector *vector);
void hw_forget(struct card_cq *cq, struct card_qp *qp);
void hw_device_setup(struct card_device *device);
void hw_device_stop(struct card_device *device);
/* Writes a line for each queue pair that is connected; returns their length. */
int hw_show_links(char *buffer, int size);
/* What a device's address stands for in this kernel; NULL if nothing. `length` is cut where the next byte is elsewhere. */
void *hw_memory(const struct hw_end *end, u64 address, u32 *length);
/* The device of this port has been recovered: queue pairs whose packets it has forgotten are broken. Under hw_wire. */
void hw_recovered(const struct hw_trouble *trouble);
/* Where addresses of pieces begin. Behind each is a hole as large as it. */
#define HW_SCATTERED (1ULL << 44)

/* interrupt.c: the hardware's interrupts. */
void hw_interrupt_setup(struct hw_interrupt *interrupt, int cpu, void (*handler)(struct hw_interrupt *));
void hw_interrupt_raise(struct hw_interrupt *interrupt);
void hw_interrupt_stop(struct hw_interrupt *interrupt);
void hw_source_setup(struct hw_source *source, struct card_vector *vector, void (*tell)(struct hw_source *));
void hw_source_remove(struct hw_source *source);
void hw_source_arm(struct hw_source *source);
void hw_source_happened(struct hw_source *source, bool wanted);
void hw_source_moderate(struct hw_source *source, u32 count, u32 period);
void hw_end_setup(struct hw_end *end);
void hw_end_stop(struct hw_end *end);

/* wire.c: what can be wrong with it, and what is counted. */
bool hw_passes(const struct hw_trouble *from, const struct hw_trouble *to, u32 packet, bool rdma);
extern const struct kernel_param_ops card_trouble_ops, card_stats_ops, card_links_ops;

#define hw_count(of, what) ((of)->end.counts[what]++)

#endif
