#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The lab keeps its promises: addresses, environment, module, barriers.
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 9
check environment test -n "$RSMC_KERNEL" -a -n "$RSMC_SLOW" -a -d "$TMPDIR"
case "$RSMC_KERNEL" in
uml*) is processors "$(nproc)" 1 ;;
*) is processors "$(nproc)" 2 ;;
esac
if [ "$RSMC_TOPO" = netns ]; then
	is role "$RSMC_ROLE" single
	index() { ns "$1" cat "/sys/class/net/$2/ifindex"; }
	check ifindexes_differ test "$(index a va)" != "$(index b vb)"
else
	case "$RSMC_ROLE" in
	client) is role "$RSMC_ADDR" 10.77.0.1 ;;
	*) is role "$RSMC_ADDR" 10.77.0.2 ;;
	esac
	check ifindexes_differ test -e "/sys/class/net/$RSMC_DEV"
fi
barrier start || not_ok barrier
check ping_v4 ns a ping -c 1 -W 5 "$RSMC_PEER_ADDR"
check ping_v6 ns a ping -c 1 -W 5 "$RSMC_PEER_ADDR6"
is module "$(grep -c '^rsmc ' /proc/modules)" 1
check share_is_read_only sh -c '! touch /rsmc/x 2>/dev/null'
if barrier end; then ok barrier; else not_ok barrier; fi
ktap_exit
