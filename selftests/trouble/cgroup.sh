#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What the buffers of connections cost is charged to the control group of the program: one with
# memory.max of 64 MiB makes hundreds with large buffers, and the host keeps its memory. Send rings of
# silent connections are not charged.
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 6
root=$TMPDIR/cgroup
mkdir "$root"
# Whatever becomes of the rest.
leave() {
	rmdir "$root/small"
	umount "$root"
}
trap leave EXIT
mount -t cgroup2 none "$root"
echo +memory >"$root/cgroup.subtree_control"
mkdir "$root/small"
echo 64M >"$root/small/memory.max"
result=$(timeout "$(slow 60)" python3 "$RSMC_SELFTESTS/trouble/cgroup.py" "$root/small" 2>&1)
told() { echo "$result" | sed -n "s/^$1 //p"; }
all=$(told connections)
smc=$(told smc)
echo "$result" | sed 's/^/# /'
# 64 MiB, and free buffers of slabs.
check host_keeps_its_memory test "$(told taken_kib)" -lt $((64 * 1024 + 24 * 1024))
check some_are_smc test "${smc:-0}" -ge 20
# Memory that is refused: SMC_CLC_DECL_MEM.
is others_fell_back_for_memory "$(told fallback)" $((all - smc))
is bytes_flow_on_all "$(told flowed)" "$all"
# The receive buffers of both ends alone, 256 KiB each, and a few rings that other ends have left behind.
check silent_rings_are_uncharged test "$(told charged_kib)" -le $((smc * 2 * 256 * 5 / 4))
uncharged() { [ "$(cat "$root/small/memory.current")" -lt $((8 * 1024 * 1024)) ]; }
check charge_goes_with_the_connections wait_for 10 uncharged
ktap_exit
