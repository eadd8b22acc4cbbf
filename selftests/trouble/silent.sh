#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The network goes silent under SMC-R connections: nothing comes any more, and nobody says why. Who
# sends learns it from the RDMA device, that gives up repeating; who does not send, from the
# probes of his link. Times: Documentation/operator.md.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"

silence() {
	ns a tc qdisc add dev va root netem loss 100% && ns b tc qdisc add dev vb root netem loss 100%
}

speech() {
	ns a tc qdisc del dev va root
	ns b tc qdisc del dev vb root
}

# silent NAME KINDS SECONDS
silent() {
	serving "$TMPDIR/server" --mode 0 --kinds "$2" || not_ok "$1.serving" "$(cat "$TMPDIR/server")"
	if holding "$TMPDIR/client" --mode 0 --kinds "$2" && silence; then
		ok "$1.begun"
	else
		not_ok "$1.begun"
	fi
	ended "$1.client" "$client" "$TMPDIR/client" "$3"
	ended "$1.server" "$server" "$TMPDIR/server" "$3"
	sed 's/^/# client: /' "$TMPDIR/client"
	sed 's/^/# server: /' "$TMPDIR/server"
	speech
	check "$1.smc_again" timeout "$(slow 30)" stress --mode 0 --bulk 1 --short 5 at_once short bulk
}

ktap_plan 12
for side in a b; do
	ns $side sysctl -qw net.smc.smcr_testlink_time=2
	# What is silent so soon after a first contact is remembered as a bad path, and connections after that are TCP's.
	ns $side sysctl -qw net.smc.neighbour_time=0
done
# Repeating is given up after about one second.
silent busy send,receive,both,idle 5
# Two seconds of silence, two more for the answer to the probe or until repeating it is given up.
silent reading receive 6
silent idle idle 6
ktap_exit
