#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# verbs.sh [imm] [--scale N] [--only METRIC,...]
# What the RDMA verbs cost without sockets: loads verbs_bench.ko, which measures and then says what it found.
set -eu
PATH=$PATH:/usr/sbin:/sbin
scale=1 imm=0
while [ $# -gt 0 ]; do
	[ "$1" != --scale ] || scale=$2
	[ "$1" != imm ] || imm=1
	shift
done
ko=/rsmc/kmod/verbs_bench.ko
for name in $(modinfo -F depends $ko | tr , ' '); do
	modprobe "$name"
done
# Neighbours are known, as they are to connections that have talked before.
ip netns exec a ping -q -c 1 -W 5 10.77.0.2 >/dev/null
mark="verbs.sh: begin $$"
echo "$mark" >/dev/kmsg
insmod $ko scale="$scale" imm="$imm" || {
	dmesg | tail -n 20 >&2
	exit 1
}
dmesg | sed -n "/$mark/,\$s/.*verbs_bench: bench /bench /p"
rmmod verbs_bench
