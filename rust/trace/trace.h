/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints: names, system and fields are those of the in-tree module, so
 * that scripts written for it work. `smc` and `sk` are the socket's address, of
 * which there is one. The last one is our own.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM smc

#if !defined(RSMC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RSMC_TRACE_H

#include <linux/tracepoint.h>
#include <net/net_namespace.h>
#include <net/sock.h>

/* A connection goes on as TCP. */
TRACE_EVENT(smc_switch_to_fallback,
	TP_PROTO(const struct sock *sk, int reason),
	TP_ARGS(sk, reason),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(const void *, clcsk)
		__field(u64, net_cookie)
		__field(int, fallback_rsn)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->clcsk = sk;
		__entry->net_cookie = sock_net(sk)->net_cookie;
		__entry->fallback_rsn = reason;
	),
	TP_printk("sk=%p clcsk=%p net=%llu fallback_rsn=%d", __entry->sk,
		  __entry->clcsk, __entry->net_cookie, __entry->fallback_rsn)
);

/* Bytes pass between the program and a ring. */
DECLARE_EVENT_CLASS(smc_msg_event,
	TP_PROTO(const struct sock *sk, size_t len, const char *device),
	TP_ARGS(sk, len, device),
	TP_STRUCT__entry(
		__field(const void *, smc)
		__field(u64, net_cookie)
		__field(size_t, len)
		__string(name, device)
	),
	TP_fast_assign(
		__entry->smc = sk;
		__entry->net_cookie = sock_net(sk)->net_cookie;
		__entry->len = len;
		__assign_str(name);
	),
	TP_printk("smc=%p net=%llu len=%zu dev=%s", __entry->smc,
		  __entry->net_cookie, __entry->len, __get_str(name))
);

DEFINE_EVENT(smc_msg_event, smc_tx_sendmsg,
	TP_PROTO(const struct sock *sk, size_t len, const char *device),
	TP_ARGS(sk, len, device)
);

DEFINE_EVENT(smc_msg_event, smc_rx_recvmsg,
	TP_PROTO(const struct sock *sk, size_t len, const char *device),
	TP_ARGS(sk, len, device)
);

/* A link is given up. A group has one link, and both have one address. */
TRACE_EVENT(smcr_link_down,
	TP_PROTO(const void *group, u64 net_cookie, int link_state,
		 const char *device, void *caller),
	TP_ARGS(group, net_cookie, link_state, device, caller),
	TP_STRUCT__entry(
		__field(const void *, lnk)
		__field(const void *, lgr)
		__field(u64, net_cookie)
		__field(int, state)
		__string(name, device)
		__field(void *, location)
	),
	TP_fast_assign(
		__entry->lnk = group;
		__entry->lgr = group;
		__entry->net_cookie = net_cookie;
		__entry->state = link_state;
		__assign_str(name);
		__entry->location = caller;
	),
	TP_printk("lnk=%p lgr=%p net=%llu state=%d dev=%s location=%pS",
		  __entry->lnk, __entry->lgr, __entry->net_cookie,
		  __entry->state, __get_str(name), __entry->location)
);

/*
 * A connection that began as TCP takes a step on its way to SMC-R, or back to 0.
 * The numbers are those of sock_diag: rust/smc/stream/remote/account.rs.
 */
TRACE_EVENT(smc_promotion,
	TP_PROTO(const struct sock *sk, bool server, int step, int reason),
	TP_ARGS(sk, server, step, reason),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u64, net_cookie)
		__field(bool, server)
		__field(int, step)
		__field(int, reason)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->net_cookie = sock_net(sk)->net_cookie;
		__entry->server = server;
		__entry->step = step;
		__entry->reason = reason;
	),
	TP_printk("sk=%p net=%llu server=%d step=%s reason=%#x", __entry->sk,
		  __entry->net_cookie, __entry->server,
		  __print_symbolic(__entry->step, { 0, "tcp" }, { 1, "joining" },
				   { 2, "offered" }, { 3, "bound" },
				   { 4, "due" }, { 5, "turned" },
				   { 6, "smc" }, { 7, "returning" }),
		  __entry->reason)
);

#endif /* RSMC_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
