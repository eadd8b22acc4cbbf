#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A device that does not flush a queue pair, and keeps its completions, while the module is unloaded: they
# come when the module would be gone. Unloading waits, says for what, and ends when the device works again.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

arm() { echo "$*" >/sys/module/verb_fault/parameters/arm; }
over() { ! kill -0 "$1" 2>/dev/null; }
loaded() { grep -q '^rsmc ' /proc/modules; }
mark="fault stuck $$"
told() { dmesg | sed -n "/$mark/,\$p" | grep -q 'RDMA device rxe_a: unloading waits for queue pair'; }

# connected: a connection that has ended, and left its group and its link behind.
connected() { wait_for 10 timeout 20 stress --mode 0 --short 1 short; }

ktap_plan 8
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
check says_so wait_for 30 told
check_fails waits over "$unloading"
arm off
# In this shell, whose child it is.
wait_for 20 over "$unloading"
check ends over "$unloading"
# What the device has kept back is told now; verb_fault warns if that would call code that is gone.
sleep 1
check_fails gone loaded
loaded || insmod "$RSMC_KO"
for end in a b; do
	ns "$end" rdma link delete "rxe_$end" && ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
done
check after connected
check no_leak sh -c "! dmesg | sed -n '/$mark/,\$p' | grep -q 'could not be drained'"
rmmod verb_fault
ktap_exit
