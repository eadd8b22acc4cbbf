// SPDX-License-Identifier: GPL-2.0
/*
 * A user of sockets inside of the kernel: accepts a connection from the listener that is file `fd` of
 * the process that loads this, asks in vain for a second one, and closes the first. Does not stay:
 * loading fails with ECANCELED when that has worked.
 */
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/net.h>

static int fd = -1;
module_param(fd, int, 0);

static int __init kaccept_init(void)
{
	struct socket *listener, *sock, *none;
	int err = -EBADF;

	listener = sockfd_lookup(fd, &err);
	if (!listener)
		return err;
	err = kernel_accept(listener, &sock, O_NONBLOCK);
	if (!err) {
		err = kernel_accept(listener, &none, O_NONBLOCK);
		if (!err)
			sock_release(none);
		sock_release(sock);
		err = err == -EAGAIN ? -ECANCELED : -EEXIST;
	}
	sockfd_put(listener);
	return err;
}
module_init(kaccept_init);

MODULE_DESCRIPTION("Accepts one connection");
MODULE_LICENSE("GPL");
