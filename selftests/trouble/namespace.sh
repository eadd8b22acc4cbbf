#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The names of both namespaces are deleted while programs in them have SMC-R connections under load.
# The programs keep their namespaces, and go on; with their ends the namespaces end, and take their
# devices along. Once all programs end at once, once only the client, whose peer has to notice.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"

# Bytes that the RDMA device of `b` has sent; readable from everywhere.
moved() { cat /sys/class/infiniband/rxe_b/ports/1/hw_counters/sent_bytes; }
moves() {
	before=$(moved)
	sleep 0.2
	[ "$(moved)" -gt "$before" ]
}
no_device() { ! ls /sys/class/infiniband/rxe_* 2>/dev/null; }

# topo NAME: the namespaces afresh.
topo() {
	/rsmc/lab/topo.sh up netns a 1
	check "$1" /rsmc/lab/topo.sh rdma netns
}

# busy NAME: connections under load in namespaces without names.
busy() {
	# A TCP socket whose peer is gone holds its namespace as long as it repeats its FIN.
	for side in a b; do
		ns $side sysctl -qw net.ipv4.tcp_orphan_retries=1
	done
	each=3 pace=0
	[ "${RSMC_LESS:-1}" = 1 ] || each=1 pace=20
	serving "$TMPDIR/server" --mode 0 --eof ok --each $each --pace $pace
	holding "$TMPDIR/client" --mode 0 --eof ok --each $each --pace $pace
	echo "# $1: carrying at $(cut -d' ' -f1 /proc/uptime)"
	check "$1.begun" grep "all .* carry data" "$TMPDIR/client"
	echo "# $1: deleting at $(cut -d' ' -f1 /proc/uptime)"
	ip netns delete a
	ip netns delete b
	check "$1.goes_on" moves
}


ktap_plan 9
busy all_end
pkill -9 survivor
wait "$server" "$client" 2>/dev/null
echo "# both over at $(cut -d' ' -f1 /proc/uptime)"
check all_end.namespaces_gone wait_for 15 no_device
echo "# all gone at $(cut -d' ' -f1 /proc/uptime)"

topo again
busy client_ends
pkill -9 -f 'survivor hold'
ended client_ends.server "$server" "$TMPDIR/server" 15
echo "# server over at $(cut -d' ' -f1 /proc/uptime)"
sed 's/^/# server: /' "$TMPDIR/server"
wait "$client" 2>/dev/null
check client_ends.namespaces_gone wait_for 15 no_device
echo "# all gone at $(cut -d' ' -f1 /proc/uptime)"
topo at_last
ktap_exit
