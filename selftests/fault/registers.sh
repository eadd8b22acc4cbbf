#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Memory that is registered on a link in use: on most devices in order among the messages, which do not wait;
# on soft-RoCE while nothing is under way. Here it is soft-RoCE both times, which once seems to be another
# device; since it must not repeat a request then, it has no timeout.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

registers() { ns b timeout "$(slow 60)" python3 "$RSMC_SELFTESTS/fault/registers.py" "$RSMC_PEER_ADDR" "$1"; }

# seen_as NUMBER: devices that the module has been told of while they had this driver's number.
seen_as() {
	for end in a b; do
		ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
	done
	echo "$1" >/sys/module/verb_fault/parameters/driver
	wait_for 10 rmmod rsmc && load_module
	echo 0 >/sys/module/verb_fault/parameters/driver
	# A message does not wait for the completion of the one before it.
	ns a sysctl -qw net.smc.autocorking_size=0
	wait_for 10 timeout 20 stress --mode 0 --short 1 short
}

ktap_plan 5
insmod /rsmc/kmod/verb_fault.ko patient=1 || exit 1
# RDMA_DRIVER_MLX5
check other seen_as 1
check other.link_goes_on registers goes_on
check other.traffic timeout "$(slow 60)" stress --mode 0 --bulk "$(less 8)" --short 20 at_once short bulk
check soft_roce seen_as 0
check soft_roce.link_waits registers waits
rmmod verb_fault
ktap_exit
