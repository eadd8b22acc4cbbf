// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts of the hardware and their moderation, for completion queues and
 * for the queues of an Ethernet port alike.
 *
 * What has something to tell is a source. An armed one raises the interrupt of
 * its vector, once; the driver arms it again. With moderation the interrupt
 * waits for a number of happenings, or for some time after the first of them.
 */
#include "card.h"

/* --- interrupts ----------------------------------------------------------- */

static void hw_interrupt_run(struct hw_interrupt *interrupt)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	interrupt->raised = false;
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	interrupt->handler(interrupt);
}

static void hw_interrupt_work(struct irq_work *work)
{
	hw_interrupt_run(container_of(work, struct hw_interrupt, work));
}

static void hw_interrupt_remote(void *interrupt)
{
	hw_interrupt_run(interrupt);
}

static enum hrtimer_restart hw_interrupt_timer(struct hrtimer *timer)
{
	hw_interrupt_run(container_of(timer, struct hw_interrupt, timer));
	return HRTIMER_NORESTART;
}

void hw_interrupt_setup(struct hw_interrupt *interrupt, int cpu, void (*handler)(struct hw_interrupt *))
{
	interrupt->cpu = cpu;
	interrupt->handler = handler;
	interrupt->work = IRQ_WORK_INIT_HARD(hw_interrupt_work);
	INIT_CSD(&interrupt->remote, hw_interrupt_remote, interrupt);
	hrtimer_setup(&interrupt->timer, hw_interrupt_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
}

/* Under hw_wire. */
void hw_interrupt_raise(struct hw_interrupt *interrupt)
{
	if (interrupt->raised)
		return;
	interrupt->raised = true;
	/* Where work for interrupts waits for the next tick, a timer is quicker. */
	if (!arch_irq_work_has_interrupt())
		hrtimer_start(&interrupt->timer, 0, HRTIMER_MODE_REL_PINNED_HARD);
	else if (interrupt->cpu == smp_processor_id() || !cpu_online(interrupt->cpu))
		irq_work_queue(&interrupt->work);
	else
		smp_call_function_single_async(interrupt->cpu, &interrupt->remote);
}

void hw_interrupt_stop(struct hw_interrupt *interrupt)
{
	while (READ_ONCE(interrupt->raised))
		cpu_relax();
	hrtimer_cancel(&interrupt->timer);
	irq_work_sync(&interrupt->work);
	/* The handler may still be on its way out on another CPU. */
	synchronize_rcu();
}

/* --- vectors and sources -------------------------------------------------- */

/* Under hw_wire. Nothing waits for an interrupt any more. */
static void hw_source_begin(struct hw_source *source)
{
	source->since = 0;
	/* One whose function waits for hw_wire says itself that it is over. */
	if (source->timed && hrtimer_try_to_cancel(&source->moderation) >= 0)
		source->timed = false;
}

/* Under hw_wire. */
static void hw_source_raise(struct hw_source *source)
{
	source->armed = false;
	hw_source_begin(source);
	if (list_empty(&source->event))
		list_add_tail(&source->event, &source->vector->events);
	hw_interrupt_raise(&source->vector->interrupt);
}

/* The handler of a vector: tells each source that has an event. */
static void hw_vector_interrupt(struct hw_interrupt *interrupt)
{
	struct card_vector *vector = container_of(interrupt, struct card_vector, interrupt);
	struct hw_source *source;
	unsigned long flags;
	bool first = true;

	for (;;) {
		raw_spin_lock_irqsave(&hw_wire, flags);
		source = list_first_entry_or_null(&vector->events, struct hw_source, event);
		if (source) {
			if (first) {
				vector->counts[INTERRUPTS]++;
				vector->interrupts++;
				vector->elsewhere += smp_processor_id() != interrupt->cpu;
			}
			first = false;
			list_del_init(&source->event);
			vector->counts[EVENTS]++;
		}
		raw_spin_unlock_irqrestore(&hw_wire, flags);
		if (!source)
			return;
		/* Interrupts are off here, and whoever removes the source waits for that to end. */
		source->tell(source);
	}
}

static enum hrtimer_restart hw_moderation_over(struct hrtimer *timer)
{
	struct hw_source *source = container_of(timer, struct hw_source, moderation);
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	source->timed = false;
	if (source->armed && !source->dead && source->since) {
		source->vector->counts[DELAYED]++;
		hw_source_raise(source);
	}
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	return HRTIMER_NORESTART;
}

void hw_source_setup(struct hw_source *source, struct card_vector *vector, void (*tell)(struct hw_source *))
{
	INIT_LIST_HEAD(&source->event);
	source->vector = vector;
	source->tell = tell;
	source->armed = source->dead = source->timed = false;
	source->since = 0;
	hrtimer_setup(&source->moderation, hw_moderation_over, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
}

/* Nothing is told of it after that. */
void hw_source_remove(struct hw_source *source)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	source->dead = true;
	source->armed = false;
	list_del_init(&source->event);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	hrtimer_cancel(&source->moderation);
	/* A handler that had the source ran with interrupts off, which a grace period waits for. */
	synchronize_rcu();
}

/* Under hw_wire. What happened before the driver sees by itself: only what follows is waited for. */
void hw_source_arm(struct hw_source *source)
{
	source->armed = true;
	source->vector->counts[ARMS]++;
	if (source->since)
		hw_source_begin(source);
}

/* Under hw_wire: something happened that the driver wants to hear of, or that it counts at least. */
void hw_source_happened(struct hw_source *source, bool wanted)
{
	source->since++;
	if (!source->armed || !wanted)
		return;
	if (source->period && source->since < source->count) {
		if (!source->timed)
			hrtimer_start(&source->moderation, us_to_ktime(source->period), HRTIMER_MODE_REL_HARD);
		source->timed = true;
		return;
	}
	hw_source_raise(source);
}

void hw_source_moderate(struct hw_source *source, u32 count, u32 period)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&hw_wire, flags);
	source->count = count;
	source->period = period;
	/* What waits by the old numbers is told at once. */
	if (source->armed && source->since)
		hw_source_raise(source);
	raw_spin_unlock_irqrestore(&hw_wire, flags);
}

void hw_end_setup(struct hw_end *end)
{
	int i;

	for (i = 0; i < CARD_VECTORS; i++) {
		struct card_vector *vector = &end->vectors[i];

		INIT_LIST_HEAD(&vector->events);
		vector->counts = end->counts;
		hw_interrupt_setup(&vector->interrupt, i % nr_cpu_ids, hw_vector_interrupt);
	}
}

/* Waits for interrupts that were raised. */
void hw_end_stop(struct hw_end *end)
{
	int i;

	for (i = 0; i < CARD_VECTORS; i++)
		hw_interrupt_stop(&end->vectors[i].interrupt);
}
