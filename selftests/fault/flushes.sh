#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Most sends have no completion: one of nothing is posted that tells of their ends, when a timer has expired or somebody
# waits for them. Here a device refuses that for a while. The cases of rdma_test pass all the same, among them that all
# ends come.
. "$RSMC_SELFTESTS/lib.sh"

for module in verb_fault rdma_test; do
	[ -e /rsmc/kmod/$module.ko ] || skip_all "the lab did not build $module.ko"
done

arm=/sys/module/verb_fault/parameters/arm
mark="fault flushes $$"
log() { dmesg | sed -n "/$mark $1\$/,\$p" | grep 'rdma_test: '; }

# cases NTH: of such requests the NTH is refused, and those after it, which are the same one tried again. Fewer than the
# module tries.
cases() {
	echo "$mark $1" >/dev/kmsg
	echo "post_flush rxe_a $1 30" >"$arm"
	timeout "$(slow 60)" insmod /rsmc/kmod/rdma_test.ko
	read -r calls hits <"$arm"
	echo off >"$arm"
	rmmod rdma_test
	echo "$calls calls, $hits refused"
	log "$1" | tail -n 40
	[ "$hits" = 30 ] && log "$1" | grep -q ': ok tokens' && ! log "$1" | grep -q ': not ok'
}

ktap_plan 2
insmod /rsmc/kmod/verb_fault.ko || exit 1
# The module takes the first two devices. So nobody else has sent by them.
for end in a b; do
	ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
done
check of_timer cases 1
check of_waiter cases 2
rmmod verb_fault
ktap_exit
