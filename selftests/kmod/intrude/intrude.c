// SPDX-License-Identifier: GPL-2.0
/*
 * Writes into a TCP connection past the family that owns its socket, as nobody should: `len` bytes into
 * file `fd` of the process that loads this. With `table` it gives the socket (of IPv4) TCP's own operations
 * table instead, without a word, as ovpn does with its own. Does not stay: loading fails with ECANCELED when that
 * has worked.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/uio.h>
#include <net/inet_common.h>
#include <net/sock.h>

static int fd = -1;
module_param(fd, int, 0);
static unsigned int len = 1;
module_param(len, uint, 0);
static bool table;
module_param(table, bool, 0);

static int __init intrude_init(void)
{
	static char bytes[64];
	struct kvec part = { .iov_base = bytes };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct socket *sock;
	int err;

	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return err;
	if (table) {
		WRITE_ONCE(sock->ops, &inet_stream_ops);
		sockfd_put(sock);
		return -ECANCELED;
	}
	part.iov_len = min_t(size_t, len, sizeof(bytes));
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &part, 1, part.iov_len);
	err = sock->sk->sk_prot->sendmsg(sock->sk, &msg, part.iov_len);
	sockfd_put(sock);
	return err == part.iov_len ? -ECANCELED : -EIO;
}
module_init(intrude_init);

MODULE_DESCRIPTION("Writes into a TCP connection past its owner, or takes it");
MODULE_LICENSE("GPL");
