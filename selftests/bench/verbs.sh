#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# verbs.sh [imm] [--scale N] [--only METRIC,...] [--mark]
# What the RDMA verbs cost without sockets: loads verbs_bench.ko, which measures and then says what it found.
# With --mark it measures the one metric that --only names, between marks for the profiler. These hold the loading as well,
# in which a card does next to nothing.
set -eu
PATH=$PATH:/rsmc/bin:/usr/sbin:/sbin
scale=1 imm=0 only= mark=
while [ $# -gt 0 ]; do
	[ "$1" != --scale ] || scale=$2
	[ "$1" != --only ] || only=$2
	[ "$1" != --mark ] || mark=1
	[ "$1" != imm ] || imm=1
	shift
done
ko=/rsmc/kmod/verbs_bench.ko
for name in $(modinfo -F depends $ko | tr , ' '); do
	modprobe "$name"
done
# Neighbours are known, as they are to connections that have talked before.
ip netns exec a ping -q -c 1 -W 5 10.77.0.2 >/dev/null
number=0
if [ -n "$mark" ]; then
	case $only in
	pingpong_64) number=1 ;;
	pingpong_16384) number=2 ;;
	bulk_per_KiB) number=3 ;;
	*) echo "verbs.sh: no metric $only to be marked" >&2 && exit 1 ;;
	esac
fi
begin="verbs.sh: begin $$"
echo "$begin" >/dev/kmsg
[ -z "$mark" ] || bench mark
insmod $ko scale="$scale" imm="$imm" only="$number" || {
	dmesg | tail -n 20 >&2
	exit 1
}
[ -z "$mark" ] || bench mark
said=$(dmesg | sed -n "/$begin/,\$s/.*verbs_bench: //p")
echo "$said" | sed -n '/^bench /p'
[ -z "$mark" ] || echo "$said" | awk '/^operations / { n += $2 } END { print "# profile of", n, "operations" }'
rmmod verbs_bench
