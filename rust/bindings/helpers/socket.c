// SPDX-License-Identifier: GPL-2.0
/* A socket and its file. */

/* linux/net.h, linux/fs.h */

void *rsmc_helper_socket_private_cmpxchg(struct socket *sock, void *old, void *new)
{
	return cmpxchg(&SOCK_INODE(sock)->i_private, old, new);
}

void *rsmc_helper_socket_private_xchg(struct socket *sock, void *new)
{
	return xchg(&SOCK_INODE(sock)->i_private, new);
}

/* linux/ip.h, net/sock.h: @sk is new and nobody else's; what says how its packets go is as of @like. */
void rsmc_helper_sock_take_way_of(struct sock *sk, const struct sock *like)
{
	sk->sk_bound_dev_if = READ_ONCE(like->sk_bound_dev_if);
	WRITE_ONCE(sk->sk_mark, READ_ONCE(like->sk_mark));
	WRITE_ONCE(sk->sk_priority, READ_ONCE(like->sk_priority));
	WRITE_ONCE(sk->sk_uid, sk_uid(like));
	WRITE_ONCE(inet_sk(sk)->tos, READ_ONCE(inet_sk(like)->tos));
}

void rsmc_helper_socket_set_owner(struct socket *sock, const struct sock *sk)
{
	SOCK_INODE(sock)->i_uid = sk_uid(sk);
}

bool rsmc_helper_socket_replace_ops(struct socket *sock, const struct proto_ops *old,
				    const struct proto_ops *new)
{
	return cmpxchg(&sock->ops, old, new) == old;
}

void rsmc_helper_socket_set_ops(struct socket *sock, const struct proto_ops *ops)
{
	WRITE_ONCE(sock->ops, ops);
}

bool rsmc_helper_socket_supports_zerocopy(const struct socket *sock)
{
	return test_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

void rsmc_helper_socket_support_zerocopy(struct socket *sock)
{
	set_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

bool rsmc_helper_sk_has_wait_queue(const struct sock *sk)
{
	return rcu_access_pointer(sk->sk_wq);
}

void rsmc_helper_wake_up_pollfree(struct socket *sock)
{
	wake_up_pollfree(&sock->wq.wait);
}

void rsmc_helper_socket_poll_wait(struct file *file, struct socket *sock, poll_table *table)
{
	sock_poll_wait(file, sock, table);
}

/* linux/memcontrol.h */

bool rsmc_helper_sk_has_memcg(const struct sock *sk)
{
	return mem_cgroup_sk_enabled(sk);
}

bool rsmc_helper_sk_bypasses_prot_mem(const struct sock *sk)
{
	return sk->sk_bypass_prot_mem;
}

void rsmc_helper_sk_set_bypass_prot_mem(struct sock *sk, bool bypass)
{
	sk->sk_bypass_prot_mem = bypass;
}

/* net/sock.h: the object */

void rsmc_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

void rsmc_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void rsmc_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void rsmc_helper_sock_graft(struct sock *sk, struct socket *parent)
{
	sock_graft(sk, parent);
}

void rsmc_helper_sk_set_socket(struct sock *sk, struct socket *socket)
{
	sk_set_socket(sk, socket);
}

void rsmc_helper_sk_clear_wait_queue(struct sock *sk)
{
	rcu_assign_pointer(sk->sk_wq, NULL);
}

void rsmc_helper_sk_callback_write_lock(struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_callback_write_unlock(struct sock *sk)
{
	write_unlock_bh(&sk->sk_callback_lock);
}

struct net *rsmc_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

u32 rsmc_helper_sk_uid(const struct sock *sk)
{
	return from_kuid_munged(&init_user_ns, sk_uid(sk));
}

u64 rsmc_helper_sk_ino(const struct sock *sk)
{
	return sock_i_ino(sk);
}

bool rsmc_helper_sk_is_done(const struct sock *sk)
{
	return sock_flag(sk, SOCK_DONE);
}

void rsmc_helper_sock_prot_inuse_add(struct net *net, const struct proto *prot, int val)
{
	sock_prot_inuse_add(net, prot, val);
}

/* net/sock.h: addresses */

u16 rsmc_helper_sk_num(const struct sock *sk)
{
	return READ_ONCE(sk->sk_num);
}

__be16 rsmc_helper_sk_dport(const struct sock *sk)
{
	return READ_ONCE(sk->sk_dport);
}

__be32 rsmc_helper_sk_rcv_saddr(const struct sock *sk)
{
	return READ_ONCE(sk->sk_rcv_saddr);
}

__be32 rsmc_helper_sk_daddr(const struct sock *sk)
{
	return READ_ONCE(sk->sk_daddr);
}

const struct in6_addr *rsmc_helper_sk_v6_rcv_saddr(const struct sock *sk)
{
	return &sk->sk_v6_rcv_saddr;
}

const struct in6_addr *rsmc_helper_sk_v6_daddr(const struct sock *sk)
{
	return &sk->sk_v6_daddr;
}

/* net/sock.h: options */

long rsmc_helper_sock_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int rsmc_helper_sock_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

int rsmc_helper_sk_peek_offset(const struct sock *sk)
{
	return sk_peek_offset(sk, MSG_PEEK);
}

void rsmc_helper_sk_peek_offset_fwd(struct sock *sk, int val)
{
	sk_peek_offset_fwd(sk, val);
}

void rsmc_helper_sk_peek_offset_bwd(struct sock *sk, int val)
{
	sk_peek_offset_bwd(sk, val);
}

int rsmc_helper_sk_rcvbuf_locked(const struct sock *sk)
{
	return sk->sk_userlocks & SOCK_RCVBUF_LOCK ? READ_ONCE(sk->sk_rcvbuf) : 0;
}

int rsmc_helper_sk_sndbuf_locked(const struct sock *sk)
{
	return sk->sk_userlocks & SOCK_SNDBUF_LOCK ? READ_ONCE(sk->sk_sndbuf) : 0;
}

bool rsmc_helper_sk_linger_zero(const struct sock *sk)
{
	return sock_flag(sk, SOCK_LINGER) && !READ_ONCE(sk->sk_lingertime);
}

void rsmc_helper_sk_linger_off(struct sock *sk)
{
	sock_reset_flag(sk, SOCK_LINGER);
}

bool rsmc_helper_sk_wants_zerocopy(const struct sock *sk)
{
	return sock_flag(sk, SOCK_ZEROCOPY);
}

void rsmc_helper_zcopy_abort(struct ubuf_info *uarg)
{
	net_zcopy_put_abort(uarg, true);
}

/* net/sock.h: waiting, signals, errors */

bool rsmc_helper_sk_stream_is_writable(const struct sock *sk)
{
	return sk_stream_is_writeable(sk);
}

wait_queue_head_t *rsmc_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

void rsmc_helper_sk_signal_connected(const struct sock *sk)
{
	sk_wake_async(sk, SOCK_WAKE_IO, POLL_OUT);
}

void rsmc_helper_sk_expect_space(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
}

void rsmc_helper_tcp_expect_space(struct sock *sk)
{
	struct socket *socket;

	/* A socket is freed after a grace period, and sk_socket cleared before. */
	rcu_read_lock();
	socket = READ_ONCE(sk->sk_socket);
	if (socket)
		set_bit(SOCK_NOSPACE, &socket->flags);
	rcu_read_unlock();
	/* The caller looks for room after that, as tcp_poll() does. */
	smp_mb__after_atomic();
}

void rsmc_helper_sk_sleep_for_data(struct sock *sk, bool sleeps)
{
	sleeps ? sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk) : sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

int rsmc_helper_sk_take_error(struct sock *sk)
{
	return sock_error(sk);
}

/* net/sock.h: the receive queue */

/* Bytes that have arrived in order and were not taken; without the lock, so a guess. */
unsigned int rsmc_helper_sk_unread(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->rcv_nxt) - READ_ONCE(tcp_sk(sk)->copied_seq);
}

void rsmc_helper_sk_purge_received(struct sock *sk)
{
	__skb_queue_purge(&sk->sk_receive_queue);
}

/* linux/errqueue.h */

/* Frees what ICMP has said that waits in the error queue. */
void rsmc_helper_sk_drop_icmp_errors(struct sock *sk)
{
	struct sk_buff_head *queue = &sk->sk_error_queue;
	struct sk_buff_head dropped;
	struct sk_buff *skb, *next;
	unsigned long flags;

	__skb_queue_head_init(&dropped);
	spin_lock_irqsave(&queue->lock, flags);
	skb_queue_walk_safe(queue, skb, next) {
		u8 origin = SKB_EXT_ERR(skb)->ee.ee_origin;

		if (origin == SO_EE_ORIGIN_ICMP || origin == SO_EE_ORIGIN_ICMP6) {
			__skb_unlink(skb, queue);
			__skb_queue_tail(&dropped, skb);
		}
	}
	spin_unlock_irqrestore(&queue->lock, flags);
	__skb_queue_purge(&dropped);
}

/* net/sock.h, net/xfrm.h: the route */

const struct dst_entry *rsmc_helper_sk_dst_rcu(const struct sock *sk)
{
	return rcu_dereference(sk->sk_dst_cache);
}

bool rsmc_helper_sk_has_xfrm_policy(const struct sock *sk)
{
#ifdef CONFIG_XFRM
	return rcu_access_pointer(sk->sk_policy[0]) || rcu_access_pointer(sk->sk_policy[1]);
#else
	return false;
#endif
}

bool rsmc_helper_sk_has_psp(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_INET_PSP)
	return rcu_access_pointer(sk->psp_assoc);
#else
	return false;
#endif
}

bool rsmc_helper_dst_uses_xfrm(const struct dst_entry *dst)
{
	return dst_xfrm(dst);
}
