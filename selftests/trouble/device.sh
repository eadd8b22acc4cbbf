#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What happens to SMC-R connections when their RDMA device or their network link goes, with data under
# way: both ends must notice in bounded time, and new connections are SMC-R again.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"

# gone NAME SECONDS COMMAND...: both ends of connections under load notice what COMMAND takes away.
gone() {
	name=$1 seconds=$2
	shift 2
	serving "$TMPDIR/server" --mode 0
	holding "$TMPDIR/client" --mode 0
	if grep -q "all .* carry data" "$TMPDIR/client" && "$@"; then ok "$name.begun"; else not_ok "$name.begun"; fi
	ended "$name.client" "$client" "$TMPDIR/client" "$seconds"
	ended "$name.server" "$server" "$TMPDIR/server" "$seconds"
	sed 's/^/# client: /' "$TMPDIR/client"
	sed 's/^/# server: /' "$TMPDIR/server"
}

# An end that has not noticed yet that the group is gone offers it to the next connection, which falls
# back for that.
again() {
	wait_for 5 timeout 20 stress --mode 0 --short 1 short
	check "$1" timeout "$(slow 60)" stress --mode 0 --bulk 4 --short 20 at_once short bulk
}

# Who loses its address cannot tell the peer by TCP either, which finds out by asking if all its
# connections wait for room. A group keeps the time with which it began.
ns a sysctl -qw net.smc.smcr_testlink_time=2
ns b sysctl -qw net.smc.smcr_testlink_time=2

# An event that is told late, of a port that is back, is no loss: both ends carry on.
stale() {
	serving "$TMPDIR/server" --mode 0
	holding "$TMPDIR/client" --mode 0
	echo "port_error rxe_$2" >/sys/module/verb_fault/parameters/arm || return
	sleep 2
	if grep -q "all .* carry data" "$TMPDIR/client" && ! over "$client" && ! over "$server"; then
		ok "$1"
	else
		not_ok "$1" "$(cat "$TMPDIR/client" "$TMPDIR/server")"
	fi
	for program in "$client" "$server"; do
		pkill -9 -P "$program"
		kill -9 "$program" 2>/dev/null
		wait "$program" 2>/dev/null
	done
}

ktap_plan 18
if [ -e /rsmc/kmod/verb_fault.ko ] && insmod /rsmc/kmod/verb_fault.ko; then
	stale stale_port_error.client a
	stale stale_port_error.server b
	rmmod verb_fault
else
	skip stale_port_error.client "the lab did not build verb_fault.ko"
	skip stale_port_error.server "the lab did not build verb_fault.ko"
fi
gone removed 6 ns a rdma link del rxe_a
ns a rdma link add rxe_a type rxe netdev va
again removed.smc_again

gone peer_removed 6 ns b rdma link del rxe_b
ns b rdma link add rxe_b type rxe netdev vb
again peer_removed.smc_again

gone link_down 12 ns a ip link set va down
ns a ip link set va up
ns a ip -6 addr add fd77::1/64 dev va nodad 2>/dev/null
again link_down.smc_again

# The port stays; what goes is the GID from which the link sends. It may be back soon, so the group is held for 8 s.
gone gid_lost 16 ns a ip addr del 10.77.0.1/24 dev va
ns a ip addr add 10.77.0.1/24 dev va
again gid_lost.smc_again
ktap_exit
