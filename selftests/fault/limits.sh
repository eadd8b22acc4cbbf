#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Devices that are smaller than soft-RoCE, as `verb_fault` makes them, and two ends with different MTUs:
# connections are SMC-R all the same, with chains of many requests, few slots and many small slabs.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

# renew: devices without groups, as soon as they carry connections.
renew() {
	for end in a b; do
		ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
	done
	wait_for 10 timeout 20 stress --mode 0 --short 1 short
}

traffic() { timeout "$(slow 60)" stress --mode 0 --bulk 8 --short 20 at_once short bulk; }

# limited NAME PARAMETER=VALUE...: connections between devices with these limits.
limited() {
	name=$1
	shift
	insmod /rsmc/kmod/verb_fault.ko "$@"
	renew
	check "$name" traffic
	qps=$(cat /sys/module/verb_fault/parameters/qps)
	check "$name.made_with_them" test "${qps:-0}" -ge 2
	rmmod verb_fault
}

# mtu NAME END...: connections between these ends with large packets and others with small ones.
mtu() {
	name=$1
	shift
	for end in a b; do ns "$end" ip link set "v$end" mtu 1500; done
	for end; do ns "$end" ip link set "v$end" mtu 4200; done
	renew
	check "$name" traffic
}

ktap_plan 11
limited send_sges.1 send_sges=1
limited send_sges.2 send_sges=2
limited queue_wrs queue_wrs=100
# One buffer of 64 KiB in a slab.
limited mr_pages mr_pages=16
mtu mtu.client a
mtu mtu.server b
mtu mtu.both a b
ktap_exit
