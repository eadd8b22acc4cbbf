#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The card reads and writes bounce buffers alone (the kernel was booted with swiotlb=force), so what the module forgets to
# synchronise arrives nowhere: all bytes are carried as elsewhere.
. "$RSMC_SELFTESTS/lib.sh"

used=/sys/kernel/debug/swiotlb/io_tlb_used

ktap_plan 3
check forced grep -qw swiotlb=force /proc/cmdline
check transfer timeout "$(slow 90)" transfer --family inet --ip v4,v6 --mode 0 --mb 4
# The rings of the groups, which stay, are bounced.
[ -e "$used" ] || mount -t debugfs debugfs /sys/kernel/debug
check bounced test "$(cat "$used")" -ge 128
ktap_exit
