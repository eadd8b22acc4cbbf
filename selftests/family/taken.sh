#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# AF_SMC belongs to the in-tree module: loading ours fails with one line that names it, leaves the
# other working, and works once it has gone.
. "$RSMC_SELFTESTS/lib.sh"
PATH=/usr/sbin:/sbin:$PATH

modprobe smc 2>/dev/null || skip_all "kernel without the in-tree smc module"
dmesg -C
ktap_plan 6
check_fails load_refused insmod "$RSMC_KO"
dmesg | sed 's/^/# /'
lines=$(dmesg | grep -Evc 'module verification failed|loading out-of-tree module')
is one_line "$lines" 1
check names_the_other sh -c "dmesg | grep -i 'rsmc:' | grep -qw smc"
check not_loaded sh -c '! grep -q "^rsmc " /proc/modules'
check other_works sh -c '[ "$(family probe smc)" = ok ]'
rmmod smc_diag 2>/dev/null
rmmod smc
check loads_afterwards insmod "$RSMC_KO"
rmmod rsmc
ktap_exit
