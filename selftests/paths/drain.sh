#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A peer that takes a byte now and then does not keep what a closed connection has left behind for ever,
# and there may not be more such connections than the administrator says.
. "$RSMC_SELFTESTS/lib.sh"

lost() { ns b sed -n 's/^drains_lost //p' /proc/net/smc_fallback; }
slow_reader() { ns b python3 "$RSMC_SELFTESTS/paths/drain.py" "$RSMC_PEER_ADDR" "$@"; }

ktap_plan 7
ns b sysctl -q net.smc.drain_time=1
check by_the_byte slow_reader 1 ended
is counted "$(lost)" 1
check why sh -c "ip netns exec b rsmc why | grep '^1 connection lost data after close'"
ns b sysctl -q net.smc.drain_time=60 net.smc.max_drains=2
# Two may drain; the third is aborted at once.
check as_many_as_there_may_be slow_reader 3 third
is counted_too "$(lost)" 2
# All of them have ended with their peer, so there is room again.
check none_is_left slow_reader 2 none
is not_counted "$(lost)" 2
ktap_exit
