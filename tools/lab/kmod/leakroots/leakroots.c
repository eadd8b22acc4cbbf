// SPDX-License-Identifier: GPL-2.0
/*
 * Makes kmemleak scan a range of the kernel's own data.
 *
 * UML is compiled for the large code model, whose compilers put big zeroed
 * variables into .lbss. kmemleak scans .bss only, so whatever is referenced
 * from .lbss alone would be reported as leaked.
 */
#include <linux/kmemleak.h>
#include <linux/module.h>

static ulong start;
module_param(start, ulong, 0400);
MODULE_PARM_DESC(start, "address of the range");

static ulong size;
module_param(size, ulong, 0400);
MODULE_PARM_DESC(size, "length of the range in bytes");

static int __init leakroots_init(void)
{
	if (!start || !size)
		return -EINVAL;
	/* Nobody needs to point to it: it is scanned and never reported. */
	kmemleak_alloc((void *)start, size, 0, GFP_KERNEL);
	return 0;
}
module_init(leakroots_init);

static void __exit leakroots_exit(void)
{
	kmemleak_free((void *)start);
}
module_exit(leakroots_exit);

MODULE_DESCRIPTION("Further memory for kmemleak to scan");
MODULE_LICENSE("GPL");
