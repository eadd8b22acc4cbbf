// SPDX-License-Identifier: GPL-2.0
/* Netlink and what else user space asks. */

/* net/netlink.h, linux/netlink.h */

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

struct sk_buff *rsmc_helper_nlmsg_new(unsigned int factor)
{
	return nlmsg_new(factor * NLMSG_DEFAULT_SIZE, GFP_KERNEL);
}

void rsmc_helper_nlmsg_discard(struct sk_buff *skb)
{
	nlmsg_free(skb);
}

struct nlattr *rsmc_helper_nla_nest_start(struct sk_buff *skb, int type)
{
	return nla_nest_start(skb, type);
}

void rsmc_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

u32 rsmc_helper_netlink_portid(const struct sk_buff *skb)
{
	return NETLINK_CB(skb).portid;
}

bool rsmc_helper_netlink_asks_as_admin(const struct sk_buff *skb)
{
	return netlink_capable(skb, CAP_NET_ADMIN);
}

/* net/genetlink.h */

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
				struct netlink_dump_control *control)
{
	return netlink_dump_start(sock_net(skb->sk)->diag_nlsk, skb, nlh, control);
}

u32 rsmc_helper_sk_uid_for(const struct sock *sk, const struct sk_buff *request)
{
	return from_kuid_munged(sk_user_ns(NETLINK_CB(request).sk), sk_uid(sk));
}

/* linux/proc_fs.h */

struct proc_dir_entry *rsmc_helper_proc_net_dir(struct net *net)
{
	return net->proc_net;
}

bool rsmc_helper_seq_opened_by_admin(const struct seq_file *seq, const struct net *net)
{
	return file_ns_capable(seq->file, net->user_ns, CAP_NET_ADMIN);
}
