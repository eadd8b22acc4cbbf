#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a guest whose kernel has fault injection, as root, after run.sh has set
# up the namespaces: lets the first, second, third... memory allocation of
# connecting two queue pairs fail, one at a time, until none is left.
# With a step only each so manieth. It prints diagnostic lines; its status is the result.
# usage: faults.sh rdma_test.ko [STEP]

ko=${1:?rdma_test.ko}
step=${2:-1}
n=1
mark="rdma_test: faults begin $$"
log() { dmesg | sed -n "/$mark/,\$p"; }

mount -t debugfs none /sys/kernel/debug 2>/dev/null
for kind in failslab fail_page_alloc; do
	dir=/sys/kernel/debug/$kind
	[ -d $dir ] || { echo "# no $kind here"; exit 1; }
	echo 0 >$dir/verbose
	echo N >$dir/ignore-gfp-wait
	echo N >$dir/task-filter
done
echo 0 >/sys/kernel/debug/fail_page_alloc/min-order
echo "$mark" >/dev/kmsg

failed=0 loads=0 tried=0
while :; do
	# The task that sets the number becomes insmod.
	bash -c 'echo $1 >/proc/self/fail-nth; exec insmod "$2" quick=1' - "$n" "$ko" 2>/dev/null
	tried=$((tried + 1))
	if grep -q '^rdma_test ' /proc/modules; then
		loads=$((loads + 1))
		last=$(dmesg | grep 'rdma_test: quick:' | tail -n 1)
		timeout 60 rmmod rdma_test || { echo "# $n: does not unload"; exit 1; }
		case $last in
		*'quick: done') good=$((good + 1)) ;;
		*) good=0 ;;
		esac
		# Beyond the last allocation everything works.
		[ "${good:-0}" -lt 40 ] || break
	fi
	n=$((n + step))
	[ "$n" -lt 6000 ] || break
done
echo "# $tried failures injected, $loads of them after the module was loaded; stopped at $n"
log | grep 'rdma_test: quick:' | sed 's/.*rdma_test: //' | sort | uniq -c | sed 's/^/# /'
log | grep -E 'BUG|WARNING:|Oops|could not be destroyed' | head | sed 's/^/# /'
[ "$(log | grep -cE 'BUG|WARNING:|Oops|could not be destroyed')" = 0 ] || failed=1
if [ -e /sys/kernel/debug/kmemleak ]; then
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	leaks=$(grep -c 'rdma_test\|smc_bindings\|kapi' /sys/kernel/debug/kmemleak)
	[ "$leaks" = 0 ] || { head -n 60 /sys/kernel/debug/kmemleak | sed 's/^/# /'; failed=1; }
	echo "# kmemleak: $leaks lines of ours"
fi
exit $failed
