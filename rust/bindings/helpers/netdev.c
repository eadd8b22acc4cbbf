// SPDX-License-Identifier: GPL-2.0
/* Namespaces, net devices, routes and neighbours. */

/* net/net_namespace.h, net/netns/generic.h */

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

struct net *rsmc_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

u64 rsmc_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

#if IS_ENABLED(CONFIG_IPV6)
#define rsmc_rt_genid_ipv6(net) rt_genid_ipv6(net)
#else
#define rsmc_rt_genid_ipv6(net) 0
#endif

u32 rsmc_helper_routes_generation(const struct net *net)
{
	return (u32)rt_genid_ipv4(net) + (u32)rsmc_rt_genid_ipv6(net);
}

/* linux/netdevice.h, linux/inetdevice.h */

struct net *rsmc_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

void rsmc_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

const struct in_device *rsmc_helper_in_dev_get_rcu(const struct net_device *dev)
{
	return __in_dev_get_rcu(dev);
}

const struct in_ifaddr *rsmc_helper_in_dev_first_ifa_rcu(const struct in_device *in_dev)
{
	return rcu_dereference(in_dev->ifa_list);
}

const struct in_ifaddr *rsmc_helper_ifa_next_rcu(const struct in_ifaddr *ifa)
{
	return rcu_dereference(ifa->ifa_next);
}

/* net/addrconf.h */

#if IS_ENABLED(CONFIG_IPV6)
struct inet6_ifaddr *rsmc_helper_in6_dev_first_ifa_rcu(const struct net_device *dev)
{
	struct inet6_dev *in6_dev = rcu_dereference(dev->ip6_ptr);

	return in6_dev ? list_first_or_null_rcu(&in6_dev->addr_list, struct inet6_ifaddr,
						if_list) : NULL;
}

struct inet6_ifaddr *rsmc_helper_in6_ifa_next_rcu(struct inet6_ifaddr *ifa)
{
	return list_next_or_null_rcu(&ifa->idev->addr_list, &ifa->if_list, struct inet6_ifaddr,
				     if_list);
}
#else
struct inet6_ifaddr *rsmc_helper_in6_dev_first_ifa_rcu(const struct net_device *dev)
{
	return NULL;
}

struct inet6_ifaddr *rsmc_helper_in6_ifa_next_rcu(struct inet6_ifaddr *ifa)
{
	return NULL;
}
#endif

/* net/dst.h, net/route.h, net/ip6_route.h */

struct net_device *rsmc_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

int rsmc_helper_dst_ifindex_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst)->ifindex;
}

bool rsmc_helper_dst_is_loopback_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst)->flags & IFF_LOOPBACK;
}

bool rsmc_helper_rt_uses_gateway(const struct rtable *rt)
{
	return rt->rt_uses_gateway;
}

struct dst_entry *rsmc_helper_rt_dst(struct rtable *rt)
{
	return &rt->dst;
}

struct dst_entry *rsmc_helper_ip6_route_output(struct net *net, struct flowi6 *flow)
{
	return ip6_route_output(net, NULL, flow);
}

bool rsmc_helper_rt6_uses_gateway(const struct dst_entry *dst)
{
	return dst_rt6_info(dst)->rt6i_flags & RTF_GATEWAY;
}

/* net/neighbour.h */

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

void rsmc_helper_neigh_ha_snapshot(char *dst, const struct neighbour *neigh)
{
	neigh_ha_snapshot(dst, neigh, neigh->dev);
}
