// SPDX-License-Identifier: GPL-2.0
/* TCP: connections, listeners and requests. */

/* net/inet_connection_sock.h, net/inet_sock.h */

void rsmc_helper_tcp_delay_acks(struct sock *sk, bool on)
{
	on ? inet_csk_enter_pingpong_mode(sk) : inet_csk_exit_pingpong_mode(sk);
}

/*
 * Sets what the first data sets. Without the estimate a FIN is acknowledged by a
 * timer at once; with it alone data would not begin with quick acknowledgements.
 */
void rsmc_helper_tcp_expect_data(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	spin_lock_bh(&sk->sk_lock.slock);
	if (!sock_owned_by_user(sk) && !icsk->icsk_ack.ato) {
		icsk->icsk_ack.quick = TCP_MAX_QUICKACKS;
		icsk->icsk_ack.ato = TCP_ATO_MIN;
	}
	spin_unlock_bh(&sk->sk_lock.slock);
}

/* Has the peer hear of more room at once, if there is much more. The caller has the lock. */
void rsmc_helper_tcp_widen(struct sock *sk, u32 by)
{
	struct tcp_sock *tp = tcp_sk(sk);

	WRITE_ONCE(sk->sk_rcvbuf, sk->sk_rcvbuf + (int)by);
	WRITE_ONCE(tp->window_clamp, tp->window_clamp + by);
	tp->rcv_ssthresh += by;
	inet_csk_schedule_ack(sk);
}

u8 rsmc_helper_sk_traffic_class(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return READ_ONCE(inet6_sk(sk)->tclass);
#endif
	return READ_ONCE(inet_sk(sk)->tos);
}

u8 rsmc_helper_tos_priority(u8 tos)
{
	return rt_tos2priority(tos);
}

bool rsmc_helper_inet_defer_connect(const struct sock *sk)
{
	return inet_test_bit(DEFER_CONNECT, sk);
}

bool rsmc_helper_reqsk_queue_empty(const struct sock *sk)
{
	return reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue);
}

/* net/tcp.h, net/netns/ipv4.h */

bool rsmc_helper_tcp_is_corked(const struct sock *sk)
{
	return tcp_sk(sk)->nonagle & TCP_NAGLE_CORK;
}

static bool rsmc_tcp_signed(const struct tcp_sock *tp)
{
#ifdef CONFIG_TCP_MD5SIG
	if (rcu_access_pointer(tp->md5sig_info))
		return true;
#endif
#ifdef CONFIG_TCP_AO
	if (rcu_access_pointer(tp->ao_info))
		return true;
#endif
	return false;
}

/* Of the kernel's two ways to move requests, this is the one without a program. */
bool rsmc_helper_tcp_migrates_requests(const struct sock *sk)
{
	return sk->sk_reuseport &&
	       READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_migrate_req);
}

static bool rsmc_sk_has_packet_programs(struct sock *sk)
{
#ifdef CONFIG_CGROUP_BPF
	if (cgroup_bpf_enabled(CGROUP_INET_INGRESS) &&
	    cgroup_bpf_sock_enabled(sk, CGROUP_INET_INGRESS))
		return true;
	if (cgroup_bpf_enabled(CGROUP_INET_EGRESS) &&
	    cgroup_bpf_sock_enabled(sk, CGROUP_INET_EGRESS))
		return true;
#endif
	return false;
}

/* In C: static keys, and an inline function over the control group's programs. */
bool rsmc_helper_socks_have_packet_programs(struct sock *one, struct sock *other)
{
	return rsmc_sk_has_packet_programs(one) || rsmc_sk_has_packet_programs(other);
}

/* What only TCP's own stream can serve. */
/* CIPSO's and CALIPSO's labels are such. */
static bool rsmc_ip_options(const struct sock *sk)
{
	if (rcu_access_pointer(inet_sk(sk)->inet_opt))
		return true;
#if IS_ENABLED(CONFIG_IPV6)
	return sk->sk_family == AF_INET6 && rcu_access_pointer(inet6_sk(sk)->opt);
#else
	return false;
#endif
}

bool rsmc_helper_tcp_is_bound_to_stream(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->repair || tp->urg_data || tp->syn_data || tp->recvmsg_inq ||
	       rsmc_ip_options(sk) || rcu_access_pointer(sk->sk_filter) || READ_ONCE(sk->sk_tsflags) ||
	       sock_flag(sk, SOCK_RCVTSTAMP) || rsmc_tcp_signed(tp) || rsmc_helper_sk_has_psp(sk);
}

bool rsmc_helper_tcp_wants_count(const struct sock *sk)
{
	return tcp_sk(sk)->recvmsg_inq;
}

void rsmc_helper_tcp_set_save_syn(struct sock *sk, u8 how)
{
	tcp_sk(sk)->save_syn = how;
}

u8 rsmc_helper_tcp_save_syn(const struct sock *sk)
{
	return tcp_sk(sk)->save_syn;
}

struct saved_syn *rsmc_helper_tcp_saved_syn(const struct sock *sk)
{
	return tcp_sk(sk)->saved_syn;
}

void rsmc_helper_tcp_saved_syn_free(struct tcp_sock *tp)
{
	tcp_saved_syn_free(tp);
}

/* net/request_sock.h, net/inet_hashtables.h */

spinlock_t *rsmc_helper_reqsk_hash_lockp(struct request_sock *req)
{
	return inet_ehash_lockp(tcp_get_hashinfo(req_to_sk(req)), req_to_sk(req)->sk_hash);
}

/* With the lock above held: without it the answer is no longer true when it is used. */
bool rsmc_helper_reqsk_is_hashed(struct request_sock *req)
{
	lockdep_assert_held(rsmc_helper_reqsk_hash_lockp(req));
	return sk_hashed(req_to_sk(req));
}
