// SPDX-License-Identifier: GPL-2.0
/*
 * In C, because each wait of a program passes here, and `current` is per-CPU assembly: one call from Rust
 * instead of two.
 */

void rsmc_helper_init_wait_woken(struct wait_queue_entry *entry)
{
	init_waitqueue_func_entry(entry, woken_wake_function);
	entry->private = current;
}
