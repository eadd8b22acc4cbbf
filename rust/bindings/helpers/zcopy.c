// SPDX-License-Identifier: GPL-2.0
/*
 * In C, because the flag is a bit field of a struct that is found by container_of() from the notification,
 * and each MSG_ZEROCOPY send passes here: one call from Rust instead of two.
 */

void rsmc_helper_zcopy_copied(struct ubuf_info *uarg)
{
	uarg_to_msgzc(uarg)->zerocopy = 0;
	net_zcopy_put(uarg);
}
