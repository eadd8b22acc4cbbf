#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# family/exclusive_away.sh PROGRAM [ARGUMENT...]
# PROGRAM in namespaces that may not use the RDMA devices on their own interfaces: in exclusive mode a
# device is for the namespace that it belongs to, and soft-RoCE's belong to the first one. The mode
# can be set only while there are no others.
. "$RSMC_SELFTESTS/lib.sh"
rdma system set netns exclusive || exit 1
ip -batch - <<-END || exit 1
	netns add a
	netns add b
	link add va netns a type veth peer name vb netns b
END
ends() { # NAMESPACE NUMBER
	ip -netns "$1" -batch - <<-END || exit 1
		link set lo up
		addr add 10.77.0.$2/24 dev v$1
		link set v$1 up
	END
	ip netns exec "$1" sysctl -qw net.smc.path=1 || exit 1
	ip netns exec "$1" rdma link add "rxe_$1" type rxe netdev "v$1" || exit 1
}
ends a 1
ends b 2
RSMC_TOPO=netns "$@"
status=$?
# NOSMCDEV, and nothing else.
ip netns exec a cat /proc/net/smc_fallback >&2
ip netns exec a grep -qi '03030000' /proc/net/smc_fallback || status=1
for ns in a b; do
	rdma link delete "rxe_$ns"
	ip netns delete "$ns"
done
wait_for 10 rdma system set netns shared || exit 1
exit $status
