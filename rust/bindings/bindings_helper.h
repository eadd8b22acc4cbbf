/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers which rsmc needs beyond the kernel crate's own list, sorted, and the
 * constants that bindgen cannot evaluate by itself.
 */
#include <asm/ioctls.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/errqueue.h>
#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/nsproxy.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/shrinker.h>
#include <linux/skbuff.h>
#include <linux/smc.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <linux/socket.h>
#include <linux/sockios.h>
#include <linux/sysctl.h>
#include <linux/task_work.h>
#include <linux/tcp.h>
#include <linux/utsname.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/busy_poll.h>
#include <net/genetlink.h>
#include <net/inet_common.h>
#include <net/inet_connection_sock.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/protocol.h>
#include <net/request_sock.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

const gfp_t RUST_CONST_HELPER_GFP_KERNEL_RAW = GFP_KERNEL;
const gfp_t RUST_CONST_HELPER_GFP_ATOMIC_RAW = GFP_ATOMIC;
const int RUST_CONST_HELPER_NF_IP_PRI_BEFORE_CONNTRACK = -350;
const size_t RUST_CONST_HELPER_SOCKET_PRIVATE =
	offsetof(struct socket_alloc, vfs_inode.i_private) -
	offsetof(struct socket_alloc, socket);
const size_t RUST_CONST_HELPER_SIZEOF_SOCKADDR_STORAGE = sizeof(struct sockaddr_storage);
const unsigned int RUST_CONST_HELPER_DUMP_ALLOC = SKB_WITH_OVERHEAD(32768);
/* To bindgen HZ is what its first definition says: user space's 100. */
const unsigned int RUST_CONST_HELPER_TICKS_PER_SECOND = HZ;
const unsigned int RUST_CONST_HELPER_SIOCINQ_RAW = SIOCINQ;
const unsigned int RUST_CONST_HELPER_SIOCOUTQ_RAW = SIOCOUTQ;
const unsigned int RUST_CONST_HELPER_POLLFREE_RAW = (__force unsigned int)POLLFREE;
const unsigned int RUST_CONST_HELPER_EPOLLIN_RAW = (__force unsigned int)EPOLLIN;
const unsigned int RUST_CONST_HELPER_EPOLLRDNORM_RAW = (__force unsigned int)EPOLLRDNORM;
const unsigned int RUST_CONST_HELPER_EPOLLOUT_RAW = (__force unsigned int)EPOLLOUT;
const unsigned int RUST_CONST_HELPER_EPOLLWRNORM_RAW = (__force unsigned int)EPOLLWRNORM;
const unsigned int RUST_CONST_HELPER_EPOLLERR_RAW = (__force unsigned int)EPOLLERR;
const unsigned int RUST_CONST_HELPER_EPOLLHUP_RAW = (__force unsigned int)EPOLLHUP;
const unsigned int RUST_CONST_HELPER_EPOLLRDHUP_RAW = (__force unsigned int)EPOLLRDHUP;
const unsigned int RUST_CONST_HELPER_EPOLLPRI_RAW = (__force unsigned int)EPOLLPRI;
const int RUST_CONST_HELPER_DMA_TO_DEVICE_RAW = DMA_TO_DEVICE;
const int RUST_CONST_HELPER_DMA_FROM_DEVICE_RAW = DMA_FROM_DEVICE;
const int RUST_CONST_HELPER_DMA_BIDIRECTIONAL_RAW = DMA_BIDIRECTIONAL;
