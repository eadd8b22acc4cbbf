// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints, and their inline functions as functions that Rust can call. In C because the macros of
 * linux/tracepoint.h make the tracepoints; one line each, no logic.
 */
#ifndef __BINDGEN__
#define CREATE_TRACE_POINTS
#endif
#include "trace.h"

#ifdef __BINDGEN__
const size_t TRACEPOINT_KEY = offsetof(struct tracepoint, key.key.enabled);
#endif

void rsmc_helper_trace_tx(const struct sock *sk, size_t len, const char *device)
{
	trace_smc_tx_sendmsg(sk, len, device);
}

void rsmc_helper_trace_rx(const struct sock *sk, size_t len, const char *device)
{
	trace_smc_rx_recvmsg(sk, len, device);
}

void rsmc_helper_trace_fallback(const struct sock *sk, int reason)
{
	trace_smc_switch_to_fallback(sk, reason);
}

void rsmc_helper_trace_link_down(const void *group, u64 net_cookie, int state,
				 const char *device)
{
	trace_smcr_link_down(group, net_cookie, state, device,
			     __builtin_return_address(0));
}

void rsmc_helper_trace_promotion(const struct sock *sk, bool server, int step,
				 int reason)
{
	trace_smc_promotion(sk, server, step, reason);
}
