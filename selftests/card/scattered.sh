#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# scattered.sh BYTES: pieces of memory of this size are neighbours in memory and not for the card, which has its
# addresses by an IOMMU: a ring is still one region, of pages of that size, and a write that crosses a border has more
# elements. Nothing is read or written between the pieces, where there is no memory.
. "$RSMC_SELFTESTS/lib.sh"

granule=$1

# count NAME: what both cards have counted.
count() {
	awk -v name="$1" '{ for (i = 2; i < NF; i += 2) if ($i == name) sum += $(i + 1) } END { print sum + 0 }' \
		/sys/module/card/parameters/stats
}

ktap_plan 5
is granule "$(cat /sys/module/card/parameters/granule)" "$granule"
for end in a b; do ns "$end" sysctl -qw net.smc.wmem=1048576 net.smc.rmem=1048576; done
check transfer timeout "$(slow 60)" transfer --family inet --ip v4,v6 --mode 0 --mb 8 huge vectors
writes=$(count writes)
elements=$(count elements)
regions=$(count regions)
kib=$(($(count region_bytes) / 1024))
pages=$(count region_pages)
echo "# $writes writes of $elements elements; $regions regions of $kib KiB and $pages pages"
# Smaller regions than a piece have a page of their own.
within() { [ "$pages" -ge $((kib * 1024 / granule)) ] && [ "$pages" -le $((kib * 1024 / granule + regions)) ]; }
check pages within
# Where all is one piece it is an eighth at most, see pieces.sh; here about a quarter, and less where a busy machine has
# more and shorter writes.
check elements test "$elements" -ge $((writes + writes * 3 / 16))
is outside "$(count outside)" 0
ktap_exit
