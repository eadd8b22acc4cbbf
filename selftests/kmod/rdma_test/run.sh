#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a guest as root: two namespaces joined by veth, rxe on each end, then
# rdma_test.ko with removals of devices and of the module while queue pairs work.
# usage: run.sh rdma_test.ko [STEP]    prints KTAP, exits 0 when nothing failed
#   ROUNDS=n   removals of a device and of the module (3)
#   STEP       then faults.sh: the first allocation fails, then the one STEP later, and so on

ko=${1:?rdma_test.ko}
step=${2-}
rounds=${ROUNDS:-3}
# Seconds for the removal of a device, on this kernel.
long=$((30 * ${RSMC_SLOW:-1}))
failed=0
points=0
trap 'echo "1..$points"' EXIT
echo "KTAP version 1"

verdict() { # status text
	points=$((points + 1))
	if [ "$1" = 0 ]; then echo "ok $points - $2"; else echo "not ok $points - $2"; failed=1; fi
}

# The kernel's log since this test began.
mark="rdma_test: begin $$ $(date +%s)"
log() { dmesg | sed -n "/$mark/,\$p"; }
logged() { log | grep -c "$1"; }

setup() {
	modprobe -a rdma_rxe veth dummy 2>/dev/null # or built in
	for link in $(rdma link show 2>/dev/null | sed -n 's/^link \([^/]*\).*/\1/p'); do
		rdma link del "$link" # of the guest's own set-up: the module takes the first two
	done
	ip netns add ra
	ip netns add rb
	ip link add va netns ra type veth peer name vb netns rb
	ip -n rb link add dummy0 type dummy # so that the numbers of va and vb differ
	for i in a b; do
		[ $i = a ] && addr=10.9.0.1 || addr=10.9.0.2
		ip -n r$i link set lo up
		ip -n r$i addr add $addr/24 dev v$i
		ip -n r$i link set v$i up
		ip netns exec r$i rdma link add rxe$i type rxe netdev v$i || exit 4
	done
	ip netns exec ra ping -c 1 -W 2 10.9.0.2 >/dev/null
	ip -n ra neigh flush all # the module resolves by itself
}

echo "$mark" >/dev/kmsg
setup
insmod "$ko"
verdict $? "insmod runs the cases"
while read -r line; do
	case $line in
	"not ok "*) verdict 1 "${line#not ok }" ;;
	*) verdict 0 "${line#ok }" ;;
	esac
done <<END
$(log | grep -E 'rdma_test: (ok|not ok)' | sed 's/.*rdma_test: //')
END
[ "$(logged 'rdma_test: ok')" -ge 13 ]
verdict $? "all cases ran"

for round in $(seq "$rounds"); do
	sleep 1
	timeout $long ip netns exec ra rdma link del rxea
	verdict $? "round $round: device deleted under load"
	[ "$(logged 'rdma_test: removed device')" = $((round * 2 - 1)) ]
	verdict $? "round $round: users were revoked"
	timeout $long rmmod rdma_test
	verdict $? "round $round: module removed"

	ip netns exec ra rdma link add rxea type rxe netdev va
	insmod "$ko"
	verdict $? "round $round: loaded again"
	sleep 1
	if [ "$round" = "$rounds" ]; then
		timeout $long rmmod rdma_test
		verdict $? "round $round: module removed under load"
	fi
done

# sent N, errors E, received N: the last pumps must have moved something
log | grep -E 'rdma_test: closing: [0-9]{2,} sent' >/dev/null
verdict $? "the pumps moved data"
[ "$(log | grep -cE 'BUG|WARNING:|Oops|could not be destroyed|still works|hung')" = 0 ]
verdict $? "the kernel has nothing to complain about"
[ "$failed" = 0 ] || log | grep -E 'rdma_test:|BUG|WARNING:|RIP|Call Trace' | tail -n 150 | sed 's/^/# /'
if [ -n "$step" ]; then
	bash "$(dirname "$0")/faults.sh" "$ko" "$step"
	verdict $? "every allocation may fail"
fi
for i in a b; do
	timeout $long ip netns exec r$i rdma link del rxe$i
	verdict $? "nothing holds rxe$i"
done
if grep -q '^rdma_rxe' /proc/modules; then
	timeout $long modprobe -r rdma_rxe
	verdict $? "rdma_rxe unloads"
fi
exit $failed
