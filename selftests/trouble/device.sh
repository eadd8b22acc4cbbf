#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What happens to SMC-R connections when their RDMA device, their link or their namespace goes, with
# data under way: both ends must notice in bounded time, and nothing may be left.
# In `netns`; loads are `stress --mode 0 bulk`, whose other end is a process in namespace `b`.
. "$RSMC_SELFTESTS/lib.sh"

# busy LOG: SMC-R connections under load in the background, which end by themselves when they fail.
busy() {
	# 4 GiB: far more than there is time for.
	timeout "$(slow 70)" stress --mode 0 --bulk 4096 bulk >"$1" 2>&1 &
	load=$!
	sleep "$(slow 2)"
}

# ended LOG NAME SECONDS: the load has ended with an error, in time.
ended() {
	if wait_for "$3" sh -c "! kill -0 $load 2>/dev/null" && grep -q '^not ok' "$1"; then
		ok "$2"
	else
		not_ok "$2" "the load goes on, or ended well" "$(tail -n 5 "$1")"
		kill -9 -- "-$load" 2>/dev/null
	fi
	wait "$load" 2>/dev/null
}

# again NAME: new connections are SMC-R. An end that has not noticed yet that the group is gone
# learns it from the first one, which falls back for that (SYNCERR).
again() {
	timeout "$(slow 20)" stress --mode any --short 1 short >/dev/null 2>&1
	check "$1" timeout "$(slow 60)" stress --mode 0 --bulk 4 --short 20 at_once short bulk
}

ktap_plan 8
again before

busy "$TMPDIR/removed"
ns a rdma link del rxe_a
ended "$TMPDIR/removed" device_removed 15
ns a rdma link add rxe_a type rxe netdev va
again smc_again_after_removal

busy "$TMPDIR/peer_removed"
ns b rdma link del rxe_b
ended "$TMPDIR/peer_removed" peer_device_removed 30
ns b rdma link add rxe_b type rxe netdev vb
again smc_again_after_peer_removal

busy "$TMPDIR/down"
ns a ip link set va down
ended "$TMPDIR/down" link_down 45
ns a ip link set va up
ns a ip -6 addr add fd77::1/64 dev va nodad 2>/dev/null
sleep 2
again smc_again_after_link_down

# Whoever is killed with his namespace leaves nothing; the lab sees whether the module unloads.
busy "$TMPDIR/killed"
# timeout(1) leads a process group.
kill -9 -- "-$load"
wait "$load" 2>/dev/null
ok killed_under_load
ktap_exit
