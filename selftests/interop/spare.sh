#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A peer with the C module is asked to forget the keys of memory that nobody uses any more, one after
# the other, and answers; what it has forgotten goes back, and the next connections get other keys.
. "$RSMC_SELFTESTS/lib.sh"

grep -q '^rsmc ' /proc/modules && mine=rsmc || mine=smc
[ $mine = rsmc ] || [ -n "$RSMC_V1" ] || rsmc ueid add RSMC-DEFAULT || [ $? -eq 5 ] || exit 1

burst() { # many connections at once
	if [ $mine = rsmc ]; then
		stress --family smc --mode 0 --concurrent 60 concurrent
	else
		stress --family smc --info off --concurrent 60 concurrent
	fi
}
sum() {
	rsmc link --json | python3 -I -S -c "import json, sys
print(sum(group['receive_bytes'] for group in json.load(sys.stdin)))"
}
handful() { [ "$(sum)" -le $((4 * 65536)) ]; }

if [ $mine = rsmc ]; then
	ktap_plan 6
	check first burst
	check buffers_are_there test "$(sum)" -gt $((4 * 65536))
	check forgotten wait_for 10 handful
	barrier forgotten
	check second burst
	check forgotten_again wait_for 10 handful
	is one_group "$(rsmc link --json | grep -o '"role"' | wc -l)" 1
	barrier again
else
	ktap_plan 3
	check first.c burst
	barrier forgotten
	check second.c burst
	barrier again
	check nothing_dropped sh -c '! dmesg | grep "dropped parallel"'
fi
ktap_exit
