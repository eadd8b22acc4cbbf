#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Allocation failures (failslab) in socket, connect and accept: calls may fail with an errno that TCP
# could give too, but nothing leaks, nothing hangs, and afterwards everything works.
# Needs CONFIG_FAILSLAB and CONFIG_FAULT_INJECTION_DEBUG_FS.
. "$RSMC_SELFTESTS/lib.sh"

D=/sys/kernel/debug/failslab
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug 2>/dev/null
[ -d $D ] || skip_all "kernel without failslab in debugfs"

set_up() { # PROBABILITY in percent, for tasks that ask for it only
	echo Y >$D/task-filter
	echo "$1" >$D/probability
	echo 1 >$D/interval
	echo -1 >$D/times
	echo 0 >$D/verbose
	echo N >$D/ignore-gfp-wait
	[ ! -e $D/cache-filter ] || echo N >$D/cache-filter
}

off() {
	echo 0 >$D/probability
	echo 0 >$D/times
}
trap off EXIT

# faulty N F: a child marked for injection makes connections of family F and exits 0 if every
# outcome was one that is allowed.
faulty() {
	timeout "$(slow 60)" faulty --family "$1" --rounds "$2" $3 $rdma
}

rdma=
[ "$1" != rdma ] || rdma=--rdma

refs() { cat /sys/module/rsmc/refcnt; }

ktap_plan 9
before=$(refs)
for f in inet smc; do
	for p in 1 10 50; do
		set_up $p
		check "faults.$f.$p" faulty $f 300
		off
	done
	check "every_allocation.$f" faulty $f 1 --nth
done
wait_for 10 sh -c "[ \$(cat /sys/module/rsmc/refcnt) = $before ]"
is no_reference_left "$(refs)" "$before"
ktap_exit
