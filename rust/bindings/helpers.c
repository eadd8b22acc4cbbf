// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros of the kernel as functions that Rust can call.
 * One line each, sorted by header; no logic.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include "bindings_helper.h"
#include "trace.h"

#ifndef __rust_helper
#define __rust_helper
#endif

/* linux/module.h */

bool rsmc_helper_keep_this_module(void)
{
	return try_module_get(THIS_MODULE);
}

void rsmc_helper_release_this_module(void)
{
	module_put(THIS_MODULE);
}

/* linux/net.h, linux/fs.h */

void *rsmc_helper_socket_private(struct socket *sock)
{
	return READ_ONCE(SOCK_INODE(sock)->i_private);
}

void *rsmc_helper_socket_private_cmpxchg(struct socket *sock, void *old, void *new)
{
	return cmpxchg(&SOCK_INODE(sock)->i_private, old, new);
}

void *rsmc_helper_socket_private_xchg(struct socket *sock, void *new)
{
	return xchg(&SOCK_INODE(sock)->i_private, new);
}

void rsmc_helper_socket_set_owner(struct socket *sock, const struct sock *sk)
{
	SOCK_INODE(sock)->i_uid = sk_uid(sk);
}

void rsmc_helper_socket_set_ops(struct socket *sock, const struct proto_ops *ops)
{
	WRITE_ONCE(sock->ops, ops);
}

void rsmc_helper_socket_copy_zerocopy(struct socket *to, const struct socket *from)
{
	if (test_bit(SOCK_SUPPORT_ZC, &from->flags))
		set_bit(SOCK_SUPPORT_ZC, &to->flags);
}

/* net/sock.h */

void rsmc_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

bool rsmc_helper_sk_has_memcg(const struct sock *sk)
{
	return mem_cgroup_sk_enabled(sk);
}

bool rsmc_helper_sk_bypass_prot_mem(struct sock *sk, bool bypass)
{
	bool before = sk->sk_bypass_prot_mem;

	sk->sk_bypass_prot_mem = bypass;
	return before;
}

void rsmc_helper_tcp_drop_received(struct sock *sk)
{
	__skb_queue_purge(&sk->sk_receive_queue);
	WRITE_ONCE(tcp_sk(sk)->copied_seq, tcp_sk(sk)->rcv_nxt);
}

void rsmc_helper_tcp_delay_acks(struct sock *sk, bool on)
{
	if (on)
		inet_csk_enter_pingpong_mode(sk);
	else
		inet_csk_exit_pingpong_mode(sk);
}

/*
 * Copies what is at the head of the receive queue and leaves it there; returns how much that is, or
 * -EFAULT. The socket is locked.
 */
int rsmc_helper_tcp_peek(struct sock *sk, void *buf, int len)
{
	u32 seq = tcp_sk(sk)->copied_seq;
	struct sk_buff *skb;
	int copied = 0;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 offset = seq - TCP_SKB_CB(skb)->seq;
		int part;

		if (copied == len)
			break;
		if (offset >= skb->len)
			continue;
		part = min_t(u32, skb->len - offset, len - copied);
		if (skb_copy_bits(skb, offset, buf + copied, part))
			return -EFAULT;
		copied += part;
		seq += part;
	}
	return copied;
}

bool rsmc_helper_sk_is_done(const struct sock *sk)
{
	return sock_flag(sk, SOCK_DONE);
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

void rsmc_helper_sock_ungraft(struct socket *parent)
{
	struct sock *sk = parent->sk;

	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	sk_set_socket(sk, NULL);
	rcu_assign_pointer(sk->sk_wq, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

struct net *rsmc_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

long rsmc_helper_sock_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

long rsmc_helper_sock_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int rsmc_helper_sock_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

void rsmc_helper_sock_prot_inuse_add(struct net *net, const struct proto *prot, int val)
{
	sock_prot_inuse_add(net, prot, val);
}

wait_queue_head_t *rsmc_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

u32 rsmc_helper_sk_uid(const struct sock *sk)
{
	return from_kuid_munged(&init_user_ns, sk_uid(sk));
}

u64 rsmc_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

u64 rsmc_helper_sk_ino(const struct sock *sk)
{
	return sock_i_ino(sk);
}

void rsmc_helper_sk_state_change(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_state_change(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_data_ready(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_callback_write_lock(struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_callback_write_unlock(struct sock *sk)
{
	write_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_write_space(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_write_space(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_signal_connected(const struct sock *sk)
{
	sk_wake_async(sk, SOCK_WAKE_IO, POLL_OUT);
}

void rsmc_helper_sk_expect_space(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
}

void rsmc_helper_sk_sleep_for_data(struct sock *sk, bool sleeps)
{
	if (sleeps)
		sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	else
		sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

u16 rsmc_helper_sk_num(const struct sock *sk)
{
	return READ_ONCE(sk->sk_num);
}

__be16 rsmc_helper_sk_dport(const struct sock *sk)
{
	return READ_ONCE(sk->sk_dport);
}

u64 rsmc_helper_tcp_bytes_received(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->bytes_received);
}

/* Each byte once. */
u64 rsmc_helper_tcp_bytes_sent(const struct sock *sk)
{
	u64 all, again = READ_ONCE(tcp_sk(sk)->bytes_retrans);

	/* Counted after the others; but connect() to no address clears both. */
	smp_rmb();
	all = READ_ONCE(tcp_sk(sk)->bytes_sent);
	return all > again ? all - again : 0;
}

/* Sequence numbers that have been given away and are still to be sent. */
u32 rsmc_helper_tcp_unsent(const struct sock *sk)
{
	u32 next = READ_ONCE(tcp_sk(sk)->snd_nxt);

	/* Moved after the other, so it is not behind. */
	smp_rmb();
	return READ_ONCE(tcp_sk(sk)->write_seq) - next;
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

void rsmc_helper_sk_report_error(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk_error_report(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

int rsmc_helper_sk_take_error(struct sock *sk)
{
	return sock_error(sk);
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

bool rsmc_helper_sk_wants_zerocopy(const struct sock *sk)
{
	return sock_flag(sk, SOCK_ZEROCOPY);
}

void rsmc_helper_zcopy_copied(struct ubuf_info *uarg)
{
	uarg_to_msgzc(uarg)->zerocopy = 0;
	net_zcopy_put(uarg);
}

void rsmc_helper_zcopy_abort(struct ubuf_info *uarg)
{
	net_zcopy_put_abort(uarg, true);
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

/* Jiffies that close() may wait for what is unsent; 0 for not at all. */
unsigned long rsmc_helper_sk_linger_timeout(const struct sock *sk)
{
	if (!sock_flag(sk, SOCK_LINGER) || (current->flags & PF_EXITING))
		return 0;
	return READ_ONCE(sk->sk_lingertime);
}

bool rsmc_helper_sk_has_unread(const struct sock *sk)
{
	return !skb_queue_empty_lockless(&sk->sk_receive_queue);
}

/* Bytes that have arrived in order and were not taken; without the lock, so a guess. */
unsigned int rsmc_helper_sk_unread(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->rcv_nxt) - READ_ONCE(tcp_sk(sk)->copied_seq);
}

void rsmc_helper_sk_signal_urgent(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk_send_sigurg(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

/* net/tcp.h, net/inet_connection_sock.h, net/request_sock.h */

bool rsmc_helper_reqsk_queue_empty(const struct sock *sk)
{
	return reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue);
}

bool rsmc_helper_tcp_is_corked(const struct sock *sk)
{
	return tcp_sk(sk)->nonagle & TCP_NAGLE_CORK;
}

/* Of the kernel's two ways to move requests, this is the one without a program. */
bool rsmc_helper_tcp_migrates_requests(const struct sock *sk)
{
	return sk->sk_reuseport &&
	       READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_migrate_req);
}

void rsmc_helper_tcp_set_save_syn(struct sock *sk, u8 how)
{
	tcp_sk(sk)->save_syn = how;
}

u8 rsmc_helper_tcp_save_syn(const struct sock *sk)
{
	return tcp_sk(sk)->save_syn;
}

void rsmc_helper_tcp_saved_syn_free(struct sock *sk)
{
	struct saved_syn *saved = tcp_sk(sk)->saved_syn;

	tcp_sk(sk)->saved_syn = NULL;
	kvfree_rcu_mightsleep(saved);
}

struct saved_syn *rsmc_helper_tcp_saved_syn(const struct sock *sk)
{
	return tcp_sk(sk)->saved_syn;
}

/* What takes a request out of the hash of connections does so under this lock. */
void rsmc_helper_reqsk_hash_lock(struct request_sock *req)
{
	struct sock *sk = req_to_sk(req);

	spin_lock_bh(inet_ehash_lockp(tcp_get_hashinfo(sk), sk->sk_hash));
}

void rsmc_helper_reqsk_hash_unlock(struct request_sock *req)
{
	struct sock *sk = req_to_sk(req);

	spin_unlock_bh(inet_ehash_lockp(tcp_get_hashinfo(sk), sk->sk_hash));
}

bool rsmc_helper_reqsk_is_hashed(struct request_sock *req)
{
	return sk_hashed(req_to_sk(req));
}

/* net/inet_sock.h */

bool rsmc_helper_inet_defer_connect(const struct sock *sk)
{
	return inet_test_bit(DEFER_CONNECT, sk);
}

/* linux/skbuff.h, net/checksum.h */

void *rsmc_helper_skb_transport_header(const struct sk_buff *skb)
{
	return skb_transport_header(skb);
}

void *rsmc_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

bool rsmc_helper_skb_carries_tcp4(const struct sk_buff *skb)
{
	return ip_hdr(skb)->protocol == IPPROTO_TCP;
}

bool rsmc_helper_skb_carries_tcp6(const struct sk_buff *skb)
{
	int start = skb_network_offset(skb) + sizeof(struct ipv6hdr);
	u8 next = ipv6_hdr(skb)->nexthdr;
	__be16 fragment;

	start = ipv6_skip_exthdr(skb, start, &next, &fragment);
	return next == IPPROTO_TCP && start == skb_transport_offset(skb);
}

int rsmc_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

u32 rsmc_helper_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

bool rsmc_helper_skb_checksum_partial(const struct sk_buff *skb)
{
	return skb->ip_summed == CHECKSUM_PARTIAL;
}

void rsmc_helper_csum_replace2_pseudo(__sum16 *sum, struct sk_buff *skb, __be16 from, __be16 to)
{
	inet_proto_csum_replace2(sum, skb, from, to, true);
}

void rsmc_helper_ip_send_check(struct iphdr *iph)
{
	ip_send_check(iph);
}

/* linux/proc_fs.h */

struct proc_dir_entry *rsmc_helper_proc_net_dir(struct net *net)
{
	return net->proc_net;
}

/* net/netlink.h, net/genetlink.h, linux/netlink.h */

struct nlmsghdr *rsmc_helper_nlmsg_put(struct sk_buff *skb, u32 portid, u32 seq, int type,
				       int payload, int flags)
{
	return nlmsg_put(skb, portid, seq, type, payload, flags);
}

void rsmc_helper_nlmsg_end(struct sk_buff *skb, struct nlmsghdr *nlh)
{
	nlmsg_end(skb, nlh);
}

void rsmc_helper_nlmsg_cancel(struct sk_buff *skb, struct nlmsghdr *nlh)
{
	nlmsg_cancel(skb, nlh);
}

struct nlattr *rsmc_helper_nla_nest_start(struct sk_buff *skb, int type)
{
	return nla_nest_start(skb, type);
}

void rsmc_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

struct sk_buff *rsmc_helper_nlmsg_new(unsigned int factor)
{
	return nlmsg_new(factor * NLMSG_DEFAULT_SIZE, GFP_KERNEL);
}

void rsmc_helper_nlmsg_discard(struct sk_buff *skb)
{
	nlmsg_free(skb);
}

u32 rsmc_helper_netlink_portid(const struct sk_buff *skb)
{
	return NETLINK_CB(skb).portid;
}

int rsmc_helper_genlmsg_reply(struct sk_buff *skb, struct genl_info *info)
{
	return genlmsg_reply(skb, info);
}

struct net *rsmc_helper_genl_info_net(const struct genl_info *info)
{
	return genl_info_net(info);
}

/* linux/utsname.h */

void rsmc_helper_host_name(char *buf, size_t size)
{
	strscpy(buf, init_utsname()->nodename, size);
}

/* linux/sock_diag.h */

int rsmc_helper_diag_dump_start(struct sk_buff *skb, const struct nlmsghdr *nlh,
				int (*dump)(struct sk_buff *skb, struct netlink_callback *cb))
{
	struct netlink_dump_control control = {
		.dump = dump,
		.min_dump_alloc = SKB_WITH_OVERHEAD(32768),
	};

	return netlink_dump_start(sock_net(skb->sk)->diag_nlsk, skb, nlh, &control);
}

u32 rsmc_helper_sk_uid_for(const struct sock *sk, const struct sk_buff *request)
{
	return from_kuid_munged(sk_user_ns(NETLINK_CB(request).sk), sk_uid(sk));
}

/* asm/barrier.h: the names in the kernel crate differ by version. */

void rsmc_helper_full_memory_barrier(void)
{
	smp_mb();
}

/* linux/wait.h */

void rsmc_helper_init_wait_woken(struct wait_queue_entry *entry)
{
	init_waitqueue_func_entry(entry, woken_wake_function);
	entry->private = current;
}

void rsmc_helper_init_wait_func(struct wait_queue_entry *entry, wait_queue_func_t func)
{
	init_waitqueue_func_entry(entry, func);
}

void rsmc_helper_wake_up_pollfree(struct socket *sock)
{
	wake_up_pollfree(&sock->wq.wait);
}

void rsmc_helper_list_del_init_helper(struct list_head *entry)
{
	list_del_init(entry);
}

bool rsmc_helper_signal_pending_current(void)
{
	return signal_pending(current);
}

/* linux/timer.h */

void rsmc_helper_timer_setup(struct timer_list *timer, void (*func)(struct timer_list *))
{
	timer_setup(timer, func, 0);
}

unsigned long rsmc_helper_jiffies_now(void)
{
	return jiffies;
}

/* net/netns/generic.h, net/net_namespace.h */

void **rsmc_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

struct net *rsmc_helper_get_net(struct net *net)
{
	return get_net(net);
}

void rsmc_helper_put_net(struct net *net)
{
	put_net(net);
}

/* linux/sockptr.h */

int rsmc_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size)
{
	return copy_from_sockptr(dst, src, size);
}

/* linux/rcupdate.h */

void rsmc_helper_kfree_after_rcu(void *memory)
{
	kfree_rcu_mightsleep(memory);
}

/* linux/workqueue.h */

struct workqueue_struct *rsmc_helper_alloc_workqueue_unbound(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}

/* linux/spinlock.h */

void rsmc_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rsmc_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int rsmc_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

/* linux/mm.h */

struct page *rsmc_helper_alloc_zeroed_page(void)
{
	return alloc_page(GFP_KERNEL | __GFP_ZERO);
}

struct page *rsmc_helper_try_alloc_zeroed_pages(unsigned int order)
{
	return alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_NORETRY, order);
}

void *rsmc_helper_page_address(const struct page *page)
{
	return page_address(page);
}

void rsmc_helper_sg_set_page(struct scatterlist *sg, struct page *page, unsigned int len)
{
	sg_set_page(sg, page, len, 0);
}

void rsmc_helper_sg_set_dma(struct scatterlist *sg, u64 addr, unsigned int len)
{
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}

/* net/net_namespace.h, linux/netdevice.h */

struct net *rsmc_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

struct net *rsmc_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

void rsmc_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* linux/inetdevice.h */

const struct in_ifaddr *rsmc_helper_in_dev_first_ifa_rcu(const struct net_device *dev)
{
	struct in_device *in_dev = __in_dev_get_rcu(dev);

	return in_dev ? rcu_dereference(in_dev->ifa_list) : NULL;
}

const struct in_ifaddr *rsmc_helper_ifa_next_rcu(const struct in_ifaddr *ifa)
{
	return rcu_dereference(ifa->ifa_next);
}

/* net/dst.h, net/neighbour.h, net/route.h */

struct neighbour *rsmc_helper_dst_neigh_lookup(const struct dst_entry *dst, const void *daddr)
{
	return dst_neigh_lookup(dst, daddr);
}

void rsmc_helper_neigh_release(struct neighbour *neigh)
{
	neigh_release(neigh);
}

int rsmc_helper_neigh_event_send(struct neighbour *neigh)
{
	return neigh_event_send(neigh, NULL);
}

u8 rsmc_helper_neigh_state(const struct neighbour *neigh)
{
	return READ_ONCE(neigh->nud_state);
}

void rsmc_helper_neigh_mac(const struct neighbour *neigh, u8 *mac)
{
	char ha[ALIGN(MAX_ADDR_LEN, sizeof(unsigned long))];

	neigh_ha_snapshot(ha, neigh, neigh->dev);
	memcpy(mac, ha, ETH_ALEN);
}

bool rsmc_helper_rt_uses_gateway(const struct rtable *rt)
{
	return rt->rt_uses_gateway;
}

struct dst_entry *rsmc_helper_rt_dst(struct rtable *rt)
{
	return &rt->dst;
}

int rsmc_helper_dst_ifindex_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst)->ifindex;
}

/* Both addresses are 16 bytes. Gives a reference, or an ERR_PTR. */
struct dst_entry *rsmc_helper_route6(struct net *net, const u8 *saddr, const u8 *daddr, int oif)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 flow = { .flowi6_oif = oif };
	struct dst_entry *dst;
	int error;

	memcpy(&flow.saddr, saddr, sizeof(flow.saddr));
	memcpy(&flow.daddr, daddr, sizeof(flow.daddr));
	dst = ip6_route_output(net, NULL, &flow);
	error = dst->error;
	if (!error)
		return dst;
	dst_release(dst);
	return ERR_PTR(error);
#else
	return ERR_PTR(-ENETUNREACH);
#endif
}

bool rsmc_helper_route6_uses_gateway(const struct dst_entry *dst)
{
#if IS_ENABLED(CONFIG_IPV6)
	return dst_rt6_info(dst)->rt6i_flags & RTF_GATEWAY;
#else
	return false;
#endif
}

/* Whether IPsec protects the connection, by a policy of the socket or of its route. */
bool rsmc_helper_sk_uses_ipsec(struct sock *sk)
{
	bool uses = false;
#ifdef CONFIG_XFRM
	struct dst_entry *dst;

	rcu_read_lock();
	dst = rcu_dereference(sk->sk_dst_cache);
	uses = rcu_access_pointer(sk->sk_policy[0]) || rcu_access_pointer(sk->sk_policy[1]) ||
	       (dst && dst_xfrm(dst));
	rcu_read_unlock();
#endif
	return uses;
}

/* The number of the net device by which the socket's packets leave; 0 if that is not known. */
int rsmc_helper_sk_route_ifindex(struct sock *sk)
{
	struct dst_entry *dst;
	int ifindex = 0;

	rcu_read_lock();
	dst = rcu_dereference(sk->sk_dst_cache);
	if (dst)
		ifindex = dst_dev_rcu(dst)->ifindex;
	rcu_read_unlock();
	return ifindex;
}

/* rdma/ib_addr.h */

u8 rsmc_helper_netdev_ib_mtu(const struct net_device *dev)
{
	return iboe_get_mtu(READ_ONCE(dev->mtu));
}

/* rdma/ib_verbs.h */

int rsmc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			     const struct ib_send_wr **bad)
{
	return ib_post_send(qp, wr, bad);
}

int rsmc_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad)
{
	return ib_post_recv(qp, wr, bad);
}

/* Writes the name with a zero at its end, cut to len bytes. */
bool rsmc_helper_ib_pci(const struct ib_device *dev, u16 *vendor, u16 *device, char *name,
			size_t len)
{
	struct device *parent = dev->dev.parent;

	if (!parent || !dev_is_pci(parent))
		return false;
	*vendor = to_pci_dev(parent)->vendor;
	*device = to_pci_dev(parent)->device;
	strscpy(name, pci_name(to_pci_dev(parent)), len);
	return true;
}

bool rsmc_helper_ib_uses_virt_dma(struct ib_device *dev)
{
	return ib_uses_virt_dma(dev);
}

u64 rsmc_helper_ib_dma_map_page(struct ib_device *dev, struct page *page, size_t size,
				int dir)
{
	return ib_dma_map_page(dev, page, 0, size, dir);
}

void rsmc_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				   int dir)
{
	ib_dma_unmap_page(dev, addr, size, dir);
}

int rsmc_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

void rsmc_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size,
				     int dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void rsmc_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t size,
					int dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

bool rsmc_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

enum rdma_ah_attr_type rsmc_helper_rdma_ah_find_type(struct ib_device *dev, u32 port)
{
	return rdma_ah_find_type(dev, port);
}

bool rsmc_helper_rdma_is_port_valid(const struct ib_device *dev, unsigned int port)
{
	return rdma_is_port_valid(dev, port);
}

bool rsmc_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

/* trace.h */

bool rsmc_helper_trace_tx_enabled(void)
{
	return trace_smc_tx_sendmsg_enabled();
}

bool rsmc_helper_trace_rx_enabled(void)
{
	return trace_smc_rx_recvmsg_enabled();
}

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
