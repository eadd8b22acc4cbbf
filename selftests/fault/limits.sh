#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Devices that are smaller than soft-RoCE, as `verb_fault` makes them, and two ends with different MTUs:
# connections are SMC-R all the same, with chains of many requests, few slots and many small slabs.
# And queues as short as the sysctls can make them.
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

# queues SEND RECV: groups that begin now have queues of this number of messages.
queues() {
	for end in a b; do
		ns "$end" sysctl -qw net.smc.smcr_max_send_wr="$1" net.smc.smcr_max_recv_wr="$2"
	done
	renew
}

# asked WHICH: requests that the last queue pair was made for.
asked() { cat "/sys/module/verb_fault/parameters/${1}_wr"; }

ktap_plan 21
limited send_sges.1 send_sges=1
limited send_sges.2 send_sges=2
limited queue_wrs queue_wrs=100
# A limit that the device does not tell.
limited sq_wrs sq_wrs=100
# One buffer of 64 KiB in a slab.
limited mr_pages mr_pages=16
insmod /rsmc/kmod/verb_fault.ko
queues 2 5
check queues.short traffic
each=$(($(asked send) / 2))
is queues.short.recv "$(asked recv)" 5
queues 6 9
check queues.longer traffic
is queues.longer.send "$(asked send)" $((6 * each))
is queues.longer.recv "$(asked recv)" 9
# The peer sends more at a time than there are buffers.
queues 16 2
check queues.too_short traffic
queues 16 48
is queues.usual.send "$(asked send)" $((16 * each))
is queues.usual.recv "$(asked recv)" 48
rmmod verb_fault
mtu mtu.client a
mtu mtu.server b
mtu mtu.both a b
ktap_exit
