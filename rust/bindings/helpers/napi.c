// SPDX-License-Identifier: GPL-2.0
/* In C, because the context and the kernel's options decide which of inline functions and macros are called. */

/* From any context. A device may call this with locks held that its poll takes, so no softirq may run here. */
bool rsmc_helper_napi_schedule(struct napi_struct *napi)
{
	return napi_schedule(napi);
}

/*
 * Has a NAPI context polled on behalf of a thread that waits for it, before it goes on: at once, or when the last lock
 * that keeps bottom halves off is free. Not with a lock that does not, and that a poll takes.
 */
void rsmc_helper_napi_schedule_now(struct napi_struct *napi)
{
	local_bh_disable();
	napi_schedule(napi);
	local_bh_enable();
}

unsigned int rsmc_helper_napi_id_of(const struct napi_struct *napi)
{
	return napi->napi_id;
}

/* As sk_busy_loop(), with another NAPI context and another end than TCP's. */
void rsmc_helper_sk_busy_loop_for(struct sock *sk, unsigned int napi_id,
				  bool (*end)(void *arg, unsigned long begun), void *arg)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	if (sk_can_busy_loop(sk) && napi_id_valid(napi_id))
		napi_busy_loop(napi_id, end, arg, READ_ONCE(sk->sk_prefer_busy_poll),
			       READ_ONCE(sk->sk_busy_poll_budget) ?: BUSY_POLL_BUDGET);
#endif
}

bool rsmc_helper_sk_busy_loop_is_over(struct sock *sk, unsigned long begun)
{
	return sk_busy_loop_timeout(sk, begun);
}
