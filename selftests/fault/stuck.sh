#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A device whose driver is recovering it: queue pairs cannot be flushed, and nobody hears of completions, but
# destroying succeeds. The module is unloaded and loaded again meanwhile, and nothing is left behind.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

arm() { echo "$*" >/sys/module/verb_fault/parameters/arm; }
over() { ! kill -0 "$1" 2>/dev/null; }
loaded() { grep -q '^rsmc ' /proc/modules; }
mark="fault stuck $$"

# connected: a connection that has ended, and left its group and its link behind.
connected() { wait_for 10 timeout 20 stress --mode 0 --short 1 short; }

ktap_plan 6
insmod /rsmc/kmod/verb_fault.ko || exit 1
# Devices that it has been told of.
for end in a b; do
	ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
done
ns b sysctl -qw net.smc.smcr_testlink_time=1
check before connected
# Sockets of programs that have ended hold the module for a moment.
wait_for 10 sh -c '[ "$(cat /sys/module/rsmc/refcnt)" = 0 ]'
is unused "$(cat /sys/module/rsmc/refcnt)" 0

echo "$mark" >/dev/kmsg
arm stuck rxe_a 1 1000000000
# The other end asks whether the link works: a message that has arrived, and is not told.
sleep 2
rmmod rsmc &
unloading=$!
# In this shell, whose child it is.
wait_for 20 over "$unloading"
check ends over "$unloading"
check_fails gone loaded
loaded || load_module
arm off
for end in a b; do
	ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
done
check after connected
check no_leak sh -c "! dmesg | sed -n '/$mark/,\$p' | grep -q 'could not be destroyed'"
rmmod verb_fault
ktap_exit
