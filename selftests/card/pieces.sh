#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# pieces.sh large|small
# The memory of rings comes in large pieces: a write within a ring is one element of a request, and a receive buffer's
# region has few pages if the card's driver is one that tells the card how large they are (large), else the kernel's.
. "$RSMC_SELFTESTS/lib.sh"

size=$1

# count NAME: what both cards have counted.
count() {
	awk -v name="$1" '{ for (i = 2; i < NF; i += 2) if ($i == name) sum += $(i + 1) } END { print sum + 0 }' \
		/sys/module/card/parameters/stats
}

ktap_plan 5
for end in a b; do ns "$end" sysctl -qw net.smc.wmem=1048576 net.smc.rmem=1048576; done
check transfer timeout "$(slow 60)" transfer --family inet --ip v4 --mode 0 --mb 16 huge vectors
writes=$(count writes)
elements=$(count elements)
regions=$(count regions)
kib=$(($(count region_bytes) / 1024))
pages=$(count region_pages)
echo "# $writes writes of $elements elements; $regions regions of $kib KiB and $pages pages"
check writes test "$writes" -ge 100
# Memory may be scattered.
check elements test "$elements" -le $((writes + writes / 8))
check regions test "$kib" -ge 2048
case $size in
large) check pages test "$pages" -le $((kib / 64)) ;;
small) is pages "$pages" $((kib / 4)) ;;
esac
ktap_exit
