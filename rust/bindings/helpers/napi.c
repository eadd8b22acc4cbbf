// SPDX-License-Identifier: GPL-2.0
/* In C, because the context decides which of inline functions and macros are called, and all of them are inline. */

/*
 * Has a NAPI context polled soon. From any context: a device's interrupt, a timer, a thread (soft-RoCE tells of
 * completions in its worker). A thread has to run the softirq itself, which nothing else would do before the next
 * interrupt.
 */
void rsmc_helper_napi_schedule_anywhere(struct napi_struct *napi)
{
	if (in_hardirq() || irqs_disabled()) {
		napi_schedule(napi);
		return;
	}
	local_bh_disable();
	napi_schedule(napi);
	local_bh_enable();
}
