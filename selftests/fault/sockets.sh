#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Allocation failures (failslab, fail_page_alloc) in socket, connect and accept: calls may fail with
# an errno that TCP could give too, but nothing leaks, nothing hangs, and afterwards everything works.
# Only what runs in the calling task; for workers see `verbs --memory`.
# Needs both, and CONFIG_FAULT_INJECTION_DEBUG_FS.
. "$RSMC_SELFTESTS/lib.sh"

D=/sys/kernel/debug
mountpoint -q $D || mount -t debugfs none $D 2>/dev/null
kinds="failslab fail_page_alloc"
for kind in $kinds; do
	[ -d $D/$kind ] || skip_all "kernel without $kind in debugfs"
done

# Tasks that ask for a failure by its number get it from both.
prepare() {
	for kind in $kinds; do
		echo Y >$D/$kind/task-filter
		echo 0 >$D/$kind/probability
		echo 1 >$D/$kind/interval
		echo 0 >$D/$kind/verbose
		echo N >$D/$kind/ignore-gfp-wait
	done
	[ ! -e $D/failslab/cache-filter ] || echo N >$D/failslab/cache-filter
	# Of any size, but not those for user space.
	echo 0 >$D/fail_page_alloc/min-order
	echo Y >$D/fail_page_alloc/ignore-gfp-highmem
}

set_up() { # KIND PROBABILITY in percent, for tasks that ask for it only
	echo -1 >"$D/$1/times"
	echo "$2" >"$D/$1/probability"
}

off() {
	for kind in $kinds; do
		echo 0 >$D/$kind/probability
		echo 0 >$D/$kind/times
	done
}
trap off EXIT

# faulty N F: a child marked for injection makes connections of family F and exits 0 if every
# outcome was one that is allowed.
faulty() {
	timeout "$(slow 60)" faulty --family "$1" --rounds "$2" $3 $over
}

# rdma or local: how the connections go where memory does not keep them from it.
over=${1:+--$1}

refs() { cat /sys/module/rsmc/refcnt; }

ktap_plan 17
before=$(refs)
prepare
for f in inet smc; do
	for p in 1 10 50; do
		# The more often allocations fail, the sooner all has been seen.
		rounds=$((300 / (p < 10 ? 1 : p / 5)))
		set_up failslab $p
		check "faults.$f.$p" faulty $f $rounds
		off
		set_up fail_page_alloc $p
		check "pages.$f.$p" faulty $f $rounds
		off
	done
	check "every_allocation.$f" faulty $f 1 --nth
	# What is left of an attempt must not count for the next one.
	check "next_connect.$f" faulty $f 1 --next
done
wait_for 10 sh -c "[ \$(cat /sys/module/rsmc/refcnt) = $before ]"
is no_reference_left "$(refs)" "$before"
ktap_exit
