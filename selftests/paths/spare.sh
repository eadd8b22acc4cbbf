#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Memory that connections do not use goes back: the send rings of those that are silent, after the close
# the receive buffers but for a handful, and those, too, when the kernel is short of memory.
. "$RSMC_SELFTESTS/lib.sh"
cd "$TMPDIR" || exit 1

# sum NAME: what all groups of both ends have of a number.
sum() {
	rsmc link --json | python3 -I -S -c "import json, sys
print(sum(group['$1'] for group in json.load(sys.stdin)))"
}
no_rings() { [ "$(sum send_bytes)" -eq 0 ]; }
# A slab of four buffers of 64 KiB at each end.
handful() { [ "$(sum receive_bytes)" -le $((2 * 4 * 65536)) ]; }
nothing() { [ "$(sum receive_bytes)" -eq 0 ]; }
# do WORD: has the connections do that.
answered() { [ "$(wc -l < answers)" -ge "$words" ]; }
tell() {
	words=$((words + 1))
	echo "$1" >&5
	wait_for 60 answered
}
# Pages that nobody has but the caches, which grow with each program that runs. The module's own count says nothing of pages
# that it has lost, and no control group is charged for them.
free() { awk '/^(MemFree|Buffers|Cached|SReclaimable):/ { sum += $2 } END { print sum }' /proc/meminfo; }
memory_is_back() { [ $((before - $(free))) -lt $((count * 64)) ]; }

count=$(less 60)
ktap_plan 18
mkfifo orders
timeout "$(slow 100)" python3 -I -S "$RSMC_SELFTESTS/paths/spare.py" "$count" < orders > answers 2> errors &
program=$!
exec 5> orders
words=1
check open wait_for 30 answered
is no_ring_before_a_send "$(sum send_bytes)" 0
before=$(free)
check talk tell talk
# On a slow guest the others may be silent for long enough before anybody has looked.
check busy tell busy
check rings_in_use test "$(sum send_bytes)" -gt 0
check quiet tell quiet
check silent_rings_go wait_for 3 no_rings
# Of 128 KiB a connection nothing is missing but what the exchange has made the kernel keep.
if [ "$RSMC_KERNEL" = uml ]; then
	check and_their_memory wait_for 10 memory_is_back
else
	skip and_their_memory "a debug kernel keeps memory that was freed for a while"
fi
check rings_come_again tell bulk
check in_the_nick_of_time tell gaps
open=$(sum receive_bytes)
check close tell close
check buffers_are_there test "$open" -ge $((count * 2 * 65536))
check slabs_go wait_for 8 handful
is the_groups_stay "$(rsmc link --json | grep -o '"role"' | wc -l)" 2
# Without this nothing more would go.
sleep 3
check but_for_a_handful sh -c "! [ $(sum receive_bytes) -eq 0 ]"
echo 2 > /proc/sys/vm/drop_caches
check memory_is_short wait_for 3 nothing
tell open
check joins_again tell bulk
exec 5>&-
wait "$program"
is ended $? 0
sed 's/^/# /' errors
ktap_exit
