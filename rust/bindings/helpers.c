// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros of the kernel as functions that Rust can call: one object, so that bindgen and
 * the compiler see all of them at once, from files by subject. A body is one expression or call, without
 * logic; the few that are more have a file and an argument of their own.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include "bindings_helper.h"

#ifndef __rust_helper
#define __rust_helper
#endif

/* One line each. */
#include "helpers/netdev.c"
#include "helpers/netlink.c"
#include "helpers/packet.c"
#include "helpers/rdma.c"
#include "helpers/socket.c"
#include "helpers/sys.c"
#include "helpers/tcp.c"

/* More than that; each says why it is not in Rust. */
#include "helpers/napi.c"
#include "helpers/peek.c"
#include "helpers/wakeup.c"
#include "helpers/woken.c"
#include "helpers/zcopy.c"
