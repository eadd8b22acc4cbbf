// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros of the kernel as functions that Rust can call.
 * One line each, sorted by header; no logic.
 */
#include <linux/module.h>
#include "bindings_helper.h"

#ifndef __rust_helper
#define __rust_helper
#endif

/* linux/net.h, linux/fs.h */

void *rsmc_helper_socket_private(struct socket *sock)
{
	return READ_ONCE(SOCK_INODE(sock)->i_private);
}

void *rsmc_helper_socket_private_cmpxchg(struct socket *sock, void *old, void *new)
{
	return cmpxchg(&SOCK_INODE(sock)->i_private, old, new);
}

void rsmc_helper_socket_set_ops(struct socket *sock, const struct proto_ops *ops)
{
	WRITE_ONCE(sock->ops, ops);
}

/* net/sock.h */

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

void rsmc_helper_sk_write_space(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_write_space(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

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

/* net/tcp.h, net/inet_connection_sock.h, net/request_sock.h */

bool rsmc_helper_reqsk_queue_empty(const struct sock *sk)
{
	return reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue);
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
	tcp_saved_syn_free(tcp_sk(sk));
}

struct saved_syn *rsmc_helper_tcp_saved_syn(const struct sock *sk)
{
	return tcp_sk(sk)->saved_syn;
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

struct sk_buff *rsmc_helper_nlmsg_new(void)
{
	return nlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
}

void rsmc_helper_nlmsg_free(struct sk_buff *skb)
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

/* linux/workqueue.h */

struct workqueue_struct *rsmc_helper_alloc_workqueue_unbound(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}
