#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh [--profile NAME] [--engine NAME] [--ports NUMBER] [--granule BYTES] [--no-dma] [--port] PROGRAM [ARGUMENT...]
# Runs a test with a model card (kmod/card) in each of the namespaces a and b
# instead of soft-RoCE; with --port their Ethernet ports join the namespaces, in place of veth. The points are the
# program's. It fails besides if the cards have not carried its bytes, or do not go afterwards.
set -u
parameters= port=
while :; do
	case $1 in
	--profile) parameters="$parameters profile=$2"; shift 2 ;;
	--engine) parameters="$parameters engine=$2"; shift 2 ;;
	--granule) parameters="$parameters granule=$2"; shift 2 ;;
	--ports) parameters="$parameters ports=$2"; shift 2 ;;
	--no-dma) parameters="$parameters dma=0"; shift ;;
	--port) port=1; shift ;;
	*) break ;;
	esac
done

fail() {
	echo "card: $*" >&2
	exit 1
}

modprobe ib_core || fail "no RDMA in this kernel"
# shellcheck disable=SC2086
insmod /rsmc/kmod/card.ko $parameters || fail "card.ko cannot be loaded"
[ -z "$port" ] || /rsmc/lab/topo.sh port netns || fail "no ports"
ip netns exec a rdma link add card_a type card netdev va || fail "no device in a"
ip netns exec b rdma link add card_b type card netdev vb || fail "no device in b"

program=$1
shift
case $program in /*) ;; *) program=/rsmc/$program ;; esac
"$program" "$@"
status=$?

# By name: cards that were added again come in another order.
stats=$(sort /sys/module/card/parameters/stats)
printf '%s\n' "$stats" | sed 's/^/# /'
rdma link delete card_a || fail "card_a cannot be deleted"
rdma link delete card_b || fail "card_b cannot be deleted"
[ -z "$port" ] || /rsmc/lab/topo.sh veth netns || fail "no veth again"
rmmod card || fail "card.ko cannot be unloaded"
case $stats in
*"card_a doorbells "*" bytes "[1-9]*"card_b "*" bytes "[1-9]*) ;;
*) fail "no bytes went by the cards" ;;
esac
case $port$stats in
1*"va doorbells "*" frames "[1-9]*"vb doorbells "*" frames "[1-9]* | [!1]*) ;;
*) fail "no frames went by the ports" ;;
esac
exit "$status"
