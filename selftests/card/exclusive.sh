#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# exclusive.sh PROGRAM [ARGUMENT...]
# PROGRAM with a model card (kmod/card) in each of the namespaces a and b, which belongs to its namespace alone, and a
# namespace `away` that has nothing: the other mode of the RDMA subsystem, which can be set only while there is no
# namespace but the first. A card is made in that one, and moved. The points are the program's.
. "$RSMC_SELFTESTS/lib.sh"
fail() {
	echo "exclusive: $*" >&2
	exit 1
}

modprobe ib_core || fail "no RDMA in this kernel"
insmod /rsmc/kmod/card.ko || fail "card.ko cannot be loaded"
rdma system set netns exclusive || fail "it cannot be set"
rdma system show | grep -q 'netns exclusive' || fail "it is not set"
ip -batch - <<-END || fail "no namespaces"
	netns add a
	netns add b
	netns add away
	link add dummy0 netns b type dummy
	link add va netns a type veth peer name vb netns b
END
ends() { # NAMESPACE NUMBER
	ip -netns "$1" -batch - <<-END || fail "no addresses in $1"
		link set lo up
		addr add 10.77.0.$2/24 dev v$1
		link set v$1 up
	END
	ip netns exec "$1" rdma link add "card_$1" type card netdev "v$1" || fail "no device for v$1"
	rdma dev set "card_$1" netns "$1" || fail "card_$1 cannot be moved"
	ip netns exec "$1" rdma link show | sed 's/^/# /'
}
ends a 1
ends b 2
rdma link show | grep . && fail "devices are left in the first namespace"

program=$1
shift
case $program in /*) ;; *) program=/rsmc/$program ;; esac
RSMC_TOPO=netns "$program" "$@"
status=$?

for ns in a b; do
	ip netns exec $ns rdma link delete "card_$ns" || fail "card_$ns cannot be deleted"
done
for ns in a b away; do
	ip netns delete $ns
done
wait_for 10 rdma system set netns shared || fail "namespaces are left"
rmmod card || fail "card.ko cannot be unloaded"
exit "$status"
